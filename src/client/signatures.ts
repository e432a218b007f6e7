/** Where a message is refused: its signature, its age, or its form. */
export class SignatureError extends Error {
  override readonly name = "SignatureError";
}

/** Standard Webhooks' own; older or newer messages may have been recorded and sent again. */
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
    // In constant time.
    return await crypto.subtle.verify("HMAC", key, bytesOf(encoded), signed);
  } catch {
    return false;
  }
}

/**
 * Proves that a webhook's message is the service's (Standard Webhooks 1.0), and fresh.
 * @param body the request's body as it came, not parsed and written again
 * @param headers names in lower case where they are no `Headers`
 * @param secret `whsec_…`, as the webhook's creation or rotation answered
 * @returns the message, parsed
 * @throws SignatureError
 */
export async function verifyMessage<T>(
  body: string | Uint8Array,
  headers: HeaderSource,
  secret: string,
  { toleranceSeconds = TOLERANCE_SECONDS, now = Date.now() } = {},
): Promise<T> {
  const id = headerIn(headers, "webhook-id");
  const timestamp = headerIn(headers, "webhook-timestamp");
  const signatures = headerIn(headers, "webhook-signature");
  const ageSeconds = now / 1000 - Number(timestamp);
  if (!/^\d+$/.test(timestamp) || Math.abs(ageSeconds) > toleranceSeconds) {
    throw new SignatureError("The message is too old, too new, or has no time.");
  }
  const text = typeof body === "string" ? body : new TextDecoder().decode(body);
  const secretBytes = bytesOf(secret.replace(/^whsec_/, ""));
  const key = await crypto.subtle.importKey("raw", secretBytes, { name: "HMAC", hash: "SHA-256" }, false, ["verify"]);
  const signed = new TextEncoder().encode(`${id}.${timestamp}.${text}`);
  const answers = await Promise.all(signatures.split(" ").map((signature) => isSignedBy(key, signature, signed)));
  if (!answers.includes(true)) throw new SignatureError("No signature of the message is by this secret.");
  return JSON.parse(text) as T;
}
