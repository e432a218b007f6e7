import type { WebhookMessage } from "./events.ts";
import { withIds } from "./ids.ts";

/** The signature, age, or format of a message is invalid. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/** The tolerance of Standard Webhooks. Messages outside of it may be replayed by an attacker. */
const TOLERANCE_SECONDS = 5 * 60;

type HeaderSource = Headers | Record<string, string | string[] | undefined>;

const bytesOf = (base64: string) => Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));

function headerIn(headers: HeaderSource, name: string): string {
  const value = headers instanceof Headers ? headers.get(name) : headers[name];
  if (typeof value === "string" && value !== "") return value;
  throw new SignatureError(`The header ${name} is missing.`);
}

async function isSignedBy(key: CryptoKey, signature: string, signed: BufferSource): Promise<boolean> {
  const [version, encoded = ""] = signature.split(",");
  if (version !== "v1") return false;
  try {
    // Compares in constant time.
    return await crypto.subtle.verify("HMAC", key, bytesOf(encoded), signed);
  } catch {
    return false;
  }
}

/**
 * Verifies that a message is from the service (Standard Webhooks 1.0) and recent.
 * @param body the unchanged request body, not parsed and serialized again
 * @param headers `Headers`, or an object with lower-case names
 * @param secret the signing secret, `whsec_…`
 * @returns the parsed message
 * @throws SignatureError, TypeError if the secret is none
 */
export async function verifyMessage<T = WebhookMessage>(
  body: string | Uint8Array,
  headers: HeaderSource,
  secret: string,
  { toleranceSeconds = TOLERANCE_SECONDS, now = Date.now() } = {},
): Promise<T> {
  // The service may not be to blame, so it must not look like a wrong signature.
  if (!/^whsec_[A-Za-z0-9+/]+=*$/.test(secret ?? ""))
    throw new TypeError("The signing secret must be `whsec_` and base64.");
  const id = headerIn(headers, "webhook-id");
  const timestamp = headerIn(headers, "webhook-timestamp");
  const signatures = headerIn(headers, "webhook-signature");
  const ageSeconds = now / 1000 - Number(timestamp);
  if (!/^\d+$/.test(timestamp) || Math.abs(ageSeconds) > toleranceSeconds) {
    throw new SignatureError("The message is too old, too new, or has no timestamp.");
  }
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const secretBytes = bytesOf(secret.slice("whsec_".length));
  const key = await crypto.subtle.importKey("raw", secretBytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${text}`);
  const results = await Promise.all(signatures.split(" ").map((signature) => isSignedBy(key, signature, signed)));
  if (!results.includes(true)) throw new SignatureError("The signature does not match the signing secret.");
  return withIds(JSON.parse(text) as T);
}
