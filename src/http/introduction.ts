import { type Actor, PERMISSIONS, type Permission } from "../domain/accounts/authorization.ts";
import { IDEMPOTENCY_MILLISECONDS } from "../domain/files/idempotency.ts";
import { MAX_NUMBERED_ROWS } from "../domain/paging.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import { DEFAULT_LIMIT, JSON_BODY_BYTES, MAX_LIMIT } from "./validation.ts";

/* The introduction of the OpenAPI document, in CommonMark. */

export function inHours(milliseconds: number): string {
  const hours = milliseconds / 3_600_000;
  return hours === 1 ? "1 hour" : `${hours} hours`;
}

const CALLS = RATE_LIMITS["expensive-call"];

export const TITLE = "Stowage";

export const DESCRIPTION = `
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

Instead of polling the status, subscribe to the event \`file.completed\` with a webhook.

## Authentication

Send a token with every request, as \`Authorization: Bearer <token>\`, and use https: a token over http gets 403. Each operation names the tokens that it accepts.
An unknown, revoked or expired token gets 401. A valid token that isn't allowed to do this gets 403. Another team's
records get 404, as if they did not exist.

## Errors

All errors have the same body: \`status\` is false, \`code\` is for programs, and \`message\` is for people. Invalid input
also has \`errors\`, one for each field. Include \`requestId\` when you contact support.

## Lists

Lists are split into pages of \`limit\` items (default ${DEFAULT_LIMIT}, maximum ${MAX_LIMIT}). The \`Link\` header with
\`rel="next"\` has the URL of the next page; the last page has none. A \`cursor\` is valid only with the filters of the
list that returned it. A page number costs a read for every row before the page, so \`page\` × \`limit\` can be at most
${MAX_NUMBERED_ROWS.toLocaleString("en")}; follow \`Link\` to go further. Combined filters examine about 500 rows per
request, so a page can be short or empty and still have a \`Link\`. Without parameters, the list of users returns the whole team.

## Retries and versions

Repeating an upload with the same \`Idempotency-Key\` within ${inHours(IDEMPOTENCY_MILLISECONDS)} does not store a second
file. A user's \`ETag\` is its version: send it as \`If-Match\` to avoid overwriting another change (412).

## Rate limits

${RATE_LIMITS.team.toLocaleString("en")} requests a minute for each team, and as many for its public keys;
${RATE_LIMITS["client-ip"]} a minute for each client IP without a valid token; ${RATE_LIMITS.login} logins a minute for
each client IP and each account; ${RATE_LIMITS.password} new passwords of users, ${CALLS} reprocessed files, ${CALLS}
deletions of webhooks, ${CALLS} tests and ${CALLS} replays of webhooks a minute for each team. Above that, the response is
429. \`Retry-After\` gives the seconds to wait, also with 503. \`RateLimit-Policy\` states the limit that a response
counted for, and \`RateLimit\` the one that was reached.
`
  .trim()
  // Puts each paragraph on one line.
  .replaceAll(/(?<=\S)\n(?=\S)/g, " ");

/** The groups of operations, in display order. */
const TAGS = {
  Files: "Upload, process, list and download audio files, or files of any other type.",
  "Resumable uploads":
    "For large files and unreliable connections: interrupted uploads resume where they left off (tus 1.0.0).",
  Links: "Revocable download URLs on this service, for people without a token.",
  "API keys":
    "Tokens of a team. A secret key does everything for it; a public key uploads, and may ship in a web page.",
  Users: "People in a team, who sign in with an email and password.",
  Events: "The event log of a team. Kept for 30 days, unless the service is set otherwise.",
  Webhooks: "Signed requests to your server for each event (Standard Webhooks 1.0), with retries.",
};

export type Tag = keyof typeof TAGS;

export const tags = Object.entries(TAGS).map(([name, description]) => ({ name, description }));

const TOKENS: Record<Actor["kind"], { name: string; description: string }> = {
  secret: { name: "secretKey", description: "An API key, `stow_sk_…`: it does everything for its team." },
  public: {
    name: "publicKey",
    description: "An API key, `stow_pk_…`, that may ship in a web page: it uploads files, and does nothing else.",
  },
  operator: {
    name: "operatorToken",
    description: "The operator token. It manages keys and reads events of any team, and does nothing else.",
  },
};

export const securitySchemes = Object.fromEntries(
  Object.values(TOKENS).map(({ name, description }) => [name, { type: "http", scheme: "bearer", description }]),
);

/** The tokens with the permission; any of them is enough. */
export function securityOf(access: Permission | "public"): Record<string, string[]>[] {
  const kinds = Object.keys(TOKENS) as Actor["kind"][];
  return access === "public"
    ? []
    : kinds.filter((kind) => PERMISSIONS[kind].includes(access)).map((kind) => ({ [TOKENS[kind].name]: [] }));
}
