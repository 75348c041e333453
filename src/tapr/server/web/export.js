// What leaves the page: the pictures shown as a list or as files, and a picture shown in its folder. Stands alone: it
// looks at the cards of the grid and at the opened picture, and no other module knows it.

import { refusal, route } from "./api.js";
import { announce, byId, make } from "./dom.js";
import { t } from "./i18n.js";
import { showTrouble } from "./trouble.js";

const FORMATS = ["csv", "zip"];
let known = null; // what the server allows, asked for when it is first needed

const facts = () => (known ??= fetch(route("gallery"), { credentials: "same-origin" }).then((reply) => (reply.ok ? reply.json() : {}), () => ({})));

const shownIds = () => [...byId("grid").querySelectorAll("li[data-id]")].map((card) => card.dataset.id);

const buttons = FORMATS.map((format) => {
  const button = make("button", { type: "button", className: "quiet outlined", textContent: t(`export.${format}`) });
  button.onclick = () => download(button, format);
  return button;
});
const place = make("div", { id: "export", className: "export", hidden: true }, ...buttons);
byId("more").after(place);

async function post(path, body) {
  const reply = await fetch(path, {
    method: "POST", credentials: "same-origin", headers: { "Content-Type": "application/json" }, body: JSON.stringify(body),
  }).catch(() => null);
  if (!reply) throw new Error(t("trouble.no_answer"));
  if (reply.ok) return reply;
  throw await refusal(reply);
}

async function trying(work) {
  try {
    await work();
    showTrouble(null);
  } catch (problem) {
    showTrouble(problem);
  }
}

const download = (button, format) => trying(async () => {
  const { export_pictures: most } = await facts();
  const ids = format === "zip" ? shownIds().slice(0, most) : shownIds();
  button.disabled = true;
  try {
    const file = URL.createObjectURL(await (await post(route("export"), { ids, format })).blob());
    make("a", { href: file, download: `tapr-pictures.${format}` }).click();
    setTimeout(() => URL.revokeObjectURL(file), 60_000);
    announce(t("export.done", { count: ids.length }));
  } finally {
    button.disabled = false;
  }
});

// only pictures that were found have an id on their card; those to choose a reference from are not exported
new MutationObserver(() => (place.hidden = !shownIds().length)).observe(byId("grid"), { childList: true });

new MutationObserver(addShow).observe(byId("viewer"), { childList: true });

async function addShow() {
  if (!(await facts()).shows_in_folder) return;
  const foot = byId("viewer").querySelector(".viewer-foot");
  const id = [...byId("viewer").querySelectorAll(".over")].map((over) => over.dataset.id).find(Boolean);
  if (!foot || !id || foot.querySelector(".show-in-folder")) return;
  const button = make("button", { type: "button", className: "quiet show-in-folder", textContent: t("viewer.folder") });
  button.onclick = () => trying(() => post(route("show"), { id }));
  foot.append(button);
}
