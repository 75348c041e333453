// One slider, from "more like the words" to "more like the picture". It stands where the server put it, until moved.

import { byId } from "./dom.js";

export class ReferenceWeightSlider {
  #ranked = null; // {reference_weight, reference_weight_notes} of the last ranking

  constructor(store) {
    this.store = store;
    const slider = byId("reference-weight-slider");
    slider.oninput = () => store.change({ reference_weight: Number(slider.value) }, "reference_weight");
    byId("reference-weight-automatic").onclick = () => {
      slider.focus({ preventScroll: true }); // the button goes
      store.change({ reference_weight: null });
    };
  }

  follow(ranking) {
    this.#ranked = ranking;
    this.draw(this.store.state);
  }

  draw(state) {
    const own = state.reference_weight !== null;
    const reference_weight = own ? state.reference_weight : this.#ranked?.reference_weight ?? null;
    byId("reference-weight").hidden = !state.spec || reference_weight === null;
    byId("reference-weight-automatic").hidden = !own;
    if (byId("reference-weight").hidden) return;
    const shown = `${reference_weight.toFixed(2)}, ${chosenBy(state)}`;
    byId("reference-weight-slider").value = reference_weight;
    byId("reference-weight-slider").setAttribute("aria-valuetext", shown);
    byId("reference-weight-value").textContent = shown;
    byId("reference-weight-note").textContent = own ? "" : this.#ranked.reference_weight_notes.join(" · ");
  }
}

function chosenBy(state) {
  if (state.reference_weight !== null) return "your choice";
  return state.spec.continuity === null ? "automatic" : "from the edit";
}
