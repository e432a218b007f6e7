import type { Locator, Page } from "@playwright/test";
import axe from "axe-core";
import { expect, screenshot } from "./support.ts";

/* Every page meets WCAG 2.2 AA, works with only a keyboard, and fits a narrow screen. */

/** All rules once for each page. The theme changes only contrast, and the width only the size of targets. */
const RULES = {
  all: { type: "tag", values: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"] },
  contrast: { type: "rule", values: ["color-contrast"] },
  "target size": { type: "rule", values: ["target-size"] },
} as const;
const MAX_PRESSES = 200;
/** Longer animations show the passing of time, and fade nothing. */
const MAX_FADE_MILLISECONDS = 5000;

/** Runs axe-core on the page and its frames. @returns a line for each element with an issue */
export async function findAccessibilityIssues(page: Page, rules: keyof typeof RULES = "all"): Promise<string[]> {
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
  for (const frame of page.frames()) {
    if (!(await frame.evaluate(() => "axe" in window))) await frame.evaluate(axe.source);
    const { violations } = await frame.evaluate(
      (only) =>
        (window as unknown as { axe: typeof axe }).axe.run(document, {
          runOnly: { type: only.type, values: [...only.values] },
          ...(only.type === "tag" && { rules: { "target-size": { enabled: true } } }),
          iframes: false,
          preload: false,
        }),
      RULES[rules],
    );
    for (const { id, help, nodes } of violations) {
      for (const { target, failureSummary = "" } of nodes)
        found.push(`${id}: ${help}: ${target.join(" ")}: ${failureSummary.replace(/\s+/g, " ")}`);
    }
  }
  return found;
}

export async function expectAccessible(page: Page, rules: keyof typeof RULES = "all"): Promise<void> {
  expect(await findAccessibilityIssues(page, rules), `accessibility issues (${rules})`).toEqual([]);
}

/** Checks a page in both themes and on a narrow screen, and takes screenshots. Leaves it light and wide. */
export async function expectGoodLooks(page: Page, name: string): Promise<void> {
  await expectAccessible(page);
  await screenshot(page, name);
  await page.emulateMedia({ colorScheme: "dark" });
  await expectAccessible(page, "contrast");
  await screenshot(page, name);
  await page.emulateMedia({ colorScheme: "light" });
  const { width = 1280, height = 800 } = page.viewportSize() ?? {};
  await page.setViewportSize({ width: 320, height: 640 });
  await expectNoSidewaysScroll(page);
  await expectAccessible(page, "target size");
  await screenshot(page, name);
  await page.setViewportSize({ width, height });
}

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

/** Moves the focus to an element by keyboard. @throws if it can't be reached, with the elements that can be */
export async function tabTo(target: Locator, key: "Tab" | "Shift+Tab" = "Tab"): Promise<void> {
  const passed: string[] = [];
  for (let presses = 0; presses < MAX_PRESSES; presses++) {
    await target.page().keyboard.press(key);
    const { isThere, name } = await target.evaluate((element) => {
      const { activeElement } = document;
      return {
        isThere: element === activeElement,
        name: (activeElement?.cloneNode() as Element | undefined)?.outerHTML,
      };
    });
    if (isThere) return;
    passed.push(name ?? "nothing");
  }
  throw new Error(`${target} can't be reached by ${key}. Reached: ${[...new Set(passed)].join("\n")}`);
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
