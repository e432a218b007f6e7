import type { Frame, Locator, Page } from "@playwright/test";
import axe from "axe-core";
import { isExhaustive } from "../tiers.ts";
import { expect, screenshot } from "./support.ts";

/* Every page meets WCAG 2.2 AA, works with only a keyboard, and fits a narrow screen. */

/** All rules once for each page. The theme changes only contrast, and the width only the size of targets. */
const RULES = {
  all: {
    type: "tag",
    values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"],
    // axe-core does not run these by itself.
    more: ["target-size", "label-content-name-mismatch"],
  },
  contrast: { type: "rule", values: ["color-contrast"], more: [] },
  "target size": { type: "rule", values: ["target-size"], more: [] },
} as const;
const MAX_PRESSES = 200;
/** Longer animations show the passing of time, and fade nothing. */
const MAX_FADE_MILLISECONDS = 5000;

/** Runs axe-core in a frame of the page, on its document or on one element. */
async function runAxe(frame: Frame, rules: keyof typeof RULES, part?: Locator): Promise<string[]> {
  if (!(await frame.evaluate(() => "axe" in window))) await frame.evaluate(axe.source);
  const run = (element: Element, only: (typeof RULES)[keyof typeof RULES]) =>
    (window as unknown as { axe: typeof axe }).axe.run(element, {
      runOnly: { type: only.type, values: [...only.values] },
      rules: Object.fromEntries(only.more.map((rule) => [rule, { enabled: true }])),
      iframes: false,
      preload: false,
    });
  const { violations } = await (part ?? frame.locator(":root")).evaluate(run, RULES[rules]);
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map(
      ({ target, failureSummary = "" }) =>
        `${id}: ${help}: ${target.join(" ")}: ${failureSummary.replace(/\s+/g, " ")}`,
    ),
  );
}

/** Runs axe-core on the page and its frames, or on one element. @returns a line for each element with an issue */
export async function findAccessibilityIssues(
  target: Page | Locator,
  rules: keyof typeof RULES = "all",
): Promise<string[]> {
  const [page, part] = "page" in target ? [target.page(), target] : [target];
  // In the middle of a fade, the contrast is not the final one.
  await page.evaluate(async (longest) => {
    const ending = document.getAnimations().filter(({ effect }) => {
      // In closed details, a fade never finishes.
      const isShown = (effect as KeyframeEffect | null)?.target?.checkVisibility();
      return isShown && Number(effect?.getComputedTiming().endTime) < longest;
    });
    await Promise.allSettled(ending.map((one) => one.finished));
  }, MAX_FADE_MILLISECONDS);
  const found: string[] = [];
  for (const frame of part ? [page.mainFrame()] : page.frames()) found.push(...(await runAxe(frame, rules, part)));
  found.push(...(await findNestedRegions(page)));
  return found;
}

/** Finds live regions in others, which screen readers read twice, or not at all. */
const findNestedRegions = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const region = "[role=status], [role=alert], [role=log], [aria-live]";
    return [...document.querySelectorAll(`:is(${region}) :is(${region})`)].map(
      (element) => `A live region in another one: ${(element.cloneNode() as Element).outerHTML}`,
    );
  });

export async function expectAccessible(target: Page | Locator, rules: keyof typeof RULES = "all"): Promise<void> {
  expect(await findAccessibilityIssues(target, rules), `accessibility issues (${rules})`).toEqual([]);
}

/**
 * Checks that a page is accessible and fits a narrow screen; in a run of all tests in both themes and with the rules of
 * each width, too, with screenshots. Leaves it light and wide.
 */
export async function expectGoodLooks(page: Page, name: string): Promise<void> {
  const { width = 1280, height = 800 } = page.viewportSize() ?? {};
  const narrow = { width: 320, height: 640 };
  await expectAccessible(page);
  expect(await findSmallTexts(page), "texts below 12 px").toEqual([]);
  if (isExhaustive) {
    await screenshot(page, name);
    await page.emulateMedia({ colorScheme: "dark" });
    await expectAccessible(page, "contrast");
    await screenshot(page, name);
    await page.emulateMedia({ colorScheme: "light" });
    await page.setViewportSize(narrow);
    await screenshot(page, name);
  }
  await page.setViewportSize(narrow);
  await expectAccessible(page, "target size");
  await expectNoSidewaysScroll(page);
  await page.setViewportSize({ width, height });
}

/** Finds the texts that are smaller than 12 px. */
const findSmallTexts = (page: Page): Promise<string[]> =>
  page.evaluate(() => {
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const found = new Set<string>();
    while (walker.nextNode()) {
      const { parentElement, data } = walker.currentNode as Text;
      if (!data.trim() || !parentElement?.checkVisibility() || parentElement.closest("svg, script, style")) continue;
      const size = Number.parseFloat(getComputedStyle(parentElement).fontSize);
      if (size < 11.99) found.add(`${size} px: ${data.trim()}`);
    }
    return [...found];
  });

/** The elements whose contents must stay within their edges. */
const BOXES = "dialog[open], .card, .uploads, .uploads li, .table tr, .folder, .notice, .failure";

/** Finds what passes the edge of its dialog, card, or row, unless it scrolls or is cut there. */
export const findSpills = (page: Page): Promise<string[]> =>
  page.evaluate((boxes) => {
    const spills: string[] = [];
    for (const box of document.querySelectorAll(boxes)) {
      const edge = box.getBoundingClientRect();
      for (const element of box.querySelectorAll("*")) {
        const { left, right, width } = element.getBoundingClientRect();
        if (width === 0 || (left >= edge.left - 1 && right <= edge.right + 1) || !element.checkVisibility()) continue;
        let around = element.parentElement;
        while (around && around !== box && getComputedStyle(around).overflowX === "visible")
          around = around.parentElement;
        const { position } = getComputedStyle(element);
        // Content that is only for screen readers has no place on the screen, and announcements float above the page.
        if (around !== box || position === "fixed" || element.closest(".visually-hidden, .announcements")) continue;
        spills.push(`${(box.cloneNode() as Element).outerHTML} < ${(element.cloneNode() as Element).outerHTML}`);
      }
    }
    return [...new Set(spills)];
  }, BOXES);

/** Makes all texts as long as they may be in German, and code as wide as in the monospaced fonts of users. */
export const stretchTexts = (page: Page): Promise<void> =>
  page.evaluate(() => {
    const sheet = new CSSStyleSheet();
    // The font of the packaged Chromium is narrow.
    sheet.replaceSync(":is(code, pre, kbd) { letter-spacing: 0.15em; }");
    document.adoptedStyleSheets = [sheet];
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    const texts: Text[] = [];
    while (walker.nextNode()) texts.push(walker.currentNode as Text);
    for (const text of texts) {
      if (!/\p{L}{3}/u.test(text.data) || text.parentElement?.closest("svg, script, style, pre, code, option, time"))
        continue;
      // Each longer word, because German has compounds.
      text.data = text.data.replace(/\p{L}{4,}/gu, (word) => word + "enschaft".slice(0, Math.ceil(word.length / 3)));
    }
  });

/** Finds the elements that make the page wider than its window. */
export async function findTooWide(page: Page): Promise<string[]> {
  return page.evaluate(() => {
    const { scrollWidth, clientWidth } = document.documentElement;
    if (scrollWidth <= clientWidth) return [];
    const wide = [...document.body.querySelectorAll("*")].filter(
      (element) => element.getBoundingClientRect().right > clientWidth + 0.5,
    );
    return [
      `${scrollWidth} px in a window of ${clientWidth} px`,
      ...wide.map((element) => (element.cloneNode() as Element).outerHTML),
    ];
  });
}

export async function expectNoSidewaysScroll(page: Page): Promise<void> {
  expect(await findTooWide(page), "elements wider than the window").toEqual([]);
}

/** Expects a button that has the color of links. */
export async function expectLinkColor(target: Locator): Promise<void> {
  const color = await target.page().evaluate(() => {
    const link = document.body.appendChild(document.createElement("a"));
    const { color } = getComputedStyle(link);
    link.remove();
    return color;
  });
  await expect(target).toHaveCSS("color", color);
}

/** Moves the focus to an element by keyboard. @throws once the focus has been everywhere, with the elements it reached */
export async function tabTo(target: Locator, key: "Tab" | "Shift+Tab" = "Tab"): Promise<void> {
  const passed: string[] = [];
  const { keyboard } = target.page();
  for (let press = 0; ; press++) {
    await keyboard.press(key);
    const reached = await target.evaluate((element, isFirst) => {
      const { activeElement } = document;
      const found = window as { passed?: Set<Element | null>; last?: Element | null };
      if (isFirst || !found.passed) found.passed = new Set();
      // The parts of a date are several stops of one element.
      const isAgain = found.passed.has(activeElement) && found.last !== activeElement;
      found.passed.add(activeElement);
      found.last = activeElement;
      const name = (activeElement?.cloneNode() as Element | undefined)?.outerHTML ?? "nothing";
      const root = element.getRootNode() as Document | ShadowRoot;
      return { isThere: element === root.activeElement, isAgain, name };
    }, press === 0);
    if (reached.isThere) return;
    passed.push(reached.name);
    if (reached.isAgain || press > MAX_PRESSES)
      throw new Error(`${target} can't be reached by ${key}. Reached: ${[...new Set(passed)].join("\n")}`);
  }
}

/** Measures unexpected layout shifts from the next load on. @returns a function that reads their sum */
export async function watchLayoutShift(page: Page): Promise<() => Promise<number>> {
  await page.addInitScript(() => {
    const add = (entries: PerformanceEntryList) => {
      for (const { value } of entries as (PerformanceEntry & { value: number })[])
        Reflect.set(window, "shifted", Number(Reflect.get(window, "shifted") ?? 0) + value);
    };
    const observer = new PerformanceObserver((list) => add(list.getEntries()));
    observer.observe({ type: "layout-shift", buffered: true });
    Reflect.set(window, "takeShifts", () => add(observer.takeRecords()));
  });
  return () =>
    page.evaluate(async () => {
      await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      (window as unknown as { takeShifts: () => void }).takeShifts();
      return Number(Reflect.get(window, "shifted") ?? 0);
    });
}
