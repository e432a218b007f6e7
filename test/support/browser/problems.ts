import type { BrowserContext, Page } from "@playwright/test";

/** The problem of a request without a network. */
export const OFFLINE = /net::ERR_INTERNET_DISCONNECTED/;

/**
 * The problems that may follow an interrupted request, which the page repeats: the service is still saving its bytes, or has saved
 * more than it reported, or the local server responds 500 without the headers that let another origin read it.
 */
const INTERRUPTED = [409, 423, 500, /CORS/, /net::ERR_/];

/** The status of a response, or a pattern. */
type Expected = number | RegExp;

/** The problems that the browser reports for the pages of a test. */
export class Problems {
  readonly #found: string[] = [];
  readonly #allowed = new Set<RegExp>();
  readonly #missing = new Set<RegExp>();

  add(problem: string): void {
    const patterns = [...this.#allowed].filter((pattern) => pattern.test(problem));
    for (const pattern of patterns) this.#missing.delete(pattern);
    if (patterns.length === 0) this.#found.push(problem);
  }

  /** Ignores problems that the test causes on purpose from now on, such as the rejection of a wrong key. Each must occur. */
  allow(...expected: Expected[]): void {
    for (const pattern of this.tolerate(...expected)) this.#missing.add(pattern);
  }

  /** Ignores problems that occur or not by the moment at which something else ends, which a comment names. */
  tolerate(...expected: Expected[]): RegExp[] {
    const patterns = expected.map((one) => (typeof one === "number" ? new RegExp(`status of ${one}\\b`) : one));
    for (const pattern of patterns) this.#allowed.add(pattern);
    return patterns;
  }

  tolerateInterruptions(): void {
    this.tolerate(...INTERRUPTED);
  }

  /** Returns the problems that were not allowed, and clears them. */
  take(): string[] {
    return this.#found.splice(0);
  }

  /** Returns the allowed problems that have not occurred. */
  get missing(): string[] {
    return [...this.#missing].map((pattern) => `No problem is ${pattern}.`);
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
