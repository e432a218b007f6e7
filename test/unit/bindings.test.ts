import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { FAILURES, ProxiedBindings } from "../support/bindings.ts";

const faultsOf = (bindings: ProxiedBindings) =>
  [...bindings.everyFault()].map(({ call, moment, failure }) => `${call} ${moment} ${failure}`);
const all = (call: number, moment: string) => FAILURES.map((failure) => `${call} ${moment} ${failure}`);
const allButDeath = (call: number) => all(call, "before").filter((fault) => !fault.endsWith("death"));

describe("The fault enumeration", () => {
  test("has every fault before and after a call that changes something", async () => {
    const bindings = new ProxiedBindings();
    await bindings.bucket(env.BUCKET).put("one", "1");
    expect(faultsOf(bindings)).toEqual([...all(1, "before"), ...all(1, "after")]);
  });

  test("has only faults before a call that changes nothing, in D1 and R2", async () => {
    const bindings = new ProxiedBindings();
    const database = bindings.database(env.DB);
    const [bucket, other] = [bindings.bucket(env.BUCKET), new ProxiedBindings().bucket(env.BUCKET)];
    await database.prepare("select * from files").all();
    // A call in between, so that the next does not follow the first directly.
    await other.head("none");
    await database.batch([database.prepare("select 1"), database.prepare("delete from files where id = 'none'")]);
    await other.head("none");
    await bucket.get("none");
    expect(bindings.calls).toEqual(["D1 all", "D1 batch", "R2 get"]);
    expect(faultsOf(bindings)).toEqual([1, 2, 3].flatMap((call) => all(call, "before")));
  });

  test("treats a batch with one write as a change", async () => {
    const bindings = new ProxiedBindings();
    const database = bindings.database(env.DB);
    const insert = "insert into rate_limits_of_tests values (1)";
    await env.DB.prepare("create table rate_limits_of_tests (n integer)").run();
    await database.batch([database.prepare("select 1"), database.prepare(insert)]);
    await env.DB.prepare("drop table rate_limits_of_tests").run();
    expect(faultsOf(bindings)).toEqual([...all(1, "before"), ...all(1, "after")]);
  });

  test("omits a death before a call that directly follows another", async () => {
    const bindings = new ProxiedBindings();
    const bucket = bindings.bucket(env.BUCKET);
    await bucket.put("one", "1");
    await bucket.put("one", "2");
    expect(faultsOf(bindings).slice(8)).toEqual([...allButDeath(2), ...all(2, "after")]);
  });

  test.each<[string, (bindings: ProxiedBindings) => unknown]>([
    ["another invocation makes a call", () => new ProxiedBindings().bucket(env.BUCKET).head("none")],
    [
      "time passes",
      (bindings) => {
        bindings.now = () => 1;
      },
    ],
  ])("has a death before a call if %s in between", async (_, act) => {
    const bindings = new ProxiedBindings();
    const bucket = bindings.bucket(env.BUCKET);
    await bucket.put("one", "1");
    await act(bindings);
    await bucket.put("one", "2");
    expect(faultsOf(bindings).slice(8)).toEqual([...all(2, "before"), ...all(2, "after")]);
  });

  test("has a death before a call if the earlier call has not returned", async () => {
    const bindings = new ProxiedBindings();
    const bucket = bindings.bucket(env.BUCKET);
    await Promise.all([bucket.put("one", "1"), bucket.put("two", "2")]);
    expect(faultsOf(bindings).slice(8)).toEqual([...all(2, "before"), ...all(2, "after")]);
  });
});
