// The arrow keys in the grid: from picture to picture, from row to row, Home and End to the first and the last.

export function steppedBy(grid, leave) {
  grid.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const frames = [...grid.querySelectorAll(".frame")];
    const at = frames.indexOf(event.target.closest("li")?.querySelector(".frame"));
    if (at < 0) return;
    const next = target(event.key, frames, at);
    if (next === undefined) return;
    event.preventDefault();
    if (next) next.focus();
    else leave();
  });
}

// -> a frame; null: above the first row; undefined: another key, or nothing there
function target(key, frames, at) {
  if (key === "ArrowRight") return frames[at + 1];
  if (key === "ArrowLeft") return frames[at - 1];
  if (key === "Home") return frames[0];
  if (key === "End") return frames.at(-1);
  if (key !== "ArrowUp" && key !== "ArrowDown") return undefined;
  const down = key === "ArrowDown";
  const here = frames[at].getBoundingClientRect();
  const middle = here.left + here.width / 2;
  const beyond = frames.map((frame) => [frame, frame.getBoundingClientRect()]).filter(([, box]) => (down ? box.top >= here.bottom : box.bottom <= here.top));
  if (!beyond.length) return down ? undefined : null;
  const row = down ? Math.min(...beyond.map(([, box]) => box.top)) : Math.max(...beyond.map(([, box]) => box.top));
  const away = ([, box]) => Math.abs(box.left + box.width / 2 - middle);
  return beyond.filter(([, box]) => Math.abs(box.top - row) < 2).reduce((best, one) => (away(one) < away(best) ? one : best))[0];
}
