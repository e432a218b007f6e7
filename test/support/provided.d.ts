import "vitest";

declare module "vitest" {
  interface ProvidedContext {
    /** Of the server that the tests of a project share. */
    url: string;
    /** Where its signed addresses point to. */
    storeOrigin: string;
    operatorToken: string;
    /** Where the browser listens that the tests of the pages share; null where none is found. */
    browser: string | null;
  }
}
