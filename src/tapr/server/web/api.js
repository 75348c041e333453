// The server, as functions. A refusal becomes a Problem that carries the server's sentence.

import { whereOf } from "./facet_text.js";
import { sortOf } from "./sort.js";
import { t } from "./i18n.js";
import { marksAsked } from "./marks.js";

const PATIENCE = 4; // tries while the server is busy
const HEAT = "768"; // pixels of the longer side of a heat map

// the gallery that the address of the page names, by its own routes; without a name the plain ones, of the first
export const chosen = new URLSearchParams(location.search).get("gallery");
const BASE = chosen === null ? "/api" : `/api/galleries/${encodeURIComponent(chosen)}`;
export const route = (path) => `${BASE}/${path}`;

export class Problem extends Error {
  // `code` is the server's short name for what is wrong; without one the sentence is the page's own
  constructor(status, detail, code = null) {
    super(detail);
    this.status = status;
    this.code = code;
  }
}

async function ask(path, options = {}) {
  for (let attempt = 1; ; attempt += 1) {
    let reply;
    try {
      reply = await fetch(path, { credentials: "same-origin", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, t("trouble.no_answer"));
    }
    if (reply.ok) return reply.status === 204 ? null : reply.json();
    if (reply.status === 429 && attempt < PATIENCE) {
      const seconds = Number(reply.headers.get("Retry-After")) || 1;
      await new Promise((done) => setTimeout(done, 1000 * seconds));
      continue;
    }
    throw await refusal(reply);
  }
}

export async function refusal(reply) {
  const { detail, code } = await reply.json().catch(() => ({}));
  return new Problem(reply.status, detail || t("trouble.status", { status: String(reply.status) }), detail ? code ?? "" : null);
}

const named = (reference) => ({
  ...(reference.id !== undefined ? { reference_id: reference.id } : { reference_key: reference.key }),
  ...(reference.crop && { crop: reference.crop }),
});

export const referencesOf = (state) => (state.reference ? [state.reference, ...state.more_references] : []);

function form(fields) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value);
  return { method: "POST", body: data };
}

export const gallery = (parameters, signal) => ask(`${BASE}/gallery?${new URLSearchParams(parameters)}`, { signal });

export const galleries = () => ask("/api/galleries");

export const facets = () => ask(route("facets"));

export const upload = (file) => ask(route("references"), form({ reference: file }));

export const factorize = (reference, edit, signal) =>
  ask(route("factorize"), { ...form({ ...named(reference), edit }), signal });

export const rank = (request, signal) =>
  ask(route("rank"), {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
    signal,
  });

const searchAt = (name) => route(`searches/${encodeURIComponent(name)}`);
export const searches = () => ask(route("searches"));
export const saveSearch = (name, question) =>
  ask(searchAt(name), { method: "PUT", headers: { "Content-Type": "application/json" }, body: JSON.stringify(question) });
export const runSearch = (name) => ask(`${searchAt(name)}/results`);
export const deleteSearch = (name) => ask(searchAt(name), { method: "DELETE" });
export const feedUrl = (name) => `${searchAt(name)}/feed`;

// what the server's rank is asked for a state of the page: by a picture and words, or by one of them alone; null: nothing yet
export function rankRequest(state, k, cosine) {
  if (!state.spec && !(state.reference && state.like)) return null;
  const request = { k, where: whereOf(state) || null, sort: sortOf(state), near_duplicates: state.apart ? null : cosine };
  const [first, ...more_references] = referencesOf(state).map(named);
  if (first) Object.assign(request, first, more_references.length ? { more_references } : {});
  Object.assign(request, marksAsked(state));
  if (state.budget_ms !== null) request.budget_ms = state.budget_ms;
  if (!state.spec) return request;
  request.weights = { ...state.weights };
  for (const factor of state.off) request.weights[factor] = 0;
  request.spec = { ...state.spec };
  if (state.atomWeights.size) request.spec.atom_weights = Object.fromEntries(state.atomWeights);
  if (first) request.reference_weight = state.reference_weight;
  return request;
}

export const pictureUrl = (id, size) => `${BASE}/images?${new URLSearchParams({ id, ...(size && { size }) })}`;

export const referenceUrl = (reference, size) =>
  reference.id !== undefined ? pictureUrl(reference.id, size) : `${BASE}/references/${encodeURIComponent(reference.key)}?size=${size}`;

// `term` is one of the contributions, or null for all together; `number` is that of a reference, where there is no id
export function heatUrl(request, ranking, term, id, number = 1) {
  const { k, where, sort, near_duplicates, budget_ms, ...question } = request; // what changes no term
  if (!request.spec) question.like = true;
  else question.reference_weight = ranking.reference_weight;
  const parameters = { question: JSON.stringify(question), snapshot: ranking.snapshot, overlay: "true", size: HEAT };
  if (term) parameters.term = term.id;
  if (id !== undefined) parameters.id = id;
  else if (number > 1) parameters.number = number;
  return `${BASE}/heatmap?${new URLSearchParams(parameters)}`;
}
