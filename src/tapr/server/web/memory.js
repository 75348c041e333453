// What the browser remembers from one visit to the next. Where it keeps nothing, the page works without.

export function recall(name) {
  try {
    return localStorage.getItem(`tapr.${name}`);
  } catch {
    return null;
  }
}

export function remember(name, value) {
  try {
    localStorage.setItem(`tapr.${name}`, value);
  } catch {
    // a private window, or no room
  }
}
