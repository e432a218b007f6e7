/** `npm run structure` prints what rules borrow and who uses which table. */
import { countBorrowed } from "./borrowed.ts";
import { describeTables, renderTables } from "./tables.ts";

const counts = countBorrowed();
const sum = counts.reduce((total, { names }) => total + names, 0);
console.log(`${sum} names that ${counts.length} rule files borrow from other folders. The ten that borrow most:`);
for (const { path, names, folders } of counts.slice(0, 10)) console.log(`  ${names} of ${folders} folders  ${path}`);
console.log(`\n${renderTables(describeTables())}`);
