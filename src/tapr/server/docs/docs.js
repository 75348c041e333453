// The OpenAPI description as a page, with its examples, drawn here so that it also works without a network.

const byId = (id) => document.getElementById(id);
const description = await (await fetch("/openapi.json")).json();

function make(tag, properties, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const resolve = (schema) => (schema?.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema ?? {});

function kind(schema) {
  const parts = schema.anyOf ?? [schema];
  const names = parts.filter((part) => part.type !== "null").map((part) => {
    if (part.$ref) return part.$ref.split("/").pop();
    if (part.enum) return part.enum.join(" | ");
    if (part.type === "array") return `list of ${kind(part.items ?? {})}`;
    return part.format === "binary" ? "file" : part.type ?? "any";
  });
  return [...new Set(names)].join(" or ") + ("default" in schema && schema.default !== null ? ` = ${JSON.stringify(schema.default)}` : "");
}

const row = (...cells) => make("tr", {}, ...cells.map((text) => make("td", { textContent: text })));

function fields(operation) {
  const rows = (operation.parameters ?? []).map((one) => row(one.name + (one.required ? " *" : ""), kind(one.schema), one.description ?? ""));
  const contents = operation.requestBody?.content ?? {};
  const body = resolve((contents["application/json"] ?? Object.values(contents)[0])?.schema);
  for (const [name, schema] of Object.entries(body.properties ?? {}))
    rows.push(row(name + (body.required?.includes(name) ? " *" : ""), kind(schema), schema.description ?? resolve(schema).description ?? ""));
  return rows;
}

const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

function address(path, query) {
  const left = { ...query };
  const filled = path.replace(/\{(\w+)\}/g, (_, name) => { const value = left[name]; delete left[name]; return encodeURIComponent(value ?? name); });
  const rest = new URLSearchParams(left).toString();
  return location.origin + filled + (rest ? `?${rest}` : "");
}

const lines = (values) => values.map((value) => JSON.stringify(value)).join("\n");

// the calls that a person can copy: as JSON, as a form, or the address alone
function calls(method, path, example) {
  const start = [`curl${method === "get" || method === "post" ? "" : ` -X ${method.toUpperCase()}`}`, quoted(address(path, example.query))];
  const out = [];
  if (example.request) out.push([...start, "--json", quoted(JSON.stringify(example.request))]);
  if (example.form) out.push([...start, ...Object.entries(example.form).map(([name, value]) => `-F ${quoted(`${name}=${value}`)}`)]);
  if (example.lines) out.push([...start, "--data-binary", quoted(lines(example.lines))]);
  return (out.length ? out : [start]).map((parts) => parts.join(" "));
}

function sample(text, copied) {
  const box = make("div", { className: "sample" }, make("pre", { textContent: text, tabIndex: 0 }));
  if (copied && navigator.clipboard) {
    const button = make("button", { type: "button", textContent: "Copy" });
    button.onclick = async () => { await navigator.clipboard.writeText(text); button.textContent = "Copied"; };
    box.append(button);
  }
  return box;
}

function drawn(method, path, operation) {
  const example = operation["x-example"] ?? {};
  const rows = fields(operation);
  const media = Object.keys(operation.requestBody?.content ?? {});
  const replies = Object.entries(operation.responses).map(([status, reply]) => row(status, "", reply.description));
  return make("section", { id: operation.operationId, className: "route" },
    make("h2", {}, make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), path),
    make("p", { textContent: operation.description ?? operation.summary }),
    media.length ? make("p", { className: "soft", textContent: `Takes ${media.join(" or ")}.` }) : null,
    make("h3", { textContent: "Example" }),
    ...calls(method, path, example).map((text) => sample(text, true)),
    example.answer ? make("h3", { textContent: "Answer" }) : null,
    example.answer ? sample(JSON.stringify(example.answer, null, 2)) : null,
    rows.length ? make("details", {}, make("summary", { textContent: "Fields" }), make("table", {}, ...rows)) : null,
    make("details", {}, make("summary", { textContent: "Statuses" }), make("table", {}, ...replies)));
}

const groups = new Map([["Search", []], ["Gallery", []], ["Write", []], ["More", []]]);
for (const [path, methods] of Object.entries(description.paths)) {
  if (path.startsWith("/api/galleries/{")) continue; // the same routes for a gallery by its name
  for (const [method, operation] of Object.entries(methods))
    (groups.get(operation["x-group"]) ?? groups.get("More")).push([method, path, operation]);
}
const contents = byId("contents");
contents.append(make("a", { href: "#start", textContent: "How to ask" }));
for (const [name, operations] of groups) {
  if (operations.length) contents.append(make("h2", { textContent: name }));
  for (const [method, path, operation] of operations) {
    contents.append(make("a", { href: `#${operation.operationId}` },
      make("span", { className: `method ${method}`, textContent: method.toUpperCase() }), path.replace("/api/", "")));
    byId("routes").append(drawn(method, path, operation));
  }
}
// the address may name a route, which was not there when the page was loaded
if (location.hash) byId(location.hash.slice(1))?.scrollIntoView();

const watcher = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const link = contents.querySelector(`a[href="#${entry.target.id}"]`);
    if (entry.isIntersecting) link?.setAttribute("aria-current", "true");
    else link?.removeAttribute("aria-current");
  }
}, { rootMargin: "-70px 0px -60% 0px" });
document.querySelectorAll("main > section").forEach((section) => watcher.observe(section));
