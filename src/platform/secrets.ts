import { createCipheriv, createDecipheriv, createHmac, hash, hkdfSync, scrypt, timingSafeEqual } from "node:crypto";
import type { System } from "./system.ts";

export class DecryptionError extends Error {
  override name = "DecryptionError";
}

/** The parameters of scrypt, as a PHC string states them. */
interface HashCost {
  /** The binary logarithm of N. */
  ln: number;
  r: number;
  p: number;
}
/** OWASP's Password Storage Cheat Sheet lists it as one of its equivalent settings: 16 MiB and some 0.1 s of CPU. */
const PASSWORD_COST: HashCost = { ln: 14, r: 8, p: 5 };
/** The most bytes of 128·N·r. An isolate has 128 MB. */
const MAX_HASH_BYTES = 32 * 1024 * 1024;
/** Cloudflare's limit of N·r·p. */
const MAX_HASH_WORK = 2 ** 20;
const PHC = /^\$scrypt\$ln=(\d{1,2}),r=(\d{1,2}),p=(\d{1,2}),keyid=([0-9a-f]{8})\$([\w+/]{22})\$([\w+/]{43})$/;
const NONCE_BYTES = 12;
const TAG_BYTES = 16;

interface MasterKey {
  id: string;
  encryption: Buffer;
  pepper: Buffer;
  signing: Buffer;
  uploadTokens: Buffer;
  visitors: Buffer;
}

/** SHA-256 in lower-case hex. Tokens are looked up by it. */
export function fingerprint(text: string): string {
  return hash("sha256", text);
}

/** Compares in constant time. */
export function sameSecret(a: string, b: string): boolean {
  return timingSafeEqual(hash("sha256", a, "buffer"), hash("sha256", b, "buffer"));
}

function deriveKey(encoded: string): MasterKey {
  const master = Buffer.from(encoded, "base64");
  if (master.length !== 32 || master.toString("base64") !== encoded)
    throw new Error("MASTER_KEY: each key must be 32 random bytes in base64.");
  const derive = (use: string, bytes: number) =>
    Buffer.from(hkdfSync("sha256", master, Buffer.alloc(0), `stowage/${use}`, bytes));
  return {
    id: derive("key-id", 4).toString("hex"),
    encryption: derive("key-sealing", 32),
    pepper: derive("password-pepper", 32),
    signing: derive("link-signing", 32),
    uploadTokens: derive("upload-tokens", 32),
    visitors: derive("visitors", 32),
  };
}

function stretch(password: string, salt: Buffer, { ln, r, p }: HashCost): Promise<Buffer> {
  const options = { N: 2 ** ln, r, p, maxmem: 2 * MAX_HASH_BYTES };
  return new Promise((resolve, reject) => {
    scrypt(password.normalize("NFKC"), salt, 32, options, (error, key) => (error ? reject(error) : resolve(key)));
  });
}

/** The database is not trusted with the cost of a check. */
const isAffordable = ({ ln, r, p }: HashCost): boolean =>
  Math.min(ln, r, p) >= 1 && 2 ** ln * r * p <= MAX_HASH_WORK && 128 * 2 ** ln * r <= MAX_HASH_BYTES;

/** Reads a PHC string. @returns null if `hashPassword` can't have made it */
function parseHash(hash: string) {
  const [, ln, r, p, keyId, salt = "", sum = ""] = PHC.exec(hash) ?? [];
  const cost: HashCost = { ln: Number(ln), r: Number(r), p: Number(p) };
  return isAffordable(cost)
    ? { cost, keyId, salt: Buffer.from(salt, "base64"), sum: Buffer.from(sum, "base64") }
    : null;
}
const formatCost = ({ ln, r, p }: HashCost): string => `ln=${ln},r=${r},p=${p}`;

const hmac = (key: Buffer, data: Buffer | string) => createHmac("sha256", key).update(data).digest();
const unpadded = (bytes: Buffer) => bytes.toString("base64").replace(/=+$/, "");
/** The last part of the hash of a user without a password. No HMAC consists of zeros. */
const NO_HASH = unpadded(Buffer.alloc(32));
/** Whether `unknownPassword` made the hash. */
export const isUnknownPassword = (hash: string): boolean => hash.endsWith(`$${NO_HASH}`);

/**
 * Everything that depends on MASTER_KEY: one or more base64 keys of 32 bytes, separated by commas. The first makes new
 * values, the others decrypt their older values. HKDF-SHA-256 derives one subkey per purpose, so a leaked subkey reveals
 * no other. Each value names its key by `keyId`, 8 hex characters derived from the key.
 * @param passwordCost of new hashes. No setting reaches it: only tests pass another one
 */
export function loadSecrets(masterKey: string, system: System, passwordCost = PASSWORD_COST) {
  const keys = masterKey
    .split(",")
    .map((key) => key.trim())
    .filter(Boolean)
    .map(deriveKey);
  const current = keys[0];
  if (!current) throw new Error("MASTER_KEY is not set.");
  const keyWithId = (id: string | undefined) => keys.find((key) => key.id === id);
  const dummySalt = Buffer.alloc(16);

  /** AES-256-GCM under a random 96-bit nonce (NIST SP 800-38D). */
  const seal = (use: "encryption" | "uploadTokens") => (text: string, context: string) => {
    const nonce = Buffer.from(system.randomBytes(NONCE_BYTES));
    const cipher = createCipheriv("aes-256-gcm", current[use], nonce).setAAD(Buffer.from(context));
    const payload = Buffer.concat([nonce, cipher.update(text, "utf8"), cipher.final(), cipher.getAuthTag()]);
    return `${current.id}.${payload.toString("base64url")}`;
  };
  const open = (use: "encryption" | "uploadTokens") => (sealed: string, context: string) => {
    const [id, encoded = ""] = sealed.split(".");
    const key = keyWithId(id);
    if (!key) throw new DecryptionError(`Encrypted with the master key ${id}, which MASTER_KEY does not hold.`);
    const payload = Buffer.from(encoded, "base64url");
    try {
      // The decoder skips characters outside base64url, so other texts have the same payload.
      if (payload.toString("base64url") !== encoded) throw new Error("Not canonical.");
      const decipher = createDecipheriv("aes-256-gcm", key[use], payload.subarray(0, NONCE_BYTES), {
        authTagLength: TAG_BYTES,
      })
        .setAAD(Buffer.from(context))
        .setAuthTag(payload.subarray(-TAG_BYTES));
      return decipher.update(payload.subarray(NONCE_BYTES, -TAG_BYTES), undefined, "utf8") + decipher.final("utf8");
    } catch (cause) {
      throw new DecryptionError("An encrypted value was changed, or moved to another record.", { cause });
    }
  };

  return {
    /** The key of new values. */
    currentKeyId: current.id,
    /** The older keys, whose values should be re-encrypted. */
    olderKeyIds: keys.slice(1).map((key) => key.id),

    /** Encrypts a value of a row. `context` is authenticated with it. */
    encrypt: seal("encryption"),
    /** @throws DecryptionError if the key is missing, or the value or context was changed */
    decrypt: open("encryption"),
    sealUploadToken: (text: string) => seal("uploadTokens")(text, ""),
    /** @throws DecryptionError as `decrypt` does */
    openUploadToken: (sealed: string) => open("uploadTokens")(sealed, ""),

    /** Returns a PHC string: scrypt, then HMAC-SHA-256 with a pepper, so the database alone allows no guessing. */
    async hashPassword(password: string): Promise<string> {
      const salt = Buffer.from(system.randomBytes(16));
      const hash = hmac(current.pepper, await stretch(password, salt, passwordCost));
      return `$scrypt$${formatCost(passwordCost)},keyid=${current.id}$${unpadded(salt)}$${unpadded(hash)}`;
    },

    /** Returns the form of a hash, which no password has: for a user who is to choose one. Costs nothing. */
    unknownPassword(): string {
      const salt = unpadded(Buffer.from(system.randomBytes(16)));
      return `$scrypt$${formatCost(passwordCost)},keyid=${current.id}$${salt}$${NO_HASH}`;
    },

    /** Returns 128 bits of an HMAC in hex, under which a visitor is counted or recognized. Nobody else can compute it from a guess. */
    visitorId: (parts: string[]) => hmac(current.visitors, JSON.stringify(parts)).toString("hex").slice(0, 32),

    /** Returns an HMAC-SHA-256 of the text in base64url. Only this service can make it. */
    sign: (text: string) => hmac(current.signing, text).toString("base64url"),

    /** Whether `sign` made the signature, with the current key or an older one. */
    isSigned: (text: string, signature: string) =>
      keys.some(({ signing }) => sameSecret(hmac(signing, text).toString("base64url"), signature)),

    /** Whether the hash was made with the current key and cost. If not, rehash the password at the next login. */
    isCurrentHash(hash: string): boolean {
      const parsed = parseHash(hash);
      return parsed?.keyId === current.id && formatCost(parsed.cost) === formatCost(passwordCost);
    },

    /**
     * Costs what the hash states, whatever the result. With `null` (no such user) it does the work of a new hash and
     * returns false.
     */
    async verifyPassword(password: string, hash: string | null): Promise<boolean> {
      const parsed = parseHash(hash ?? "");
      const key = keyWithId(parsed?.keyId);
      const stretched = await stretch(password, parsed?.salt ?? dummySalt, parsed?.cost ?? passwordCost);
      const actual = hmac((key ?? current).pepper, stretched);
      const matches = timingSafeEqual(actual, parsed?.sum ?? Buffer.alloc(32));
      return matches && key !== undefined && parsed !== null;
    },
  };
}

export type Secrets = ReturnType<typeof loadSecrets>;
