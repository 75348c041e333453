// The reference: dropped, pasted, chosen as a file, or picked from the gallery.

import { Problem, referenceUrl, upload } from "./api.js";
import { byId, oneLine } from "./dom.js";

const SHOWN = 512; // pixels of the longer side

export class ReferencePicker {
  #files = new Map(); // key -> file: the server may have forgotten an upload, the page has not
  #drawn = null;

  constructor({ chosen, failed, most }) {
    this.chosen = chosen;
    this.failed = failed;
    this.most = most;
    const file = byId("file");
    byId("choose").onclick = () => file.click();
    file.onchange = () => {
      if (file.files[0]) this.take(file.files[0]);
      file.value = "";
    };
    byId("forget").onclick = () => chosen(null);
    this.#listen();
  }

  async take(file) {
    const place = byId("drop");
    place.setAttribute("aria-busy", "true");
    try {
      if (file.size > this.most()) throw new Problem(413, `the picture has ${megabytes(file.size)}, more than the ${megabytes(this.most())} allowed`);
      const { key } = await upload(file);
      this.#files.set(key, file);
      this.chosen({ key, name: file.name || "a pasted picture" });
    } catch (problem) {
      this.failed(problem);
    } finally {
      place.removeAttribute("aria-busy");
    }
  }

  // after the server was restarted: send the picture again; -> whether that was possible
  async again(reference) {
    const file = this.#files.get(reference.key);
    if (file) await upload(file);
    return Boolean(file);
  }

  draw(reference) {
    const key = JSON.stringify(reference);
    if (key === this.#drawn) return;
    this.#drawn = key;
    const picture = byId("reference-picture");
    picture.hidden = byId("forget").hidden = !reference;
    byId("drop-hint").hidden = Boolean(reference);
    const name = reference ? oneLine(reference.name ?? reference.id) : "";
    byId("reference-name").textContent = name;
    byId("reference-name").title = name;
    if (!reference) return picture.removeAttribute("src");
    picture.alt = `the reference: ${name}`;
    const file = this.#files.get(reference.key);
    picture.onload = () => URL.revokeObjectURL(picture.src);
    picture.onerror = () => {
      // a browser that cannot show the file itself, such as a TIFF, can show what the server made of it
      if (picture.src.startsWith("blob:")) picture.src = referenceUrl(reference, SHOWN);
      else [picture.hidden, byId("drop-hint").hidden] = [true, false];
    };
    picture.src = file ? URL.createObjectURL(file) : referenceUrl(reference, SHOWN);
    return undefined;
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

const megabytes = (bytes) => `${(bytes / 2 ** 20).toFixed(1)} MB`;
