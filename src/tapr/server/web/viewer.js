// One result opened: its picture beside the reference, as large as the window, with the evidence of each atom over both.

import { actionButtons } from "./actions.js";
import { heatUrl, pictureUrl, referenceUrl } from "./api.js";
import { markCrop } from "./crop.js";
import { make, oneLine, signed } from "./dom.js";
import { factorName, termName } from "./factor_table.js";
import { t } from "./i18n.js";
import { called, nameOf, referenceName } from "./names.js";
import { bar, markOf, sum } from "./results.js";
import { Zoom } from "./zoom.js";

const SIZE = 1280; // pixels of the longer side
const CLOSE_SIZE = 2048; // looked at closely
const CLEAN = Symbol("no overlay");

export class Viewer {
  #ranking = null;
  #request = null;
  #references = [];
  #hit = null;
  #shown = CLEAN; // the term whose evidence is shown; null: all together; CLEAN: no overlay
  #opacity = 1;
  #address = null; // of the page when a picture was last opened
  #stage = make("div", { className: "stage" });
  #zoom = new Zoom(this.#stage, { swiped: (step) => this.#step(step), closer: () => this.#sharpen() });

  // `closed` gets the id of the picture that was looked at last
  constructor(dialog, closed) {
    this.dialog = dialog;
    // an opened picture is a step of the browser's history: back closes it, forward opens it again
    dialog.onclose = () => {
      if (viewing()) history.back();
      if (this.#hit) closed(this.#hit.id);
    };
    addEventListener("popstate", () => this.#follow(viewing()));
    if (viewing()) history.replaceState(null, ""); // the page was loaded anew: nothing is open
    dialog.onkeydown = (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      const isChoosing = ["radio", "range"].includes(event.target.type);
      if (step && !isChoosing) this.#step(step);
      else if (this.#zoom.key(event.key)) event.preventDefault();
    };
  }

  // what is shown when a result is opened; `request` is what the ranking was asked with
  follow(ranking, request, references) {
    [this.#ranking, this.#request, this.#references] = [ranking, request, references];
    if (!this.dialog.open) return;
    if (ranking.hits.some((hit) => hit.id === this.#hit.id)) this.open(this.#hit.id);
    else this.dialog.close();
  }

  open(id) {
    this.#hit = this.#ranking.hits.find((hit) => hit.id === id);
    if (!this.dialog.open) this.#shown = CLEAN;
    else if (this.#shown !== CLEAN) this.#shown = this.#hit.contributions.find((part) => part.id === this.#shown?.id) ?? null;
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
    const close = this.#button(t("viewer.close"), () => this.dialog.close());
    const index = this.#ranking.hits.indexOf(hit);
    const previous = this.#button(`← ${t("viewer.previous")}`, () => this.#step(-1), index === 0);
    const next = this.#button(`${t("viewer.next")} →`, () => this.#step(1), index === this.#ranking.hits.length - 1);
    const whole = make("a", { href: pictureUrl(hit.id), target: "_blank", rel: "noopener", className: "quiet", textContent: t("viewer.whole") });
    const focus = this.dialog.contains(document.activeElement) ? document.activeElement.textContent : null;
    this.#zoom.reset();
    this.#stage.className = `stage of-${this.#references.length + 1}`;
    this.#stage.replaceChildren(
      ...this.#references.map((reference, place) => this.#reference(reference, place + 1)),
      this.#figure(t("viewer.found"), (size) => pictureUrl(hit.id, size), called(hit), hit, { id: hit.id }));
    this.#shape();
    this.dialog.replaceChildren(
      make("header", { className: "viewer-head" },
        make("h2", { id: "viewer-title" }, make("span", { className: "rank", textContent: hit.rank }), nameOf(hit)), close),
      this.#stage,
      make("div", { className: "why" }, this.#terms(hit), facts(hit)),
      make("footer", { className: "viewer-foot" }, previous, next,
        make("span", { className: "viewer-actions" }, whole, ...actionButtons(hit, called(hit), "", () => this.dialog.close()))));
    for (const button of this.dialog.querySelectorAll("button")) if (button.textContent === focus && !button.disabled) button.focus();
    this.#heat();
  }

  #reference(reference, number) {
    const label = this.#references.length > 1 ? t("viewer.reference_number", { number }) : t("viewer.reference");
    const figure = this.#figure(label, (size) => referenceUrl(reference, size), `${label}: ${referenceName(reference)}`, {}, { number });
    if (!reference.crop) return figure;
    const mark = make("span", { className: "crop-mark", title: t("note.part") });
    markCrop(mark, reference.crop);
    figure.firstChild.append(mark);
    return figure;
  }

  // on a phone one picture is large, the others lie small in its corner: a press changes which
  #figure(label, address, alt, { width, height }, { id, number }) {
    const over = make("img", { className: "over", alt: "", draggable: false });
    over.dataset.id = id ?? "";
    over.dataset.reference = number ?? "";
    const picture = make("img", { src: address(SIZE), alt, draggable: false });
    const figure = make("figure", { className: number ? "" : "front" }, make("div", { className: "stack" }, picture, over), make("figcaption", { className: "soft small", textContent: label }));
    figure.ratio = width && height ? width / height : 1;
    picture.onload = () => {
      figure.ratio = picture.naturalWidth / picture.naturalHeight;
      this.#shape();
    };
    picture.closer = () => address(CLOSE_SIZE);
    figure.onclick = () => {
      if (this.#zoom.isClose || figure.classList.contains("front")) return;
      for (const other of this.#stage.children) other.classList.toggle("front", other === figure);
    };
    return figure;
  }

  // pictures of one height, side by side as wide as the stage: for that it knows their proportions
  #shape() {
    const figures = [...this.#stage.children];
    this.#stage.style.setProperty("--ratios", sum(figures.map((figure) => figure.ratio)));
    for (const figure of figures) figure.style.setProperty("--ratio", figure.ratio);
  }

  #sharpen() {
    for (const picture of this.#stage.querySelectorAll("img:not(.over)")) {
      if (!picture.closer) continue;
      const better = new Image(); // the smaller one stays until it is there
      better.onload = () => (picture.src = better.src);
      better.src = picture.closer();
      picture.closer = null;
    }
  }

  #terms(hit) {
    const widest = sum(hit.contributions.map((part) => Math.abs(part.value))) || 1;
    const list = make("div", { className: "terms", role: "radiogroup", "aria-label": t("viewer.terms") });
    list.append(this.#choice(CLEAN, t("viewer.clean"), "clean"));
    for (const part of hit.contributions)
      list.append(part.reads === "local" ? this.#choice(part, termName(part), part.factor) : placeless(part));
    const placed = hit.contributions.some((part) => part.reads === "local");
    if (placed) list.append(this.#choice(null, t("viewer.overall"), "all"));
    return make("div", {}, bar(hit, widest), list, placed ? this.#legend() : null);
  }

  #choice(part, label, factor) {
    const isTerm = part && part !== CLEAN;
    const mark = isTerm ? markOf(part) : null;
    const said = isTerm ? `${factorName(factor)}: ${label}` : label;
    const input = make("input", { type: "radio", name: "term", checked: part === this.#shown, "aria-label": said, "aria-description": mark && t(`mark.${mark}`) });
    input.onchange = () => {
      this.#shown = part;
      this.#heat();
    };
    return make("label", { className: `term factor-${factor}` }, input, ...line(label, mark));
  }

  #legend() {
    const input = make("input", { type: "range", min: 0, max: 1, step: 0.05, value: this.#opacity });
    input.oninput = () => {
      this.#opacity = Number(input.value);
      this.#heat();
    };
    return make("div", { className: "legend soft small" }, make("label", {}, `${t("viewer.opacity")} `, input), make("p", { textContent: t("viewer.legend") }));
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

const line = (label, mark) => [
  make("span", { className: "dot" }),
  make("span", { className: "term-name", textContent: label }),
  mark ? make("span", { className: `found-word ${mark}`, textContent: t(`mark.${mark}`) }) : null,
];

const placeless = (part) =>
  make("div", { className: `term plain factor-${part.factor}`, title: t("term.whole.hint") }, ...line(t("term.placeless", { name: termName(part) })));

// what the picture is, and its score in numbers, for those who want to know
function facts(hit) {
  const text = (value) => oneLine(typeof value === "object" ? JSON.stringify(value) : String(value));
  const rows = Object.entries(hit.metadata).filter(([key]) => key !== "name").map(([key, value]) => [oneLine(key), text(value)]);
  const scores = hit.contributions.map((part) => [`${factorName(part.factor)}: ${oneLine(termName(part))}`, signed(part.value)]);
  return make("div", {}, rows.length ? table("metadata small", rows) : null,
    make("details", { className: "fold numbers" }, make("summary", { textContent: t("viewer.details") }),
      table("metadata small", [...scores, [t("viewer.score"), hit.score.toFixed(3)], ["id", text(hit.id)]])));
}

const table = (className, rows) => make("dl", { className }, ...rows.flatMap(([key, value]) =>
  [make("dt", { className: "soft", textContent: key }), make("dd", { textContent: value })]));
