// Edits to try with one press: what could be different in the reference, or what the gallery itself shows.

import { byId, make, oneLine } from "./dom.js";

const EDITS = ["in blue", "in black and white", "at night", "in the snow", "without people"];
const LONGEST = 40; // characters
const MOST = 4;

// words that the gallery's own pictures are described by, each in another way
export function wordsOf(pictures) {
  const words = pictures.filter((picture) => picture.name !== picture.id).map((picture) => oneLine(picture.name));
  return [...new Set(words)].filter((text) => text.length <= LONGEST && text.includes(" ")).slice(0, MOST);
}

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
