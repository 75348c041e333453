// What the page says of the gallery, of what was found, and of what to do next.

import { announce, byId, make, oneLine } from "./dom.js";
import { whereOf } from "./facet_text.js";
import { t } from "./i18n.js";
import { called } from "./names.js";
import { isDetail, isProof, told } from "./notes.js";

const SEARCHED_BY = { "words alone": "found.by_words", "a picture alone": "found.by_picture" };
const touched = matchMedia("(pointer: coarse)"); // by fingers: nothing is dropped or pasted

export function tellGallery(page) {
  byId("gallery-folder").textContent = `${page.name} · `;
  byId("gallery-count").textContent = t("gallery.count", { count: page.count });
  tellFacts(page);
  const columns = page.metadata_keys.map((name) => `${oneLine(name)} (${t(`column.${page.column_types[name]}`)})`);
  byId("where-keys").textContent = t("filter.columns", { columns: `${columns.join(", ")}, id, width, height` });
}

// by what was searched, and how fast: among the details
function tellFacts({ encoder, extractor, factorizer, kernel }, more = []) {
  const parts = [`${t("facts.encoder")} ${encoder} (${extractor})`, `${t("facts.factorizer")} ${factorizer}`, `${t("facts.kernel")} ${kernel}`];
  byId("facts").textContent = [...parts, ...more].join(" · ");
}

export function tellRanking(ranking, state, factorizerNotes) {
  const [first] = ranking.hits;
  const milliseconds = 1000 * Object.values(ranking.seconds).reduce((total, value) => total + value, 0);
  const nothing = whereOf(state) ? "found.filtered_out" : "found.nothing";
  const title = first ? t("found.top", { shown: ranking.hits.length, all: ranking.searched }) : t(nothing);
  byId("found-title").textContent = title;
  const beside = ranking.reference_weight === null ? [] : ranking.reference_weight_notes; // shown at the slider
  const by = SEARCHED_BY[ranking.searched_by] ? [t(SEARCHED_BY[ranking.searched_by])] : [];
  const notes = [...new Set([...factorizerNotes, ...ranking.notes])].filter((note) => !beside.includes(note) && !isProof(note));
  byId("found-note").textContent = [...by, ...proofOf(ranking), ...notes.filter((note) => !isDetail(note)).map(told)].join(" · ");
  tellFacts({ ...ranking, factorizer: state.factorizer ?? t("facts.given") }, [...readOf(ranking), `${milliseconds.toFixed(0)} ms`, ...notes.filter(isDetail)]);
  announce(first ? `${title}; ${t("found.first", { name: called(first) })}` : title);
}

// of a search by a first stage: whether these are the best of all; and, among the details, how many pictures it read
const proofOf = ({ prefilter }) => (prefilter ? [prefilter.proven ? t("found.proven") : t("found.open", { count: prefilter.open })] : []);
const readOf = ({ prefilter }) => (prefilter ? [t("facts.read", { read: prefilter.read, all: prefilter.pictures })] : []);

// before anything is asked; `kept` says how many meet the filter, where there is one
export function tellPrompt(state, kept = null) {
  byId("found-title").textContent = t(state.reference ? "prompt.different" : "prompt.start");
  const how = state.reference ? t("prompt.or_alike") : t(touched.matches ? "prompt.finger" : "prompt.mouse");
  byId("found-note").textContent = [...(kept ? [t("found.kept", kept)] : []), how].join(" · ");
}

// what the captioner says of the reference: the words that the edit was applied to. A guess that is not sure is not told
export function tellCaption(caption) {
  const place = byId("caption");
  place.hidden = !caption?.sure;
  const [before, after] = t("reference.shows", { caption: "\n" }).split("\n");
  place.replaceChildren(before, make("i", { className: "guess", textContent: caption?.text ?? "", lang: "en" }), after);
}

// what is being done, for as long as it takes
export function doing(text) {
  byId("doing").hidden = !text;
  byId("doing").textContent = text ?? "";
}
