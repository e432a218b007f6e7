import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { ProxiedBindings } from "./bindings.ts";

/** The faults of the last call, before it and after it. */
function lastFaults(bindings: ProxiedBindings) {
  const faults = [...bindings.everyFault()].filter(({ call }) => call === bindings.calls.length);
  const at = (moment: string) => faults.filter((fault) => fault.moment === moment).map(({ failure }) => failure);
  return { before: at("before"), after: at("after") };
}
const ERRORS = ["transient", "permanent", "outage"];
const CHANGED = ["transient", "permanent", "death"];

describe("The fault enumeration", () => {
  test.each<[string, (database: D1Database, bucket: R2Bucket) => Promise<unknown>, string[]]>([
    ["but an outage after a put", (_, bucket) => bucket.put("one", "1"), CHANGED],
    ["but an outage after a batch with one write", (database) => writeOnce(database), CHANGED],
    ["only before a get", (_, bucket) => bucket.get("none"), []],
    ["only before a select", (database) => database.prepare("select * from files").all(), []],
    ["only before a delete that matches nothing", (database) => deleteNothing(database), []],
  ])("has every fault %s", async (_, act, after) => {
    const bindings = new ProxiedBindings();
    await act(bindings.database(env.DB), bindings.bucket(env.BUCKET));
    expect(lastFaults(bindings)).toEqual({ before: [...ERRORS, "death"], after });
  });

  async function writeOnce(database: D1Database) {
    await env.DB.prepare("create table rate_limits_of_tests (n integer)").run();
    const insert = database.prepare("insert into rate_limits_of_tests values (1)");
    await database.batch([database.prepare("select 1"), insert]);
    await env.DB.prepare("drop table rate_limits_of_tests").run();
  }
  const deleteNothing = (database: D1Database) =>
    database.batch([database.prepare("select 1"), database.prepare("delete from files where id = 'none'")]);

  test.each<[string, (bindings: ProxiedBindings) => unknown]>([
    ["another invocation makes a call", () => new ProxiedBindings().bucket(env.BUCKET).head("none")],
    ["time passes", (bindings) => Object.assign(bindings, { now: () => 1 })],
    ["the call before has not returned", () => undefined],
  ])("has a death before a call only if %s", async (reason, act) => {
    const isParallel = reason.startsWith("the call before");
    for (const isBetween of [false, true]) {
      const bindings = new ProxiedBindings();
      const bucket = bindings.bucket(env.BUCKET);
      const first = bucket.put("one", "1");
      if (!isParallel || !isBetween) await first;
      if (isBetween) await act(bindings);
      await Promise.all([first, bucket.put("two", "2")]);
      expect(lastFaults(bindings)).toEqual({ before: isBetween ? [...ERRORS, "death"] : ERRORS, after: CHANGED });
    }
  });
});
