import * as z from "zod";
import { loginFailed } from "../access/login-limits.ts";
import { clientIpOf, userAgentOf, withBackend } from "../http/authentication.ts";
import { listOperation, publicOperation, writeOperation } from "../http/operation.ts";
import { creator, describeRecord, fieldOf } from "../http/record.ts";
import { id, iso, isoOrNull, pageQuery, pageRequest, text, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { keyRecord } from "./keys.routes.ts";
import {
  createSession,
  DEFAULT_SESSION_SECONDS,
  listSessions,
  logIn,
  logOut,
  MAX_KEY_SESSIONS,
  MAX_SESSION_SECONDS,
  MAX_USER_SESSIONS,
  MIN_SESSION_SECONDS,
  revokeSession,
  type Session,
} from "./sessions.ts";

export const sessionsTag = {
  name: "Sessions",
  description: "Tokens of people for 12 hours, by email and password or with a secret key.",
};

const field = fieldOf<Session>();

const { schema, example, render } = describeRecord({
  id: "Session",
  fields: {
    _id: field(id, "0193477c4f1b6a2d8e0c3b57", (session) => session.id),
    userId: field(
      () => id().nullable().meta({ description: "The user who logged in." }),
      "0193477bf1c07e5d9a0b4c28",
      (session) => session.userId,
    ),
    createdBy: field(
      () => creator().nullable().meta({ description: "The API key that created the session. Null for a login." }),
      null,
      ({ createdByKeyId: keyId, userId }) => (keyId === null ? null : { keyId, userId }),
    ),
    createdAt: field(timestamp, "2026-11-20T09:45:00.000Z", (session) => iso(session.createdAt)),
    expiresAt: field(timestamp, "2026-11-20T21:45:00.000Z", (session) => iso(session.expiresAt)),
    lastUsedAt: field(
      () => timestamp().nullable().meta({ description: "Accurate to an hour." }),
      "2026-11-20T09:45:00.000Z",
      (session) => isoOrNull(session.lastUsedAt),
    ),
    userAgent: field(
      () =>
        z
          .string()
          .nullable()
          .meta({ description: "The `User-Agent` of the request that created the session, at most 200 characters." }),
      "Mozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
      (session) => session.userAgent,
    ),
  },
});

export { example as sessionExample, render as renderSession, schema as sessionSchema };

export const sessionTokenExample = {
  ...keyRecord.example,
  key: "stow_ss_4fTq0pWz7LxVn2Rk9bYcHs1dGmJ6aUeo003kQx9Z",
  expiresAt: "2026-11-20T21:30:00.000Z",
};

const expiresIn = lazy(() =>
  z
    .int()
    .min(MIN_SESSION_SECONDS)
    .max(MAX_SESSION_SECONDS)
    .default(DEFAULT_SESSION_SECONDS)
    .meta({ description: "Seconds until the session expires." }),
);

const login = publicOperation(
  {
    route: "POST /auth/v1/login",
    tag: sessionsTag,
    summary: "Log in as a user",
    sample: "const { key } = await stowage.logIn({ teamId, email, password });",
    description:
      "Returns a session, in the shape of an API key named after the user. " +
      "It has the scopes of the user's role, expires after `expiresIn` seconds, and is revoked when the user is deleted or gets a new password. " +
      `Its token is shown only in this response. A user has at most ${MAX_USER_SESSIONS} sessions by logging in: ` +
      "with another one, the oldest ends.\n\n" +
      "Only failed logins count for the limit, per account and per client IP. " +
      "A backend logs its users in with `Authorization` of a secret key of the team with the scope `users:write`: " +
      "then failures count per account only. Any other token changes nothing.",
    optionalScope: "users:write",
    body: () =>
      z.strictObject({ teamId: text(1, 100), email: text(1, 254), password: text(1, 256), expiresIn: expiresIn() }),
    bodyExample: { teamId: "0193477be89f4d2e6b8a0c13", email: "ada@example.com", password: "correct horse battery" },
    success: {
      description: "The session.",
      message: "Logged in.",
      schema: keyRecord.schema,
      example: { ...sessionTokenExample, name: "Ada Lovelace" },
    },
    errors: [loginFailed, "team_suspended", "rate_limited"],
  },
  ({ c, deps, body }) =>
    withBackend(c, body.teamId, async (isBackend) =>
      keyRecord.render(
        await logIn(deps, {
          ...body,
          expiresInSeconds: body.expiresIn,
          userAgent: userAgentOf(c),
          clientIp: isBackend ? null : clientIpOf(c),
        }),
      ),
    ),
);

const create = writeOperation(
  "any token",
  {
    route: "POST /auth/v1/sessions",
    tag: sessionsTag,
    summary: "Create a session with a secret key",
    sample: "const { key } = await stowage.sessions.create();",
    description: `For tools that keep a token for a day, such as the console. The session has the name and scopes of the key. It expires after \`expiresIn\` seconds or with the key, and is revoked with it. A key can have ${MAX_KEY_SESSIONS} sessions. Its token is shown only in this response.`,
    body: () => z.strictObject({ expiresIn: expiresIn() }),
    isBodyOptional: true,
    bodyExample: { expiresIn: 3600 },
    success: {
      description: "The session, in the shape of an API key.",
      message: "Session created.",
      schema: keyRecord.schema,
      example: sessionTokenExample,
    },
    errors: ["forbidden", "quota_exceeded"],
  },
  async ({ c, deps, actor, body }) => {
    const session = { expiresInSeconds: body.expiresIn, userAgent: userAgentOf(c) };
    return keyRecord.render(await createSession(deps, actor, session));
  },
);

const list = listOperation(
  "keys:read",
  {
    route: "GET /auth/v1/sessions",
    tag: sessionsTag,
    summary: "List sessions",
    sample: "for await (const session of stowage.sessions.list()) console.log(session.userId, session.lastUsedAt);",
    description:
      "Newest first, without expired ones. If many have expired in the last day, a page can be short or empty and still have a `Link`.",
    query: () => pageQuery("sessions"),
    success: {
      description: "A page of sessions, without their tokens.",
      noun: "Sessions",
      schema,
      example,
    },
  },
  ({ deps, credential, query }) => listSessions(deps, credential, pageRequest(query)),
  render,
);

const remove = writeOperation(
  "keys:write",
  {
    route: "DELETE /auth/v1/sessions/{id}",
    tag: sessionsTag,
    summary: "Revoke a session",
    sample: "await stowage.sessions.delete(id);",
    description:
      "The session ends immediately, and its unfinished uploads are canceled. The caller's scopes must cover the session's.",
    success: { description: "The session has ended.", message: "Session revoked." },
  },
  async ({ deps, actor, id }) => {
    await revokeSession(deps, actor, id);
  },
);

const logout = writeOperation(
  "any token",
  {
    route: "POST /auth/v1/logout",
    tag: sessionsTag,
    summary: "Log out",
    sample: "await stowage.logOut();",
    description: "Revokes the session that calls. API keys can't log out.",
    success: { description: "The session has ended.", message: "Logged out." },
    errors: ["forbidden"],
  },
  async ({ deps, actor }) => {
    await logOut(deps, actor);
  },
);

export const operations = {
  logIn: login,
  createSession: create,
  listSessions: list,
  revokeSession: remove,
  logOut: logout,
};
