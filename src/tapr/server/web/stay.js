// One slider, from "more like the words" to "more like the picture". It stands where the server put it, until moved.

import { byId } from "./dom.js";

export class StaySlider {
  #ranked = null; // {stay, stay_notes} of the last ranking

  constructor(store) {
    this.store = store;
    const slider = byId("stay-slider");
    slider.oninput = () => store.change({ stay: Number(slider.value) }, "stay");
    byId("stay-automatic").onclick = () => {
      slider.focus({ preventScroll: true }); // the button goes
      store.change({ stay: null });
    };
  }

  follow(ranking) {
    this.#ranked = ranking;
    this.draw(this.store.state);
  }

  draw(state) {
    const own = state.stay !== null;
    const stay = own ? state.stay : this.#ranked?.stay ?? null;
    byId("stay").hidden = !state.spec || stay === null;
    byId("stay-automatic").hidden = !own;
    if (byId("stay").hidden) return;
    const shown = `${stay.toFixed(2)}, ${chosenBy(state)}`;
    byId("stay-slider").value = stay;
    byId("stay-slider").setAttribute("aria-valuetext", shown);
    byId("stay-value").textContent = shown;
    byId("stay-note").textContent = own ? "" : this.#ranked.stay_notes.join(" · ");
  }
}

function chosenBy(state) {
  if (state.stay !== null) return "your choice";
  return state.spec.continuity === null ? "automatic" : "from the edit";
}
