/**
 * Releases the schema: `npm run freeze`. Records the hashes of the migrations, which can't change from then on, and writes a
 * small state with this version, on which a test starts the versions after it. Commit both.
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { landMigrations } from "./schema-check.ts";

const root = join(import.meta.dirname, "../..");
landMigrations(join(root, "migrations"));
const args = ["vitest", "run", "--config", "test/vitest.config.ts", "--project", "node", "test/dev/state.node.test.ts"];
const env = { ...process.env, STOWAGE_WRITE_STATE: "true" };
process.exit(spawnSync("npx", args, { cwd: root, env, stdio: "inherit" }).status ?? 1);
