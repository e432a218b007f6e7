/* What the npm package exports. Receivers of webhooks verify what they get without a client, and so without a key. */
export { SignatureError, verifyMessage } from "./signatures.ts";
export * from "./stowage.ts";
