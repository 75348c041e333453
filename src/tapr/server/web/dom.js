// Making elements. Every text goes in through textContent: names and edits are never read as HTML.

export const byId = (id) => document.getElementById(id);

export function make(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null) continue;
    if (name in element && !name.includes("-")) element[name] = value;
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const signed = (value) => (value < 0 ? "−" : "+") + Math.abs(value).toFixed(3);

// file names may hold line breaks and other signs that would vanish or reorder the text around them
export const oneLine = (text) => text.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, (sign) => (/[\n\r\u2028\u2029]/.test(sign) ? "⏎" : sign === "\u200d" ? sign : "�"));

export function announce(text) {
  byId("announce").textContent = text;
}
