import { scrypt, timingSafeEqual } from "node:crypto";
import { beforeEach, describe, expect, test, vi } from "vitest";
import { loadSecrets, sameSecret } from "../../src/platform/secrets.ts";
import { realSystem } from "../../src/platform/system.ts";

/*
 * How long a comparison takes must not tell what it found. No time is measured here, which a busy machine would falsify:
 * what is counted is the work. It runs in Node, since in workerd a module of the platform can't be watched.
 */

vi.mock("node:crypto", async (original) => {
  const real = await original<typeof import("node:crypto")>();
  return { ...real, scrypt: vi.fn(real.scrypt), timingSafeEqual: vi.fn(real.timingSafeEqual) };
});

const load = (fill: string) => loadSecrets(btoa(fill.repeat(32)), realSystem);
const secrets = load("a");

/** The cost of every scrypt and the lengths of every comparison since the test began. */
const work = () => ({
  hashed: vi
    .mocked(scrypt)
    .mock.calls.map(([, salt, length, cost]) => [Buffer.from(salt as Buffer).length, length, cost]),
  compared: vi.mocked(timingSafeEqual).mock.calls.map(([a, b]) => [a.byteLength, b.byteLength]),
});
beforeEach(() => void vi.clearAllMocks());

describe("Checking a password", () => {
  test.each<[string, (hash: string) => Promise<boolean>]>([
    ["a wrong password", (hash) => secrets.verifyPassword("wrong-canary-password", hash)],
    ["an unknown user", () => secrets.verifyPassword("wrong-canary-password", null)],
    ["a hash of another master key", (hash) => load("b").verifyPassword("canary-password", hash)],
    ["a hash that is none", () => secrets.verifyPassword("canary-password", "plain")],
  ])("A login with %s costs the same work as the right one.", async (_, verify) => {
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

describe("Comparing secrets", () => {
  test.each([
    ["equal ones", "secret", true],
    ["another of the same length", "sacred", false],
    ["a longer one", "secret and more", false],
    ["none", "", false],
  ])("A secret is compared in constant time with %s.", (_, other, isSame) => {
    expect(sameSecret("secret", other)).toBe(isSame);
    const { compared } = work();
    expect(compared).toHaveLength(1);
    expect(compared[0]?.[0]).toBe(compared[0]?.[1]);
  });
});
