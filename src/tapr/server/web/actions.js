// The buttons at a picture that was found, on its card and in the viewer: [{name, act}]. `name` is the key of its text
// (action.NAME), `act` gets the hit; `closes` says that the viewer closes first. On a narrow card a `sign`, the path of
// an icon, stands for the text.

import { make } from "./dom.js";
import { t } from "./i18n.js";

const SVG = "http://www.w3.org/2000/svg";

export const ACTIONS = [];

export const actionButtons = (hit, called, className, before = () => {}) => ACTIONS.map(({ name, act, closes, sign }) => {
  const button = make("button", { type: "button", className: `quiet ${className}`, title: sign && t(`action.${name}`), "aria-label": `${t(`action.${name}`)}: ${called}` },
    sign ? icon(sign) : null, make("span", { textContent: t(`action.${name}`) }));
  button.dataset.action = name;
  button.onclick = () => {
    if (closes) before();
    act(hit);
  };
  return button;
});

function icon(path) {
  const drawing = document.createElementNS(SVG, "svg");
  drawing.setAttribute("viewBox", "0 0 24 24");
  drawing.setAttribute("class", "icon");
  drawing.setAttribute("aria-hidden", "true");
  const line = document.createElementNS(SVG, "path");
  line.setAttribute("d", path);
  drawing.append(line);
  return drawing;
}
