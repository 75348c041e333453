// A link to a search holds it after the #, and its gallery before: both are kept while the token is asked for.

import "./i18n.js"; // in the visitor's language

const form = document.getElementById("token-form");
form.action = `/${location.hash}`;
const gallery = new URLSearchParams(location.search).get("gallery");
if (gallery !== null) form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "gallery", value: gallery }));
