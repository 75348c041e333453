// The words of the page: a table per language, words_*.js, in the language that the visitor chose, else the browser's.

import en from "./words_en.js";
import { recall, remember } from "./memory.js";

export const LANGUAGES = { en: "English", de: "Deutsch", fr: "Français", es: "Español" };

const wanted = [recall("language"), ...navigator.languages].map((one) => one?.slice(0, 2).toLowerCase());
export const language = wanted.find((one) => one && Object.hasOwn(LANGUAGES, one)) ?? "en";
const words = language === "en" ? en : (await import(`./words_${language}.js`)).default;
const plural = new Intl.PluralRules(language);

export const has = (key) => Object.hasOwn(words, key);

export const number = (value) => value.toLocaleString(language);

// `values` fill the {names} of a text; one with several forms is chosen by {count}
export function t(key, values = {}) {
  const forms = words[key];
  const text = typeof forms === "string" ? forms : forms[plural.select(values.count)] ?? forms.other;
  return text.replace(/\{(\w+)\}/g, (_, name) => (typeof values[name] === "number" ? number(values[name]) : values[name]));
}

// what stands in the HTML: an element names the key of its text, its title and its label
export function translate(root) {
  const each = (attribute, act) => {
    for (const element of root.querySelectorAll(`[${attribute}]`)) act(element, t(element.getAttribute(attribute)));
  };
  each("data-t", (element, text) => (element.textContent = text));
  each("data-t-title", (element, text) => (element.title = text));
  each("data-t-label", (element, text) => element.setAttribute("aria-label", text));
}

// another language is another page: the address holds the search
export function speak(other) {
  remember("language", other);
  location.reload();
}

// a sentence of the server is English; where the page is not, a screen reader is told
export const ofServer = language === "en" ? {} : { lang: "en" };

document.documentElement.lang = language;
translate(document);
