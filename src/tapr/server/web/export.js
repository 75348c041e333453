// What leaves the page: the pictures shown as a list, as files or as one picture to share, and a picture shown in its
// folder. Stands alone: it looks at the cards of the grid and at the opened picture, and no other module knows it.

import { refusal, route } from "./api.js";
import { lastAsked } from "./asked.js";
import { announce, byId, make } from "./dom.js";
import { t } from "./i18n.js";
import { showTrouble } from "./trouble.js";

const FORMATS = ["csv", "zip"];
const COLLAGE = 12; // pictures of a collage
let known = null; // what the server allows, asked for when it is first needed

const facts = () => (known ??= fetch(route("gallery"), { credentials: "same-origin" }).then((reply) => (reply.ok ? reply.json() : {}), () => ({})));

const shownIds = () => [...byId("grid").querySelectorAll("li[data-id]")].map((card) => card.dataset.id);

const buttons = FORMATS.map((format) => {
  const button = make("button", { type: "button", className: "quiet outlined", textContent: t(`export.${format}`) });
  button.onclick = () => download(button, format);
  return button;
});
const collage = make("button", { type: "button", className: "quiet outlined", textContent: t("export.collage") });
collage.onclick = () => trying(() => busy(collage, async () => save(await post(route("collage"), collageForm(lastAsked())), "tapr-collage.jpg")));
const place = make("div", { id: "export", className: "export", hidden: true }, collage, ...buttons);
byId("more").after(place);

async function post(path, body) {
  const sent = body instanceof FormData ? { body } : { headers: { "Content-Type": "application/json" }, body: JSON.stringify(body) };
  const reply = await fetch(path, { method: "POST", credentials: "same-origin", ...sent }).catch(() => null);
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
  await busy(button, async () => save(await post(route("export"), { ids, format }), `tapr-pictures.${format}`));
  announce(t("export.done", { count: ids.length }));
});

async function busy(button, work) {
  button.disabled = true;
  try {
    await work();
  } finally {
    button.disabled = false;
  }
}

async function save(reply, name) {
  const file = URL.createObjectURL(await reply.blob());
  make("a", { href: file, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(file), 60_000);
}

// the search as a form: what is not text is written as JSON. Pictures that are alike are not folded in a collage
function collageForm({ request: { near_duplicates, ...request }, words }) {
  const form = new FormData();
  const fields = { ...request, k: COLLAGE, ...(request.spec ? {} : { like: true }), ...(words && { words }) };
  for (const [name, value] of Object.entries(fields))
    if (value !== null) form.append(name, typeof value === "object" ? JSON.stringify(value) : value);
  return form;
}

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
