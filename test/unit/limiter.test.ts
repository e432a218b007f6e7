import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test } from "vitest";
import { type Limiter, openLimiter, REQUESTS_PER_PERMIT } from "../../src/platform/limiter.ts";
import { realSystem } from "../../src/platform/system.ts";

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

describe("a token", () => {
  test("has ten requests for each permit, and no more", async () => {
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("is asked for once in ten requests", async () => {
    await granted(PERMITS * REQUESTS_PER_PERMIT);
    expect(permits.asked).toHaveLength(PERMITS);
  });

  test("has no more requests when they come at once", async () => {
    const answers = await Promise.all(Array.from({ length: 20 }, () => limiter.token("token")));
    const atOnce = answers.filter(Boolean).length;
    expect(atOnce).toBe(PERMITS);
    expect(atOnce + (await granted(1000))).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("has no more requests of several isolates together", async () => {
    const isolates = [limiter, isolate(), isolate()];
    let count = 0;
    for (let i = 0; i < 300; i++) count += await granted(1, isolates[i % 3]);
    expect(count).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("loses after a minute what it has not used", async () => {
    await granted(1);
    now += MINUTE;
    permits.startNextMinute();
    expect(await granted(1000)).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("spends nothing of another's", async () => {
    await granted(1000);
    expect(await limiter.token("another")).toBe(true);
  });

  test("is let through while the binding fails", async () => {
    permits.limit = () => Promise.reject(new Error("away"));
    expect(await granted(1000)).toBe(1000);
  });

  test("can't fill the memory by being made up", async () => {
    for (let i = 0; i < 10_000; i++) await limiter.token(`made up ${i}`);
    await limiter.token("token");
    const { length } = permits.asked;
    await limiter.token("made up 0");
    expect(permits.asked).toHaveLength(length + 1);
  });
});

test.each([
  ["an address", "address", "192.0.2.1", "192.0.2.1"],
  ["a login", "login", "ada@example.com", expect.stringMatching(/^[0-9a-f]{64}$/)],
] as const)("%s is asked for each time", async (_, kind, subject, key) => {
  const answers = [];
  for (let i = 0; i <= PERMITS; i++) answers.push(await limiter[kind](subject));
  expect(answers).toEqual([...Array(PERMITS).fill(true), false]);
  expect(permits.asked).toEqual(Array(PERMITS + 1).fill(key));
});

test("as it is set up, a token has 6,000 requests a minute", async () => {
  const real = openLimiter(env, realSystem);
  const token = crypto.randomUUID();
  let count = 0;
  while (await real.token(token)) count += 1;
  // The minute may end meanwhile, and another begin.
  expect([6000, 12_000]).toContain(count - (count % 6000));
});
