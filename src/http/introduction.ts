import { type Actor, RIGHTS, type Right } from "../domain/accounts/authorization.ts";
import { IDEMPOTENCY_MILLISECONDS } from "../domain/files/idempotency.ts";
import { DEFAULT_LIMIT, JSON_BODY_BYTES, MAX_LIMIT } from "./validation.ts";

/* What OpenAPI says of the API as a whole, in CommonMark. */

export const inHours = (milliseconds: number): string => `${milliseconds / 3_600_000} hours`;

export const TITLE = "Stowage";

export const DESCRIPTION = `
Accounts, API keys and audio uploads. Every record belongs to a team; the bearer token decides which. Every response has
X-Request-Id, and every failure the one shape of \`Error\`.

Requests and responses are JSON, but for the bytes of files. A JSON body may have
${JSON_BODY_BYTES / 1024} KiB where its operation says nothing else, and no unknown field. An id is 24 lower-case hex characters, in the order of creation. A time is ISO 8601, in
UTC.

## Authentication

Send a token with every request, as \`Authorization: Bearer <token>\`. Each operation names the tokens that it takes. A
token that is unknown, revoked or expired is answered 401, a valid one that may not do this 403. What belongs to another
team is answered 404, as if it were not there.

## Errors

Every failure has the same body: \`status\` is false, \`code\` tells programs what happened, and \`message\` tells people.
Invalid input also has \`errors\`, one for each field. \`requestId\` is what to name when you ask for help.

## Lists

Lists come in pages of \`limit\` items, ${DEFAULT_LIMIT} where it is left out and ${MAX_LIMIT} at most. The header
\`Link\` with \`rel="next"\` has the address of the next page; the last page has none. A \`cursor\` goes with the filters it was
given for. The list of users is whole where no parameter is given.

## Retries and versions

An upload with an \`Idempotency-Key\` can be sent again within ${inHours(IDEMPOTENCY_MILLISECONDS)} without
storing a second file. A user's \`ETag\` is its version: sent back as \`If-Match\`, it keeps a change from overwriting another (412).

## Rate limits

6,000 requests a minute for each token; 300 a minute for each address without a valid token; 10 logins a minute for each
address and each account; 60 new passwords of users, 10 tests and 10 replays of webhooks a minute for each team. Above that
the answer is 429, and \`Retry-After\` says for how many seconds to wait, as it does with 503. Whoever runs the service may
have set other limits.
`
  .trim()
  // Each paragraph on one line.
  .replaceAll(/(?<=\S)\n(?=\S)/g, " ");

/** Operations are grouped by these, in this order. */
const TAGS = {
  Files: "Audio files, or any others: uploaded, processed, listed, and opened by signed addresses.",
  "Resumable uploads":
    "tus 1.0.0, for large files and lines that break: what is stored stays stored, and the upload goes on from there.",
  "API keys":
    "Tokens of a team. A secret key does everything for it; a public key uploads, and may ship in a web page.",
  Users: "People of a team, who can log in with a password.",
  Events:
    "What happened in a team, to look at and to catch up from. Kept for 30 days, unless the service is set otherwise.",
  Webhooks:
    "Events posted to an address of yours, signed after Standard Webhooks 1.0, and tried again where that fails.",
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
    description:
      "The token of whoever runs the service: it manages keys and reads events, of any team, and nothing else.",
  },
};

export const securitySchemes = Object.fromEntries(
  Object.values(TOKENS).map(({ name, description }) => [name, { type: "http", scheme: "bearer", description }]),
);

/** Any one of the tokens that have the right is enough. */
export function securityOf(access: Right | "public"): Record<string, string[]>[] {
  const kinds = Object.keys(TOKENS) as Actor["kind"][];
  return access === "public"
    ? []
    : kinds.filter((kind) => RIGHTS[kind].includes(access)).map((kind) => ({ [TOKENS[kind].name]: [] }));
}
