// The state of the page, its history, and its form in the address. A state is never changed, only replaced.

import { ATOM_FACTORS, WORD_FACTORS, defaultWeights } from "./factor_table.js";
import { t } from "./i18n.js";
import { MARKS, MOST_MARKS } from "./marks.js";

export const EMPTY = Object.freeze({
  reference: null, // {id} of the gallery, or {key, name} of an upload; with crop: [left, top, right, bottom], a part of it
  more_references: [], // further references
  more_like: [], // ids of pictures that were marked: more like these
  not_like: [], // and not like these
  like: false, // a search by the reference alone, without words
  edit: "",
  spec: null, // {target, add, preserve, remove, continuity, readings, kind}
  factorizer: null, // who made the spec
  atomWeights: new Map(), // text -> weight within its factor; 1 is not named. An atom may be called "constructor"
  weights: {}, // of the factors that are said in words
  reference_weight: null, // how much of the reference stays, 0 to 1; null: the server decides
  budget_ms: null, // milliseconds that a search may take; null: as long as it needs
  off: [], // factors that are switched off
  where: "",
  sort: "", // a column and asc or desc; "": the best first
  facets: {}, // column -> [from, to] or {values: [...]}
  columns: [], // of the metadata, shown under the pictures
  apart: false, // pictures that are alike are shown one by one
});
const MOST_STEPS = 200;

export class Store {
  #past = [];
  #future = [];
  #lastKey = null;

  constructor(state, onChange) {
    this.state = state;
    this.onChange = onChange;
  }

  // changes with the same key that follow each other, as those of one slider, are one step of the history
  change(patch, key = null) {
    if (key === null || key !== this.#lastKey) {
      this.#past.push(this.state);
      if (this.#past.length > MOST_STEPS) this.#past.shift();
    }
    this.#lastKey = key;
    this.#future = [];
    this.#show({ ...this.state, ...patch });
  }

  undo() {
    if (this.#past.length) this.#step(this.#past, this.#future);
  }

  redo() {
    if (this.#future.length) this.#step(this.#future, this.#past);
  }

  get canUndo() {
    return this.#past.length > 0;
  }

  get canRedo() {
    return this.#future.length > 0;
  }

  #step(from, to) {
    to.push(this.state);
    this.#lastKey = null;
    this.#show(from.pop());
  }

  #show(state) {
    const before = this.state;
    this.state = state;
    this.onChange(state, before);
  }
}

export function toFragment(state) {
  const out = new URLSearchParams();
  if (state.reference?.id !== undefined) out.set("r", state.reference.id);
  else if (state.reference) out.set("upload", state.reference.key);
  if (state.reference?.crop) out.set("crop", state.reference.crop.join(","));
  if (state.more_references.length) out.set("more_references", JSON.stringify(state.more_references));
  for (const mark of MARKS) for (const id of state[mark]) out.append(mark, id);
  if (state.like) out.set("like", "1");
  if (state.edit) out.set("edit", state.edit);
  if (state.spec) {
    out.set("target", state.spec.target);
    for (const factor of ATOM_FACTORS) for (const atom of state.spec[factor]) out.append(factor, atom);
    if (state.spec.continuity !== null) out.set("continuity", state.spec.continuity);
    if (state.spec.readings) out.set("readings", JSON.stringify(state.spec.readings));
    if (state.spec.kind) out.set("kind", state.spec.kind);
    out.set("weights", WORD_FACTORS.map((factor) => state.weights[factor]).join(","));
    if (state.factorizer) out.set("by", state.factorizer);
  }
  if (state.off.length) out.set("off", state.off.join(","));
  if (state.reference_weight !== null) out.set("reference_weight", state.reference_weight);
  if (state.budget_ms !== null) out.set("budget_ms", state.budget_ms);
  if (state.atomWeights.size) out.set("atoms", JSON.stringify(Object.fromEntries(state.atomWeights)));
  if (state.where) out.set("where", state.where);
  if (state.sort) out.set("sort", state.sort);
  if (Object.keys(state.facets).length) out.set("facets", JSON.stringify(state.facets));
  if (state.columns.length) out.set("columns", JSON.stringify(state.columns));
  if (state.apart) out.set("apart", "1");
  return out.toString();
}

export function fromFragment(text) {
  const read = new URLSearchParams(text);
  const state = { ...EMPTY, weights: defaultWeights(), reference_weight: share(read.get("reference_weight")), edit: read.get("edit") ?? "", where: read.get("where") ?? "", sort: read.get("sort") ?? "" };
  if (read.has("r")) state.reference = { id: read.get("r") };
  else if (read.has("upload")) state.reference = { key: read.get("upload"), name: t("reference.uploaded") };
  const crop = (read.get("crop") ?? "").split(",").map(Number);
  if (state.reference && isBox(crop)) state.reference.crop = crop;
  if (state.reference) state.more_references = [jsonOf(read.get("more_references"), [])].flat().filter((one) => one?.id || one?.key).slice(0, 2);
  for (const mark of MARKS) state[mark] = [...new Set(read.getAll(mark))].slice(0, MOST_MARKS);
  state.not_like = state.not_like.filter((id) => !state.more_like.includes(id));
  state.like = Boolean(state.reference) && read.has("like") && !read.has("target");
  state.facets = facetsOf(jsonOf(read.get("facets"), {}));
  state.columns = [jsonOf(read.get("columns"), [])].flat().map(String);
  state.apart = read.has("apart");
  if (read.has("target")) {
    state.spec = { target: read.get("target"), continuity: share(read.get("continuity")) };
    if (read.has("readings")) state.spec.readings = Object.fromEntries(numbersOf(read.get("readings")));
    if (read.has("kind")) state.spec.kind = read.get("kind");
    for (const factor of ATOM_FACTORS) state.spec[factor] = read.getAll(factor);
    state.factorizer = read.get("by");
  }
  const numbers = (read.get("weights") ?? "").split(",").map(Number);
  if (numbers.length === WORD_FACTORS.length && numbers.every((number) => number >= 0 && Number.isFinite(number)))
    state.weights = Object.fromEntries(WORD_FACTORS.map((factor, index) => [factor, numbers[index]]));
  state.off = (read.get("off") ?? "").split(",").filter((factor) => WORD_FACTORS.includes(factor));
  state.budget_ms = Number(read.get("budget_ms")) > 0 ? Number(read.get("budget_ms")) : null;
  state.atomWeights = numbersOf(read.get("atoms"));
  return state;
}

const numbersOf = (text) => new Map(Object.entries(jsonOf(text, {})).filter(([, value]) => typeof value === "number"));

// what someone wrote into an address may be anything
function jsonOf(text, otherwise) {
  try {
    return JSON.parse(text ?? "null") ?? otherwise;
  } catch {
    return otherwise;
  }
}

const facetsOf = (read) => Object.fromEntries(Object.entries(read).filter(([, chosen]) =>
  Array.isArray(chosen) ? chosen.length === 2 : Array.isArray(chosen?.values) && chosen.values.length > 0));

const isBox = (box) => box.length === 4 && box.every((edge) => edge >= 0 && edge <= 1) && box[0] < box[2] && box[1] < box[3];

// a number from 0 to 1, or null
const share = (text) => (text?.trim() && Number(text) >= 0 && Number(text) <= 1 ? Number(text) : null);
