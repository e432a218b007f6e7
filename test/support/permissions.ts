/*
 * The rules of authorization, stated once more from the documents of the API and not from its code: a difference between
 * the two is a bug of one of them. Tokens, suspended teams and upload URLs have their own tests.
 */

const FILES = ["files:upload", "files:read", "files:download", "files:write", "files:delete"];
export const SCOPES = [
  ...FILES,
  "files:erase",
  ...["users:read", "users:write", "keys:read", "keys:write", "events:read", "webhooks:read", "webhooks:write"],
];
export const ROLES: Record<string, string[]> = {
  admin: SCOPES,
  member: [...FILES, "files:erase", "events:read"],
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
  /** Whether it is an upload token with `canDelete`. */
  isDeleter?: boolean;
}

export interface Target {
  /** The team of the record. `unknown` if no record has the id. */
  team: "the actor's" | "another" | "unknown";
  /** Whether the user or visitor that acts uploaded the file, or that of the link. */
  isOwn: boolean;
  /** The scopes of a key, or of a user's role. */
  scopes: string[];
}

/** Who may use an operation. */
export interface Permission {
  /** Null for any token. */
  scope: string | null;
  /** Further scopes that it needs, because its response shows what they protect. */
  further?: string[];
  /** The callers that may use it, besides the scope. */
  only?: "operator" | "secret" | "admin" | "issuer" | "identified" | "no contributor";
  /** The operator may, too. */
  isOperators?: true;
  /** Whoever uploaded the file may, too: a public key or an upload token. */
  isUploaders?: true;
  /** An upload token with `canDelete` may, too, for files that it uploaded. */
  isDeleters?: true;
  /** The caller's scopes must cover those of the target, or those that its input grants. */
  covers?: true;
}

/** An operation with what it is used on. */
export interface Operation extends Permission {
  /** What the id in its path names, if it has one. */
  target?: "file" | "key" | "user" | "team" | "other" | undefined;
}

const needing = (scope: string | null, operations: string, more: Omit<Permission, "scope"> = {}) =>
  Object.fromEntries(operations.split(" ").map((id) => [id, { scope, ...more }]));

/** Each operation that needs a token, by its id. A new one is one word here. */
export const PERMISSIONS: Record<string, Permission> = {
  ...needing(
    "files:upload",
    "uploadFile createResumableUpload getResumableUpload appendToResumableUpload deleteResumableUpload",
  ),
  ...needing("files:upload", "createUploadToken", { only: "issuer" }),
  ...needing(
    "files:read",
    "listFiles getFileMetadata getWaveform getTranscript getUsage listUnfinishedUploads listFolders listTags searchTranscripts",
  ),
  ...needing("files:read", "getFileStatus", { isUploaders: true }),
  ...needing("files:read", "getTeam", { isOperators: true }),
  ...needing("files:download", "signFile createLink listLinks revokeLink"),
  ...needing(
    "files:write",
    "reprocessFile setTranscript deleteTranscript updateFile changeFiles createFolder moveFolder",
  ),
  ...needing("files:write", "setWaveform", { isUploaders: true }),
  ...needing("files:delete", "deleteFile", { isDeleters: true }),
  ...needing("files:delete", "deleteFolder listTrash restoreFile"),
  ...needing("files:delete", "holdFile", { only: "no contributor" }),
  ...needing("files:erase", "eraseFile"),
  ...needing("files:delete", "releaseFile setRetention", { only: "admin" }),
  ...needing("users:read", "listUsers getUser"),
  ...needing("users:read", "exportUser", { further: ["keys:read", "events:read"] }),
  ...needing("users:write", "createUser updateUser deleteUser inviteUser", { covers: true }),
  // A token that is not covered is masked: accounts/keys.
  ...needing("keys:read", "listApiKeys getApiKey", { isOperators: true }),
  ...needing("keys:read", "listSessions"),
  ...needing("keys:write", "createApiKey updateApiKey rotateApiKey deleteApiKey", { covers: true, isOperators: true }),
  ...needing("keys:write", "revokeSession", { covers: true }),
  ...needing("events:read", "listEvents getEvent", { isOperators: true }),
  ...needing("webhooks:read", "listWebhooks getWebhook listDeliveries"),
  ...needing(
    "webhooks:write",
    "createWebhook updateWebhook deleteWebhook rotateWebhookSecret testWebhook replayEvents redeliver",
  ),
  ...needing("", "createTeam listTeams updateTeam deleteTeam rebuildSearch reconcile", {
    only: "operator",
    isOperators: true,
  }),
  ...needing(null, "createSession", { only: "secret" }),
  ...needing(null, "getMe", { only: "identified" }),
};
/** They need no token, any session, or another operation's permission, and have their own tests. */
export const WITHOUT_PERMISSION = [
  ...["logIn", "describeInvitation", "acceptInvitation", "forgotPassword", "logOut", "changePassword"],
  ...["openLink", "openTranscript", "describeLink", "describeResumableUploads", "overrideResumableUpload"],
];

/** The scopes that an operation needs of a caller with a scope. */
export const scopesOf = ({ scope, further = [] }: Permission): string[] => (scope ? [scope, ...further] : []);

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
  const hasScopes = scopesOf(operation).every((scope) => actor.scopes.includes(scope));
  const isDeleter = operation.isDeleters && actor.isDeleter;
  const hasScope = (operation.isUploaders && isVisitor) || isDeleter || hasScopes;
  if (!hasScope) return "insufficient_scope";
  // The kind of the caller is checked before the record is read.
  if (!isAllowed) return "forbidden";
  const seesOwnOnly = actor.role === "contributor" || isVisitor;
  if (operation.target && target.team !== "the actor's") return "not_found";
  if (operation.target === "file" && seesOwnOnly && !target.isOwn) return "not_found";
  const isCovered = target.scopes.every((scope) => actor.scopes.includes(scope));
  return operation.covers && !isCovered ? "insufficient_scope" : "yes";
}
