// The options of a search, as the server tells them: ranges, defaults and labels of the controls are decided there.

import { has, t } from "./i18n.js";

const bounds = (schema) => ({ ...schema, ...schema.anyOf?.find((one) => one.type !== "null") });

// in the visitor's language, where the table has it
const said = (key, otherwise) => (has(key) ? t(key) : otherwise);

// a control names its option by data-option, a label by data-label-of
export function readOptions(options) {
  for (const control of document.querySelectorAll("[data-option]")) {
    const name = control.dataset.option;
    const { minimum, maximum, maxLength, description } = bounds(options[name]);
    if (minimum !== undefined) control.min = minimum;
    if (maximum !== undefined) control.max = maximum;
    if (maxLength !== undefined) control.maxLength = maxLength;
    control.title = said(`option.${name}.hint`, description);
  }
  for (const label of document.querySelectorAll("[data-label-of]"))
    label.textContent = said(`option.${label.dataset.labelOf}`, options[label.dataset.labelOf].label);
}
