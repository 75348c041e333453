// What went wrong, said above the pictures, and what can be done about it.

import { byId, make } from "./dom.js";
import { ofServer } from "./i18n.js";

let troubles = 0; // said so far

// -> what clears the trouble that stands there now, if any, and no later one
export function endsTrouble() {
  const before = troubles;
  return () => troubles === before && showTrouble(null);
}

export function showTrouble(problem, actions = []) {
  const place = byId("trouble");
  if (problem) troubles += 1;
  place.hidden = !problem;
  if (!problem) return place.replaceChildren();
  const buttons = actions.map(([label, act]) => {
    const button = make("button", { type: "button", className: "quiet", textContent: label });
    button.onclick = act;
    return button;
  });
  const text = problem.message[0].toUpperCase() + problem.message.slice(1);
  const said = make("p", { textContent: text, ...(typeof problem.code === "string" && ofServer) });
  return place.replaceChildren(said, make("div", { className: "trouble-actions" }, ...buttons));
}
