// One result opened: its picture beside the reference, with the evidence of each atom laid over both.

import { heatUrl, pictureUrl, referenceUrl } from "./api.js";
import { markCrop } from "./crop.js";
import { make, oneLine, signed, termName, titled } from "./dom.js";
import { bar, markOf, sum } from "./results.js";

const NO_PLACE = "compared with the picture as a whole: it has no place in it";
const SIZE = 640;
const CLEAN = Symbol("the picture as it is");
const LEGEND = "Strong colour: much evidence. A line goes around what the picture surely shows. Grey edges: the encoder does not look there.";

export class Viewer {
  #ranking = null;
  #request = null;
  #references = [];
  #hit = null;
  #shown = CLEAN; // the term whose evidence is shown; null: all together; CLEAN: the picture as it is
  #opacity = 1;
  #address = null; // of the page when a picture was last opened

  constructor(dialog, choose) {
    this.dialog = dialog;
    this.choose = choose;
    dialog.onclick = (event) => {
      if (event.target === dialog) dialog.close(); // the backdrop
    };
    // an opened picture is a step of the browser's history: back closes it, forward opens it again
    dialog.onclose = () => {
      if (viewing()) history.back();
    };
    addEventListener("popstate", () => this.#follow(viewing()));
    if (viewing()) history.replaceState(null, ""); // the page was loaded anew: nothing is open
    dialog.onkeydown = (event) => {
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (step && event.target.type !== "radio") this.#step(step);
    };
  }

  // what is shown when a result is opened; `request` is what the ranking was asked with
  follow(ranking, request, references) {
    [this.#ranking, this.#request, this.#references] = [ranking, request, references];
    if (this.dialog.open) this.dialog.close();
  }

  open(id) {
    this.#hit = this.#ranking.hits.find((hit) => hit.id === id);
    if (!this.dialog.open) this.#shown = CLEAN;
    else if (this.#shown !== CLEAN) this.#shown = this.#hit.contributions.find((part) => this.#isShown(part)) ?? null;
    this.#draw();
    this.#address = location.hash;
    if (this.dialog.open || viewing() === id) history.replaceState({ viewing: id }, "");
    else history.pushState({ viewing: id }, "");
    if (!this.dialog.open) this.dialog.showModal();
  }

  // to where the history went
  #follow(id) {
    if (id === null) return this.dialog.open && this.dialog.close();
    const isThere = this.#address === location.hash && this.#ranking.hits.some((hit) => hit.id === id);
    return isThere ? this.open(id) : history.replaceState(null, ""); // another ranking stands on the page
  }

  #step(step) {
    const next = this.#ranking.hits[this.#ranking.hits.indexOf(this.#hit) + step];
    if (next) this.open(next.id);
  }

  #draw() {
    const hit = this.#hit;
    const close = this.#button("Close", () => this.dialog.close());
    const index = this.#ranking.hits.indexOf(hit);
    const previous = this.#button("← Better", () => this.#step(-1), index === 0);
    const next = this.#button("Next →", () => this.#step(1), index === this.#ranking.hits.length - 1);
    const use = this.#button("Use as reference", () => {
      this.dialog.close();
      this.choose(hit);
    });
    const whole = make("a", { href: pictureUrl(hit.id), target: "_blank", rel: "noopener", className: "quiet", textContent: "Whole picture" });
    const focus = this.dialog.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.dialog.replaceChildren(
      make("header", { className: "viewer-head" },
        make("h2", { id: "viewer-title" }, make("span", { className: "rank", textContent: hit.rank }), oneLine(hit.name)), close),
      make("div", { className: "viewer-body" },
        make("div", { className: `pair of-${this.#references.length + 1}` },
          ...this.#references.map((reference, place) => this.#reference(reference, place + 1)),
          this.#figure("Found", pictureUrl(hit.id, SIZE), oneLine(hit.name), { id: hit.id })),
        make("div", { className: "why" }, this.#terms(hit), facts(hit))),
      make("footer", { className: "viewer-foot" }, previous, next, whole, use));
    for (const button of this.dialog.querySelectorAll("button")) if (button.textContent === focus && !button.disabled) button.focus();
    this.#heat();
  }

  #reference(reference, number) {
    const many = this.#references.length > 1 ? ` ${number}` : "";
    const figure = this.#figure(`Reference${many}`, referenceUrl(reference, SIZE), `the reference${many}`, { number });
    if (!reference.crop) return figure;
    const mark = make("span", { className: "crop-mark", title: "only this part counts" });
    markCrop(mark, reference.crop);
    figure.firstChild.append(mark);
    return figure;
  }

  #figure(label, source, alt, { id, number }) {
    const over = make("img", { className: "over", alt: "" });
    over.dataset.id = id ?? "";
    over.dataset.reference = number ?? "";
    return make("figure", {}, make("div", { className: "stack" }, make("img", { src: source, alt }), over), make("figcaption", { className: "soft small", textContent: label }));
  }

  #terms(hit) {
    const widest = sum(hit.contributions.map((part) => Math.abs(part.value))) || 1;
    const list = make("div", { className: "terms", role: "radiogroup", "aria-label": "Show the evidence of" });
    list.append(this.#choice(CLEAN, "The picture as it is", "clean", null));
    for (const part of hit.contributions)
      list.append(part.reads === "local" ? this.#choice(part, termName(part), part.factor, part.value) : placeless(part));
    const placed = hit.contributions.some((part) => part.reads === "local");
    if (placed) list.append(this.#choice(null, "All together", "all", hit.score));
    return make("div", {}, bar(hit, widest), list, placed ? this.#legend() : null);
  }

  #choice(part, label, factor, value) {
    const isTerm = part && part !== CLEAN;
    const said = isTerm ? `${titled(factor)}: ${label}` : label;
    const input = make("input", { type: "radio", name: "term", checked: part === this.#shown, "aria-label": said, "aria-description": isTerm ? markOf(part) : null });
    input.onchange = () => {
      this.#shown = part;
      this.#heat();
    };
    return make("label", { className: `term factor-${factor}` }, input, ...line(label, value, isTerm ? markOf(part) : null));
  }

  #legend() {
    const input = make("input", { type: "range", min: 0, max: 1, step: 0.05, value: this.#opacity });
    input.oninput = () => {
      this.#opacity = Number(input.value);
      this.#heat();
    };
    return make("div", { className: "legend soft small" }, make("label", {}, "Strength of the colour ", input), make("p", { textContent: LEGEND }));
  }

  // the same term of another picture; an atom may have the text of any other term
  #isShown(part) {
    return part.factor === this.#shown?.factor && part.text === this.#shown?.text;
  }

  #heat() {
    for (const over of this.dialog.querySelectorAll(".over")) {
      const id = over.dataset.reference ? undefined : over.dataset.id;
      over.style.setProperty("--opacity", this.#opacity);
      over.hidden = this.#shown === CLEAN;
      if (over.hidden) continue;
      const source = heatUrl(this.#request, this.#ranking, this.#shown, id, Number(over.dataset.reference));
      if (over.getAttribute("src") === source) continue;
      over.classList.add("pending");
      over.onload = () => over.classList.remove("pending");
      over.src = source;
    }
  }

  #button(text, act, disabled = false) {
    const button = make("button", { type: "button", className: "quiet", textContent: text, disabled });
    button.onclick = act;
    return button;
  }
}

const viewing = () => history.state?.viewing ?? null; // the id of the opened picture

const line = (label, value, found) => [
  make("span", { className: "dot" }),
  make("span", { className: "term-name", textContent: label }),
  found ? make("span", { className: `found-word ${found.replace(" ", "-")}`, textContent: found }) : null,
  value === null ? null : make("span", { className: "term-value", textContent: signed(value) }),
];

const placeless = (part) =>
  make("div", { className: `term plain factor-${part.factor}`, title: NO_PLACE }, ...line(`${termName(part)} (no place)`, part.value));

function facts(hit) {
  const rows = Object.entries(hit.metadata).filter(([key]) => key !== "name");
  const list = make("dl", { className: "metadata small" });
  for (const [key, value] of [["id", hit.id], ...rows]) {
    const text = typeof value === "object" ? JSON.stringify(value) : String(value);
    list.append(make("dt", { className: "soft", textContent: oneLine(key) }), make("dd", { textContent: oneLine(text) }));
  }
  return list;
}
