/* Exports of the npm package. Webhook endpoints verify messages without a client, and so without an API key. */
export { SignatureError, verifyMessage } from "./signatures.ts";
export * from "./stowage.ts";
