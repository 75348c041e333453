// In which order the pictures found are shown: the best first, or by a column of the gallery.

import { byId, make, oneLine } from "./dom.js";
import { t } from "./i18n.js";

const DIRECTIONS = ["asc", "desc"];
let names = [];

// the order that is asked for, or null; a link may name a column that this gallery does not have
export const sortOf = ({ sort }) => (DIRECTIONS.some((way) => names.some((name) => sort === `${name} ${way}`)) ? sort : null);

export class Sort {
  constructor(store) {
    byId("sort").onchange = () => store.change({ sort: byId("sort").value });
  }

  read(columns) {
    names = columns;
    byId("sorting").hidden = !columns.length;
    const ways = columns.flatMap((name) => DIRECTIONS.map((way) => make("option", { value: `${name} ${way}`, textContent: t(`sort.${way}`, { column: oneLine(name) }) })));
    byId("sort").replaceChildren(make("option", { value: "", textContent: t("sort.best") }), ...ways);
  }

  draw(state) {
    byId("sort").value = sortOf(state) ?? "";
  }
}
