// Pictures that a person marked, "More like this" and "Not this one": chips in the rows that they count in.

import { pictureUrl } from "./api.js";
import { lastAsked } from "./asked.js";
import { make } from "./dom.js";
import { t } from "./i18n.js";
import { referenceName } from "./names.js";

export const MARKS = ["more_like", "not_like"]; // options of a search, and parts of the page's state: lists of ids
export const MOST_MARKS = 4; // of each, as the server has it (tapr/options.py)
// a thumb up, a thumb down
export const SIGNS = {
  more_like: "M3.5 10.5v9M7.5 19.5V11l4-7.5c1.4 0 2.3 1.1 2 2.4L12.8 9.5h5.4c1.3 0 2.2 1.2 1.9 2.4l-1.5 6c-.2.9-1 1.6-2 1.6z",
  not_like: "M3.5 13.5v-9M7.5 4.5V13l4 7.5c1.4 0 2.3-1.1 2-2.4l-.7-3.6h5.4c1.3 0 2.2-1.2 1.9-2.4l-1.5-6c-.2-.9-1-1.6-2-1.6z",
};
const ROWS = { preserve: "more_like", remove: "not_like" }; // the factor that they are evidence of
const SIDE = 64; // pixels of a chip's picture, twice what is shown

// the ids that count in a factor
export const marksOf = (state, factor) => (ROWS[factor] ? state[ROWS[factor]] : []);

export const isMarked = (state) => MARKS.some((mark) => state[mark].length > 0);

export const isFull = (state, mark) => state[mark].length >= MOST_MARKS;

// what a search is asked with
export const marksAsked = (state) => Object.fromEntries(MARKS.filter((mark) => state[mark].length).map((mark) => [mark, state[mark]]));

// the state with a picture marked so, and not the other way
export const withMark = (state, mark, id) => ({ ...withoutMark(state, id), [mark]: [...state[mark].filter((other) => other !== id), id] });

export const withoutMark = (state, id) => Object.fromEntries(MARKS.map((mark) => [mark, state[mark].filter((other) => other !== id)]));

// a press takes the mark off again
export function markChip(id, factor, remove) {
  const name = referenceName({ id });
  const chip = make("button", { className: "chip marked", type: "button", title: t("marks.remove", { name }), "aria-label": `${t(`option.${ROWS[factor]}`)}: ${name}. ${t("marks.remove", { name })}` },
    make("img", { src: pictureUrl(id, SIDE), alt: "" }), make("span", { className: "marked-name", textContent: name }), make("span", { className: "cross", textContent: "×", "aria-hidden": "true" }));
  chip.dataset.marked = id;
  chip.onclick = remove;
  chip.onkeydown = (event) => {
    if (event.key !== "Delete" && event.key !== "Backspace") return;
    event.preventDefault();
    remove();
  };
  return chip;
}

// a term of a marked picture -> its name for people; null: another term. Its id is more_like:0:local, say
export function markTerm({ id, reads }) {
  const [mark, number] = id.split(":");
  if (!MARKS.includes(mark)) return null;
  const name = referenceName({ id: lastAsked()?.request[mark]?.[Number(number)] });
  return t(`term.${mark}`, { name, part: t(reads === "global" ? "term.whole" : "term.parts") });
}
