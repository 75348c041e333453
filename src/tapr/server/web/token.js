// A link to a search holds it after the #, and its gallery before: both are kept while the token is asked for. This is no
// module, so that it is there before the form is.

document.addEventListener("submit", ({ target: form }) => {
  form.action = `/${location.hash}`;
  const gallery = new URLSearchParams(location.search).get("gallery");
  if (gallery !== null) form.append(Object.assign(document.createElement("input"), { type: "hidden", name: "gallery", value: gallery }));
});
