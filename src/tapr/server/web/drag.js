// Dragging a chip to another row, by mouse, pen or finger alike.

import { ATOM_FACTORS } from "./factor_table.js";

const FAR = 6; // pixels before a press becomes a drag

export function draggable(chip, dropOn) {
  chip.addEventListener("pointerdown", (down) => {
    if (down.button !== 0) return;
    let ghost = null;
    let row = null;

    const move = (event) => {
      if (!ghost && Math.hypot(event.clientX - down.clientX, event.clientY - down.clientY) < FAR) return;
      if (!ghost) {
        ghost = chip.cloneNode(true);
        ghost.classList.add("ghost");
        ghost.style.setProperty("--c", getComputedStyle(chip).getPropertyValue("--c"));
        ghost.setAttribute("aria-hidden", "true");
        document.body.append(ghost);
        chip.classList.add("lifted");
      }
      ghost.style.transform = `translate(${event.clientX - 20}px, ${event.clientY - 16}px)`;
      const under = document.elementFromPoint(event.clientX, event.clientY)?.closest("[data-factor]") ?? null;
      if (under !== row) {
        row?.classList.remove("over");
        row = under;
        if (row && ATOM_FACTORS.includes(row.dataset.factor)) row.classList.add("over");
      }
    };
    const end = (event) => {
      removeEventListener("pointermove", move);
      removeEventListener("pointerup", end);
      removeEventListener("pointercancel", end);
      row?.classList.remove("over");
      chip.classList.remove("lifted");
      if (!ghost) return;
      ghost.remove();
      // the click that follows a drag does not open the chip
      const swallow = (click) => click.stopImmediatePropagation();
      chip.addEventListener("click", swallow, { capture: true, once: true });
      setTimeout(() => chip.removeEventListener("click", swallow, { capture: true }));
      if (event.type === "pointerup" && row) dropOn(row.dataset.factor);
    };
    addEventListener("pointermove", move);
    addEventListener("pointerup", end);
    addEventListener("pointercancel", end);
  });
}
