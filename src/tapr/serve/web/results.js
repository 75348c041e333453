// The grid: pictures to choose from, or pictures found, each with its score as a bar by factor.

import { pictureUrl } from "./api.js";
import { byId, make, oneLine, titled } from "./dom.js";
import { FACTORS, signOf } from "./factor_table.js";

const THUMBNAIL = 256;
const calm = matchMedia("(prefers-reduced-motion: reduce)");

export class Grid {
  #cards = new Map(); // id -> element, kept so that pictures do not blink when the order changes
  #ranks = new Map(); // id -> rank before

  constructor(place, { open, choose }) {
    this.place = place;
    this.open = open;
    this.choose = choose;
  }

  clear() {
    this.#cards.clear();
    this.#ranks.clear();
    this.place.replaceChildren();
  }

  wait(count) {
    this.clear();
    this.place.replaceChildren(...Array.from({ length: count }, () => make("li", { className: "hit ghostly", "aria-hidden": "true" })));
  }

  // pictures of the gallery, to choose a reference from
  offer(pictures) {
    this.#ranks.clear();
    for (const picture of pictures) {
      const button = make("button", { className: "frame", type: "button", "aria-label": `Use as reference: ${oneLine(picture.name)}` }, thumbnail(picture));
      button.onclick = () => this.choose(picture);
      this.place.append(make("li", { className: "hit" }, button, make("div", { className: "caption" }, name(picture))));
    }
  }

  show(ranking) {
    const still = calm.matches || ranking.hits.every((hit) => this.#ranks.get(hit.id) === hit.rank);
    const before = still ? null : new Map([...this.#cards].map(([id, card]) => [id, card.getBoundingClientRect()]));
    const widest = Math.max(...ranking.hits.map((hit) => sum(hit.contributions.map((part) => Math.abs(part.value)))), 1e-9);
    const cards = new Map();
    for (const hit of ranking.hits) {
      const card = this.#cards.get(hit.id) ?? this.#card(hit);
      this.#fill(card, hit, widest);
      cards.set(hit.id, card);
    }
    this.#cards = cards;
    this.#ranks = new Map(ranking.hits.map((hit) => [hit.id, hit.rank]));
    const focused = document.activeElement;
    this.place.replaceChildren(...cards.values());
    if (this.place.contains(focused)) focused.focus({ preventScroll: true });
    if (before) glide(cards, before);
  }

  #card(hit) {
    const open = make("button", { className: "frame", type: "button", "aria-haspopup": "dialog" }, thumbnail(hit));
    const use = make("button", { className: "use quiet", type: "button", textContent: "Use as reference", "aria-label": `Use as reference: ${oneLine(hit.name)}` });
    const card = make("li", { className: "hit" }, open, make("div", { className: "caption" }));
    card.dataset.id = hit.id;
    open.onclick = () => this.open(hit.id);
    use.onclick = () => this.choose(hit);
    card.use = use;
    return card;
  }

  #fill(card, hit, widest) {
    const [open, caption] = card.children;
    open.setAttribute("aria-label", `Why ${oneLine(hit.name)}: rank ${hit.rank}, score ${hit.score.toFixed(3)}`);
    const line = make("div", { className: "caption-line" }, make("span", { className: "rank", textContent: hit.rank }), name(hit), moved(this.#ranks, hit));
    const foot = make("div", { className: "caption-foot" }, make("span", { className: "soft small score", textContent: hit.score.toFixed(3) }), card.use);
    caption.replaceChildren(line, wishes(hit), bar(hit, widest), foot);
  }
}

// "matches 3 of 4 wishes", and a tick for each: what is wanted is found, what must go is not
export function wishes(hit, named = false) {
  const atoms = hit.contributions.filter((part) => part.found);
  if (!atoms.length) return null;
  const states = atoms.map((part) => ({ ...part, met: isMet(part) }));
  const met = states.filter((part) => part.met).length;
  const said = `matches ${met} of ${atoms.length} ${atoms.length === 1 ? "wish" : "wishes"}`;
  const ticks = states.map((part) => {
    const word = signOf(part.factor) < 0 ? (part.met ? "gone" : "still there") : part.found;
    return make("li", { className: `tick factor-${part.factor} ${part.met ? "met" : part.found === "hardly found" ? "weak" : "unmet"}`, title: `${titled(part.factor)}: ${oneLine(part.text)}, ${word}` }, make("span", { textContent: oneLine(part.text) }));
  });
  const list = make("ul", { className: "ticks", "aria-label": said }, ...ticks);
  return make("div", { className: "wishes" }, named ? make("p", { className: "wishes-said", textContent: said[0].toUpperCase() + said.slice(1) }) : null, list);
}

const isMet = (part) => (signOf(part.factor) > 0 ? part.found === "found" : part.found !== "found");

// one scale for all bars of a ranking; what counts against a picture is striped
export function bar(hit, widest) {
  const parts = FACTORS.map(({ name }) => [name, sum(hit.contributions.filter((part) => part.factor === name).map((part) => part.value))]);
  const said = parts.filter(([, value]) => value).map(([factor, value]) => `${titled(factor)} ${value.toFixed(3)}`).join(", ");
  const element = make("div", { className: "bar", role: "img", "aria-label": said, title: said });
  for (const [factor, value] of parts) {
    if (!value) continue;
    const piece = make("i", { className: `factor-${factor}${value < 0 ? " against" : ""}` });
    piece.style.width = `${(100 * Math.abs(value)) / widest}%`;
    element.append(piece);
  }
  return element;
}

export const sum = (values) => values.reduce((total, value) => total + value, 0);

function thumbnail(picture) {
  const image = make("img", { alt: oneLine(picture.name), loading: "lazy", decoding: "async", src: pictureUrl(picture.id, THUMBNAIL) });
  image.onerror = () => image.replaceWith(make("span", { className: "gone soft small", textContent: "the file is no longer there" }));
  return image;
}

function name(picture) {
  return make("span", { className: "name", textContent: oneLine(picture.name), title: oneLine(picture.caption ? `${picture.caption} (${picture.id})` : picture.id) });
}

function moved(ranks, hit) {
  const before = ranks.get(hit.id);
  if (before === undefined || before === hit.rank) return null;
  const up = before > hit.rank;
  return make("span", { className: `moved ${up ? "up" : "down"}`, textContent: `${up ? "▲" : "▼"}${Math.abs(before - hit.rank)}`, title: `was ${before}` });
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

export function showTrouble(problem, actions = []) {
  const place = byId("trouble");
  place.hidden = !problem;
  if (!problem) return place.replaceChildren();
  const buttons = actions.map(([label, act]) => {
    const button = make("button", { type: "button", className: "quiet", textContent: label });
    button.onclick = act;
    return button;
  });
  const text = problem.message[0].toUpperCase() + problem.message.slice(1);
  return place.replaceChildren(make("p", { textContent: text }), make("div", { className: "trouble-actions" }, ...buttons));
}
