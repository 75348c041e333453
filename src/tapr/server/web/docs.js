// The OpenAPI description as a page, drawn here so that it also works without a network.

import { byId, make } from "./dom.js";

const description = await (await fetch("/openapi.json")).json();

const resolve = (schema) => (schema?.$ref ? description.components.schemas[schema.$ref.split("/").pop()] : schema ?? {});

function kind(schema) {
  const parts = schema.anyOf ?? [schema];
  const names = parts.filter((part) => part.type !== "null").map((part) => {
    if (part.$ref) return part.$ref.split("/").pop();
    if (part.type === "array") return `list of ${kind(part.items ?? {})}`;
    return part.contentMediaType || part.format === "binary" ? "file" : part.type ?? "any";
  });
  return [...new Set(names)].join(" or ") + ("default" in schema && schema.default !== null ? ` = ${JSON.stringify(schema.default)}` : "");
}

const row = (...cells) => make("tr", {}, ...cells.map((text) => make("td", { textContent: text })));

function fields(operation) {
  const rows = (operation.parameters ?? []).map((one) => row(one.name + (one.required ? " *" : ""), kind(one.schema), one.description ?? ""));
  const [media, content] = Object.entries(operation.requestBody?.content ?? {})[0] ?? [];
  if (!media) return rows;
  const body = resolve(content.schema);
  for (const [name, schema] of Object.entries(body.properties ?? {}))
    rows.push(row(name + (body.required?.includes(name) ? " *" : ""), kind(schema), schema.description ?? resolve(schema).description ?? ""));
  return rows;
}

function answers(operation) {
  return Object.entries(operation.responses).map(([status, reply]) => `${status} ${reply.description.replace(/\.$/, "")}`).join(" · ");
}

for (const [path, methods] of Object.entries(description.paths))
  for (const [method, operation] of Object.entries(methods)) {
    const [media] = Object.keys(operation.requestBody?.content ?? {});
    byId("routes").append(make("section", { className: "route" },
      make("h2", {}, make("b", { className: method, textContent: method.toUpperCase() }), path),
      make("p", { textContent: operation.description ?? operation.summary }),
      media ? make("p", { className: "soft small", textContent: media }) : null,
      make("table", {}, ...fields(operation)),
      make("p", { className: "soft small", textContent: answers(operation) })));
  }
