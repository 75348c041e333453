// A row per factor: Target is one sentence; Add, Preserve and Remove hold atoms that are written, weighed, moved and
// dropped; Continuity shows what of the reference counts, and its slider stands beside the edit.

import { announce, byId, make, titled } from "./dom.js";
import { openChipCard } from "./chip_card.js";
import { draggable } from "./drag.js";
import { ATOM_FACTORS, FACTORS, WORD_FACTORS } from "./factor_table.js";

export class Factors {
  #drawn = null; // the structure on the page; while it stands, sliders under the pointer are left alone
  #focus = null; // selector of what to focus after the next drawing
  #writing = null; // the factor whose new atom is being written
  #ranked = null; // the last ranking: it tells what of the reference counted, and how much

  constructor(place, store) {
    this.place = place;
    this.store = store;
  }

  draw(state) {
    this.place.hidden = !state.spec;
    if (!state.spec) {
      this.#drawn = null;
      return;
    }
    // without a reference there is nothing to keep: rows that speak of it are left out, unless they hold something
    const rows = FACTORS.filter((row) => state.reference || !row.of_picture || state.spec[row.name]?.length);
    const structure = JSON.stringify([state.spec, state.off, state.atomWeights.size, this.#writing, rows.length]);
    if (structure !== this.#drawn) {
      this.#drawn = structure;
      this.place.replaceChildren(...rows.map((row) => (row.from_words ? this.#words(state, row) : this.#picture(row))));
      this.#fillPicture();
      if (this.#focus) this.place.querySelector(this.#focus)?.focus();
      this.#focus = null;
    }
    for (const factor of WORD_FACTORS) {
      const slider = byId(`weight-${factor}`);
      if (!slider) continue;
      slider.value = state.weights[factor];
      slider.nextElementSibling.value = state.weights[factor].toFixed(2);
    }
    for (const chip of this.place.querySelectorAll(".chip[data-atom]")) markWeight(chip, state.atomWeights.get(chip.dataset.atom));
  }

  follow(ranking) {
    if (ranking.hits.length) this.#ranked = ranking;
    this.#fillPicture();
  }

  // what comes from the reference picture has no words to change
  #picture({ name, hint }) {
    const head = make("div", { className: "factor-head" },
      make("b", { className: "factor-name", textContent: titled(name) }),
      make("span", { className: "soft small", textContent: hint, title: hint }),
      make("output", { className: "small" }));
    return this.#section(name, head, make("ul", { className: "chips" }));
  }

  #fillPicture() {
    if (!this.#ranked) return;
    for (const { name } of FACTORS.filter((row) => !row.from_words)) {
      const row = this.place.querySelector(`[data-factor="${name}"]`);
      if (!row) continue;
      const parts = this.#ranked.hits[0].contributions.filter((part) => part.factor === name);
      const title = (part) => (part.reads === "global" ? "compared as a whole: it has no place in a picture" : "compared place by place");
      row.querySelector(".chips").replaceChildren(...parts.map((part) =>
        make("li", {}, make("span", { className: "chip fixed", textContent: part.text, title: title(part) }))));
      row.querySelector("output").value = this.#ranked.reference_weight?.toFixed(2) ?? "";
    }
  }

  #section(factor, head, chips, off = false) {
    const section = make("section", { className: `factor factor-${factor}${off ? " off" : ""}`, "aria-label": titled(factor) }, head, chips);
    section.dataset.factor = factor;
    return section;
  }

  #words(state, { name: factor, hint }) {
    const off = state.off.includes(factor);
    const toggle = make("input", { type: "checkbox", role: "switch", checked: !off, "aria-label": `Use ${titled(factor)}` });
    toggle.dataset.switch = factor;
    toggle.onchange = () => {
      this.#focus = `[data-switch="${factor}"]`;
      const others = state.off.filter((name) => name !== factor);
      this.store.change({ off: toggle.checked ? others : [...others, factor] });
    };
    const slider = make("input", { type: "range", id: `weight-${factor}`, min: 0, max: 2, step: 0.05, "aria-label": `Weight of ${titled(factor)}` });
    slider.value = state.weights[factor];
    slider.disabled = off;
    slider.oninput = () => {
      const weights = { ...this.store.state.weights, [factor]: Number(slider.value) };
      this.store.change({ weights }, `weight ${factor}`);
    };
    const head = make("div", { className: "factor-head" },
      make("label", { className: "switch" }, toggle, make("b", { textContent: titled(factor) })),
      make("span", { className: "soft small", textContent: hint, title: hint }),
      slider, make("output", { className: "small", htmlFor: slider.id }));
    const chips = make("ul", { className: "chips" });
    chips.append(...(factor === "target" ? [this.#target(state)] : this.#atoms(state, factor, hint)));
    return this.#section(factor, head, chips, off);
  }

  #target(state) {
    const field = make("textarea", { className: "target-text", rows: 2, maxLength: 600, value: state.spec.target, "aria-label": "Target sentence" });
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
    const said = others.length ? [make("p", { className: "soft small readings", textContent: `Also read as: ${others.join(" · ")}` })] : [];
    return make("li", { className: "wide" }, field, ...said);
  }

  #atoms(state, factor, hint) {
    const items = state.spec[factor].map((atom) => make("li", {}, this.#chip(atom, factor)));
    if (this.#writing === factor) items.push(make("li", {}, this.#newAtom(factor)));
    else {
      const plus = make("button", { className: "chip plus", type: "button", textContent: "+", "aria-label": `Add an atom to ${titled(factor)}`, title: hint });
      plus.onclick = () => this.#write(factor);
      items.push(make("li", {}, plus));
    }
    return items;
  }

  #chip(atom, factor) {
    const chip = make("button", { className: "chip", type: "button", "aria-haspopup": "dialog", title: "Change, weigh or move; drag it to another factor" },
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
    const field = make("input", { type: "text", className: "chip new", maxLength: 160, size: 14, "aria-label": `New atom of ${titled(factor)}`, placeholder: "a short phrase" });
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
      if (event.key === "Enter") {
        event.preventDefault();
        this.#focus = `[data-factor="${factor}"] .plus`;
        end(true);
      } else if (event.key === "Escape") {
        this.#focus = `[data-factor="${factor}"] .plus`;
        end(false);
      }
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
    if (home) announce(`“${text}” is already in ${titled(home)}`);
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
    announce(`“${atom}” removed from ${titled(factor)}`);
    this.store.change({ spec: { ...spec, [factor]: spec[factor].filter((other) => other !== atom) }, atomWeights: without(atomWeights, atom) });
  }

  move(atom, from, to) {
    if (!ATOM_FACTORS.includes(to) || to === from) return;
    const { spec } = this.store.state;
    this.#focus = chipSelector(atom);
    announce(`“${atom}” moved to ${titled(to)}`);
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
