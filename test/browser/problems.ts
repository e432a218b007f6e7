import type { BrowserContext, Page } from "@playwright/test";

/** What a test may do on purpose: it is then no problem that the browser tells of it. */
const OFFLINE = /net::ERR_INTERNET_DISCONNECTED/;

/** What went wrong in pages, as the browser tells it. */
export class Problems {
  readonly #found: string[] = [];
  readonly #allowed = [OFFLINE];

  add(problem: string): void {
    this.#found.push(problem);
  }

  /** From the start of the test to its end: what a test provokes, such as the refusal of a wrong key. */
  allow(...patterns: RegExp[]): void {
    this.#allowed.push(...patterns);
  }

  /** What was found and not allowed, which is then forgotten. */
  take(): string[] {
    return this.#found.splice(0).filter((problem) => !this.#allowed.some((pattern) => pattern.test(problem)));
  }
}

/** Notes errors in the console, what nobody caught, violations of the policy, and requests to any other host. */
export async function watch(context: BrowserContext, problems: Problems, origins: string[]): Promise<void> {
  context.on("console", (message) => {
    const { url, lineNumber } = message.location();
    if (message.type() === "error") problems.add(`${message.text()} (${url}:${lineNumber + 1})`);
  });
  context.on("weberror", (error) => problems.add(`Not caught: ${error.error().stack}`));
  context.on("page", (page) => page.on("crash", () => problems.add("The page crashed.")));
  context.on("request", (request) => {
    const { origin, protocol } = new URL(request.url());
    if (/^https?:$/.test(protocol) && !origins.includes(origin)) problems.add(`Another host: ${request.url()}`);
  });
  // Some violations reach no console.
  await context.addInitScript(() => {
    document.addEventListener("securitypolicyviolation", (event) => {
      console.error(`Against the policy: ${event.effectiveDirective} of ${event.blockedURI || "this page"}`);
    });
  });
}

/** Until all that a page has told so far is noted. */
export async function settle(pages: Page[]): Promise<void> {
  const next = () => new Promise((done) => setTimeout(done));
  // One that has been closed, or is on its way elsewhere, has nothing more to tell.
  await Promise.all(pages.map((page) => page.evaluate(next).catch(() => undefined)));
}
