/*
 * The rules of authorization, stated once more from the documents of the API and not from its code: a difference between
 * the two is a bug of one of them. Tokens, suspended teams and upload URLs have their own tests.
 */

const FILES = ["files:upload", "files:read", "files:download", "files:write", "files:delete"];
export const SCOPES = [
  ...FILES,
  ...["users:read", "users:write", "keys:read", "keys:write", "events:read", "webhooks:read", "webhooks:write"],
];
export const ROLES: Record<string, string[]> = {
  admin: SCOPES,
  member: [...FILES, "events:read"],
  contributor: FILES,
  viewer: ["files:read", "files:download", "events:read"],
};
/** The scope of a visitor: a public key or an upload token. */
export const VISITOR = ["files:upload"];

export interface Actor {
  kind: "operator" | "secret" | "session" | "public" | "upload token";
  scopes: string[];
  /** The role of a user's session. */
  role: string | null;
}

export interface Target {
  /** The team of the record. `unknown` if no record has the id. */
  team: "the actor's" | "another" | "unknown";
  /** Whether the user or visitor that acts uploaded the file. */
  isOwn: boolean;
  /** The scopes of a key, or of a user's role. */
  scopes: string[];
}

export interface Operation {
  method: string;
  /** With `{id}` if it has a target. */
  path: string;
  scope: string | null;
  /** Further scopes that it needs, because its response shows what they protect. */
  further?: string[];
  target?: "file" | "held" | "transcribed" | "trashed" | "key" | "user" | "team";
  /** The callers that may use it, besides the scope. */
  only?: "operator" | "secret" | "admin" | "issuer" | "identified" | "no contributor";
  /** The operator may, too. */
  isOperators?: true;
  /** The caller's scopes must cover those of the target, or those that its input grants. */
  covers?: true;
  json?: object;
}

const KINDS_ALLOWED: Record<NonNullable<Operation["only"]>, (actor: Actor) => boolean> = {
  operator: ({ kind }) => kind === "operator",
  secret: ({ kind }) => kind === "secret",
  admin: ({ kind, role }) => kind === "secret" || role === "admin",
  issuer: ({ kind }) => kind === "secret" || kind === "session",
  identified: ({ kind }) => kind !== "upload token",
  "no contributor": ({ role }) => role !== "contributor",
};

/** @returns "yes", or the error code of the response */
export function mayDo(actor: Actor, operation: Operation, target: Target): string {
  const isVisitor = actor.kind === "public" || actor.kind === "upload token";
  const isAllowed = !operation.only || KINDS_ALLOWED[operation.only](actor);
  // Operations without a scope, and those of the operator, depend only on the kind of the token.
  if (operation.only === "operator" || operation.scope === null || operation.only === "issuer") {
    if (!isAllowed) return "forbidden";
  }
  if (actor.kind === "operator") {
    if (operation.scope !== null && !operation.isOperators) return "forbidden";
    return operation.target && target.team === "unknown" ? "not_found" : "yes";
  }
  // They may see the status of the files that they uploaded, and set their first waveform.
  const isUploaders = /^(GET .*\/status|PUT .*\/waveform)$/.test(`${operation.method} ${operation.path}`);
  const needed = operation.scope === null ? [] : [operation.scope, ...(operation.further ?? [])];
  const hasScope = (isUploaders && isVisitor) || needed.every((scope) => actor.scopes.includes(scope));
  if (!hasScope) return "insufficient_scope";
  // The kind of the caller is checked before the record is read.
  if (!isAllowed) return "forbidden";
  const isOfFile = ["file", "held", "transcribed", "trashed"].includes(operation.target ?? "");
  const seesOwnOnly = actor.role === "contributor" || isVisitor;
  if (operation.target && target.team !== "the actor's") return "not_found";
  if (isOfFile && seesOwnOnly && !target.isOwn) return "not_found";
  const isCovered = target.scopes.every((scope) => actor.scopes.includes(scope));
  return operation.covers && !isCovered ? "insufficient_scope" : "yes";
}
