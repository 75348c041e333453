// What is shown with a picture: pictures that are alike as one, and chosen columns of the metadata under it.

import { byId, make, oneLine } from "./dom.js";

export class Shown {
  constructor(store) {
    this.store = store;
    byId("fold").onchange = () => store.change({ apart: !byId("fold").checked });
  }

  read(columns) {
    const place = byId("columns");
    place.hidden = !columns.length;
    place.replaceChildren(place.firstElementChild, ...columns.map((name) => {
      const box = make("input", { type: "checkbox" });
      box.dataset.column = name;
      box.onchange = () => {
        const chosen = new Set(this.store.state.columns);
        box.checked ? chosen.add(name) : chosen.delete(name);
        this.store.change({ columns: columns.filter((one) => chosen.has(one)) });
      };
      return make("label", { className: "check" }, box, oneLine(name));
    }));
    this.draw(this.store.state);
  }

  draw(state) {
    byId("fold").checked = !state.apart;
    for (const box of byId("columns").querySelectorAll("input")) box.checked = state.columns.includes(box.dataset.column);
  }
}

// the chosen columns of one picture, as short lines
export function chosenFacts(picture, columns) {
  const known = columns.filter((name) => picture.metadata?.[name] !== undefined && picture.metadata[name] !== null);
  if (!known.length) return null;
  const text = (value) => oneLine(typeof value === "object" ? JSON.stringify(value) : String(value));
  return make("dl", { className: "chosen" }, ...known.map((name) =>
    make("div", {}, make("dt", { textContent: oneLine(name) }), make("dd", { textContent: text(picture.metadata[name]) }))));
}
