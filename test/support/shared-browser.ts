import type { TestProject } from "vitest/node";
import { startChromium } from "./chromium.ts";

/** Starts the browser that all tests of the pages share. Without one they are skipped, but in CI the run fails. */
export default async function startSharedBrowser(project: TestProject): Promise<() => Promise<void>> {
  const browser = await startChromium();
  const isThere = typeof browser !== "string";
  project.provide("browser", isThere ? browser.wsEndpoint() : null);
  if (isThere) return () => browser.close();
  if (process.env.CI) throw new Error(`No browser can be started: ${browser}`);
  process.stderr.write(`\nNO BROWSER: the tests of the pages are SKIPPED.\n${browser}\n\n`);
  return async () => {};
}
