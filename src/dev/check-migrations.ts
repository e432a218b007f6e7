/**
 * Fails if the `*.schema.ts` files has changes without a migration, or if the migrations create other tables and indexes,
 * or lose a trigger.
 */
import { join } from "node:path";
import { findSchemaProblems } from "./schema-check.ts";

const problems = await findSchemaProblems(join(import.meta.dirname, "../../migrations"));
if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
console.log("The migrations match the schema.");
