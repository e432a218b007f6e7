import "vitest";

declare module "vitest" {
  interface ProvidedContext {
    /** Of the server that the tests of the client share. */
    url: string;
    operatorToken: string;
  }
}
