// The reference: dropped, pasted, chosen as a file, or picked from the gallery.

import { Problem, referenceUrl, upload } from "./api.js";
import { Cropper, markCrop } from "./crop.js";
import { byId, make } from "./dom.js";
import { number, t } from "./i18n.js";
import { referenceName } from "./names.js";

const SHOWN = 512; // pixels of the longer side
const MOST_FURTHER = 2; // references beside the first

export class ReferencePicker {
  #files = new Map(); // key -> file: the server may have forgotten an upload, the page has not
  #drawn = null;
  #adding = false; // the next picture is a further reference
  #cropper = new Cropper(byId("cropper"));

  // `chosen` gets the first reference, `changed` the first and the further ones; `doing` says what takes time
  constructor({ chosen, changed, failed, doing, most }) {
    Object.assign(this, { chosen, changed, failed, doing, most });
    for (const [button, input] of [["choose", "file"], ["camera", "camera-file"]]) {
      const file = byId(input);
      byId(button).onclick = () => file.click();
      file.onchange = () => {
        if (file.files[0]) this.take(file.files[0]);
        file.value = "";
      };
    }
    byId("forget").onclick = () => chosen(null);
    byId("add-reference").onclick = () => this.#add(true);
    byId("adding-end").onclick = () => this.#add(false);
    this.#listen();
  }

  // a picture of any origin: the reference, or one more
  give(reference) {
    if (!this.#adding) return this.chosen(reference);
    this.#add(false);
    return this.changed(this.reference, [...this.more_references, reference]);
  }

  #add(on) {
    this.#adding = on;
    this.draw(this.reference, this.more_references);
    (on ? byId("adding-end") : byId("add-reference")).focus({ preventScroll: true });
  }

  async take(file) {
    const place = byId("drop");
    place.setAttribute("aria-busy", "true");
    this.doing(t("doing.upload"));
    try {
      if (file.size > this.most()) throw new Problem(413, t("trouble.too_large", { size: megabytes(file.size), most: megabytes(this.most()) }));
      const { key } = await upload(file);
      this.#files.set(key, file);
      this.failed(null); // what was said of a picture before this one
      this.give({ key, name: file.name || t("reference.pasted") });
    } catch (problem) {
      this.failed(problem);
    } finally {
      place.removeAttribute("aria-busy");
      this.doing(null);
    }
  }

  // after the server was restarted: send the picture again; -> whether that was possible
  async again(reference) {
    const file = this.#files.get(reference.key);
    if (file) await upload(file);
    return Boolean(file);
  }

  draw(reference, more_references) {
    [this.reference, this.more_references] = [reference, more_references];
    if (!reference) this.#adding = false;
    byId("more-references").hidden = !more_references.length && !this.#adding;
    byId("adding").hidden = !this.#adding;
    byId("add-reference").hidden = !reference || this.#adding || more_references.length >= MOST_FURTHER;
    const name = reference ? referenceName(reference) : "";
    const key = JSON.stringify([reference, name, more_references, more_references.map(referenceName)]);
    if (key === this.#drawn) return;
    this.#drawn = key;
    byId("more-references-list").replaceChildren(...more_references.map((one, place) => this.#further(one, place)));
    const picture = byId("reference-picture");
    byId("reference-frame").hidden = byId("forget").hidden = byId("part").hidden = !reference;
    byId("drop-hint").hidden = Boolean(reference);
    byId("choose").textContent = t(reference ? "drop.change" : "drop.choose");
    byId("drop").classList.toggle("filled", Boolean(reference));
    byId("reference-name").textContent = name;
    byId("reference-name").title = name;
    const mark = byId("crop-mark");
    mark.hidden = !reference?.crop;
    if (!reference) return void picture.removeAttribute("src");
    if (reference.crop) markCrop(mark, reference.crop);
    byId("part").onclick = () => this.#cropper.open(reference, (crop) => this.changed(withCrop(reference, crop), this.more_references));
    picture.alt = t("reference.named", { name });
    const file = this.#files.get(reference.key);
    picture.onload = () => URL.revokeObjectURL(picture.src);
    picture.onerror = () => {
      // a browser that cannot show the file itself, such as a TIFF, can show what the server made of it
      if (picture.src.startsWith("blob:")) picture.src = referenceUrl(reference, SHOWN);
      else [byId("reference-frame").hidden, byId("drop-hint").hidden] = [true, false];
    };
    picture.src = file ? URL.createObjectURL(file) : referenceUrl(reference, SHOWN);
  }

  #further(reference, place) {
    const name = referenceName(reference);
    const replaced = (other) => this.more_references.flatMap((one, at) => (at === place ? other : [one]));
    const button = (text, act) => {
      const made = make("button", { type: "button", className: "quiet", textContent: text, "aria-label": `${text}: ${name}` });
      made.onclick = act;
      return made;
    };
    const mark = make("span", { className: "crop-mark", hidden: !reference.crop });
    if (reference.crop) markCrop(mark, reference.crop);
    return make("li", {},
      make("span", { className: "reference-frame" }, make("img", { src: referenceUrl(reference, SHOWN), alt: t("reference.further", { name }) }), mark),
      make("span", { className: "reference-name", textContent: name, title: name }),
      button(t("drop.crop"), () => this.#cropper.open(reference, (crop) => this.changed(this.reference, replaced([withCrop(reference, crop)])))),
      button(t("more.remove"), () => this.changed(this.reference, replaced([]))));
  }

  #listen() {
    const place = byId("drop");
    const over = (on) => place.classList.toggle("over", on);
    document.addEventListener("dragover", (event) => {
      if (![...event.dataTransfer.types].includes("Files")) return;
      event.preventDefault();
      over(true);
    });
    document.addEventListener("dragleave", (event) => event.relatedTarget || over(false));
    document.addEventListener("drop", (event) => {
      over(false);
      if (!event.dataTransfer.files.length) return;
      event.preventDefault(); // else the browser leaves the page for the picture
      this.take(event.dataTransfer.files[0]);
    });
    document.addEventListener("paste", (event) => {
      const file = [...(event.clipboardData?.files ?? [])].find((item) => item.type.startsWith("image/"));
      if (!file) return;
      event.preventDefault();
      this.take(file);
    });
  }
}

function withCrop(reference, crop) {
  const { crop: before, ...rest } = reference;
  return crop ? { ...rest, crop } : rest;
}

const megabytes = (bytes) => `${number(Math.round((10 * bytes) / 2 ** 20) / 10)} MB`;
