// The factors of the score, as the server tells them: their order, colours and signs are decided there. What they are
// called on the page stands in its tables of words; a factor that those do not know is called as the server calls it.

import { lastAsked } from "./asked.js";
import { has, t } from "./i18n.js";
import { markTerm } from "./marks.js";

export let FACTORS = []; // rows: {name, sign, from_words, weight, colour, hint}
export let WORD_FACTORS = []; // the names of those that are said in words; each has a weight
export let ATOM_FACTORS = []; // the names of those that hold atoms: Target is one sentence

export function readFactors(rows) {
  FACTORS = rows;
  WORD_FACTORS = rows.filter((row) => row.from_words).map((row) => row.name);
  ATOM_FACTORS = WORD_FACTORS.filter((name) => name !== "target");
  const colours = new CSSStyleSheet();
  colours.replaceSync(rows.map(rule).join("\n"));
  document.adoptedStyleSheets = [colours];
}

export const defaultWeights = () => Object.fromEntries(FACTORS.filter((row) => row.from_words).map((row) => [row.name, row.weight]));

export const signOf = (name) => FACTORS.find((row) => row.name === name)?.sign ?? 1;

const methodName = (name) => name[0].toUpperCase() + name.slice(1); // as the method, the API and the docs call it

export const factorName = (name) => (has(`factor.${name}`) ? t(`factor.${name}`) : methodName(name));

export const factorHint = ({ name, hint }) => (has(`factor.${name}.hint`) ? t(`factor.${name}.hint`) : hint);

export const factorTitle = (row) => `${methodName(row.name)}: ${factorHint(row)}`;

// what a part of a score is called: an atom by its words, the parts of the reference by what is compared
export function termName(part) {
  const { factor, text, reads } = part;
  if (factor === "target") return `“${text}”`;
  if (factor !== "continuity") return markTerm(part) ?? text;
  const name = t(reads === "global" ? "term.whole" : "term.parts");
  const number = Number(part.id.split(":")[1]) + 1; // of the reference: reference:0:local
  return lastAsked()?.request.more_references ? t("term.of_picture", { name, number }) : name;
}

// on a dark page the same colour, lighter
const rule = ({ name, colour }) => `
  :root { --factor-${name}: light-dark(${colour}, color-mix(in srgb, ${colour}, white 28%)); }
  .factor-${name} { --c: var(--factor-${name}); }`;
