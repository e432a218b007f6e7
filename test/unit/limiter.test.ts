import { createExecutionContext } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { beforeEach, describe, expect, test, vi } from "vitest";
import worker from "../../src/index.ts";
import { createLimiter, type Limiter, REQUESTS_PER_PERMIT } from "../../src/platform/limiter.ts";
import { newToken, realSystem } from "../../src/platform/system.ts";
import { ProxiedBindings } from "../support/bindings.ts";
import { buildRequest, randomAddress } from "../support/client.ts";
import { newTeam, withinOneMinute } from "../support/harness.ts";

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
  return createLimiter({ TOKEN_LIMIT: permits, ADDRESS_LIMIT: permits, LOGIN_LIMIT: permits }, system, () => undefined);
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

  test.each([20, 50, 200])("has as many when %i come at once", async (requests) => {
    const answers = await Promise.all(Array.from({ length: requests }, () => limiter.token("token")));
    const atOnce = answers.filter(Boolean).length;
    expect(atOnce).toBe(Math.min(requests, PERMITS * REQUESTS_PER_PERMIT));
    expect(atOnce + (await granted(1000))).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("has no more requests of several isolates together", async () => {
    const isolates = [limiter, isolate(), isolate()];
    let count = 0;
    for (let i = 0; i < 300; i++) count += await granted(1, isolates[i % 3]);
    expect(count).toBe(PERMITS * REQUESTS_PER_PERMIT);
  });

  test("loses with the minute what it has not used", async () => {
    await Promise.all(Array.from({ length: PERMITS }, () => limiter.token("token")));
    now += MINUTE - (now % MINUTE);
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

  test("can't fill the memory by being made up: who has asked least recently is forgotten", async () => {
    await granted(1);
    for (let i = 0; i < 9999; i++) await limiter.token(`made up ${i}`);
    await granted(REQUESTS_PER_PERMIT);
    await limiter.token("one more");
    permits.asked.length = 0;
    for (const token of ["made up 0", "made up 9998", "token"]) await limiter.token(token);
    expect(permits.asked).toEqual(["made up 0"]);
  });

  test("loses nothing of a minute to an answer from the one before", async () => {
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
] as const)("%s is asked for each time", async (_, kind, subject, key) => {
  const answers = [];
  for (let i = 0; i <= PERMITS; i++) answers.push(await limiter[kind](subject));
  expect(answers).toEqual([...Array(PERMITS).fill(true), false]);
  expect(permits.asked).toEqual(Array(PERMITS + 1).fill(key));
});

test("as it is set up, a token has 6,000 requests a minute", async () => {
  const real = createLimiter(env, realSystem, () => undefined);
  const count = await withinOneMinute(async () => {
    const token = crypto.randomUUID();
    let passed = 0;
    while (await real.token(token)) passed += 1;
    return passed;
  });
  expect(count).toBe(6000);
});

test("requests of one isolate share what a permit pays for", async () => {
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

test("Whoever was refused is refused without asking the binding, until the minute ends.", async () => {
  for (const subject of ["token", "address", "login"] as const) {
    while (await limiter[subject](subject));
    permits.asked.length = 0;
    for (let i = 0; i < 100; i++) expect(await limiter[subject](subject)).toBe(false);
    expect(permits.asked).toEqual([]);
  }
  expect(limiter.isRefused("address", "another token")).toBe(true);
  expect(limiter.isRefused("another address", "another token")).toBe(false);
  now += MINUTE;
  permits.startNextMinute();
  expect(limiter.isRefused("address", "another token")).toBe(false);
  expect(await limiter.address("address")).toBe(true);
});

test("A token that was authenticated this minute is not refused for its address.", async () => {
  limiter.authenticated("good");
  while (await limiter.address("shared"));
  expect([limiter.isRefused("shared", "good"), limiter.isRefused("shared", "made up")]).toEqual([false, true]);
  now += MINUTE;
  expect(limiter.isRefused("shared", "made up")).toBe(false);
});

test("A limit whose binding fails lets requests pass, and says so in the log.", async () => {
  const lines: string[] = [];
  const failing = { limit: () => Promise.reject(new Error("away")) };
  const bindings = { TOKEN_LIMIT: failing, ADDRESS_LIMIT: failing, LOGIN_LIMIT: failing };
  const open = createLimiter(bindings, realSystem, (level, event) => void lines.push(`${level} ${event}`));
  expect([await open.token("a"), await open.address("b"), await open.login("c")]).toEqual([true, true, true]);
  expect(lines).toEqual(Array(3).fill("warn rate limit not applied"));
});

test("A flood of made-up tokens costs a round trip each until its address is refused, and none from then on.", async () => {
  await withinOneMinute(async () => {
    const proxied = new ProxiedBindings();
    const environment = { ...proxied.wrap(env), ADDRESS_LIMIT: new Permits() };
    const address = randomAddress();
    const send = async (token: string) => {
      const request = buildRequest("GET", "/docs/v1/usage", { token, address });
      return (await worker.fetch(request, environment, createExecutionContext())).status;
    };
    const { token } = await newTeam();
    expect(await send(token)).toBe(200);
    const before = proxied.effects.trips;
    const statuses = [];
    for (let i = 0; i < 100; i++) statuses.push(await send(newToken(realSystem, false)));
    expect(statuses).toEqual([...Array(PERMITS).fill(401), ...Array(100 - PERMITS).fill(429)]);
    // The request that used up the address's minute had asked as well.
    expect(proxied.effects.trips - before).toBe(PERMITS + 1);
    expect(await send(token)).toBe(200);
  });
});
