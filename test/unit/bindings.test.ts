import { env } from "cloudflare:workers";
import { describe, expect, test } from "vitest";
import { FAILURES, ProxiedBindings } from "../support/bindings.ts";

const faultsOf = (bindings: ProxiedBindings) =>
  [...bindings.everyFault()].map(({ call, moment, failure }) => `${call} ${moment} ${failure}`);
const all = (call: number, moment: string) => FAILURES.map((failure) => `${call} ${moment} ${failure}`);
const allButDeath = (call: number) => all(call, "before").filter((fault) => !fault.endsWith("death"));

describe("The faults that are gone through", () => {
  test("Of a call that changes something all are, before it and after it.", async () => {
    const bindings = new ProxiedBindings();
    await bindings.bucket(env.BUCKET).put("one", "1");
    expect(faultsOf(bindings)).toEqual([...all(1, "before"), ...all(1, "after")]);
  });

  test("Of a call that changes nothing those before it are, in D1 and in R2.", async () => {
    const bindings = new ProxiedBindings();
    const database = bindings.database(env.DB);
    const [bucket, other] = [bindings.bucket(env.BUCKET), new ProxiedBindings().bucket(env.BUCKET)];
    await database.prepare("select * from files").all();
    // Without it the next would follow the first.
    await other.head("none");
    await database.batch([database.prepare("select 1"), database.prepare("delete from files where id = 'none'")]);
    await other.head("none");
    await bucket.get("none");
    expect(bindings.calls).toEqual(["D1 all", "D1 batch", "R2 get"]);
    expect(faultsOf(bindings)).toEqual([1, 2, 3].flatMap((call) => all(call, "before")));
  });

  test("A write to D1 changes something, also in a batch with a read.", async () => {
    const bindings = new ProxiedBindings();
    const database = bindings.database(env.DB);
    const insert = "insert into rate_limits_of_tests values (1)";
    await env.DB.prepare("create table rate_limits_of_tests (n integer)").run();
    await database.batch([database.prepare("select 1"), database.prepare(insert)]);
    await env.DB.prepare("drop table rate_limits_of_tests").run();
    expect(faultsOf(bindings)).toEqual([...all(1, "before"), ...all(1, "after")]);
  });

  test("A death before a call is that after the one before, where nothing lies between.", async () => {
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
  ])("A death before a call is one of its own where %s since the one before.", async (_, act) => {
    const bindings = new ProxiedBindings();
    const bucket = bindings.bucket(env.BUCKET);
    await bucket.put("one", "1");
    await act(bindings);
    await bucket.put("one", "2");
    expect(faultsOf(bindings).slice(8)).toEqual([...all(2, "before"), ...all(2, "after")]);
  });

  test("A death before a call is one of its own where the one before has not come back.", async () => {
    const bindings = new ProxiedBindings();
    const bucket = bindings.bucket(env.BUCKET);
    await Promise.all([bucket.put("one", "1"), bucket.put("two", "2")]);
    expect(faultsOf(bindings).slice(8)).toEqual([...all(2, "before"), ...all(2, "after")]);
  });
});
