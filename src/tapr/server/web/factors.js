// What is looked for, as chips. Target is one sentence; Add, Preserve and Remove hold atoms that are written, moved and
// dropped. How much each counts stands under "Fine-tune" (weights.js).

import { announce, byId, make } from "./dom.js";
import { openChipCard } from "./chip_card.js";
import { draggable } from "./drag.js";
import { ATOM_FACTORS, FACTORS, factorHint, factorName, factorTitle } from "./factor_table.js";
import { t } from "./i18n.js";
import { isMarked, markChip, marksOf, withoutMark } from "./marks.js";
import { seen } from "./names.js";

export class Factors {
  #drawn = null; // the structure on the page: what stands is left alone
  #focus = null; // selector of what to focus after the next drawing
  #writing = null; // the factor whose new atom is being written

  constructor(place, store) {
    this.place = place;
    this.store = store;
  }

  draw(state) {
    byId("fine-tune").hidden = !state.spec;
    this.place.hidden = !state.spec && !isMarked(state);
    if (this.place.hidden) {
      this.#drawn = null;
      return;
    }
    // without a reference there is nothing to keep: a row that speaks of it is left out, unless it holds something
    const rows = FACTORS.filter((row) => row.from_words && (marksOf(state, row.name).length || (state.spec && (state.reference || !row.of_picture || state.spec[row.name]?.length))));
    const marks = rows.map((row) => marksOf(state, row.name).map((id) => [id, seen(id)?.name]));
    const structure = JSON.stringify([state.spec, state.off, state.atomWeights.size, this.#writing, marks]);
    if (structure !== this.#drawn) {
      this.#drawn = structure;
      this.place.replaceChildren(...rows.map((row) => this.#row(state, row)));
      if (this.#focus) this.place.querySelector(this.#focus)?.focus();
      this.#focus = null;
    }
    for (const chip of this.place.querySelectorAll(".chip[data-atom]")) markWeight(chip, state.atomWeights.get(chip.dataset.atom));
  }

  // the first atoms are part of what is looked for: their chips stand under the sentence
  #row(state, row) {
    const off = state.off.includes(row.name) ? " off" : "";
    const below = row.name === ATOM_FACTORS[0];
    const head = make("b", { className: below ? "factor-name unseen" : "factor-name", textContent: factorName(row.name), title: factorTitle(row) });
    const chips = make("ul", { className: "chips" });
    chips.append(...(row.name === "target" ? [this.#target(state)] : this.#atoms(state, row)));
    const section = make("section", { className: `factor factor-${row.name}${off}`, "aria-label": factorName(row.name) }, head, chips);
    section.dataset.factor = row.name;
    return section;
  }

  #target(state) {
    const field = make("textarea", { className: "target-text", rows: 1, maxLength: 600, value: state.spec.target, "aria-label": t("term.target") });
    const keep = () => {
      const target = field.value.trim().replace(/\s+/g, " ");
      if (!target) field.value = this.store.state.spec.target;
      else if (target !== this.store.state.spec.target) this.store.change({ spec: { ...this.store.state.spec, target, readings: undefined } }); // a person's own words count alone
    };
    field.onchange = keep;
    field.onkeydown = (event) => {
      if (event.key !== "Enter" || event.shiftKey) return;
      event.preventDefault();
      this.#focus = ".target-text";
      keep();
    };
    const others = Object.keys(state.spec.readings ?? {});
    const said = others.length ? [make("p", { className: "soft small readings", textContent: t("target.readings", { readings: others.join(" · ") }) })] : [];
    return make("li", { className: "wide" }, field, ...said);
  }

  #atoms(state, row) {
    const factor = row.name;
    const marked = marksOf(state, factor).map((id) => make("li", {}, markChip(id, factor, () => this.unmark(id, factor))));
    if (!state.spec) return marked; // a search by a picture alone has no words
    const items = [...state.spec[factor].map((atom) => make("li", {}, this.#chip(atom, factor))), ...marked];
    if (this.#writing === factor) items.push(make("li", {}, this.#newAtom(factor)));
    else {
      const plus = make("button", { className: "chip plus", type: "button", textContent: "+", "aria-label": t("chip.add", { factor: factorName(factor) }), title: factorHint(row) });
      plus.onclick = () => this.#write(factor);
      items.push(make("li", {}, plus));
    }
    return items;
  }

  #chip(atom, factor) {
    const chip = make("button", { className: "chip", type: "button", "aria-haspopup": "dialog", title: t("chip.hint") },
      make("span", { textContent: atom }), make("span", { className: "times" }));
    chip.dataset.atom = atom;
    chip.onclick = () => openChipCard(chip, atom, factor, this);
    chip.onkeydown = (event) => {
      const step = { ArrowUp: -1, ArrowDown: 1 }[event.key];
      if (event.key === "Delete" || event.key === "Backspace") this.remove(atom, factor);
      else if (event.altKey && step) this.move(atom, factor, ATOM_FACTORS[ATOM_FACTORS.indexOf(factor) + step]);
      else return;
      event.preventDefault();
    };
    draggable(chip, (to) => this.move(atom, factor, to));
    return chip;
  }

  #newAtom(factor) {
    const field = make("input", { type: "text", className: "chip new", maxLength: 160, size: 14, "aria-label": t("chip.new", { factor: factorName(factor) }), placeholder: t("chip.placeholder") });
    const end = (keep) => {
      if (this.#writing !== factor) return;
      this.#writing = null;
      const text = clean(field.value);
      if (keep && text && this.#free(text)) {
        const spec = this.store.state.spec;
        this.store.change({ spec: { ...spec, [factor]: [...spec[factor], text] } });
      } else this.draw(this.store.state);
    };
    field.onkeydown = (event) => {
      if (event.key !== "Enter" && event.key !== "Escape") return;
      event.preventDefault();
      this.#focus = `[data-factor="${factor}"] .plus`;
      end(event.key === "Enter");
    };
    field.onblur = () => end(true);
    return field;
  }

  #write(factor) {
    this.#writing = factor;
    this.#focus = ".chip.new";
    this.draw(this.store.state);
  }

  #free(text, except = null) {
    const spec = this.store.state.spec;
    const home = ATOM_FACTORS.find((factor) => spec[factor].some((atom) => atom !== except && same(atom, text)));
    if (home) announce(t("chip.twice", { text, factor: factorName(home) }));
    return !home;
  }

  // -> the atom's name after it
  rename(atom, factor, text) {
    const wanted = clean(text);
    if (!wanted || wanted === atom || !this.#free(wanted, atom)) return atom;
    const { spec, atomWeights } = this.store.state;
    this.#focus = chipSelector(wanted);
    this.store.change({
      spec: { ...spec, [factor]: spec[factor].map((other) => (other === atom ? wanted : other)) },
      atomWeights: new Map([...atomWeights].map(([other, weight]) => [other === atom ? wanted : other, weight])),
    });
    return wanted;
  }

  weigh(atom, weight) {
    const others = without(this.store.state.atomWeights, atom);
    this.store.change({ atomWeights: weight === 1 ? others : others.set(atom, weight) }, `atom ${atom}`);
  }

  remove(atom, factor) {
    const { spec, atomWeights } = this.store.state;
    this.#focus = `[data-factor="${factor}"] .plus`;
    announce(t("chip.removed", { text: atom, factor: factorName(factor) }));
    this.store.change({ spec: { ...spec, [factor]: spec[factor].filter((other) => other !== atom) }, atomWeights: without(atomWeights, atom) });
  }

  unmark(id, factor) {
    this.#focus = `[data-factor="${factor}"] .plus`;
    this.store.change(withoutMark(this.store.state, id));
  }

  move(atom, from, to) {
    if (!ATOM_FACTORS.includes(to) || to === from) return;
    const { spec } = this.store.state;
    this.#focus = chipSelector(atom);
    announce(t("chip.moved", { text: atom, factor: factorName(to) }));
    this.store.change({ spec: { ...spec, [from]: spec[from].filter((other) => other !== atom), [to]: [...spec[to], atom] } });
  }
}

function markWeight(chip, weight) {
  chip.querySelector(".times").textContent = weight === undefined ? "" : `×${weight.toFixed(1)}`;
}

function without(weights, atom) {
  const others = new Map(weights);
  others.delete(atom);
  return others;
}

const clean = (text) => text.trim().replace(/\s+/g, " ");
const same = (one, other) => one.toLowerCase() === other.toLowerCase();
const chipSelector = (atom) => `[data-atom="${CSS.escape(atom)}"]`;
