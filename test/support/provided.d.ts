import "vitest";

declare module "vitest" {
  interface ProvidedContext {
    /** The URL of the server that the tests of a project share. */
    url: string;
    /** The origin of its signed URLs. */
    storeOrigin: string;
    operatorToken: string;
    /** A server of a service with a trash, and how many days it keeps files. */
    trash: { url: string; operatorToken: string; days: number };
    /** Where these servers leave a mark when they are ready. */
    serverMarks: string[];
    /** Whether this run includes the exhaustive enumerations (`npm run test:all`). */
    isExhaustive: boolean;
    /** Whether this is a run of the scripts of package.json, and not of files by hand. */
    isSuite: boolean;
    /** The WebSocket URL of the shared browser, or why none can be started. */
    browser: { endpoint: string } | { problem: string };
  }
}
