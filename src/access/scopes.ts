import { type SQL, sql } from "drizzle-orm";
import type { SQLiteColumn } from "drizzle-orm/sqlite-core";

/* The scopes of tokens. This is the only definition of scopes and roles; http/introduction.ts documents them from it. */

/** Every scope with its bit. Rows store the sum of the bits, so a bit is never reused. */
export const SCOPES = {
  "files:upload": 1 << 0,
  "files:read": 1 << 1,
  "files:download": 1 << 2,
  "files:write": 1 << 3,
  "files:delete": 1 << 4,
  /** Deletes the bytes of a file permanently. With a trash, a key without it can do nothing that can't be undone. */
  "files:erase": 1 << 12,
  "users:read": 1 << 5,
  "users:write": 1 << 6,
  "keys:read": 1 << 7,
  "keys:write": 1 << 8,
  "events:read": 1 << 9,
  "webhooks:read": 1 << 10,
  "webhooks:write": 1 << 11,
} as const;

export type Scope = keyof typeof SCOPES;
export const SCOPE_NAMES = Object.keys(SCOPES) as [Scope, ...Scope[]];

/** The sum of the bits of the scopes. */
export const maskOf = (scopes: readonly Scope[]): number => scopes.reduce((mask, scope) => mask | SCOPES[scope], 0);

/** The scopes of a mask, in the order of `SCOPES`. */
export const scopesIn = (mask: number): Scope[] => SCOPE_NAMES.filter((scope) => (mask & SCOPES[scope]) !== 0);

export const ALL_SCOPES = maskOf(SCOPE_NAMES);

/** A public key may ship in a web page, so it only uploads. */
export const PUBLIC_SCOPES = SCOPES["files:upload"];

/** An upload token may have these of its issuer, for the files that it uploaded. */
export const DELETING_SCOPES = SCOPES["files:delete"] | SCOPES["files:erase"];

/** The scopes of a user's sessions. A change of the role applies from the next request. */
export const ROLES = {
  admin: SCOPE_NAMES,
  member: ["files:upload", "files:read", "files:download", "files:write", "files:delete", "files:erase", "events:read"],
  // Without `events:read`, which would show the files of others, and `files:erase`.
  contributor: ["files:upload", "files:read", "files:download", "files:write", "files:delete"],
  viewer: ["files:read", "files:download", "events:read"],
} as const satisfies Record<string, readonly Scope[]>;

export type Role = keyof typeof ROLES;
export const ROLE_NAMES = Object.keys(ROLES) as [Role, ...Role[]];
export const scopesOfRole = (role: Role): number => maskOf(ROLES[role]);
/** The role of a new user. It has the fewest scopes, so that no user becomes an admin by omission. */
export const DEFAULT_ROLE: Role = "viewer";

/** The role whose users, with their sessions and keys, see only the files that they have uploaded. */
export const OWN_FILES_ROLE = "contributor" satisfies Role;

export const OWN_FILES_SCOPES = scopesOfRole(OWN_FILES_ROLE);

/** The scopes of the first mask that the second one lacks. */
export const lacking = (wanted: number, present: number): Scope[] => scopesIn(wanted & ~present);

const MASK_OF_ROLE = JSON.stringify(Object.fromEntries(ROLE_NAMES.map((role) => [role, scopesOfRole(role)])));

/** The mask of a role in SQL. */
export const maskOfRole = (role: SQLiteColumn): SQL<number> =>
  sql<number>`json_extract(${MASK_OF_ROLE}, '$.' || ${role})`;
