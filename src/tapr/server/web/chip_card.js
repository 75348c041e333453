// The little card of one atom: its words, its weight within the factor, where it belongs.

import { byId, make } from "./dom.js";
import { ATOM_FACTORS, factorName } from "./factor_table.js";
import { t } from "./i18n.js";

export function openChipCard(chip, atom, factor, factors) {
  const card = byId("chip-card");
  let current = atom; // its name once the words are kept
  const { spec, atomWeights } = factors.store.state;
  const words = make("input", { type: "text", value: atom, maxLength: 160, "aria-label": t("chip.words") });
  const slider = make("input", { type: "range", min: 0.1, max: 3, step: 0.1, "aria-label": t("chip.weight") });
  slider.value = atomWeights.get(atom) ?? 1;
  const shown = make("output", { className: "small", textContent: `×${Number(slider.value).toFixed(1)}` });
  slider.oninput = () => {
    shown.textContent = `×${Number(slider.value).toFixed(1)}`;
    factors.weigh(current, Number(slider.value));
  };
  // atoms share their factor's weight: alone, one always has all of it
  slider.disabled = spec[factor].length < 2;
  const hint = t(slider.disabled ? "chip.weight.only" : "chip.weight.hint", { factor: factorName(factor) });
  const moves = ATOM_FACTORS.map((to) => {
    const button = make("button", { type: "button", className: `move factor-${to}`, textContent: factorName(to), "aria-pressed": String(to === factor) });
    button.onclick = () => {
      card.hidePopover();
      factors.move(current, factor, to);
    };
    return button;
  });
  const remove = make("button", { type: "button", className: "quiet danger", textContent: t("chip.delete") });
  remove.onclick = () => {
    card.hidePopover();
    factors.remove(current, factor);
  };
  words.onkeydown = (event) => {
    if (event.key === "Enter") {
      event.preventDefault(); // the chip gets the focus, and would be pressed by the same key
      card.hidePopover();
    }
    if (event.key === "Escape") words.value = atom;
  };
  card.className = `chip-card factor-${factor}`;
  card.replaceChildren(
    words,
    make("div", { className: "card-line" }, slider, shown),
    make("p", { className: "soft small", textContent: hint }),
    make("div", { className: "card-line", role: "group", "aria-label": t("chip.where") }, ...moves, remove));
  card.onbeforetoggle = (event) => {
    if (event.newState !== "closed") return;
    card.onbeforetoggle = null;
    current = factors.rename(atom, factor, words.value);
  };
  card.showPopover();
  place(card, chip);
  words.focus();
  words.select();
}

function place(card, chip) {
  const at = chip.getBoundingClientRect();
  const left = Math.max(8, Math.min(at.left, innerWidth - card.offsetWidth - 8));
  const below = at.bottom + 6;
  const fits = below + card.offsetHeight < innerHeight;
  card.style.left = `${left}px`;
  card.style.top = `${Math.max(8, fits ? below : at.top - card.offsetHeight - 6)}px`;
}
