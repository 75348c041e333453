// The options of a search, as the server tells them: ranges, defaults and labels of the controls are decided there.

const bounds = (schema) => ({ ...schema, ...schema.anyOf?.find((one) => one.type !== "null") });

// a control names its option by data-option, a label by data-label-of
export function readOptions(options) {
  for (const control of document.querySelectorAll("[data-option]")) {
    const { minimum, maximum, maxLength, description } = bounds(options[control.dataset.option]);
    if (minimum !== undefined) control.min = minimum;
    if (maximum !== undefined) control.max = maximum;
    if (maxLength !== undefined) control.maxLength = maxLength;
    control.title = description;
  }
  for (const label of document.querySelectorAll("[data-label-of]")) label.textContent = options[label.dataset.labelOf].label;
}
