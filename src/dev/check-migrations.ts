/** Fails if src/platform/schema.ts has changes without a migration. */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { generateSQLiteDrizzleJson, generateSQLiteMigration } from "drizzle-kit/api";
import * as eventSchema from "../platform/event-schema.ts";
import * as schema from "../platform/schema.ts";
import * as uploadSchema from "../platform/upload-schema.ts";

const meta = join(import.meta.dirname, "../../migrations/meta");
const latest = readdirSync(meta)
  .filter((name) => name.endsWith("_snapshot.json"))
  .sort()
  .at(-1);
if (!latest) throw new Error("There are no migrations.");

const migrated = JSON.parse(readFileSync(join(meta, latest), "utf8"));
const statements = await generateSQLiteMigration(
  migrated,
  await generateSQLiteDrizzleJson({ ...schema, ...eventSchema, ...uploadSchema }),
);
if (statements.length > 0) {
  console.error(`The schema is ahead of the migrations. Run "npm run migration <name>":\n${statements.join("\n")}`);
  process.exit(1);
}
console.log("The migrations match the schema.");
