// The grid: pictures to choose from, or pictures found, each with what it shows and its score as a bar by factor.

import { actionButtons } from "./actions.js";
import { pictureUrl } from "./api.js";
import { make, oneLine } from "./dom.js";
import { FACTORS, factorName, signOf } from "./factor_table.js";
import { steppedBy } from "./grid_keys.js";
import { t } from "./i18n.js";
import { called, nameOf, see } from "./names.js";
import { chosenFacts } from "./shown.js";

const THUMBNAIL = 384;
const [NARROWEST, WIDEST] = [0.72, 1.9]; // width by height of a card's picture: what is outside is cut
const SMALL = 128; // pixels: a smaller picture is not blown up to fill its card
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Grid {
  #cards = new Map(); // id -> element, kept so that pictures do not blink when the order changes
  #ranks = new Map(); // id -> rank before
  #homes = new Map(); // id of a picture that is folded away -> id of the card that it is under
  #unfolded = new Set(); // ids of cards whose like are shown beside them
  #columns = []; // of the metadata, shown under the pictures
  #shown = null; // what is on the page: {ranking} or {pictures}

  // `leave` gets the focus when it goes up from the first row
  constructor(place, { open, choose, leave }) {
    this.place = place;
    this.open = open;
    this.choose = choose;
    steppedBy(place, leave);
  }

  clear() {
    this.#cards.clear();
    this.#ranks.clear();
    this.#shown = null;
    this.place.replaceChildren();
  }

  // the first picture, or that of an id
  focus(id = null) {
    const card = id === null ? this.place.firstElementChild : this.#cards.get(id) ?? this.#cards.get(this.#homes.get(id));
    card?.querySelector(".frame")?.focus();
  }

  // other columns under the same pictures
  showColumns(columns) {
    this.#columns = columns;
    if (this.#shown?.ranking) this.show(this.#shown.ranking);
    else if (this.#shown) {
      const { pictures } = this.#shown;
      this.clear();
      this.offer(pictures);
    }
  }

  wait(count) {
    this.clear();
    this.place.replaceChildren(...Array.from({ length: count }, () => make("li", { className: "hit ghostly", "aria-hidden": "true" })));
  }

  // pictures of the gallery, to choose a reference from
  offer(pictures) {
    this.#ranks.clear();
    see(pictures);
    this.#shown = { pictures: [...(this.#shown?.pictures ?? []), ...pictures] };
    for (const picture of pictures) {
      const button = make("button", { className: "frame", type: "button", "aria-label": `${t("action.use")}: ${called(picture)}` }, thumbnail(picture));
      button.onclick = () => this.choose(picture);
      const card = make("li", { className: "hit" }, button, make("div", { className: "caption" }, nameOf(picture), chosenFacts(picture, this.#columns)));
      shaped(card, picture);
      this.place.append(card);
    }
  }

  show(ranking) {
    const still = calm.matches || ranking.hits.every((hit) => this.#ranks.get(hit.id) === hit.rank);
    const before = still ? null : new Map([...this.#cards].map(([id, card]) => [id, card.getBoundingClientRect()]));
    const widest = Math.max(...ranking.hits.map((hit) => sum(hit.contributions.map((part) => Math.abs(part.value)))), 1e-9);
    this.#shown = { ranking };
    see(ranking.hits);
    const cards = new Map();
    this.#homes.clear();
    for (const [hit, alike] of folded(ranking.hits)) {
      for (const one of alike) this.#homes.set(one.id, hit.id);
      const open = this.#unfolded.has(hit.id);
      for (const one of open ? [hit, ...alike] : [hit]) {
        const card = this.#cards.get(one.id) ?? this.#card(one);
        this.#fill(card, one, widest, one === hit ? alike : null);
        card.classList.toggle("alike", one !== hit);
        cards.set(one.id, card);
      }
    }
    this.#cards = cards;
    this.#ranks = new Map(ranking.hits.map((hit) => [hit.id, hit.rank]));
    const focused = document.activeElement;
    const place = [...this.place.children].indexOf(focused.closest("li"));
    this.place.replaceChildren(...cards.values());
    if (this.place.contains(focused)) focused.focus({ preventScroll: true });
    else if (place >= 0) (this.place.children[place] ?? this.place.lastElementChild)?.querySelector(".frame").focus({ preventScroll: true }); // its picture left
    if (before) glide(cards, before);
  }

  #card(hit) {
    const open = make("button", { className: "frame", type: "button", "aria-haspopup": "dialog" }, thumbnail(hit));
    const card = make("li", { className: "hit" }, open, make("div", { className: "caption" }));
    card.dataset.id = hit.id;
    shaped(card, hit);
    open.onclick = () => this.open(hit.id);
    card.actions = make("div", { className: "card-actions" }, ...actionButtons(hit, called(hit), "use"));
    return card;
  }

  #fill(card, hit, widest, alike) {
    const [open, caption] = card.children;
    open.setAttribute("aria-label", t("card.why", { name: called(hit), rank: hit.rank }));
    const line = make("div", { className: "caption-line" }, make("span", { className: "rank", textContent: hit.rank }), nameOf(hit), moved(this.#ranks, hit));
    const parts = [line, chosenFacts(hit, this.#columns), wishes(hit), bar(hit, widest), alike?.length ? this.#unfold(hit, alike) : null, card.actions];
    caption.replaceChildren(...parts.filter(Boolean));
  }

  // "3 alike": press to see them beside the first, press again to fold them
  #unfold(hit, alike) {
    const open = this.#unfolded.has(hit.id);
    const text = open ? t("card.fold") : t("card.alike", { count: alike.length + 1 });
    const button = make("button", { type: "button", className: "stacked quiet outlined", textContent: text, "aria-expanded": String(open), title: t("card.alike.hint") });
    button.onclick = () => {
      open ? this.#unfolded.delete(hit.id) : this.#unfolded.add(hit.id);
      this.show(this.#shown.ranking);
      this.#cards.get(hit.id).querySelector(".stacked").focus({ preventScroll: true });
    };
    return button;
  }
}

// [[hit, [those that are alike to it]]]: what the server marked as alike comes under the better one
function folded(hits) {
  const groups = new Map();
  const first = new Map(); // id -> the id that it is shown under
  for (const hit of hits) {
    const home = hit.near_duplicate_of && (first.get(hit.near_duplicate_of) ?? hit.near_duplicate_of);
    if (home && groups.has(home)) groups.get(home)[1].push(hit);
    else groups.set(hit.id, [hit, []]);
    first.set(hit.id, home && groups.has(home) ? home : hit.id);
  }
  return groups.values();
}

// rows of one height: a card is as wide as its picture's proportions ask for
function shaped(card, { width, height }) {
  const ratio = width && height ? width / height : 1;
  card.style.setProperty("--ratio", Math.min(WIDEST, Math.max(NARROWEST, ratio)).toFixed(3));
  card.classList.toggle("small", Boolean(width && height) && Math.max(width, height) < SMALL);
}

// a tick for what the picture surely shows, "maybe" between; what is to be left out: still there, or mostly gone.
// No mark: not found, not to be checked, or the same for all pictures.
function wishes(hit) {
  const ticks = hit.contributions.filter(markOf).map((part) => {
    const state = part.found === "maybe" ? "weak" : isAgainst(part) ? "unmet" : "met";
    return make("li", { className: `tick factor-${part.factor} ${state}`, title: `${factorName(part.factor)}: ${oneLine(part.text)}, ${t(`mark.${markOf(part)}`)}` }, make("span", { textContent: oneLine(part.text) }));
  });
  return ticks.length ? make("div", { className: "wishes" }, make("ul", { className: "ticks", "aria-label": t("card.shows") }, ...ticks)) : null;
}

const MARKS = { 1: { found: "found", maybe: "maybe" }, "-1": { found: "still_there", "not found": "mostly_gone" } };
// -> the name of a mark, mark.NAME in the tables of words; null: none
export const markOf = (part) => MARKS[signOf(part.factor)][part.found] ?? null;
const isAgainst = (part) => signOf(part.factor) < 0 && part.found === "found";

// one scale for all bars of a ranking; what counts against a picture is striped
export function bar(hit, widest) {
  const parts = FACTORS.map(({ name }) => [name, sum(hit.contributions.filter((part) => part.factor === name).map((part) => part.value))]).filter(([, value]) => value);
  const whole = sum(parts.map(([, value]) => Math.abs(value))) || 1;
  const said = parts.map(([factor, value]) => `${factorName(factor)} ${Math.round((100 * value) / whole)} %`).join(", ");
  const element = make("div", { className: "bar", role: "img", "aria-label": said, title: said });
  for (const [factor, value] of parts) {
    const piece = make("i", { className: `factor-${factor}${value < 0 ? " against" : ""}` });
    piece.style.width = `${(100 * Math.abs(value)) / widest}%`;
    element.append(piece);
  }
  return element;
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);

function thumbnail(picture) {
  const image = make("img", { alt: called(picture), loading: "lazy", decoding: "async", src: pictureUrl(picture.id, THUMBNAIL) });
  image.onerror = () => image.replaceWith(make("span", { className: "gone soft small", textContent: t("card.gone") }));
  return image;
}

function moved(ranks, hit) {
  const before = ranks.get(hit.id);
  if (before === undefined || before === hit.rank) return null;
  const up = before > hit.rank;
  return make("span", { className: `moved ${up ? "up" : "down"}`, textContent: `${up ? "▲" : "▼"}${Math.abs(before - hit.rank)}`, title: t("card.moved", { rank: before }) });
}

function glide(cards, before) {
  for (const [id, card] of cards) {
    const from = before.get(id);
    const to = card.getBoundingClientRect();
    if (!from) card.animate([{ opacity: 0 }, { opacity: 1 }], { duration: 180 });
    else if (from.left !== to.left || from.top !== to.top)
      card.animate([{ transform: `translate(${from.left - to.left}px, ${from.top - to.top}px)` }, { transform: "none" }], { duration: 220, easing: "ease-out" });
  }
}
