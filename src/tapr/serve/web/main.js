// The page: a state that is replaced, and what follows from each replacement.

import * as api from "./api.js";
import { announce, byId, oneLine } from "./dom.js";
import { ATOM_FACTORS, readFactors } from "./factor_table.js";
import { Factors } from "./factors.js";
import { ReferencePicker } from "./reference.js";
import { Grid, showTrouble } from "./results.js";
import { StaySlider } from "./stay.js";
import { EMPTY, Store, fromFragment, toFragment } from "./store.js";
import { Viewer } from "./viewer.js";

const K = 24; // pictures of one ranking, and of every "Show more"
const OFFERED = 48;
const PAUSE = 50; // milliseconds: a slider sends its last value, not all of them

let facts = await firstFacts(); // of the gallery; nothing can be drawn without its factors
readFactors(facts.factors);
let restoring = false; // a state that comes from the address
let shown = null; // the ranking on the page, and what it was asked with
let offered = 0; // gallery pictures shown to choose from
let asked = null; // AbortController of the request under way: the latest wins
let timer = 0;
let lastRun = 0;
let factorizerNotes = [];
let lost = false; // the reference is an upload that nobody has any more

const grid = new Grid(byId("grid"), { open: (id) => viewer.open(id), choose });
const viewer = new Viewer(byId("viewer"), choose);
const picker = new ReferencePicker({ chosen: setReference, failed: (problem) => showTrouble(problem), most: () => facts.upload_bytes });
const store = new Store(fromFragment(location.hash.slice(1)), changed);
const factors = new Factors(byId("factors"), store);
const stay = new StaySlider(store);

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
  store.change({ reference, spec: null, atomWeights: new Map(), off: [], stay: null, factorizer: null }, step);
  if (reference && byId("edit").value.trim()) search(undefined, step);
  else byId("edit").focus({ preventScroll: true });
}

function choose(picture) {
  setReference({ id: picture.id });
  scrollTo({ top: 0, behavior: "smooth" });
}

const asks = (state) => state.spec && state.reference && JSON.stringify(api.rankRequest(state, K));

function changed(state, before) {
  draw(state, before);
  if (asks(state) && asks(state) !== asks(before)) schedule();
  else if (!asks(state)) {
    asked?.abort();
    clearTimeout(timer);
    if (asks(before) || state.where !== before.where) offer();
    else prompt(state);
  }
}

function draw(state, before = EMPTY) {
  picker.draw(state.reference);
  factors.draw(state);
  stay.draw(state);
  if (state.edit !== before.edit) byId("edit").value = state.edit; // else what is being typed stays
  if (document.activeElement !== byId("where")) byId("where").value = state.where;
  if (state.where) byId("filter").open = true;
  byId("undo").disabled = !store.canUndo;
  byId("redo").disabled = !store.canRedo;
  byId("share").disabled = !state.reference;
  remember(toFragment(state), state.edit !== before.edit || state.reference !== before.reference);
}

// a new question is a step of the browser's history, a change of its factors is not
function remember(fragment, isNew) {
  if (fragment === location.hash.slice(1)) return;
  const address = fragment ? `#${fragment}` : location.pathname;
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
  const request = api.rankRequest(state, K);
  await working(async (signal) => {
    const ranking = await withReference(state.reference, () => api.rank(request, signal));
    show(ranking, request, state);
    requestAnimationFrame(() => performance.measure("rerank", { start: "rerank-start" }));
  }, rank);
}

function show(ranking, request, state) {
  shown = { ranking, request, state };
  grid.show(ranking);
  factors.follow(ranking);
  stay.follow(ranking);
  viewer.follow(ranking, request, state.reference);
  further(ranking.hits.length < ranking.searched, "Show more", showMore);
  tell(ranking, state);
}

// the next pictures of the same ranking; of the whole ranking, if the gallery has changed since
async function showMore() {
  const { ranking, request, state } = shown;
  await working(async (signal) => {
    const next = await withReference(state.reference, () => api.rank({ ...request, offset: ranking.hits.length }, signal));
    if (next.snapshot !== ranking.snapshot) return rank();
    show({ ...ranking, hits: [...ranking.hits, ...next.hits] }, request, state);
  }, showMore);
}

async function search(event, step = null) {
  event?.preventDefault();
  const edit = byId("edit").value.trim();
  const { reference } = store.state;
  if (!reference) return showTrouble(new Error("choose a reference first: drop a picture, or pick one below"));
  if (!edit) return showTrouble(new Error("say what should be different, such as: the same, but at night"));
  return working(async (signal) => {
    const { spec, factorizer, notes, caption } = await withReference(reference, () => api.factorize(reference, edit, signal));
    const { weights, atom_weights, ...words } = spec;
    factorizerNotes = notes;
    tellCaption(caption);
    const atomWeights = new Map(Object.entries(atom_weights ?? {}));
    const before = asks(store.state);
    store.change({ edit, spec: words, factorizer, atomWeights, off: [], stay: null, weights: weights ?? facts.weights }, step);
    if (asks(store.state) === before) schedule(); // the same again: this search may have interrupted its ranking
  }, () => search(undefined, step), [["Write the factors yourself", () => store.change({ edit, spec: unread(edit), factorizer: "by hand" })]]);
}

const unread = (edit) => ({ target: edit, continuity: null, ...Object.fromEntries(ATOM_FACTORS.map((factor) => [factor, []])) });

// what the captioner says of the reference: the words that the edit was applied to
function tellCaption(caption) {
  byId("caption").hidden = !caption;
  byId("caption").textContent = caption ? `The picture: ${caption.text}${caption.sure ? "" : " (unsure)"}` : "";
}

async function working(work, retry, further = []) {
  asked?.abort();
  const mine = new AbortController();
  asked = mine;
  byId("working").hidden = false;
  byId("found").setAttribute("aria-busy", "true");
  if (!byId("grid").childElementCount) grid.wait(12);
  try {
    await work(mine.signal);
    if (asked === mine) showTrouble(null);
  } catch (problem) {
    if (problem.name === "AbortError") return;
    if (!(problem instanceof api.Problem)) throw problem;
    if (byId("grid").querySelector(".ghostly")) grid.clear();
    showTrouble(problem, [["Try again", retry], ...(problem.status === 404 ? [] : further)]);
  } finally {
    if (asked === mine) {
      byId("working").hidden = true;
      byId("found").removeAttribute("aria-busy");
    }
  }
}

// an upload that the server has forgotten is sent again, once
async function withReference(reference, act) {
  try {
    return await act();
  } catch (problem) {
    if (problem.status !== 404 || reference.key === undefined) throw problem;
    if (await picker.again(reference)) return act();
    lost = true;
    throw new api.Problem(404, "the reference of this link was uploaded and is not part of the link: choose the picture again");
  }
}

function tell(ranking, state) {
  const [first] = ranking.hits;
  const milliseconds = 1000 * Object.values(ranking.seconds).reduce((total, value) => total + value, 0);
  const title = first ? `${ranking.hits.length} of ${ranking.searched.toLocaleString()} pictures` : "No picture meets the filter";
  byId("found-title").textContent = title;
  const beside = ranking.stay === null ? [] : ranking.stay_notes; // shown at the slider
  const notes = [...factorizerNotes, ...ranking.notes].filter((note) => !beside.includes(note));
  byId("found-note").textContent = [...new Set(notes)].join(" · ");
  byId("facts").textContent = `encoder ${ranking.encoder} (${ranking.extractor}) · factorizer ${state.factorizer ?? "given"} · kernel ${ranking.kernel} · ${milliseconds.toFixed(0)} ms`;
  announce(first ? `${title}; first: ${oneLine(first.name)}` : title);
}

// choosing from the gallery

async function offer(more = false) {
  await working(async (signal) => {
    if (!more) {
      offered = 0;
      grid.wait(12);
    }
    const page = await api.gallery({ offset: offered, limit: OFFERED, ...(store.state.where && { where: store.state.where }) }, signal);
    if (!more) grid.clear();
    grid.offer(page.pictures);
    offered += page.pictures.length;
    further(offered < page.count, "Show more pictures", () => offer(true));
    introduce(page);
    prompt(store.state);
  }, () => offer(more));
}

function further(isThere, label, act) {
  byId("more").hidden = !isThere;
  byId("more").textContent = label;
  byId("more").onclick = act;
}

function prompt(state) {
  byId("found-title").textContent = state.reference ? "Now say what should be different" : "Start with a picture";
  byId("found-note").textContent = state.reference ? "… or choose another reference." : "Drop, paste or choose your own, or take one of these as the reference.";
}

function introduce(page) {
  facts = page;
  byId("gallery-name").textContent = `${page.name} · ${page.count.toLocaleString()} pictures`;
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
draw(store.state);
byId("ask").inert = false;
if (store.state.spec && store.state.reference) schedule();
else {
  await offer();
  if (store.state.reference && store.state.edit) search();
}
