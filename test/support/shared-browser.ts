import type { TestProject } from "vitest/node";
import { startChromium } from "./chromium.ts";

/** Starts the browser that all tests of the pages share. Without one, each of them fails. */
export default async function startSharedBrowser(project: TestProject): Promise<() => Promise<void>> {
  const browser = await startChromium();
  if (typeof browser === "string") {
    project.provide("browser", { problem: browser });
    return async () => {};
  }
  project.provide("browser", { endpoint: browser.wsEndpoint() });
  return () => browser.close();
}
