// Facets: a slider with two thumbs for numbers and dates, boxes to tick for few values. The expert's own filter stands below them.

import { byId, make, oneLine } from "./dom.js";
import { column, quoted } from "./facet_text.js";
import { number, t } from "./i18n.js";

const STEPS = 100;

export class Facets {
  #facets = [];
  #drawn = null;

  constructor(place, store) {
    this.place = place;
    this.store = store;
  }

  read(facets) {
    this.#facets = facets;
    byId("where").placeholder = facets.slice(0, 2).map(condition).join(" and ");
    this.#drawn = null;
    this.draw(this.store.state);
  }

  draw(state) {
    const key = JSON.stringify(state.facets);
    if (key === this.#drawn || this.place.contains(document.activeElement)) return; // what is under the hand stays
    this.#drawn = key;
    this.place.replaceChildren(...this.#facets.map((facet) => (facet.values ? this.#boxes(facet, state) : this.#range(facet, state))));
  }

  #choose(name, chosen) {
    const facets = { ...this.store.state.facets };
    if (chosen) facets[name] = chosen;
    else delete facets[name];
    this.store.change({ facets }, `facet ${name}`);
  }

  #boxes({ name, values }, state) {
    const boxes = values.map(({ value, count }) => {
      const box = make("input", { type: "checkbox", checked: state.facets[name]?.values?.includes(value) ?? false });
      box.onchange = () => {
        const chosen = values.map((one) => one.value).filter((one, place) => boxes[place].firstChild.checked);
        this.#choose(name, chosen.length && chosen.length < values.length ? { values: chosen } : null);
      };
      return make("label", { className: "check" }, box, make("span", { textContent: oneLine(String(value)) }), make("span", { className: "soft small", textContent: number(count) }));
    });
    return make("fieldset", { className: "facet" }, make("legend", { textContent: oneLine(name) }), ...boxes);
  }

  #range({ name, type, least, most }, state) {
    const scale = scaleOf(type, least, most);
    const chosen = Array.isArray(state.facets[name]) ? state.facets[name] : [least, most];
    const said = make("output", { className: "soft small" });
    const sliders = ["from", "to"].map((end, place) =>
      make("input", { type: "range", min: 0, max: STEPS, step: 1, value: scale.step(chosen[place]), "aria-label": t(`filter.${end}`, { column: oneLine(name) }) }));
    sliders.forEach((slider, place) => (slider.dataset.end = place ? "to" : "from"));
    const track = make("div", { className: "two-thumbs" }, ...sliders);
    const tell = () => {
      const values = sliders.map((slider) => scale.value(Number(slider.value)));
      const texts = values.map((value) => String(value).replace("T00:00:00", "")); // a date is its first moment
      said.textContent = `${texts[0]} – ${texts[1]}`;
      sliders.forEach((slider, place) => {
        slider.setAttribute("aria-valuetext", texts[place]);
        track.style.setProperty(`--${slider.dataset.end}`, slider.value / STEPS);
      });
      sliders[0].classList.toggle("on-top", Number(sliders[0].value) > STEPS / 2); // where both stand at one end, one can still be taken
      return values;
    };
    sliders.forEach((slider, place) => {
      slider.oninput = () => {
        const [from, to] = sliders.map((one) => Number(one.value));
        if (from > to) slider.value = sliders[1 - place].value; // one stops at the other
        const values = tell();
        const all = Number(sliders[0].value) === 0 && Number(sliders[1].value) === STEPS;
        this.#choose(name, all ? null : values);
      };
    });
    tell();
    return make("fieldset", { className: "facet" }, make("legend", {}, oneLine(name), " ", said), track);
  }
}

// how the expert would write it, with a column of this gallery
const condition = ({ name, type, most, values }) => {
  const said = /^[a-z]\w*$/i.test(name) ? name : column(name);
  if (!values) return `${said} < ${type === "date" ? quoted(most) : most}`;
  return `${said} = ${type === "boolean" ? values[0].value : quoted(values[0].value)}`;
};

// 0 to STEPS <-> the values of the column; the ends are the column's own, so that nothing is rounded away
function scaleOf(type, least, most) {
  const number = type === "date" ? (text) => Date.parse(`${text.slice(0, 19)}${text.length > 10 ? "Z" : ""}`) : Number;
  const [low, high] = [number(least), number(most)];
  const whole = Number.isInteger(least) && Number.isInteger(most);
  const read = (step) => {
    if (step === 0) return least;
    if (step === STEPS) return most;
    const value = low + (step / STEPS) * (high - low);
    if (type === "date") return new Date(value).toISOString().slice(0, 10);
    return whole ? Math.round(value) : Number(value.toPrecision(4));
  };
  return { value: read, step: (value) => (high > low ? Math.round((STEPS * (number(value) - low)) / (high - low)) : 0) };
}
