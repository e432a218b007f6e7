import { applyD1Migrations } from "cloudflare:test";
import { env, exports } from "cloudflare:workers";
import { afterAll, expect } from "vitest";
import { leaksInDatabase, watcher } from "./support/canaries.ts";

await applyD1Migrations(env.DB, env.TEST_MIGRATIONS);

// The queue consumer loads the Worker at its first event. Should that be while the file ends, the run hangs for ever.
await exports.default.fetch("https://stowage.test/openapi.json");

// Of every file, whatever it tests: no secret is printed, and none is stored as it is.
afterAll(async () => {
  expect(watcher.leaks).toEqual([]);
  expect(await leaksInDatabase()).toEqual([]);
});
