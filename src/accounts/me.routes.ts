import * as z from "zod";
import { ROLE_NAMES } from "../access/scopes.ts";
import { readOperation, writeOperation } from "../http/operation.ts";
import { id, iso, text, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import { scope } from "./keys.routes.ts";
import { changeOwnPassword, fetchMe } from "./me.ts";
import { password } from "./users.routes.ts";

export const meTag = {
  name: "Me",
  description: "The caller: what its token may do, and the password of its user.",
};

const meSchema = lazy(() =>
  z
    .strictObject({
      kind: z.enum(["secret", "public", "session", "operator"]),
      teamId: id().nullable(),
      keyId: id().nullable().meta({ description: "The API key or session." }),
      userId: id().nullable().meta({ description: "The user whose session it is, or whose session created the key." }),
      role: z.enum(ROLE_NAMES).nullable().meta({ description: "Only for a user's session." }),
      scopes: z.array(scope()).nullable().meta({ description: "Null for the operator." }),
      expiresAt: timestamp().nullable(),
    })
    .meta({ id: "Me" }),
);

const TOKEN_NAMES = {
  secret: "a secret key",
  public: "a public key",
  session: "a session",
  operator: "an operator token",
};

const get = readOperation(
  "any token",
  {
    route: "GET /auth/v1/me",
    tag: meTag,
    summary: "Get the caller",
    sample: "const { kind, scopes } = await stowage.me();",
    description: "What does not apply to the kind of token is null.",
    success: {
      description: "The caller.",
      message: ({ kind }) => `You use ${TOKEN_NAMES[kind]}.`,
      schema: meSchema,
      example: {
        kind: "session",
        teamId: "0193477be89f4d2e6b8a0c13",
        keyId: "0193477be8a01f9c3ad5e7b2",
        userId: "0193477bf1c07e5d9a0b4c28",
        role: "viewer",
        scopes: ["files:read", "files:download", "events:read"],
        expiresAt: "2026-11-20T21:30:00.000Z",
      },
    },
  },
  async ({ deps, credential }) => {
    const { expiresAt, ...me } = await fetchMe(deps, credential);
    return { ...me, expiresAt: expiresAt === null ? null : iso(expiresAt) };
  },
);

const changePassword = writeOperation(
  "any token",
  {
    route: "POST /auth/v1/me/password",
    tag: meTag,
    summary: "Change your password",
    sample: "await stowage.changePassword({ currentPassword, newPassword });",
    description: `For the session of a login, at most ${RATE_LIMITS.login} a minute. Ends the user's other sessions. A session that an API key created is not its user's: 403.`,
    body: () => z.strictObject({ currentPassword: text(1, 256), newPassword: password() }),
    bodyExample: { currentPassword: "correct horse battery", newPassword: "staple horse battery" },
    success: { description: "The password was changed.", message: "Password changed." },
    errors: ["forbidden", "conflict"],
  },
  async ({ deps, actor, body }) => {
    await changeOwnPassword(deps, actor, body);
  },
);

export const operations = {
  getMe: get,
  changePassword,
};
