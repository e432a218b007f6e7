import type { Context } from "hono";
import * as z from "zod";
import type { AppEnv } from "../http/app-env.ts";
import { clientIpOf, countOpening, limitFailures, userAgentOf, withBackend } from "../http/authentication.ts";
import { publicOperation, writeOperation } from "../http/operation.ts";
import { iso, name, text, timestamp } from "../http/validation.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import {
  acceptInvitation,
  DEFAULT_INVITATION_SECONDS,
  describeInvitation,
  inviteUser,
  MAX_INVITATION_SECONDS,
  MIN_INVITATION_SECONDS,
  requestReset,
} from "./invitations.ts";
import { keyRecord } from "./keys.routes.ts";
import { MAX_MAILS, MAX_TEAM_MAILS } from "./mails.ts";
import { sessionTokenExample } from "./sessions.routes.ts";
import { password, role } from "./users.routes.ts";

/* Invitations and password resets. */

const TOKEN_EXAMPLE = "stow_in_0193477bf1c07e5d9a0b4c28.5f1d7b0c9e2a48d3b6f0a1c2d3e4f567";

/**
 * The console's page. The token is in the fragment, which browsers send to no server. A request chooses its own host, which
 * must not become that of a link that somebody else gets by email.
 */
const pageUrl = (c: Context<AppEnv>) => (token: string) =>
  new URL(`/console/invitation#${token}`, c.var.deps.settings.publicUrl ?? c.req.url).href;

export const invite = writeOperation(
  "users:write",
  {
    tag: "Users",
    summary: "Invite a user, or let them reset their password",
    description: `Returns a link with which the person sets the user's password, once, until it expires. It ends earlier with a newer one, and if the email, the role or the password changes. It works only while you could still create it: not after your user is deleted or loses the scopes, or your key is deleted. A rotated key's successor counts as the key. Whoever has the link can log in as the user: hand it over safely. A page of your own can take the \`token\`, and send it to \`POST /auth/v1/invitations/accept\`. Your scopes must cover those of the user's role. With \`email\`, the service sends the link to the user instead: at most one email in five minutes to a user and a mailbox, ${MAX_TEAM_MAILS} a day for a team, and ${MAX_MAILS.toLocaleString("en")} for the service (429).`,
    body: z.strictObject({
      email: z.boolean().default(false).meta({ description: "Sends the link by email instead of returning it." }),
      expiresIn: z
        .int()
        .min(MIN_INVITATION_SECONDS)
        .max(MAX_INVITATION_SECONDS)
        .default(DEFAULT_INVITATION_SECONDS)
        .meta({ description: "Seconds until the invitation expires." }),
    }),
    isHeavy: true,
    isBodyOptional: true,
    bodyExample: { email: false, expiresIn: 604_800 },
    success: {
      description: "The invitation. Its token is shown only in this response.",
      message: "User invited.",
      schema: z.union([
        z
          .strictObject({
            url: z.url().meta({ description: "The page of the console that accepts it." }),
            token: z.string(),
            expiresAt: timestamp,
          })
          .meta({ id: "Invitation" }),
        z
          .strictObject({ sent: z.literal(true).meta({ description: "The link was sent by email." }) })
          .meta({ id: "SentInvitation" }),
      ]),
      example: {
        url: `https://stowage.example.com/console/invitation#${TOKEN_EXAMPLE}`,
        token: TOKEN_EXAMPLE,
        expiresAt: "2026-11-21T09:31:00.000Z",
      },
    },
    errorCodes: ["email_not_configured", "rate_limited"],
  },
  async ({ c, deps, actor, id, body: { email, expiresIn: expiresInSeconds } }) => {
    const urlOf = pageUrl(c);
    const { token, expiresAt } = await inviteUser(deps, actor, id, {
      email: email ? { urlOf } : null,
      expiresInSeconds,
    });
    return email ? { sent: true as const } : { url: urlOf(token), token, expiresAt: iso(expiresAt) };
  },
);

export const describe = publicOperation(
  {
    tag: "Sessions",
    summary: "Describe an invitation",
    description:
      "Returns whom an invitation is for, so that a page can greet them before they choose a password. A token that doesn't work gets the 401 of `POST /auth/v1/invitations/accept`.",
    body: z.strictObject({ token: text(1, 100) }),
    bodyExample: { token: TOKEN_EXAMPLE },
    success: {
      description: "The invited user, and the team.",
      message: "Invitation found.",
      schema: z
        .strictObject({
          teamName: z.string(),
          email: z.string(),
          role,
          hasPassword: z.boolean().meta({ description: "If true, the password is reset." }),
        })
        .meta({ id: "InvitationDescription" }),
      example: { teamName: "Radio Lovelace", email: "ada@example.com", role: "viewer" as const, hasPassword: false },
    },
    errorCodes: ["token_invalid", "rate_limited"],
  },
  ({ c, deps, body: { token } }) =>
    limitFailures(c, token, async () => {
      const described = await describeInvitation(deps, token);
      await countOpening(c);
      return described;
    }),
);

export const accept = publicOperation(
  {
    tag: "Sessions",
    summary: "Accept an invitation",
    description:
      "Sets the password of the invited user, ends their sessions, and logs them in, in the shape of `POST /auth/v1/login`. A token works once. One that was used, replaced or has expired gets 401.",
    body: z.strictObject({
      token: text(1, 100),
      password,
      firstName: name(0).optional(),
      lastName: name(0).optional(),
    }),
    bodyExample: { token: TOKEN_EXAMPLE, password: "correct horse battery" },
    success: {
      description: "The session.",
      message: "Password set.",
      schema: keyRecord.schema,
      example: { ...sessionTokenExample, name: "Ada Lovelace" },
    },
    errorCodes: ["token_invalid", "rate_limited"],
  },
  ({ c, deps, body }) =>
    limitFailures(c, body.token, async () =>
      keyRecord.render(await acceptInvitation(deps, { ...body, userAgent: userAgentOf(c) })),
    ),
);

export const forgot = publicOperation(
  {
    tag: "Sessions",
    summary: "Send a link to reset a password",
    description: `Sends a link to the user with this email, if there is one, and at most one in five minutes. Sends none while an invitation that a caller created is open. The response is always the same. ${RATE_LIMITS.login} requests a minute for each account and client IP. A backend sends them with \`Authorization\` of a secret key of the team with the scope \`users:write\`: then they count per account only. Without email, the response is 501.`,
    optionalScope: "users:write",
    body: z.strictObject({ teamId: text(1, 100), email: text(1, 254) }),
    bodyExample: { teamId: "0193477be89f4d2e6b8a0c13", email: "ada@example.com" },
    success: {
      description: "The link is sent if there is such a user.",
      message: "If there is such a user, we have sent them a link.",
    },
    errorCodes: ["email_not_configured", "rate_limited"],
  },
  ({ c, deps, body }) =>
    withBackend(c, body.teamId, (isBackend) =>
      requestReset(deps, { ...body, clientIp: isBackend ? null : clientIpOf(c) }, pageUrl(c)),
    ),
);
