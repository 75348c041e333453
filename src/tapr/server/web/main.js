// The page: a state that is replaced, and what follows from each replacement.

import * as api from "./api.js";
import { ACTIONS } from "./actions.js";
import { setAsked } from "./asked.js";
import { announce, byId, make } from "./dom.js";
import { drawExamples, learn, placeholder } from "./examples.js";
import { facetText, quoted, readTypes, whereOf } from "./facet_text.js";
import { Facets } from "./facets.js";
import { ATOM_FACTORS, readFactors } from "./factor_table.js";
import { Factors } from "./factors.js";
import { LANGUAGES, language, speak, t } from "./i18n.js";
import { MARKS, SIGNS, isFull, withMark } from "./marks.js";
import { see, seen } from "./names.js";
import { ReferencePicker } from "./reference.js";
import { Grid } from "./results.js";
import { SavedSearches } from "./saved.js";
import { Shown } from "./shown.js";
import { ReferenceWeightSlider } from "./reference-weight.js";
import { readOptions } from "./options.js";
import { EMPTY, Store, fromFragment, toFragment } from "./store.js";
import { Sort } from "./sort.js";
import { TimeLimit } from "./time-limit.js";
import { doing, tellCaption, tellGallery, tellPrompt, tellRanking } from "./telling.js";
import { endsTrouble, showTrouble } from "./trouble.js";
import { Viewer } from "./viewer.js";
import { FactorWeights } from "./weights.js";

const K = 24; // pictures of one ranking, and of every "Show more"
const OFFERED = 48;
const SAMPLED = 24; // pictures of the gallery's middle and of its end, to know its words
const PAUSE = 50; // milliseconds: a slider sends its last value, not all of them
const narrow = matchMedia("(max-width: 860px)"); // the results stand below the question

let facts = await firstFacts(); // of the gallery; nothing can be drawn without its factors
readFactors(facts.factors);
readOptions(facts.options);
let restoring = false; // a state that comes from the address
let shown = null; // the ranking on the page, and what it was asked with
let offered = 0; // gallery pictures shown to choose from
let asked = null; // AbortController of the request under way: the latest wins
let timer = 0;
let lastRun = 0;
let factorizerNotes = [];
let lost = false; // the reference is an upload that nobody has any more
let fresh = false; // a search that was asked for: its results are brought into sight

ACTIONS.push({ name: "use", act: choose, closes: true });
for (const name of MARKS) ACTIONS.push({ name, act: (picture) => mark(name, picture), closes: true, sign: SIGNS[name] });
const grid = new Grid(byId("grid"), { open: (id) => viewer.open(id), choose, leave: () => byId("edit").focus() });
const viewer = new Viewer(byId("viewer"), (id) => grid.focus(id));
const picker = new ReferencePicker({
  chosen: setReference, changed: (reference, more_references) => store.change({ reference, more_references }), doing,
  failed: (problem) => showTrouble(problem), most: () => facts.upload_bytes,
});
const store = new Store(fromFragment(location.hash.slice(1)), changed);
const factors = new Factors(byId("factors"), store);
const factorWeights = new FactorWeights(byId("weights"), store);
const weightSlider = new ReferenceWeightSlider(store);
const timeLimit = new TimeLimit(store);
const sorting = new Sort(store);
const facets = new Facets(byId("facets"), store);
const shownWith = new Shown(store);
const saved = new SavedSearches(byId("saved"), (question) => store.change(question));

async function firstFacts() {
  for (;;) {
    try {
      return await api.gallery({});
    } catch (problem) {
      if (!(problem instanceof api.Problem)) throw problem;
      await new Promise((again) => showTrouble(problem, [[t("trouble.again"), again]]));
      showTrouble(null);
    }
  }
}

function setReference(reference) {
  if (lost && reference && store.state.spec) {
    lost = false;
    store.change({ reference }); // the picture that a link could not bring along
    return;
  }
  // a new picture under the same words: the words are read again, the picture may decide what they mean
  const step = Symbol("reference and what it finds");
  tellCaption(null);
  const more_references = reference ? store.state.more_references : [];
  store.change({ reference, more_references, more_like: [], not_like: [], like: false, spec: null, atomWeights: new Map(), off: [], reference_weight: null, factorizer: null }, step);
  if (reference && byId("edit").value.trim()) search(undefined, step);
  else byId("edit").focus({ preventScroll: true });
}

function choose(picture) {
  see([picture]);
  picker.give({ id: picture.id });
  scrollTo({ top: 0, behavior: "smooth" });
}

function mark(name, picture) {
  if (isFull(store.state, name)) return showTrouble(new Error(t("marks.full", { count: store.state[name].length })));
  see([picture]);
  return store.change(withMark(store.state, name, picture.id));
}

const requestOf = (state) => api.rankRequest(timeLimit.asked(state), K, facts.near_duplicates);
const asks = (state) => requestOf(state) && JSON.stringify(requestOf(state));

function changed(state, before) {
  draw(state, before);
  if (asks(state) && asks(state) !== asks(before)) schedule();
  else if (!asks(state)) {
    const loading = byId("grid").querySelector(".ghostly"); // the gallery was still on its way: it is asked for again
    asked?.abort();
    clearTimeout(timer);
    setAsked(null);
    if (loading || asks(before) || whereOf(state) !== whereOf(before)) offer();
    else tellPrompt(state);
  }
}

function draw(state, before = EMPTY) {
  picker.draw(state.reference, state.more_references);
  nameReferences(state);
  factors.draw(state);
  factorWeights.draw(state);
  weightSlider.draw(state);
  timeLimit.draw(state);
  sorting.draw(state);
  facets.draw(state);
  shownWith.draw(state);
  if (String(state.columns) !== String(before.columns)) grid.showColumns(state.columns);
  drawTries(state);
  byId("ask").classList.toggle("asked", Boolean(asks(state)));
  byId("edit-label").textContent = t(state.reference ? "ask.different" : "ask.looking");
  if (state.edit !== before.edit) byId("edit").value = state.edit; // else what is being typed stays
  if (document.activeElement !== byId("where")) byId("where").value = state.where;
  if (whereOf(state)) byId("filter").open = true;
  byId("undo").disabled = !store.canUndo;
  byId("redo").disabled = !store.canRedo;
  byId("share").disabled = !state.reference && !state.spec;
  remember(toFragment(state), state.edit !== before.edit || state.reference !== before.reference);
}

// a link names its references by their ids only: what they are called is asked once
function nameReferences(state) {
  const unknown = [...api.referencesOf(state).map((one) => one.id), ...state.more_like, ...state.not_like].filter((id) => id !== undefined && !seen(id));
  if (!unknown.length) return;
  see(unknown.map((id) => ({ id, name: id })));
  const where = `picture.id in (${unknown.map(quoted).join(", ")})`;
  api.gallery({ where, limit: unknown.length }).then(({ pictures }) => {
    see(pictures);
    picker.draw(store.state.reference, store.state.more_references);
    factors.draw(store.state);
  }, () => {}); // they keep the names of their files
}

function drawTries(state) {
  drawExamples(state, press);
  byId("edit").placeholder = placeholder(state);
}

// a new question is a step of the browser's history, a change of its factors is not
function remember(fragment, isNew) {
  if (fragment === location.hash.slice(1)) return;
  const address = fragment ? `#${fragment}` : location.pathname + location.search;
  if (isNew && !restoring && !history.state?.viewing) history.pushState(null, "", address);
  else history.replaceState(null, "", address);
}

// ranking

function schedule() {
  clearTimeout(timer);
  performance.mark("rerank-start"); // benchmarks/serve.py reads what is measured from here to the drawn grid
  const quiet = performance.now() - lastRun;
  if (quiet > PAUSE) rank();
  else timer = setTimeout(rank, PAUSE - quiet);
}

async function rank() {
  lastRun = performance.now();
  const { state } = store;
  const request = requestOf(state);
  await working(async (signal) => {
    const ranking = await withReferences(state, () => api.rank(request, signal));
    show(ranking, request, state);
    requestAnimationFrame(() => performance.measure("rerank", { start: "rerank-start" }));
  }, rank, { said: t("doing.compare", { count: facts.count }) });
}

function show(ranking, request, state) {
  shown = { ranking, request, state };
  setAsked({ request, words: state.edit });
  grid.show(ranking);
  factorWeights.follow(ranking);
  weightSlider.follow(ranking);
  viewer.follow(ranking, request, api.referencesOf(state));
  further(ranking.hits.length < ranking.searched, t("found.more"), showMore);
  tell(ranking, state);
}

// the next pictures of the same ranking; of the whole ranking, if the gallery has changed since
async function showMore() {
  const { ranking, request, state } = shown;
  await working(async (signal) => {
    const first = ranking.hits.length;
    if (request.budget_ms) return show(await withReferences(state, () => api.rank({ ...request, k: first + K }, signal)), request, state); // another search: what it finds may differ
    const next = await withReferences(state, () => api.rank({ ...request, offset: first }, signal));
    if (next.snapshot !== ranking.snapshot) return rank();
    show({ ...ranking, hits: [...ranking.hits, ...next.hits] }, request, state);
  }, showMore, { said: t("doing.next") });
}

async function search(event, step = null) {
  event?.preventDefault();
  const edit = byId("edit").value.trim();
  const { reference } = store.state;
  if (!reference && !edit) return showTrouble(new Error(t("trouble.nothing")));
  fresh = true;
  adjust(false);
  if (!reference || !edit) return alone(edit, step);
  return working(async (signal) => {
    const { spec, factorizer, notes, caption } = await withReferences(store.state, () => api.factorize(reference, edit, signal));
    const { weights, atom_weights, ...words } = spec;
    factorizerNotes = notes;
    tellCaption(caption);
    const atomWeights = new Map(Object.entries(atom_weights ?? {}));
    const before = asks(store.state);
    store.change({ edit, spec: { ...unread(edit), ...words }, like: false, factorizer, atomWeights, off: [], reference_weight: null, weights: weights ?? facts.weights }, step);
    if (asks(store.state) === before) schedule(); // the same again: this search may have interrupted its ranking
  }, () => search(undefined, step), {
    said: t("doing.read"),
    further: [[t("trouble.by_hand"), () => store.change({ edit, spec: unread(edit), like: false, factorizer: "by hand" })]],
  });
}

// by words alone, as they are written, or by the picture alone: nothing has to be read into factors
function alone(edit, step) {
  factorizerNotes = [];
  tellCaption(null);
  const before = asks(store.state);
  const plain = { atomWeights: new Map(), off: [], reference_weight: null, weights: facts.weights };
  if (edit) store.change({ ...plain, edit, spec: unread(edit), like: false, factorizer: "words alone" }, step);
  else store.change({ ...plain, edit: "", spec: null, like: true, factorizer: null }, step);
  if (asks(store.state) === before) schedule();
}

function press(example) {
  byId("edit").value = example;
  search();
}

const unread = (edit) => ({ target: edit, continuity: null, ...Object.fromEntries(ATOM_FACTORS.map((factor) => [factor, []])) });

async function working(work, retry, { said = null, further = [] } = {}) {
  asked?.abort();
  const mine = new AbortController();
  asked = mine;
  const cleared = endsTrouble(); // an upload may fail meanwhile: that stays
  byId("working").hidden = false;
  doing(said);
  byId("found").setAttribute("aria-busy", "true");
  if (!byId("grid").childElementCount) grid.wait(12);
  try {
    await work(mine.signal);
    if (asked === mine) cleared();
  } catch (problem) {
    const told = problem instanceof api.Problem ? await ofTypedFilter(problem, store.state) : problem;
    if (mine.signal.aborted) return; // something else is asked by now, also while the refusal was being read
    if (!(told instanceof api.Problem)) throw told;
    if (byId("grid").querySelector(".ghostly")) grid.clear();
    const filtered = problem.status === 400 && whereOf(store.state) ? [[t("filter.clear"), clearFilter]] : [];
    showTrouble(told, [...filtered, [t("trouble.again"), retry], ...(problem.status === 404 ? [] : further)]);
  } finally {
    if (asked === mine) {
      byId("working").hidden = true;
      doing(null);
      byId("found").removeAttribute("aria-busy");
    }
  }
}

// sliders and boxes are part of the filter, but nobody typed them: what is refused is asked again without them
async function ofTypedFilter(problem, { where, facets }) {
  if (problem.code !== "bad_filter" || !where || !facetText(facets)) return problem;
  return api.gallery({ where, limit: 0 }).then(() => problem, (own) => own);
}

// an upload that the server has forgotten is sent again, once
async function withReferences(state, act) {
  const uploads = api.referencesOf(state).filter((reference) => reference.key !== undefined);
  try {
    return await act();
  } catch (problem) {
    if (problem.status !== 404 || !uploads.length) throw problem;
    const sent = await Promise.all(uploads.map((reference) => picker.again(reference)));
    if (sent.every(Boolean)) return act();
    lost = true;
    throw new api.Problem(404, t("trouble.not_in_link"));
  }
}

function tell(ranking, state) {
  tellRanking(ranking, state, factorizerNotes);
  byId("clear-filter").hidden = ranking.hits.length > 0 || !whereOf(state);
  if (fresh && narrow.matches) scrollTo({ top: 0 });
  fresh = false;
}

// choosing from the gallery

async function offer(more = false) {
  await working(async (signal) => {
    if (!more) {
      offered = 0;
      grid.wait(12);
    }
    const where = whereOf(store.state);
    const page = await api.gallery({ offset: offered, limit: OFFERED, ...(where && { where }) }, signal);
    if (!more) grid.clear();
    byId("clear-filter").hidden = Boolean(page.count) || !where;
    grid.offer(page.pictures);
    offered += page.pictures.length;
    further(offered < page.count, t("found.more"), () => offer(true));
    if (!where) introduce(page);
    tellPrompt(store.state, where ? { count: page.count, all: facts.count } : null);
    if (!more && !where) know(page);
  }, () => offer(more), { said: t("doing.gallery") });
}

// the gallery's words, for examples: the page works without
async function know({ pictures, count }) {
  learn(pictures, await facetsAsked);
  drawTries(store.state);
  const places = count > OFFERED ? [Math.floor(count / 2), count - SAMPLED] : [];
  const others = await Promise.all(places.map((offset) => api.gallery({ offset, limit: SAMPLED }).then((page) => page.pictures, () => [])));
  learn([...pictures, ...others.flat()], await facetsAsked);
  drawTries(store.state);
}

function further(isThere, label, act) {
  byId("more").hidden = !isThere;
  byId("more").textContent = label;
  byId("more").onclick = act;
}

function clearFilter() {
  byId("where").value = "";
  store.change({ where: "", facets: {} });
}

function introduce(page) {
  facts = page;
  tellGallery(page);
  timeLimit.offer(page);
  byId("filter").hidden = !page.metadata_keys.length;
}

// what the person does

byId("edit-form").onsubmit = search;
byId("edit").onkeydown = (event) => {
  const { value, selectionEnd } = byId("edit");
  if (event.key === "Enter" && !event.shiftKey) search(event);
  else if (event.key === "ArrowDown" && selectionEnd === value.length) {
    event.preventDefault();
    grid.focus(); // from the last line on to the pictures
  }
};
// on a phone what was asked is a bar on top, and the rest of the question is behind this button
function adjust(open) {
  byId("ask").classList.toggle("open", open);
  byId("adjust").setAttribute("aria-expanded", String(open));
}
byId("adjust").onclick = () => adjust(!byId("ask").classList.contains("open"));
byId("language").replaceChildren(...Object.entries(LANGUAGES).map(([value, textContent]) => make("option", { value, textContent, lang: value, selected: value === language })));
byId("language").onchange = () => speak(byId("language").value);
byId("clear-filter").onclick = clearFilter;
byId("where").onchange = () => store.change({ where: byId("where").value.trim() });
byId("undo").onclick = () => store.undo();
byId("redo").onclick = () => store.redo();
byId("share").onclick = async () => {
  const uploaded = store.state.reference && store.state.reference.id === undefined;
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    getSelection().removeAllRanges();
    announce(t("share.not_allowed"));
    return;
  }
  byId("share").textContent = t(uploaded ? "share.copied_without" : "share.copied");
  announce(byId("share").textContent);
  setTimeout(() => (byId("share").textContent = t("tools.share")), 2500);
};
addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input[type=text], input[type=number], textarea, dialog");
  const letter = event.key.toLowerCase();
  if (writing) return;
  if (event.key === "/" && !event.ctrlKey) byId("edit").focus();
  else if ((event.ctrlKey || event.metaKey) && letter === "z") event.shiftKey ? store.redo() : store.undo();
  else if ((event.ctrlKey || event.metaKey) && letter === "y") store.redo();
  else return;
  event.preventDefault();
});
addEventListener("hashchange", () => {
  restoring = true;
  store.change(fromFragment(location.hash.slice(1)));
  restoring = false;
});

const facetsAsked = facts.metadata_keys.length ? api.facets().then((reply) => reply.facets, () => []) : Promise.resolve([]); // the filter works without
introduce(facts);
shownWith.read(facts.metadata_keys);
sorting.read(facts.metadata_keys);
readTypes(facts.column_types);
facetsAsked.then((read) => facets.read(read));
draw(store.state);
byId("ask").inert = false;
saved.begin();
if (asks(store.state)) schedule();
else {
  const offered = offer();
  const first = asked;
  await offered;
  if (store.state.edit && asked === first) search(); // unless something else was asked meanwhile
}
