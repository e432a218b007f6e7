import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test, vi } from "vitest";
import worker from "../../src/index.ts";
import { type Limiter, openLimiter, REQUESTS_PER_PERMIT } from "../../src/platform/limiter.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { withinOneMinute } from "../support/harness.ts";

const PERMITS = 5;
const MINUTE = 60_000;

/** The binding's promise, countable: so many permits for each key in each minute. */
class Permits implements RateLimit {
  readonly asked: string[] = [];
  #left = new Map<string, number>();

  async limit({ key }: { key: string }): Promise<{ success: boolean }> {
    this.asked.push(key);
    const left = this.#left.get(key) ?? PERMITS;
    this.#left.set(key, Math.max(0, left - 1));
    return { success: left > 0 };
  }

  startNextMinute(): void {
    this.#left.clear();
  }
}

let permits: Permits;
let now: number;
let limiter: Limiter;
const isolate = () => {
  const system = { ...realSystem, now: () => now };
  return openLimiter({ TOKEN_LIMIT: permits, ADDRESS_LIMIT: permits, LOGIN_LIMIT: permits }, system);
};
beforeEach(() => {
  permits = new Permits();
  now = 1_795_000_000_000;
  limiter = isolate();
});

async function granted(requests: number, by = limiter): Promise<number> {
  let count = 0;
  for (let i = 0; i < requests; i++) if (await by.token("token")) count += 1;
  return count;
}

describe("The limit of a token", () => {
  test("A token has ten requests for each permit, and no more.", async () => {
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("A token is asked for once in ten requests.", async () => {
    await granted(PERMITS * REQUESTS_PER_PERMIT);
    expect(permits.asked).toHaveLength(PERMITS);
  });

  test.each([20, 50, 200])("A token has as many requests when %i come at once.", async (requests) => {
    const answers = await Promise.all(Array.from({ length: requests }, () => limiter.token("token")));
    const atOnce = answers.filter(Boolean).length;
    expect(atOnce).toBe(Math.min(requests, PERMITS * REQUESTS_PER_PERMIT));
    expect(atOnce + (await granted(1000))).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("A token has no more requests of several isolates together.", async () => {
    const isolates = [limiter, isolate(), isolate()];
    let count = 0;
    for (let i = 0; i < 300; i++) count += await granted(1, isolates[i % 3]);
    expect(count).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("A token loses with the minute what it has not used.", async () => {
    await Promise.all(Array.from({ length: PERMITS }, () => limiter.token("token")));
    now += MINUTE - (now % MINUTE);
    permits.startNextMinute();
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("A token spends nothing of another's.", async () => {
    await granted(1000);
    expect(await limiter.token("another")).toBe(true);
  });

  test("A token is let through while the binding fails.", async () => {
    permits.limit = () => Promise.reject(new Error("away"));
    expect(await granted(1000)).toBe(1000);
  });

  test("Made-up tokens can't fill the memory: the one that has asked least recently is forgotten.", async () => {
    await granted(1);
    for (let i = 0; i < 9999; i++) await limiter.token(`made up ${i}`);
    await granted(REQUESTS_PER_PERMIT);
    await limiter.token("one more");
    permits.asked.length = 0;
    for (const token of ["made up 0", "made up 9998", "token"]) await limiter.token(token);
    expect(permits.asked).toEqual(["made up 0"]);
  });

  test("A token loses nothing of a minute to an answer from the one before.", async () => {
    const { promise, resolve } = Promise.withResolvers<{ success: boolean }>();
    const slow = vi.spyOn(permits, "limit").mockImplementationOnce(() => promise);
    const late = limiter.token("token");
    now += MINUTE;
    await granted(1);
    resolve({ success: true });
    expect(await late).toBe(true);
    await granted(REQUESTS_PER_PERMIT - 1);
    expect(slow).toHaveBeenCalledTimes(2);
  });
});

test.each([
  ["an address", "address", "192.0.2.1", "192.0.2.1"],
  ["a login", "login", "ada@example.com", expect.stringMatching(/^[0-9a-f]{64}$/)],
] as const)("The limit of %s is asked for each time.", async (_, kind, subject, key) => {
  const answers = [];
  for (let i = 0; i <= PERMITS; i++) answers.push(await limiter[kind](subject));
  expect(answers).toEqual([...Array(PERMITS).fill(true), false]);
  expect(permits.asked).toEqual(Array(PERMITS + 1).fill(key));
});

test("A token has 6,000 requests a minute, as the limit is set up.", async () => {
  const real = openLimiter(env, realSystem);
  const count = await withinOneMinute(async () => {
    const token = crypto.randomUUID();
    let passed = 0;
    while (await real.token(token)) passed += 1;
    return passed;
  });
  expect(count).toBe(6000);
});

test("The requests of one isolate share what a permit pays for.", async () => {
  const bindings = { ...env, TOKEN_LIMIT: permits, ADDRESS_LIMIT: new Permits() };
  const ask = async () => {
    const headers = { Authorization: `Bearer ${newToken(realSystem, false)}` };
    const request = new Request("https://stowage.test/docs/v1/usage", { headers });
    return () => worker.fetch(request, bindings, createExecutionContext());
  };
  const [one, another] = [await ask(), await ask()];
  for (const send of [one, one, another, one]) expect((await send()).status).toBe(401);
  expect(permits.asked).toHaveLength(2);
});
