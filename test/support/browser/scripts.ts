import type { Page } from "@playwright/test";
import { OFFLINE, type Problems } from "./problems.ts";

/* The scripts that the console loads after its first one. */

const SCRIPTS = /\/assets\/.*\.js/;

/** Loads the page again without its later scripts. @returns a function that lets them go on */
export async function reloadHolding(page: Page): Promise<() => void> {
  const { promise, resolve } = Promise.withResolvers<void>();
  const isFirst = await firstScripts(page);
  await page.route(SCRIPTS, async (route) => {
    if (!isFirst(route.request().url())) await promise;
    await route.continue().catch(() => undefined);
  });
  await page.reload();
  return resolve;
}

/**
 * Loads the page again, and makes its later scripts fail as if there were no network, until it no longer loads them by
 * itself. @returns a function that ends this
 */
export async function reloadWithout(page: Page, problems: Problems): Promise<() => Promise<void>> {
  problems.allow(OFFLINE);
  const isFirst = await firstScripts(page);
  // Only the page of an event needs it.
  const failed = page.waitForEvent("requestfailed", (request) => /\/event-\w+\.js/.test(request.url()));
  await page.route(SCRIPTS, (route) =>
    isFirst(route.request().url()) ? route.continue() : route.abort("internetdisconnected"),
  );
  await page.reload();
  await failed;
  return () => page.unroute(SCRIPTS);
}

/** Which scripts the page loads at once: its HTML names them. */
async function firstScripts(page: Page): Promise<(url: string) => boolean> {
  const html = await page.content();
  return (url) => html.includes(new URL(url).pathname);
}
