// "Fine-tune": a row per factor with its switch and its weight. What comes from the reference has its slider above.

import { byId, make } from "./dom.js";
import { FACTORS, WORD_FACTORS, factorHint, factorName, factorTitle, termName } from "./factor_table.js";
import { t } from "./i18n.js";
import { marksOf } from "./marks.js";
import { recall, remember } from "./memory.js";

export class FactorWeights {
  #drawn = null; // the structure on the page; while it stands, sliders under the pointer are left alone
  #ranked = null; // the last ranking with hits: it tells what of the reference counted, and how much

  constructor(place, store) {
    this.place = place;
    this.store = store;
    const fold = byId("fine-tune");
    fold.open = recall("fine-tune") === "open";
    fold.ontoggle = () => remember("fine-tune", fold.open ? "open" : "closed");
  }

  draw(state) {
    if (!state.spec) return;
    const rows = FACTORS.filter((row) => state.reference || !row.of_picture || state.spec[row.name]?.length || marksOf(state, row.name).length);
    const structure = JSON.stringify([state.off, rows.map((row) => row.name)]);
    if (structure !== this.#drawn) {
      const focused = this.place.contains(document.activeElement) ? document.activeElement.id : null;
      this.#drawn = structure;
      this.place.replaceChildren(...rows.map((row) => (row.from_words ? this.#words(state, row) : this.#picture(row))));
      this.#fillPicture();
      if (focused) byId(focused)?.focus();
    }
    for (const factor of WORD_FACTORS) {
      const slider = byId(`weight-${factor}`);
      if (!slider) continue;
      slider.value = state.weights[factor];
      slider.nextElementSibling.value = state.weights[factor].toFixed(2);
    }
  }

  follow(ranking) {
    if (ranking.hits.length) this.#ranked = ranking;
    this.#fillPicture();
  }

  #words(state, row) {
    const factor = row.name;
    const off = state.off.includes(factor);
    const toggle = make("input", { type: "checkbox", role: "switch", id: `switch-${factor}`, checked: !off, "aria-label": t("weight.use", { factor: factorName(factor) }) });
    toggle.onchange = () => {
      const others = this.store.state.off.filter((name) => name !== factor);
      this.store.change({ off: toggle.checked ? others : [...others, factor] });
    };
    const slider = make("input", { type: "range", id: `weight-${factor}`, min: 0, max: 2, step: 0.05, disabled: off, "aria-label": t("weight.of", { factor: factorName(factor) }) });
    slider.oninput = () => {
      const weights = { ...this.store.state.weights, [factor]: Number(slider.value) };
      this.store.change({ weights }, `weight ${factor}`);
    };
    return make("div", { className: `weight factor-${factor}${off ? " off" : ""}` },
      make("label", { className: "switch", title: factorTitle(row) }, toggle, make("b", { textContent: factorName(factor) })),
      slider, make("output", { className: "small", htmlFor: slider.id }));
  }

  // what comes from the reference picture has no words to change
  #picture(row) {
    const element = make("div", { className: `weight factor-${row.name}` },
      make("b", { className: "weight-name", textContent: factorName(row.name), title: factorTitle(row) }),
      make("ul", { className: "chips" }), make("output", { className: "small" }), hint(row));
    element.dataset.picture = row.name;
    return element;
  }

  #fillPicture() {
    if (!this.#ranked) return;
    for (const row of this.place.querySelectorAll("[data-picture]")) {
      const parts = this.#ranked.hits[0].contributions.filter((part) => part.factor === row.dataset.picture);
      const title = (part) => t(part.reads === "global" ? "term.whole.hint" : "term.parts.hint");
      row.querySelector(".chips").replaceChildren(...parts.map((part) =>
        make("li", {}, make("span", { className: "chip fixed", textContent: termName(part), title: title(part) }))));
      row.querySelector("output").value = this.#ranked.reference_weight?.toFixed(2) ?? "";
    }
  }
}

const hint = (row) => make("span", { className: "soft small weight-hint", textContent: factorHint(row) });
