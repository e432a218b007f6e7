import { describe, expect, onTestFinished, test, vi } from "vitest";
import { Access } from "../../src/client/element-access.ts";
import { StowageError } from "../../src/client/index.ts";

/** What a call fails with if `getToken` of the page fails. */
async function failureOf(error: unknown): Promise<[code: string, isTransient: boolean]> {
  const getToken = () => Promise.reject(error);
  const access = new Access(() => ({ url: "https://stowage.example", token: null, getToken }));
  const failure = await access.call(async () => undefined).catch((thrown: unknown) => thrown);
  const { code, isTransient } = failure as StowageError;
  return [code, isTransient];
}

describe("A page that has no token", () => {
  test("refuses an upload by an error with a code, and otherwise lets it wait", async () => {
    expect(await failureOf(Object.assign(new Error("Too late."), { code: "event_over" }))).toEqual([
      "event_over",
      false,
    ]);
    expect(await failureOf(new StowageError("forbidden", "No.", { status: 403 }))).toEqual(["forbidden", false]);
    const ofAxios = Object.assign(new Error("Network Error"), { code: "ERR_NETWORK" });
    for (const error of [ofAxios, new TypeError("Failed to fetch"), new DOMException("", "AbortError"), undefined])
      expect((await failureOf(error))[1]).toBe(true);
    expect((await failureOf(new StowageError("connection_failed", "No network.")))[1]).toBe(true);
    expect((await failureOf(new StowageError("unavailable", "Later.", { status: 503 })))[1]).toBe(true);
  });
});

describe("A page that has set no URL or no token", () => {
  const getToken = () => "t";
  test.each([
    ["", "t", undefined],
    ["https://stowage.example", null, undefined],
    ["https://stowage.example", "", undefined],
    ["", null, getToken],
  ])("lets uploads wait, and warns once: %j %j", async (url, token, getToken) => {
    const warn = vi.spyOn(console, "warn").mockImplementation(() => {});
    onTestFinished(() => warn.mockRestore());
    const settings = { url, token, getToken };
    const access = new Access(() => settings);
    expect(access.isSet).toBe(false);
    for (const _ of [1, 2])
      await expect(access.call(async () => "sent")).rejects.toMatchObject({ code: "token_missing", isTransient: true });
    expect(warn.mock.calls).toEqual([[expect.stringContaining("`token` or `getToken`")]]);
    Object.assign(settings, { url: "https://stowage.example", token: "t" });
    access.reset();
    expect([access.isSet, await access.call(async () => "sent")]).toEqual([true, "sent"]);
  });
});

describe("A token", () => {
  const rejected = new StowageError("token_invalid", "It has expired.", { status: 401 });

  test("that the service rejects is replaced by a new one, once for all calls", async () => {
    const tokens = ["old", "new", "newest"];
    const access = new Access(() => ({
      url: "https://stowage.example",
      token: null,
      getToken: () => tokens.shift() ?? "",
    }));
    const seen = new Set<unknown>();
    const call = () =>
      access.call(async (sender) => {
        seen.add(sender);
        if (seen.size === 1) throw rejected;
      });
    await Promise.all([call(), call()]);
    expect([seen.size, tokens]).toEqual([2, ["newest"]]);
  });

  test("that is rejected again fails the call, and one that is no token lets it wait", async () => {
    const given = (getToken: (() => string) | undefined) =>
      new Access(() => ({ url: "https://stowage.example", token: "t", getToken }));
    const always = given(() => "t");
    await expect(always.call(() => Promise.reject(rejected))).rejects.toBe(rejected);
    // A page in place of a token, as a proxy sends it.
    const page = given(() => "<!doctype html>\n<p>Bad gateway");
    const error = await page.call(async () => undefined).catch((thrown: unknown) => thrown);
    expect(error).toMatchObject({ isTransient: true, message: "There is no token." });
  });
});
