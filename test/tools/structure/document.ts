/** The tables of `src/README.md` that are made from the code, each between marks such as `<!-- tables -->`. */
import { renderOperations } from "./operations.ts";
import { describeTables, renderTables } from "./tables.ts";

/** The document with the present tables. */
export function withTables(document: string): string {
  const texts = { operations: renderOperations(), tables: renderTables(describeTables()) };
  return Object.entries(texts).reduce((text, [name, table]) => {
    const marked = new RegExp(`(<!-- ${name} -->\n).*?(<!-- /${name} -->)`, "s");
    return text.replace(marked, (_, start, end) => `${start}${table}\n${end}`);
  }, document);
}
