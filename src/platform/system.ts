import { randomBytes } from "node:crypto";
import { crc32 } from "node:zlib";

/** Durations in milliseconds. */
export const SECOND = 1000;
export const MINUTE = 60 * SECOND;
export const HOUR = 60 * MINUTE;
export const DAY = 24 * HOUR;

/** Clock and randomness, injected so that tests control them. */
export interface System {
  /** Milliseconds since the epoch. */
  now(): number;
  randomBytes(count: number): Uint8Array;
  sleep(milliseconds: number): Promise<void>;
}

export const realSystem: System = {
  now: () => Date.now(),
  randomBytes: (count) => randomBytes(count),
  sleep: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds)),
};

const ID_CLOCK_CHARACTERS = 12;

/** The last characters of an id are the number of its database: 12 bits, so 4,096 numbers. */
const ID_DATABASE_CHARACTERS = 3;
const ID_CHARACTERS = 24;

/** The number of a database as the last characters of an id. */
const idEnd = (database: number): string => database.toString(16).padStart(ID_DATABASE_CHARACTERS, "0");

/**
 * 24 lower-case hex characters, ordered by creation time: 6 bytes of milliseconds, 36 random bits, and 12 bits that are the
 * number of the database which has the row.
 */
export function newId(system: System, database: number): string {
  const clock = system.now().toString(16).padStart(ID_CLOCK_CHARACTERS, "0");
  const random = Buffer.from(system.randomBytes(5)).toString("hex");
  return (clock + random).slice(0, ID_CHARACTERS - ID_DATABASE_CHARACTERS) + idEnd(database);
}

/** An id without a time that begins with these hex characters. */
export const withDatabase = (hex: string, database: number): string =>
  hex.slice(0, ID_CHARACTERS - ID_DATABASE_CHARACTERS) + idEnd(database);

/** The id without a time, for what a database has once. */
export const zeroId = (database: number): string => idEnd(database).padStart(ID_CHARACTERS, "0");

/** The number of the database that has the row of an id, or of a token that `isTokenShaped` accepts. */
export function databaseOf(idOrToken: string): number {
  if (!idOrToken.startsWith(TOKEN_START)) return Number.parseInt(idOrToken.slice(-ID_DATABASE_CHARACTERS), 16);
  const digits = idOrToken.slice(-TOKEN_CHECKSUM_CHARACTERS - TOKEN_DATABASE_CHARACTERS, -TOKEN_CHECKSUM_CHARACTERS);
  return [...digits].reduce((number, digit) => number * BASE62.length + BASE62.indexOf(digit), 0);
}

/** When an id was created, in milliseconds since the epoch. */
export const instantOf = (id: string): number => Number.parseInt(id.slice(0, ID_CLOCK_CHARACTERS), 16);

/** A text that sorts after all ids created before this millisecond, and before or equal to later ones. */
export const idBound = (milliseconds: number): string =>
  milliseconds <= 0 ? "" : Math.ceil(milliseconds).toString(16).padStart(ID_CLOCK_CHARACTERS, "0");

/** A random UUID (RFC 9562, version 4). */
export function newUuid(system: System): string {
  const bytes = Buffer.from(system.randomBytes(16));
  bytes[6] = ((bytes[6] ?? 0) & 0x0f) | 0x40;
  bytes[8] = ((bytes[8] ?? 0) & 0x3f) | 0x80;
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}

const BASE62 = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const TOKEN_START = "stow_";
const TOKEN = /^stow_(sk|pk|ss)_[0-9A-Za-z]{40}$/;
/** Secret scanners can distinguish the tokens of people and backends. */
const TOKEN_STARTS = { secret: "stow_sk_", public: "stow_pk_", session: "stow_ss_" };
const TOKEN_SECRET_CHARACTERS = 32; // 190 bits
const TOKEN_DATABASE_CHARACTERS = 2; // 62^2 > 1,000 databases
const TOKEN_CHECKSUM_CHARACTERS = 6; // 62^6 > 2^32

/** The number in base62, big-endian. */
function base62(number: number, length: number): string {
  let rest = number;
  let characters = "";
  for (let i = 0; i < length; i++) {
    characters = BASE62.charAt(rest % 62) + characters;
    rest = Math.floor(rest / 62);
  }
  return characters;
}

const checksum = (text: string): string => base62(crc32(text), TOKEN_CHECKSUM_CHARACTERS);

/**
 * Its prefix, 32 random base62 characters, 2 for the number of the database, and 6 characters of CRC-32 over
 * the text before them.
 */
export function newToken(system: System, kind: keyof typeof TOKEN_STARTS, database: number): string {
  let token = TOKEN_STARTS[kind];
  const length = token.length + TOKEN_SECRET_CHARACTERS;
  while (token.length < length) {
    // 248 is the largest multiple of 62 in a byte. Larger values would favor the first characters.
    for (const byte of system.randomBytes(TOKEN_SECRET_CHARACTERS)) {
      if (byte < 248 && token.length < length) token += BASE62.charAt(byte % 62);
    }
  }
  token += base62(database, TOKEN_DATABASE_CHARACTERS);
  return token + checksum(token);
}

/** Returns true if the text has the form and checksum of a token. Needs no database. */
export function isTokenShaped(text: string): boolean {
  return (
    TOKEN.test(text) && checksum(text.slice(0, -TOKEN_CHECKSUM_CHARACTERS)) === text.slice(-TOKEN_CHECKSUM_CHARACTERS)
  );
}
