import { randomBytes } from "node:crypto";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import {
  type Browser,
  type BrowserContextOptions,
  chromium,
  type FileChooser,
  type Locator,
  type Page,
  expect as standard,
} from "@playwright/test";
import { test as base, inject } from "vitest";
import type { SavedSession } from "../../../src/console/framework/token.ts";
import { isExhaustive } from "../tiers.ts";
import { Problems, settle, watch } from "./problems.ts";

export const url = inject("url");
export const storeOrigin = inject("storeOrigin");

/** Reached only if an expected state never occurs. In a complete run, machines may be slow and busy. */
const TIMEOUT_MILLISECONDS = inject("isSuite") ? 100_000 : 15_000;

export const expect = standard.configure({ timeout: TIMEOUT_MILLISECONDS });

export interface PageOptions extends Omit<BrowserContextOptions, "colorScheme" | "viewport" | "reducedMotion"> {
  /** The path from the root of the service. */
  path?: string;
  theme?: "light" | "dark";
  /** The size of the window in CSS pixels. */
  width?: number;
  height?: number;
  reducedMotion?: boolean;
  /** A session of the console, which the page finds as if its user had signed in before. */
  session?: SavedSession;
}

export type OpenPage = (options?: PageOptions) => Promise<Page>;

let browser: Promise<Browser> | undefined;

/**
 * `openPage` opens a page with its own cookies, storage, cache, and client IP. At its end, the test fails if one of its
 * pages had a problem that was not passed to `problems.allow`, or if one that was has not occurred.
 */
export const test = base
  .extend("problems", () => new Problems())
  .extend("openPage", async ({ problems }, { onCleanup }) => {
    const started = inject("browser");
    if ("problem" in started) throw new Error(started.problem);
    browser ??= chromium.connect(started.endpoint);
    const connected = await browser;
    const contexts: Awaited<ReturnType<Browser["newContext"]>>[] = [];
    const clean = async () => {
      await settle(contexts.flatMap((context) => context.pages()));
      // A request that a test holds, or changes, may still be on its way.
      const pages = contexts.flatMap((context) => context.pages());
      await Promise.all(pages.map((page) => page.unrouteAll({ behavior: "ignoreErrors" })));
      await Promise.all(contexts.map((context) => context.close()));
    };
    onCleanup(async () => {
      // What a browser does for a page whose script never ends has no timeout.
      const isClosed = await Promise.race([
        clean().then(() => true),
        sleep(TIMEOUT_MILLISECONDS, false, { ref: false }),
      ]);
      expect(isClosed, "the pages respond").toBe(true);
      expect([...problems.take(), ...problems.missing], "problems in the browser").toEqual([]);
    });
    return async (options: PageOptions = {}): Promise<Page> => {
      const { path = "/", theme = "light", width = 1280, height = 800, session, ...rest } = options;
      const { reducedMotion = false, ...others } = rest;
      const context = await connected.newContext({
        baseURL: url,
        colorScheme: theme,
        viewport: { width, height },
        reducedMotion: reducedMotion ? "reduce" : "no-preference",
        // Tests do not share the rate limit of a client IP.
        extraHTTPHeaders: { "CF-Connecting-IP": `10.${[...randomBytes(3)].join(".")}` },
        ...others,
      });
      contexts.push(context);
      context.setDefaultTimeout(TIMEOUT_MILLISECONDS);
      await context.addInitScript(recordAnnouncements);
      await context.addInitScript(refuseClipboard);
      await watch(context, problems, [new URL(others.baseURL ?? url).origin, storeOrigin]);
      const page = await context.newPage();
      if (session) await page.addInitScript(seedSession, JSON.stringify(session));
      await page.goto(path);
      return page;
    };
  });

/** Defines a test that only `npm run test:all` runs: another width, a long list, a walk by keyboard, a timer, a rare case. */
export const exhaustive = test.runIf(isExhaustive);

/** Saves a session before the first page of the tab loads. Later pages keep it, or have signed out. */
function seedSession(text: string): void {
  if (window !== top || window.name === "seeded") return;
  window.name = "seeded";
  sessionStorage.setItem("stowage.session", text);
}

/** Announcements disappear after seconds, in which a busy machine may not look at the page. So the page keeps their texts. */
function recordAnnouncements(): void {
  const announced: string[] = [];
  Reflect.set(window, "announced", announced);
  new MutationObserver((changes) => {
    for (const node of changes.flatMap(({ addedNodes }) => [...addedNodes])) {
      const isRead = node instanceof Element && node.parentElement?.matches(".announcements[role=status]");
      if (!isRead || !node.checkVisibility()) continue;
      const place = node.closest("dialog") ? "in a dialog" : "on the page";
      // What only screen readers get has no buttons, and is the text itself.
      announced.push(`${(node.querySelector("span") ?? node).textContent} ${place}`);
    }
  }).observe(document, { childList: true, subtree: true });
}

/** Checks that the console has shown an announcement since the page was loaded, "in a dialog" or "on the page". */
export async function expectAnnounced(page: Page, text: string): Promise<void> {
  const announced = () => page.evaluate(() => (Reflect.get(window, "announced") as string[]).join("\n"));
  await expect.poll(announced).toContain(text);
}

/**
 * No page may write to the clipboard, which all pages share, whatever the default of the browser is. A test that needs the
 * permission replaces the method, as `copyBy` and `nextCopied` do.
 */
function refuseClipboard(): void {
  if (globalThis.Clipboard)
    Clipboard.prototype.write = Clipboard.prototype.writeText = async () => {
      throw new DOMException("Write permission denied.", "NotAllowedError");
    };
}

/** Waits for the effects of the shown components, such as their keys: Preact runs them after the next frame. */
export const untilEffects = (page: Page) =>
  page.evaluate(() => new Promise((done) => requestAnimationFrame(() => setTimeout(done))));

/** Chooses files in the dialog that something opens, such as a key. */
export async function chooseFiles(
  page: Page,
  open: () => Promise<unknown>,
  files: Parameters<FileChooser["setFiles"]>[0],
): Promise<void> {
  const asked = page.waitForEvent("filechooser");
  // A key or a click reaches the page by another way than the order to intercept the dialog, and could overtake it.
  await page.evaluate("0");
  await open();
  await (await asked).setFiles(files);
}

/** Saves a screenshot to the folder in the variable SCREENSHOTS, if it is set. */
export async function screenshot(page: Page, name: string): Promise<void> {
  const folder = process.env.SCREENSHOTS;
  if (!folder) return;
  const isDark = await page.evaluate(() => matchMedia("(prefers-color-scheme: dark)").matches);
  const file = `${name}-${isDark ? "dark" : "light"}-${page.viewportSize()?.width}.png`;
  mkdirSync(folder, { recursive: true });
  await page.screenshot({ path: join(folder, file), fullPage: true });
}

/** Disconnects the page from the network. Requests in flight continue. @returns a function that reconnects it */
export async function cutNetwork(page: Page): Promise<() => Promise<void>> {
  await page.context().setOffline(true);
  return () => page.context().setOffline(false);
}

/** Makes requests fail as if there were no network. @returns a function that ends this */
export async function failRequests(page: Page, pattern: string | RegExp): Promise<() => Promise<void>> {
  await page.route(pattern, (route) => route.abort("internetdisconnected"));
  return () => page.unroute(pattern);
}

/** Simulates switching to another tab and back. */
export const setHidden = (page: Page, hidden: boolean) =>
  page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);

/** Returns the text that the page copies next. It doesn't reach the clipboard, which other tests use, too. */
export const nextCopied = (page: Page): Promise<string> =>
  page.evaluate(
    () =>
      new Promise<string>((resolve) => {
        navigator.clipboard.writeText = async (text) => {
          Reflect.deleteProperty(navigator.clipboard, "writeText");
          resolve(text);
        };
      }),
  );

/**
 * Lets the page write to the clipboard only while it handles an event, as Safari does.
 * @returns a function that reads what the page has written
 */
export async function allowWritesInEvents(page: Page): Promise<() => Promise<string | undefined>> {
  await page.evaluate(() => {
    navigator.clipboard.write = async ([item]) => {
      if (!window.event) throw new DOMException("Write permission denied.", "NotAllowedError");
      const blob = await item?.getType("text/plain");
      Reflect.set(window, "copied", await blob?.text());
    };
  });
  return () => page.evaluate(() => Reflect.get(window, "copied") as string | undefined);
}

/** Clicks a copy button once. @returns the text that it copies, which contains the expected one */
export async function copyBy(button: Locator, expected: string): Promise<string> {
  const page = button.page();
  await page.evaluate(() => {
    Reflect.deleteProperty(window, "copied");
    navigator.clipboard.writeText = async (text) => {
      Reflect.deleteProperty(navigator.clipboard, "writeText");
      Reflect.set(window, "copied", text);
    };
  });
  await button.click();
  const copied = () => page.evaluate(() => Reflect.get(window, "copied") as string | undefined);
  await expect.poll(copied, "the button has copied nothing").toBeDefined();
  const text = (await copied()) ?? "";
  expect(text).toContain(expected);
  return text;
}
