// Saved searches: save the one on the page, see what is new, run one, delete one. A visitor who may not write sees the list.

import * as api from "./api.js";
import { lastAsked, onAsked } from "./asked.js";
import { announce, byId, make } from "./dom.js";
import { t } from "./i18n.js";
import { MARKS } from "./marks.js";
import { showTrouble } from "./trouble.js";

const SHORT = 64; // characters of a name, as the server allows
const NOT_IN_A_NAME = /[^\p{L}\p{M}\p{N} ._-]+/gu;

export class SavedSearches {
  #searches = [];
  #mayWrite = false;

  // `run` gets what the page becomes: a part of its state
  constructor(place, run) {
    this.place = place;
    this.run = run;
    byId("save-form").onsubmit = (event) => {
      event.preventDefault();
      this.#save(byId("save-name").value.trim());
    };
    place.ontoggle = () => place.open && this.#trying(() => this.#read());
    onAsked(() => this.#draw());
  }

  // what this visitor may do, and what there is; the page works without
  async begin() {
    const { galleries } = await api.galleries().catch(() => ({ galleries: [] }));
    const mine = galleries.find((one) => one.name === api.chosen) ?? galleries[0];
    this.#mayWrite = Boolean(mine?.may_write);
    await this.#read().catch(() => {});
  }

  async #read() {
    this.#searches = (await api.searches()).searches;
    this.#draw();
  }

  #draw() {
    const asked = lastAsked();
    const maySave = this.#mayWrite && asked !== null;
    this.place.hidden = !maySave && !this.#searches.length;
    byId("save-form").hidden = !maySave;
    if (maySave && document.activeElement !== byId("save-name")) byId("save-name").value = nameFor(asked.words);
    byId("saved-list").replaceChildren(...this.#searches.map((search) => this.#item(search)));
  }

  #item(search) {
    const { name, matches } = search;
    const run = make("button", { type: "button", className: "quiet saved-name", textContent: name, title: search.words ?? search.spec.target, "aria-label": t("saved.run", { name }), disabled: !stateOf(search) });
    run.onclick = () => this.#trying(async () => {
      await api.runSearch(name); // the server keeps the pictures of what it ran
      this.place.open = false;
      this.run(stateOf(search));
    });
    const count = make("span", { className: `small ${matches ? "new-matches" : "soft"}`, textContent: t("saved.new", { count: matches }) });
    const feed = make("a", { className: "quiet", href: api.feedUrl(name), textContent: t("saved.feed"), "aria-label": t("saved.feed_of", { name }) });
    const remove = make("button", { type: "button", className: "quiet", textContent: t("saved.delete"), "aria-label": t("saved.delete_of", { name }), hidden: !this.#mayWrite });
    remove.onclick = () => this.#trying(async () => {
      await api.deleteSearch(name);
      announce(t("saved.deleted", { name }));
      await this.#read();
      this.place.querySelector("summary").focus();
    });
    return make("li", {}, run, count, make("span", { className: "saved-acts" }, feed, remove));
  }

  #save(name) {
    const { request, words } = lastAsked();
    const { near_duplicates, budget_ms, ...question } = request; // new pictures are compared without a limit
    return this.#trying(async () => {
      await api.saveSearch(name, { ...question, ...(request.spec ? {} : { like: true }), ...(words && { words }) });
      announce(t("saved.done", { name }));
      await this.#read();
    });
  }

  async #trying(work) {
    try {
      await work();
      showTrouble(null);
    } catch (problem) {
      if (!(problem instanceof api.Problem)) throw problem;
      this.place.open = false; // the trouble stands below it
      showTrouble(problem);
    }
  }
}

const nameFor = (words) => (words ?? "").replace(NOT_IN_A_NAME, " ").replace(/\s+/g, " ").trim().slice(0, SHORT).trim();

// a saved search as a part of the page's state; null: it has marked pictures that the gallery does not have
function stateOf({ words, spec: { atom_weights, ...spec }, weights, reference_weight, where, pictures }) {
  const of = (role) => pictures.filter((one) => one.role === role);
  if (MARKS.some((mark) => of(mark).some((one) => one.id === null || one.crop))) return null;
  const [reference = null, ...more_references] = of("reference").map(({ id, key, crop }) =>
    ({ ...(id === null ? { key, name: t("reference.uploaded") } : { id }), ...(crop && { crop }) }));
  const marks = Object.fromEntries(MARKS.map((mark) => [mark, of(mark).map((one) => one.id)]));
  const question = { reference, more_references, ...marks, edit: words ?? "", where: where ?? "", facets: {}, off: [] };
  if (!spec.target) return { ...question, spec: null, like: true, atomWeights: new Map(), reference_weight: null, factorizer: null };
  return { ...question, spec: { continuity: null, ...spec }, like: false, weights, reference_weight, factorizer: null, atomWeights: new Map(Object.entries(atom_weights ?? {})) };
}
