// The buttons at a picture that was found, on its card and in the viewer: [{name, act}]. `name` is the key of its text
// (action.NAME), `act` gets the hit; `closes` says that the viewer closes first.

import { make } from "./dom.js";
import { t } from "./i18n.js";

export const ACTIONS = [];

export const actionButtons = (hit, called, className, before = () => {}) => ACTIONS.map(({ name, act, closes }) => {
  const button = make("button", { type: "button", className: `quiet ${className}`, textContent: t(`action.${name}`), "aria-label": `${t(`action.${name}`)}: ${called}` });
  button.dataset.action = name;
  button.onclick = () => {
    if (closes) before();
    act(hit);
  };
  return button;
});
