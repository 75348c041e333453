// Edits to try with one press: what could be different in the reference, or what the gallery itself shows.

import { byId, make } from "./dom.js";
import { called } from "./results.js";

const EDITS = ["in blue", "in black and white", "at night", "in the snow", "without people"];
const LONGEST = 40; // characters
const MOST = 4;
const SAID = /^(?=.*\p{Ll}{3})[\p{L}\p{N}\p{M} ,.'’&()-]+$/u; // words, not "IMG" or what belongs to a program

// words that the gallery's own pictures are called by, from its beginning to its end
export function wordsOf(pictures) {
  const words = [...new Set(pictures.map(spoken))].filter((text) => text.length <= LONGEST && SAID.test(text));
  const most = Math.min(MOST, words.length);
  return Array.from({ length: most }, (_, place) => words[Math.floor((place * words.length) / most)]);
}

// a name as one would say it: "robot_toy_02" is "robot toy"
const spoken = (picture) => called(picture).replaceAll("_", " ").replace(/[ -]*\d+$/, "").trim();

export function drawExamples(state, words, press) {
  const place = byId("examples");
  const texts = state.reference ? EDITS : words;
  place.hidden = Boolean(state.spec || state.like) || !texts.length;
  if (place.hidden) return;
  place.replaceChildren(...texts.map((text) => {
    const button = make("button", { type: "button", className: "example", textContent: text });
    button.onclick = () => press(text);
    return make("li", {}, button);
  }));
}
