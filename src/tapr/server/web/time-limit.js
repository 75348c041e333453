// A limit on the time of a search, where the gallery has a first stage: the best that is found in so many milliseconds.

import { byId } from "./dom.js";
import { t } from "./i18n.js";

export class TimeLimit {
  #offered = false;

  constructor(store) {
    const field = byId("budget-ms");
    field.placeholder = t("budget.none");
    field.onchange = () => {
      const most = Number(field.max);
      const number = Math.min(field.valueAsNumber, most);
      store.change({ budget_ms: number > 0 ? number : null });
      this.draw(store.state); // what is no limit does not stay
    };
  }

  offer(gallery) {
    this.#offered = gallery.first_stage;
  }

  draw(state) {
    byId("budget").hidden = !this.#offered;
    byId("budget-ms").value = state.budget_ms ?? "";
  }

  // the question without a limit that this gallery cannot keep, such as that of a link
  asked(state) {
    return this.#offered ? state : { ...state, budget_ms: null };
  }
}
