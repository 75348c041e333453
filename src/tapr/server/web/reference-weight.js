// One slider, from "more like the words" to "more like the picture". It stands where the server put it, until moved.

import { byId } from "./dom.js";
import { has, t } from "./i18n.js";
import { told } from "./notes.js";

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
    const shown = t("weight.said", { level: level(reference_weight), by: chosenBy(state) });
    const value = byId("reference-weight-value");
    byId("reference-weight-slider").value = reference_weight;
    byId("reference-weight-slider").setAttribute("aria-valuetext", shown);
    value.textContent = shown;
    value.title = `reference_weight ${reference_weight.toFixed(2)}`;
    byId("reference-weight-note").textContent = own ? "" : why(state, this.#ranked).join(" · ");
  }
}

function level(weight) {
  if (weight === 0) return t("weight.words_only");
  if (weight === 1) return t("weight.picture_only");
  return t(weight < 0.35 ? "weight.words" : weight > 0.65 ? "weight.picture" : "weight.balanced");
}

// the kind of edit, where that decided; else what the server says
function why({ spec }, { reference_weight_notes }) {
  const isKind = (note) => /^(More of the words|Balanced|More of the picture): /.test(note) && has(`kind.${spec.kind}`);
  return reference_weight_notes.map((note) => (isKind(note) ? t(`kind.${spec.kind}`) : told(note)));
}

function chosenBy(state) {
  if (state.reference_weight !== null) return t("weight.by_you");
  return t(state.spec.continuity === null ? "weight.by_rule" : "weight.by_edit");
}
