import type { Locator, Page } from "@playwright/test";
import axe from "axe-core";
import { expect } from "./support.ts";

/*
 * What holds of every page: it can be used by everybody (WCAG 2.2, A and AA), by keyboard alone, and on a narrow screen.
 */

const TAGS = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22a", "wcag22aa"];
const MAX_PRESSES = 200;

/** What axe-core finds against the page and its frames as they are now, a line for each element. */
export async function findBarriers(page: Page): Promise<string[]> {
  // Half way through a fade, a contrast is not what it will be.
  await page.evaluate(async () => {
    const ending = document.getAnimations().filter((one) => one.effect?.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(ending.map((one) => one.finished));
  });
  const found: string[] = [];
  for (const frame of page.frames()) {
    if (!(await frame.evaluate(() => "axe" in window))) await frame.evaluate(axe.source);
    const { violations } = await frame.evaluate(
      (tags) =>
        (window as unknown as { axe: typeof axe }).axe.run(document, {
          runOnly: { type: "tag", values: tags },
          rules: { "target-size": { enabled: true } },
          iframes: false,
          preload: false,
        }),
      TAGS,
    );
    for (const { id, help, nodes } of violations) {
      for (const { target, failureSummary = "" } of nodes)
        found.push(`${id}: ${help}: ${target.join(" ")}: ${failureSummary.replace(/\s+/g, " ")}`);
    }
  }
  return found;
}

export async function expectAccessible(page: Page): Promise<void> {
  expect(await findBarriers(page), "barriers that axe-core finds").toEqual([]);
}

/** The elements that make the page wider than its window; none where nothing scrolls sideways. */
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
  expect(await findTooWide(page), "what is wider than the window").toEqual([]);
}

/** Goes to an element as one who has no pointer does. @throws where it can't be reached, with what can be */
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
  throw new Error(`${target} can't be reached by ${key}. What can: ${[...new Set(passed)].join("\n")}`);
}

/** Watches, from the next load on, how far things move that nobody moved. @returns what tells it: 0 where nothing did */
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
