/**
 * `npm run structure` prints the names that rules borrow, and the users of each table. With `--write`, it writes the tables of
 * operations and of tables into src/README.md.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { countBorrowed } from "./borrowed.ts";
import { withTables } from "./document.ts";
import { root } from "./sources.ts";
import { describeTables, renderTables } from "./tables.ts";

const counts = countBorrowed();
const sum = counts.reduce((total, { names }) => total + names, 0);
console.log(`${sum} names that ${counts.length} rule files borrow from other folders. The ten that borrow most:`);
for (const { path, names, folders } of counts.slice(0, 10)) console.log(`  ${names} of ${folders} folders  ${path}`);
console.log(`\n${renderTables(describeTables())}`);

const document = join(root, "src/README.md");
if (process.argv.includes("--write")) writeFileSync(document, withTables(readFileSync(document, "utf8")));
