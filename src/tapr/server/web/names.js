// What a picture is called: by the name that people gave it, by what a machine says it shows, or by its file.

import { make, oneLine } from "./dom.js";

const known = new Map(); // id -> picture: what the page has seen of the gallery

export const see = (pictures) => pictures.forEach((picture) => known.set(picture.id, picture));
export const seen = (id) => known.get(id);

// words of the captioner are a guess: they are told apart, and never offered as something to search for
export const isGuess = ({ metadata, caption }) => !metadata?.name && Boolean(caption);

// a picture that nobody named is called by its file, without its folder; an odd id is shown as it is
export function called({ name: given, id }) {
  const isPath = given === id && /^[\w .-]+(\/[\w .-]+)*\.\w{3,4}$/u.test(id);
  return isPath ? id.replace(/^.*\//, "").replace(/\.\w+$/, "").replaceAll("_", " ") : oneLine(given);
}

// a reference: a picture of the gallery, or one of the visitor's own
export function referenceName({ id, name }) {
  if (id === undefined) return oneLine(name);
  const picture = known.get(id);
  return picture && !isGuess(picture) ? called(picture) : called({ name: id, id });
}

export function nameOf(picture, tag = "span") {
  const guess = isGuess(picture);
  const title = guess || picture.caption ? `${picture.caption} (${picture.id})` : picture.id;
  return make(tag, { className: `name${guess ? " guess" : ""}`, textContent: called(picture), title: oneLine(title), lang: guess ? "en" : null });
}
