import type { BrowserContext, Page } from "@playwright/test";

/** Tests go offline on purpose. */
const OFFLINE = /net::ERR_INTERNET_DISCONNECTED/;

/** The problems that the browser reports for the pages of a test. */
export class Problems {
  readonly #found: string[] = [];
  readonly #allowed = [OFFLINE];

  add(problem: string): void {
    this.#found.push(problem);
  }

  /** Ignores problems that the whole test causes on purpose, such as the rejection of a wrong key. */
  allow(...patterns: RegExp[]): void {
    this.#allowed.push(...patterns);
  }

  /** Returns the problems that are not allowed, and clears them. */
  take(): string[] {
    return this.#found.splice(0).filter((problem) => !this.#allowed.some((pattern) => pattern.test(problem)));
  }
}

/** Records console errors, uncaught exceptions, policy violations, and requests to other hosts. */
export async function watch(context: BrowserContext, problems: Problems, origins: string[]): Promise<void> {
  context.on("console", (message) => {
    const { url, lineNumber } = message.location();
    if (message.type() === "error") problems.add(`${message.text()} (${url}:${lineNumber + 1})`);
  });
  context.on("weberror", (error) => problems.add(`Uncaught: ${error.error().stack}`));
  context.on("page", (page) => page.on("crash", () => problems.add("The page crashed.")));
  context.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (/^https?:$/.test(protocol) && !origins.includes(origin)) problems.add(`Another host: ${request.url()}`);
  });
  // Some violations are not logged to the console.
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`Policy violation: ${event.effectiveDirective} of ${event.blockedURI || "this page"}`);
    });
  });
}

/** Waits until all problems reported so far are recorded. */
export async function settle(pages: Page[]): Promise<void> {
  const next = () => new Promise((done) => setTimeout(done));
  // A page that is closed or navigating reports nothing more.
  await Promise.all(pages.map((page) => page.evaluate(next).catch(() => undefined)));
}
