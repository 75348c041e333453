// The factors of the score, as the server tells them: their order, colours and hints are decided there.

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

// on a dark page the same colour, lighter
const rule = ({ name, colour }) => `
  :root { --factor-${name}: light-dark(${colour}, color-mix(in srgb, ${colour}, white 28%)); }
  .factor-${name} { --c: var(--factor-${name}); }`;
