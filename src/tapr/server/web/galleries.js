// Which gallery is searched, where the server has several. The choice is part of the address, and another gallery is
// another page: nothing of the one before, neither its pictures nor its columns, holds in it. Stands alone.

import { chosen, galleries } from "./api.js";
import { byId, make } from "./dom.js";
import { t } from "./i18n.js";

const select = byId("gallery");
const offered = await galleries().then((reply) => reply.galleries.map((one) => one.name), () => []); // the page works without
const current = chosen ?? offered[0];

// words alone mean the same in every gallery; a reference is a picture of this one, or was sent to it
function wordsOf(fragment) {
  const read = new URLSearchParams(fragment);
  const alone = read.has("edit") && !read.has("r") && !read.has("upload");
  return alone ? `#${new URLSearchParams({ edit: read.get("edit") })}` : "";
}

const addressOf = (name) => `/?${new URLSearchParams({ gallery: name })}`;

if (chosen !== null) document.querySelector(".brand").href = addressOf(chosen);
if (offered.some((name) => name !== current)) {
  const options = offered.map((name) => make("option", { value: name, textContent: name }));
  if (!offered.includes(current)) options.unshift(make("option", { value: current, textContent: t("gallery.choose"), disabled: true }));
  select.replaceChildren(...options);
  select.value = current;
  select.onchange = () => location.assign(addressOf(select.value) + wordsOf(location.hash.slice(1)));
  addEventListener("pageshow", () => (select.value = current)); // a page that the browser kept, come back to
  byId("galleries").hidden = false;
  byId("gallery-folder").hidden = true; // the choice says which one it is
}
