// The page: a state that is replaced, and what follows from each replacement.

import * as api from "./api.js";
import { announce, byId, oneLine } from "./dom.js";
import { drawExamples, wordsOf } from "./examples.js";
import { readTypes, whereOf } from "./facet_text.js";
import { Facets } from "./facets.js";
import { ATOM_FACTORS, readFactors } from "./factor_table.js";
import { Factors } from "./factors.js";
import { ReferencePicker } from "./reference.js";
import { Grid, endsTrouble, showTrouble } from "./results.js";
import { Shown } from "./shown.js";
import { ReferenceWeightSlider } from "./reference-weight.js";
import { readOptions } from "./options.js";
import { EMPTY, Store, fromFragment, toFragment } from "./store.js";
import { Viewer } from "./viewer.js";

const K = 24; // pictures of one ranking, and of every "Show more"
const OFFERED = 48;
const PAUSE = 50; // milliseconds: a slider sends its last value, not all of them
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const touched = matchMedia("(pointer: coarse)"); // by fingers: nothing is dropped or pasted
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
let words = []; // examples of what the gallery shows
let fresh = false; // a search that was asked for: its results are brought into sight

const grid = new Grid(byId("grid"), { open: (id) => viewer.open(id), choose });
const viewer = new Viewer(byId("viewer"), choose);
const picker = new ReferencePicker({
  chosen: setReference, changed: (reference, more_references) => store.change({ reference, more_references }), doing,
  failed: (problem) => showTrouble(problem), most: () => facts.upload_bytes,
});
const store = new Store(fromFragment(location.hash.slice(1)), changed);
const factors = new Factors(byId("factors"), store);
const weightSlider = new ReferenceWeightSlider(store);
const facets = new Facets(byId("facets"), store);
const shownWith = new Shown(store);

async function firstFacts() {
  for (;;) {
    try {
      return await api.gallery({});
    } catch (problem) {
      if (!(problem instanceof api.Problem)) throw problem;
      await new Promise((again) => showTrouble(problem, [["Try again", again]]));
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
  store.change({ reference, more_references, like: false, spec: null, atomWeights: new Map(), off: [], reference_weight: null, factorizer: null }, step);
  if (reference && byId("edit").value.trim()) search(undefined, step);
  else byId("edit").focus({ preventScroll: true });
}

function choose(picture) {
  picker.give({ id: picture.id });
  scrollTo({ top: 0, behavior: "smooth" });
}

const requestOf = (state) => api.rankRequest(state, K, facts.alike);
const asks = (state) => requestOf(state) && JSON.stringify(requestOf(state));

function changed(state, before) {
  draw(state, before);
  if (asks(state) && asks(state) !== asks(before)) schedule();
  else if (!asks(state)) {
    asked?.abort();
    clearTimeout(timer);
    if (asks(before) || whereOf(state) !== whereOf(before)) offer();
    else prompt(state);
  }
}

function draw(state, before = EMPTY) {
  picker.draw(state.reference, state.more_references);
  factors.draw(state);
  weightSlider.draw(state);
  facets.draw(state);
  shownWith.draw(state);
  if (String(state.columns) !== String(before.columns)) grid.showColumns(state.columns);
  drawExamples(state, words, press);
  byId("edit-label").textContent = state.reference ? "What should be different?" : "What are you looking for?";
  byId("edit").placeholder = state.reference ? "the same, but at night" : "a dog on a beach";
  if (state.edit !== before.edit) byId("edit").value = state.edit; // else what is being typed stays
  if (document.activeElement !== byId("where")) byId("where").value = state.where;
  if (whereOf(state)) byId("filter").open = true;
  byId("undo").disabled = !store.canUndo;
  byId("redo").disabled = !store.canRedo;
  byId("share").disabled = !state.reference && !state.spec;
  remember(toFragment(state), state.edit !== before.edit || state.reference !== before.reference);
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
  }, rank, { said: `Comparing ${facts.count.toLocaleString()} pictures …` });
}

function show(ranking, request, state) {
  shown = { ranking, request, state };
  grid.show(ranking);
  factors.follow(ranking);
  weightSlider.follow(ranking);
  viewer.follow(ranking, request, api.referencesOf(state));
  further(ranking.hits.length < ranking.searched, "Show more", showMore);
  tell(ranking, state);
}

// the next pictures of the same ranking; of the whole ranking, if the gallery has changed since
async function showMore() {
  const { ranking, request, state } = shown;
  await working(async (signal) => {
    const next = await withReferences(state, () => api.rank({ ...request, offset: ranking.hits.length }, signal));
    if (next.snapshot !== ranking.snapshot) return rank();
    show({ ...ranking, hits: [...ranking.hits, ...next.hits] }, request, state);
  }, showMore, { said: "Fetching the next pictures …" });
}

async function search(event, step = null) {
  event?.preventDefault();
  const edit = byId("edit").value.trim();
  const { reference } = store.state;
  if (!reference && !edit) return showTrouble(new Error("choose a picture, say in words what you are looking for, or both"));
  fresh = true;
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
    said: "Reading the picture and your words …",
    further: [["Write the factors yourself", () => store.change({ edit, spec: unread(edit), like: false, factorizer: "by hand" })]],
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

// what the captioner says of the reference: the words that the edit was applied to
function tellCaption(caption) {
  byId("caption").hidden = !caption;
  byId("caption").textContent = caption ? `The picture: ${caption.text}${caption.sure ? "" : " (unsure)"}` : "";
}

// what is being done, for as long as it takes
function doing(text) {
  byId("doing").hidden = !text;
  byId("doing").textContent = text ?? "";
}

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
    if (problem.name === "AbortError") return;
    if (!(problem instanceof api.Problem)) throw problem;
    if (byId("grid").querySelector(".ghostly")) grid.clear();
    const filtered = problem.status === 400 && whereOf(store.state) ? [["Clear the filter", clearFilter]] : [];
    showTrouble(problem, [...filtered, ["Try again", retry], ...(problem.status === 404 ? [] : further)]);
  } finally {
    if (asked === mine) {
      byId("working").hidden = true;
      doing(null);
      byId("found").removeAttribute("aria-busy");
    }
  }
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
    throw new api.Problem(404, "the reference of this link was uploaded and is not part of the link: choose the picture again");
  }
}

function tell(ranking, state) {
  const [first] = ranking.hits;
  const milliseconds = 1000 * Object.values(ranking.seconds).reduce((total, value) => total + value, 0);
  const filter = whereOf(state);
  const title = first ? `${ranking.hits.length} of ${ranking.searched.toLocaleString()} pictures` : filter ? "No picture meets the filter" : "Nothing was found";
  byId("found-title").textContent = title;
  byId("clear-filter").hidden = Boolean(first) || !filter;
  const beside = ranking.reference_weight === null ? [] : ranking.reference_weight_notes; // shown at the slider
  const by = ranking.searched_by === "a picture and words" ? [] : [`searched by ${ranking.searched_by}`];
  const notes = [...by, ...factorizerNotes, ...ranking.notes].filter((note) => !beside.includes(note));
  byId("found-note").textContent = [...new Set(notes)].join(" · ");
  byId("facts").textContent = `encoder ${ranking.encoder} (${ranking.extractor}) · factorizer ${state.factorizer ?? "given"} · kernel ${ranking.kernel} · ${milliseconds.toFixed(0)} ms`;
  announce(first ? `${title}; first: ${oneLine(first.name)}` : title);
  if (fresh && narrow.matches) byId("found").scrollIntoView({ behavior: calm.matches ? "auto" : "smooth" });
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
    if (!more && !where) words = wordsOf(page.pictures);
    byId("clear-filter").hidden = Boolean(page.count) || !where;
    grid.offer(page.pictures);
    offered += page.pictures.length;
    further(offered < page.count, "Show more pictures", () => offer(true));
    introduce(page);
    prompt(store.state);
    drawExamples(store.state, words, press);
  }, () => offer(more), { said: "Fetching pictures …" });
}

function further(isThere, label, act) {
  byId("more").hidden = !isThere;
  byId("more").textContent = label;
  byId("more").onclick = act;
}

function prompt(state) {
  byId("found-title").textContent = state.reference ? "Now say what should be different" : "Start with a picture, or with words";
  const own = touched.matches ? "Take a photo or choose a picture" : "Drop, paste or choose your own";
  byId("found-note").textContent = state.reference ? "… or press Search for pictures like it." : `${own}, or use one of these as the reference.`;
}

function clearFilter() {
  byId("where").value = "";
  store.change({ where: "", facets: {} });
}

function introduce(page) {
  facts = page;
  byId("gallery-folder").textContent = `${page.name} · `;
  byId("gallery-count").textContent = `${page.count.toLocaleString()} pictures`;
  byId("facts").textContent = `encoder ${page.encoder} (${page.extractor}) · factorizer ${page.factorizer} · kernel ${page.kernel}`;
  byId("filter").hidden = !page.metadata_keys.length;
  const columns = page.metadata_keys.map((name) => `${oneLine(name)} (${page.column_types[name]})`);
  byId("where-keys").textContent = `Columns: ${columns.join(", ")}, id, width, height`;
}

// what the person does

byId("edit-form").onsubmit = search;
byId("edit").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey) search(event);
};
byId("clear-filter").onclick = clearFilter;
byId("where").onchange = () => store.change({ where: byId("where").value.trim() });
byId("undo").onclick = () => store.undo();
byId("redo").onclick = () => store.redo();
byId("share").onclick = async () => {
  const uploaded = store.state.reference.id === undefined;
  const said = uploaded ? "Link copied; your own picture is not part of it" : "Link copied";
  try {
    await navigator.clipboard.writeText(location.href);
  } catch {
    getSelection().removeAllRanges();
    announce("Copying is not allowed here: take the address of this page");
    return;
  }
  announce(said);
  byId("share").textContent = uploaded ? "Copied, without the picture" : "Copied";
  setTimeout(() => (byId("share").textContent = "Copy link"), 2500);
};
addEventListener("keydown", (event) => {
  const writing = event.target.closest?.("input[type=text], textarea, dialog");
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

introduce(facts);
shownWith.read(facts.metadata_keys);
readTypes(facts.column_types);
if (facts.metadata_keys.length) api.facets().then((reply) => facets.read(reply.facets), () => {}); // the filter works without
draw(store.state);
byId("ask").inert = false;
if (asks(store.state)) schedule();
else {
  await offer();
  if (store.state.edit) search();
}
