import { objectIn, type Reference, type Schema } from "./document.ts";

const MAX_RESULTS = 30;

export interface Entry {
  /** Where it is in the page. */
  id: string;
  kind: "Operation" | "Section" | "Schema" | "Error" | "Field";
  title: string;
  /** Where the title belongs to, or what it means. */
  detail: string;
}

function fieldEntries(id: string, schema: Schema, detail: string): Entry[] {
  const object = objectIn(schema);
  return Object.entries(object?.properties ?? {}).flatMap(([name, field]) => [
    { id: `${id}.${name}`, kind: "Field" as const, title: name, detail },
    ...fieldEntries(`${id}.${name}`, field, detail),
  ]);
}

/** All that can be found, the most wanted first. */
export function indexOf({ sections, groups, schemas, codes }: Reference): Entry[] {
  const operations = groups.flatMap((group) => group.operations);
  return [
    ...operations.map(({ id, method, path, summary }) => ({
      id,
      kind: "Operation" as const,
      title: summary,
      detail: `${method} ${path}`,
    })),
    ...[...sections, ...groups].map(({ id, title }) => ({ id, kind: "Section" as const, title, detail: "" })),
    ...Object.keys(schemas).map((name) => ({ id: `schema-${name}`, kind: "Schema" as const, title: name, detail: "" })),
    ...codes.map(({ code, status, meaning }) => ({
      id: `error-${code}`,
      kind: "Error" as const,
      title: code,
      detail: `${status}: ${meaning}`,
    })),
    ...operations.flatMap(({ id, parameters, body, summary }) => [
      ...parameters.map(({ name }) => ({ id: `${id}.${name}`, kind: "Field" as const, title: name, detail: summary })),
      ...fieldEntries(id, body?.schema ?? {}, summary),
    ]),
    ...Object.entries(schemas).flatMap(([name, schema]) => fieldEntries(`schema-${name}`, schema, name)),
  ];
}

export const wordsOf = (query: string): string[] => query.toLowerCase().split(/\s+/).filter(Boolean);

/** What has every word, those first whose titles have them. */
export function find(index: Entry[], query: string): Entry[] {
  const words = wordsOf(query);
  if (words.length === 0) return [];
  const has = (text: string) => words.every((word) => text.toLowerCase().includes(word));
  const found = index.filter(({ id, title, detail }) => has(`${title} ${detail} ${id}`));
  const rank = ({ title }: Entry) => (title.toLowerCase() === query.toLowerCase() ? 0 : has(title) ? 1 : 2);
  return found.sort((a, b) => rank(a) - rank(b)).slice(0, MAX_RESULTS);
}
