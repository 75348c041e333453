// Something to try with one press, and what stands in the empty field. Both come from the gallery: what its pictures are
// called and what its columns hold; of edits, only those that its words speak of ("in the snow" where there is snow).

import { byId, make } from "./dom.js";
import { t } from "./i18n.js";
import { called, isGuess } from "./names.js";

const LONGEST = 40; // characters
const MOST = 4;
const SAID = /^(?=.*\p{Ll}{3})[\p{L}\p{N}\p{M} ,.'’&()-]+$/u; // words, not "IMG" or what belongs to a program
const LEAST = 2; // pictures that must speak of it
const EDITS = { // example.edit.NAME in the tables of words -> what the gallery's words must speak of
  blue: /\b(blue|blau\w*|bleue?s?|azul\w*)\b/i,
  black: /\b(black|schwarz\w*|noire?s?|negr[oa]s?)\b/i,
  sleeves: /\b(dress|shirt|blouse|sweater|kleid|hemd|robe|chemise|vestido|camisa)(e?s)?\b/i,
  stripes: /\b(striped?s?|gestreift\w*|ray(é|ée|ure)s?|rayad[oa]s?)\b/i,
  night: /\b(night|nacht|nuit|noche)\b/i,
  snow: /\b(snowy?|schnee|neige|nieve)\b/i,
  beach: /\b(beach|strand|plage|playa)\b/i,
  grass: /\b(grass|gras|herbe|hierba)\b/i,
  people: /\b(people|crowd|leute|menschen|gens|gente)\b/i,
};

let words = []; // what the gallery shows
let edits = []; // names of EDITS

// what the gallery says of itself: some of its pictures, from its beginning to its end, and its columns of few values
export function learn(pictures, facets) {
  const values = facets.filter((facet) => facet.type === "text").flatMap((facet) => facet.values ?? []);
  const spoken = [...new Set(pictures.filter((picture) => !isGuess(picture)).map(asSaid))].filter(isSaid);
  const named = spoken.length ? spoken : values.map((one) => String(one.value)).filter(isSaid);
  words = spread(named);
  const texts = pictures.map((picture) => [called(picture), picture.caption, ...Object.values(picture.metadata ?? {})].filter((text) => typeof text === "string").join(" "));
  const speaking = (pattern) => texts.filter((text) => pattern.test(text)).length + sumOf(values.filter((one) => pattern.test(String(one.value))));
  edits = Object.keys(EDITS).filter((name) => speaking(EDITS[name]) >= LEAST).slice(0, MOST);
}

const sumOf = (values) => values.reduce((total, { count }) => total + count, 0);
const isSaid = (text) => text.length <= LONGEST && SAID.test(text);

function spread(texts) {
  const most = Math.min(MOST, texts.length);
  return Array.from({ length: most }, (_, place) => texts[Math.floor((place * texts.length) / most)]);
}

// a name as one would say it: "robot_toy_02" is "robot toy"
const asSaid = (picture) => called(picture).replaceAll("_", " ").replace(/[ -]*\d+$/, "").trim();

const textsFor = (state) => (state.reference ? edits.map((name) => t(`example.edit.${name}`)) : words);

export function placeholder(state) {
  const [first] = textsFor(state);
  return first ? t("example.such_as", { example: first }) : "";
}

export function drawExamples(state, press) {
  const place = byId("examples");
  const texts = textsFor(state);
  place.hidden = Boolean(state.spec || state.like) || !texts.length;
  if (place.hidden) return;
  place.replaceChildren(...texts.map((text) => {
    const button = make("button", { type: "button", className: "example", textContent: text });
    button.onclick = () => press(text);
    return make("li", {}, button);
  }));
}
