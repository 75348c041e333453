// The chosen facets as text of a filter: what the server's `where` reads.

export const quoted = (text) => `'${String(text).replaceAll("'", "''")}'`;
export const column = (name) => `"${name.replaceAll('"', '""')}"`;

// `types` of the columns: those of the server, told once
let types = {};
export const readTypes = (known) => (types = known);

export function facetText(facets) {
  return Object.entries(facets).map(([name, chosen]) => {
    if (Array.isArray(chosen)) {
      const [from, to] = chosen.map((value) => (types[name] === "date" ? quoted(value) : value));
      return `${column(name)} between ${from} and ${to}`;
    }
    if (types[name] === "boolean") return `${column(name)} = ${chosen.values[0]}`;
    return `${column(name)} in (${chosen.values.map(quoted).join(", ")})`;
  }).join(" and ");
}

// the facets and the expert's own words together
export function whereOf(state) {
  const parts = [facetText(state.facets), state.where].filter(Boolean);
  return parts.length > 1 ? parts.map((part) => `(${part})`).join(" and ") : parts[0] ?? "";
}
