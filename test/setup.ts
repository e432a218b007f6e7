import { applyD1Migrations } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import fc from "fast-check";
import { afterAll, expect } from "vitest";
import { leaksInDatabase, leaksInObjects, watcher } from "./support/canaries.ts";
import { ALL_DATABASES } from "./support/databases.ts";
import { emptyStores } from "./support/stores.ts";

fc.configureGlobal({ seed: Number(env.STOWAGE_SEED) });
for (const database of ALL_DATABASES) await applyD1Migrations(database, env.TEST_MIGRATIONS);
await emptyStores();

// The queue consumer loads the Worker at its first event. If that happens while a file ends, the run hangs.
await exports.default.fetch("https://stowage.test/openapi.json");

// After every file: no secret was printed, and none is stored in plain text.
afterAll(async () => {
  expect(watcher.leaks.splice(0)).toEqual([]);
  expect(await leaksInDatabase()).toEqual([]);
  expect(await leaksInObjects()).toEqual([]);
});
