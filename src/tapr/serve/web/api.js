// The server, as functions. A refusal becomes a Problem that carries the server's sentence.

const PATIENCE = 4; // tries while the server is busy

export class Problem extends Error {
  constructor(status, detail) {
    super(detail);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  for (let attempt = 1; ; attempt += 1) {
    let reply;
    try {
      reply = await fetch(path, { credentials: "same-origin", ...options });
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Problem(0, "the server does not answer: is it still running?");
    }
    if (reply.ok) return reply.json();
    if (reply.status === 429 && attempt < PATIENCE) {
      const seconds = Number(reply.headers.get("Retry-After")) || 1;
      await new Promise((done) => setTimeout(done, 1000 * seconds));
      continue;
    }
    const problem = await reply.json().catch(() => ({}));
    throw new Problem(reply.status, problem.detail || `the server answered ${reply.status}`);
  }
}

const named = (reference) =>
  reference.id !== undefined ? { reference_id: reference.id } : { reference_key: reference.key };

function form(fields) {
  const data = new FormData();
  for (const [name, value] of Object.entries(fields)) data.append(name, value);
  return { method: "POST", body: data };
}

export const gallery = (parameters, signal) => ask(`/api/gallery?${new URLSearchParams(parameters)}`, { signal });

export const upload = (file) => ask("/api/references", form({ reference: file }));

export const factorize = (reference, edit, signal) =>
  ask("/api/factorize", { ...form({ ...named(reference), edit }), signal });

export const rank = (request, signal) =>
  ask("/api/rank", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify(request),
    signal,
  });

// what /api/rank is asked for a state of the page
export function rankRequest(state, k) {
  const weights = { ...state.weights };
  for (const factor of state.off) weights[factor] = 0;
  const spec = { ...state.spec };
  if (state.atomWeights.size) spec.atom_weights = Object.fromEntries(state.atomWeights);
  return { ...named(state.reference), spec, weights, stay: state.stay, k, where: state.where || null };
}

export const pictureUrl = (id, size) => `/api/images?${new URLSearchParams({ id, ...(size && { size }) })}`;

export const referenceUrl = (reference, size) =>
  reference.id !== undefined ? pictureUrl(reference.id, size) : `/api/references/${encodeURIComponent(reference.key)}?size=${size}`;

// `term` is one of the contributions, or null for all together; `stay` is what the ranking reported
export function heatUrl(request, stay, term, id) {
  const { spec, weights, reference_id, reference_key } = request;
  const named_weights = Object.entries(weights).map(([factor, weight]) => `${factor}=${weight}`);
  const parameters = { spec: JSON.stringify(spec), weights: named_weights.join(","), overlay: "true", size: "192" };
  if (term) [parameters.factor, parameters.atom] = [term.factor, term.text];
  if (stay !== null) parameters.stay = stay;
  if (reference_id !== undefined) parameters.reference_id = reference_id;
  else parameters.reference_key = reference_key;
  if (id !== undefined) parameters.id = id;
  return `/api/heatmap?${new URLSearchParams(parameters)}`;
}
