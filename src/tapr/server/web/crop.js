// A part of the reference: drawn with mouse, pen or finger, or set by four sliders. Only that part is looked for.

import { referenceUrl } from "./api.js";
import { make } from "./dom.js";
import { t } from "./i18n.js";

const SIZE = 1024;
const LEAST = 0.04; // of a side: less was a slip of the hand
const EDGES = ["left", "top", "right", "bottom"];

// lay a frame over the same part of a picture that is shown in its own proportions
export function markCrop(mark, [left, top, right, bottom]) {
  mark.style.left = `${100 * left}%`;
  mark.style.top = `${100 * top}%`;
  mark.style.width = `${100 * (right - left)}%`;
  mark.style.height = `${100 * (bottom - top)}%`;
}

export class Cropper {
  #box = [0, 0, 1, 1];
  #mark = null;
  #sliders = [];

  constructor(dialog) {
    this.dialog = dialog;
  }

  // `use` is called with the box, or with null for the whole picture
  open(reference, use) {
    this.#box = reference.crop ?? [0, 0, 1, 1];
    this.#mark = make("span", { className: "crop-mark" });
    const picture = make("img", { src: referenceUrl(reference, SIZE), alt: t("reference.alt"), draggable: false });
    const stage = make("div", { className: "crop-stage" }, picture, this.#mark);
    picture.onload = () => stage.style.setProperty("--ratio", picture.naturalWidth / picture.naturalHeight);
    this.#draw(stage);
    this.#sliders = EDGES.map((_, place) => this.#slider(place));
    const button = (text, act, className = "quiet") => {
      const made = make("button", { type: "button", className, textContent: text });
      made.onclick = () => {
        this.dialog.close();
        act?.();
      };
      return made;
    };
    this.dialog.replaceChildren(
      make("header", { className: "viewer-head" }, make("h2", { id: "cropper-title", textContent: t("crop.title") }), button(t("crop.cancel"))),
      make("div", { className: "crop-body" }, make("div", { className: "crop-room" }, stage),
        make("p", { className: "soft small", textContent: t("crop.how") }),
        make("div", { className: "crop-edges" }, ...this.#sliders.map((slider, place) => make("label", {}, t(`crop.${EDGES[place]}`), slider)))),
      make("footer", { className: "viewer-foot" }, button(t("crop.whole"), () => use(null)), make("span"),
        button(t("crop.use"), () => use(this.#isWhole() ? null : this.#box.map((edge) => Math.round(1000 * edge) / 1000)), "primary tall")));
    this.#show();
    this.dialog.showModal();
  }

  #isWhole() {
    const [left, top, right, bottom] = this.#box;
    return left <= 0 && top <= 0 && right >= 1 && bottom >= 1;
  }

  #draw(stage) {
    stage.onpointerdown = (down) => {
      if (down.button !== 0) return;
      stage.setPointerCapture(down.pointerId);
      const room = stage.getBoundingClientRect();
      const before = this.#box;
      const place = (event) => [clamp((event.clientX - room.left) / room.width), clamp((event.clientY - room.top) / room.height)];
      const [x, y] = place(down);
      stage.onpointermove = (event) => {
        const [right, bottom] = place(event);
        this.#box = [Math.min(x, right), Math.min(y, bottom), Math.max(x, right), Math.max(y, bottom)];
        this.#show();
      };
      stage.onpointerup = stage.onpointercancel = () => {
        stage.onpointermove = stage.onpointerup = stage.onpointercancel = null;
        if (this.#box[2] - this.#box[0] < LEAST || this.#box[3] - this.#box[1] < LEAST) this.#box = before;
        this.#show();
      };
    };
  }

  #slider(place) {
    const slider = make("input", { type: "range", min: 0, max: 1, step: 0.01 });
    slider.oninput = () => {
      const box = [...this.#box];
      const other = box[(place + 2) % 4];
      box[place] = place < 2 ? Math.min(Number(slider.value), other - LEAST) : Math.max(Number(slider.value), other + LEAST);
      this.#box = box.map(clamp);
      this.#show();
    };
    return slider;
  }

  #show() {
    markCrop(this.#mark, this.#box);
    this.#sliders.forEach((slider, place) => {
      slider.value = this.#box[place];
      slider.setAttribute("aria-valuetext", t("crop.percent", { value: Math.round(100 * this.#box[place]) }));
    });
  }
}

const clamp = (value) => Math.min(1, Math.max(0, value));
