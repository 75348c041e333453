// The state of the page, its history, and its form in the address. A state is never changed, only replaced.

import { ATOM_FACTORS, FACTORS } from "./dom.js";

export const EMPTY = Object.freeze({
  reference: null, // {id} of the gallery, or {key, name} of an upload
  edit: "",
  spec: null, // {target, add, preserve, remove}
  factorizer: null, // who made the spec
  atomWeights: {}, // text -> weight within its factor; 1 is not named
  weights: { target: 1, add: 0.5, preserve: 0.5, remove: 0.3 },
  off: [], // factors that are switched off
  where: "",
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

  replace(state) {
    this.#lastKey = null;
    this.#show(state);
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
  if (state.edit) out.set("edit", state.edit);
  if (state.spec) {
    out.set("target", state.spec.target);
    for (const factor of ATOM_FACTORS) for (const atom of state.spec[factor]) out.append(factor, atom);
    out.set("weights", FACTORS.map((factor) => state.weights[factor]).join(","));
    if (state.factorizer) out.set("by", state.factorizer);
  }
  if (state.off.length) out.set("off", state.off.join(","));
  if (Object.keys(state.atomWeights).length) out.set("atoms", JSON.stringify(state.atomWeights));
  if (state.where) out.set("where", state.where);
  return out.toString();
}

export function fromFragment(text) {
  const read = new URLSearchParams(text);
  const state = { ...EMPTY, edit: read.get("edit") ?? "", where: read.get("where") ?? "" };
  if (read.has("r")) state.reference = { id: read.get("r") };
  else if (read.has("upload")) state.reference = { key: read.get("upload"), name: "an uploaded picture" };
  if (read.has("target")) {
    state.spec = { target: read.get("target") };
    for (const factor of ATOM_FACTORS) state.spec[factor] = read.getAll(factor);
    state.factorizer = read.get("by");
  }
  const numbers = (read.get("weights") ?? "").split(",").map(Number);
  if (numbers.length === FACTORS.length && numbers.every((number) => number >= 0 && Number.isFinite(number)))
    state.weights = Object.fromEntries(FACTORS.map((factor, index) => [factor, numbers[index]]));
  state.off = (read.get("off") ?? "").split(",").filter((factor) => FACTORS.includes(factor));
  state.atomWeights = numbersOf(read.get("atoms"));
  return state;
}

function numbersOf(text) {
  try {
    return Object.fromEntries(Object.entries(JSON.parse(text ?? "{}")).filter(([, value]) => typeof value === "number"));
  } catch {
    return {};
  }
}
