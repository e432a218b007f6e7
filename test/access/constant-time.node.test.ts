import { scrypt, timingSafeEqual } from "node:crypto";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { loadSecrets, sameSecret } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";

/*
 * The duration of a comparison must not depend on its result. These tests count the work instead of measuring time,
 * which varies on a busy machine. They run in Node, because workerd can't mock its own modules.
 */

vi.mock("node:crypto", async (original) => {
  const real = await original<typeof import("node:crypto")>();
  return { ...real, scrypt: vi.fn(real.scrypt), timingSafeEqual: vi.fn(real.timingSafeEqual) };
});

const load = (fill: string) => loadSecrets(btoa(fill.repeat(32)), realSystem, { ln: 4, r: 1, p: 1 });
const secrets = load("a");

/** Returns the cost of each scrypt and the lengths of each comparison since the test began. */
const work = () => ({
  hashed: vi
    .mocked(scrypt)
    .mock.calls.map(([, salt, length, cost]) => [Buffer.from(salt as Buffer).length, length, cost]),
  compared: vi.mocked(timingSafeEqual).mock.calls.map(([a, b]) => [a.byteLength, b.byteLength]),
});
beforeEach(() => void vi.clearAllMocks());

describe("a password check", () => {
  test.each<[string, (hash: string) => Promise<boolean>]>([
    ["a wrong password", (hash) => secrets.verifyPassword("wrong-canary-password", hash)],
    ["an unknown user", () => secrets.verifyPassword("wrong-canary-password", null)],
    ["a hash of another master key", (hash) => load("b").verifyPassword("canary-password", hash)],
    ["a malformed hash", () => secrets.verifyPassword("canary-password", "plain")],
  ])("a check with %s costs the same work as with the right password", async (_, verify) => {
    const hash = await secrets.hashPassword("canary-password");
    vi.clearAllMocks();
    expect(await secrets.verifyPassword("canary-password", hash)).toBe(true);
    const right = work();
    expect(right.hashed).toHaveLength(1);
    expect(right.compared).toEqual([[32, 32]]);
    vi.clearAllMocks();
    expect(await verify(hash)).toBe(false);
    expect(work()).toEqual(right);
  });
});

describe("a comparison of secrets", () => {
  test.each([
    ["equal secrets", "secret", true],
    ["a different secret of the same length", "sacred", false],
    ["a longer secret", "secret and more", false],
    ["an empty secret", "", false],
  ])("takes constant time for %s", (_, other, isSame) => {
    expect(sameSecret("secret", other)).toBe(isSame);
    const { compared } = work();
    expect(compared).toHaveLength(1);
    expect(compared[0]?.[0]).toBe(compared[0]?.[1]);
  });
});
