import {
  type Access,
  type Actor,
  admitsDeletingToken,
  admitsOperator,
  admitsUploader,
  FILES_PER_PLACE,
  scopeOf,
} from "../access/authorization.ts";
import { PUBLIC_SCOPES, ROLE_NAMES, ROLES, type Role, SCOPE_NAMES, SCOPES, type Scope } from "../access/scopes.ts";
import { grouped } from "../numbers.ts";
import { MAX_NUMBERED_ROWS } from "../platform/paging.ts";
import { MAX_DAILY_ACCOUNT_EVENTS, MAX_DAILY_USER_EVENTS, RATE_LIMITS, type RateLimitName } from "../rate-limits.ts";
import { DEFAULT_LIMIT, JSON_BODY_BYTES, MAX_LIMIT } from "./validation.ts";

/* The introduction of the OpenAPI document, in CommonMark. */

export function inHours(milliseconds: number): string {
  const hours = milliseconds / 3_600_000;
  return hours === 1 ? "1 hour" : `${hours} hours`;
}

const perMinute = (limit: RateLimitName) => grouped(RATE_LIMITS[limit]);

export const TITLE = "Stowage";

const description = () =>
  `
Accounts, API keys and audio uploads. Every record belongs to a team, which the bearer token determines. Every response
includes X-Request-Id. All errors share the \`Error\` schema.

Requests and responses are JSON, except file contents. JSON bodies are limited to ${JSON_BODY_BYTES / 1024} KiB unless noted.
Unknown fields and unknown query parameters are rejected with 400. IDs are 24 lower-case hex characters, in order of
creation. Times are ISO 8601, in UTC.

## Quickstart

You need a secret key, which the operator or the Keys page of the console creates. Upload a file, and note its \`_id\` in the
response:

    curl -H "Authorization: Bearer $KEY" -F file=@interview.mp3 https://HOST/docs/v1/uploads

Get its metadata. Once its \`status\` is \`completed\`, it includes the duration and the codec:

    curl -H "Authorization: Bearer $KEY" https://HOST/docs/v1/uploads/ID/metadata

Create a link, which downloads the file without a token:

    curl -H "Authorization: Bearer $KEY" -X POST https://HOST/docs/v1/uploads/ID/links

The typed client and the command line are an npm package, which the service brings:

    npm install https://HOST/client.tgz

Instead of polling the status, subscribe to the event \`file.completed\` with a webhook.

## Authentication

Send a token with every request, as \`Authorization: Bearer <token>\`, and use https: a token over http gets 403.
An unknown, revoked or expired token gets 401. Every token of a suspended team gets 403.
Another team's records get 404, as if they did not exist.

## Scopes

A token has scopes, and each operation needs one of them. A secret key has the scopes that it was created with, and a
session those of the user's role, or of the key that created it. A token without the scope gets 403
\`insufficient_scope\`, which names the missing scope. A public key and an upload token have \`files:upload\` only, so they may ship in a web page.
The operator token has no scopes; the operations that accept it are marked with †. Those marked with ‡ reject public keys
and upload tokens.

SCOPE_TABLE

## Errors

All errors have the same body: \`status\` is false, \`code\` is for programs, and \`message\` is for people. Invalid input
also has \`errors\`, one for each field. Include \`requestId\` when you contact support.

## Lists

Lists are split into pages of \`limit\` items (default ${DEFAULT_LIMIT}, maximum ${MAX_LIMIT}). The \`Link\` header with
\`rel="next"\` has the URL of the next page; the last page has none. A \`cursor\` is valid only with the filters of the
list that returned it. A page number costs a read for every row before the page, so \`page\` × \`limit\` can be at most
${grouped(MAX_NUMBERED_ROWS)}; follow \`Link\` to go further. Combined filters examine about 450 rows per
request, so a page can be short or empty and still have a \`Link\`. Without parameters, \`listUsers\` returns all users of a small team.

## Retries and versions

Repeating an upload with the same \`Idempotency-Key\` does not store a second file; \`uploadFile\` says for how long. The \`ETag\` of a user or file is its version: send it as \`If-Match\` to avoid overwriting another change (412).

## Rate limits

A request is light or heavy. A team has ${perMinute("light")} light and ${perMinute("heavy")} heavy requests a minute; its visitors, with public keys and upload tokens, ${perMinute("visitors")} light ones,
each upload token ${perMinute("upload-token")} of these, and as many heavy ones again; and each contributor ${perMinute("contributor-light")} and ${perMinute("contributor-heavy")}. HEAVY_OPERATIONS \`setTranscript\` is heavy for a contributor, and has a separate limit of ${perMinute("transcripts")} for the rest of a team. A batch, and the first step of moving or deleting a folder, take a place for each ${FILES_PER_PLACE} files, up to half of the limit. What a token has no permission for counts for the token alone. Openings of links and invitations
are light, for their client IP. Failed logins, checks of the own password and forgotten passwords: ${RATE_LIMITS.login} a minute for an account, and ${RATE_LIMITS.login} for a client IP. Passwords that are set or
checked: ${RATE_LIMITS.password} for a team. Requests without a valid token, and logins: ${RATE_LIMITS["client-ip"]} for a client IP. Unfinished resumable uploads: 20 of an upload token or public
key, 2,000 of all of a team, 25 of a contributor, and 3,000 of a team.
Logins and changes of accounts: ${grouped(MAX_DAILY_ACCOUNT_EVENTS)} a day for a team, and ${grouped(MAX_DAILY_USER_EVENTS)} for a user, of which half are only for logins; what ends something is always possible.
Above a limit of a minute, the response is 429. \`Retry-After\` gives the seconds to wait, also with 503.
\`RateLimit-Policy\` states the limit that a response counted for, and \`RateLimit\` the one that was reached.
`
    .trim()
    // Puts each paragraph on one line.
    .replaceAll(/(?<=\S)\n(?=\S)/g, " ");

interface Accessed {
  access: Access | null;
  rejectsVisitors?: true;
}

interface Named extends Accessed {
  operationId: string;
  isHeavy?: true | "transcripts" | ((query: never, isContributor: boolean) => boolean);
}

/** A sentence that names the heavy requests. */
function heavySentence(operations: readonly Named[]): string {
  const names = operations.filter(({ isHeavy }) => isHeavy === true).map(({ operationId }) => `\`${operationId}\``);
  return `Heavy are: searches and other lists that examine rows, numbered pages beyond row ${MAX_LIMIT}, and ${names.join(", ")}.`;
}

const isPublicScope = (scope: Scope) => (SCOPES[scope] & PUBLIC_SCOPES) !== 0;
const LIMITED_ROLES = ROLE_NAMES.filter((role) => role !== "admin");
const hasScope = (role: Role, scope: Scope) => (ROLES[role] as readonly Scope[]).includes(scope);

/** A table of the scopes, with the tokens that have each, and the operations that need it. */
function scopeTable(operations: readonly Named[]): string {
  const rows = SCOPE_NAMES.map((scope) => {
    const needing = operations.filter(({ access }) => access !== null && scopeOf(access) === scope);
    const names = needing.map(
      ({ operationId, access, rejectsVisitors }) =>
        `${operationId}${isForOperator(access) ? "†" : ""}${rejectsVisitors ? "‡" : ""}`,
    );
    const marks = [...LIMITED_ROLES.map((role) => hasScope(role, scope)), isPublicScope(scope)];
    return [`\`${scope}\``, ...marks.map((has) => (has ? "yes" : "no")), names.join(", ")];
  });
  const header = ["Scope", ...LIMITED_ROLES.map((role) => `Role \`${role}\``), "Public key", "Operations"];
  const lines = [header, header.map(() => "---"), ...rows].map((cells) => `| ${cells.join(" | ")} |`);
  return `The role \`admin\` has all scopes. A \`contributor\` sees, changes and shares only files that the user has uploaded: any other file gets 404. So do the keys that the user created with another role before; they have at most the scopes of a \`contributor\`.\n\n${lines.join("\n")}`;
}

const isForOperator = (access: Access | null) => access !== null && admitsOperator(access);

export const describeService = (operations: readonly Named[]): string =>
  description().replace("SCOPE_TABLE", scopeTable(operations)).replace("HEAVY_OPERATIONS", heavySentence(operations));

const TOKENS: Record<Actor["kind"], { name: string; description: string }> = {
  secret: { name: "secretKey", description: "An API key, `stow_sk_…`, with the scopes that it was created with." },
  session: {
    name: "session",
    description: "The token of a login or of a session, with the scopes of the user's role or of the key.",
  },
  public: {
    name: "publicKey",
    description: "An API key, `stow_pk_…`, that may ship in a web page: it uploads files, and does nothing else.",
  },
  upload: {
    name: "uploadToken",
    description:
      "An upload token, `stow_ut_…`: it uploads a few files for the key or session that created it, deletes them if it has `canDelete`, and does nothing else.",
  },
  operator: {
    name: "operatorToken",
    description:
      "The operator token. It manages teams, and keys and events of any team, and does nothing else. It sees the whole token of a key only when it creates the key.",
  },
};

export const securitySchemes = Object.fromEntries(
  Object.values(TOKENS).map(({ name, description }) => [name, { type: "http", scheme: "bearer", description }]),
);

const KINDS = Object.keys(TOKENS) as Actor["kind"][];

/** The tokens that are accepted, with the scope they need; any of them is enough. */
export function securityOf({
  access,
  optionalScope,
  rejectsVisitors,
}: Accessed & { optionalScope?: Scope }): Record<string, string[]>[] {
  if (access === null) return optionalScope ? [{}, { [TOKENS.secret.name]: [optionalScope] }] : [];
  const scope = scopeOf(access);
  const isVisitorScope = scope !== null && isPublicScope(scope) && !rejectsVisitors;
  const isAccepted: Record<Actor["kind"], boolean> = {
    secret: access !== "operator",
    session: access !== "operator",
    public: access === "any token" || admitsUploader(access) || isVisitorScope,
    upload: admitsUploader(access) || admitsDeletingToken(access) || isVisitorScope,
    operator: admitsOperator(access),
  };
  const needsNone = (kind: Actor["kind"]) =>
    kind === "operator" ||
    (admitsUploader(access) && (kind === "public" || kind === "upload")) ||
    (admitsDeletingToken(access) && kind === "upload");
  const scopesOf = (kind: Actor["kind"]) => (scope === null || needsNone(kind) ? [] : [scope]);
  return KINDS.filter((kind) => isAccepted[kind]).map((kind) => ({ [TOKENS[kind].name]: scopesOf(kind) }));
}

/** A sentence about the access, for people who read only the operation. */
export function describeAccess({ access, rejectsVisitors }: Accessed): string {
  if (access === null) return "Needs no token.";
  if (access === "any token") return "Needs a valid token, but not an upload token.";
  const scope = scopeOf(access);
  if (scope === null) return "Only the operator can do this.";
  const visitors = rejectsVisitors ? "public keys and upload tokens get 403" : "public keys and upload tokens have it";
  const others = [
    ...(isPublicScope(scope) ? [visitors] : []),
    ...(isForOperator(access) ? ["the operator needs none"] : []),
    ...(admitsUploader(access)
      ? ["public keys and upload tokens can use it for files that they uploaded, and get 404 for others"]
      : []),
    ...(admitsDeletingToken(access)
      ? ["an upload token with `canDelete` can use it for files that it uploaded, and gets 404 for others"]
      : []),
  ];
  return `Scope: \`${scope}\`${others.map((other) => `; ${other}`).join("")}.`;
}
