import * as z from "zod";
import { clientIpOf, countOpening, limitFailures, userAgentOf, withBackend } from "../http/authentication.ts";
import { publicOperation } from "../http/operation.ts";
import { name, text } from "../http/validation.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import { acceptInvitation, describeInvitation, emailNotConfigured, requestReset } from "./invitations.ts";
import { keyRecord } from "./keys.routes.ts";
import { sessionsTag, sessionTokenExample } from "./sessions.routes.ts";
import { invitationTokenExample, invitationUrl, password, role } from "./users.routes.ts";

/* Invitations and password resets, for the people who get them. `users.routes.ts` creates invitations. */

const describe = publicOperation(
  {
    route: "POST /auth/v1/invitations/describe",
    tag: sessionsTag,
    summary: "Describe an invitation",
    sample: "const { teamName, email } = await stowage.describeInvitation({ token });",
    description:
      "Returns whom an invitation is for, so that a page can greet them before they choose a password. A token that doesn't work gets the 401 of `POST /auth/v1/invitations/accept`.",
    body: () => z.strictObject({ token: text(1, 100) }),
    bodyExample: { token: invitationTokenExample },
    success: {
      description: "The invited user, and the team.",
      message: "Invitation found.",
      schema: () =>
        z
          .strictObject({
            teamName: z.string(),
            email: z.string(),
            role: role(),
            hasPassword: z.boolean().meta({ description: "If true, the password is reset." }),
          })
          .meta({ id: "InvitationDescription" }),
      example: { teamName: "Radio Lovelace", email: "ada@example.com", role: "viewer" as const, hasPassword: false },
    },
    errors: ["token_invalid", "rate_limited"],
  },
  ({ c, deps, body: { token } }) =>
    limitFailures(c, token, async () => {
      const described = await describeInvitation(deps, token);
      await countOpening(c);
      return described;
    }),
);

const accept = publicOperation(
  {
    route: "POST /auth/v1/invitations/accept",
    tag: sessionsTag,
    summary: "Accept an invitation",
    sample: "const { key } = await stowage.acceptInvitation({ token, password });",
    description:
      "Sets the password of the invited user, ends their sessions, and logs them in, in the shape of `POST /auth/v1/login`. A token works once. One that was used, replaced or has expired gets 401.",
    body: () =>
      z.strictObject({
        token: text(1, 100),
        password: password(),
        firstName: name(0).optional(),
        lastName: name(0).optional(),
      }),
    bodyExample: { token: invitationTokenExample, password: "correct horse battery" },
    success: {
      description: "The session.",
      message: "Password set.",
      schema: keyRecord.schema,
      example: { ...sessionTokenExample, name: "Ada Lovelace" },
    },
    errors: ["token_invalid", "rate_limited"],
  },
  ({ c, deps, body }) =>
    limitFailures(c, body.token, async () =>
      keyRecord.render(await acceptInvitation(deps, { ...body, userAgent: userAgentOf(c) })),
    ),
);

const forgot = publicOperation(
  {
    route: "POST /auth/v1/password/forgot",
    tag: sessionsTag,
    summary: "Send a link to reset a password",
    sample: "await stowage.forgotPassword({ teamId, email });",
    description:
      "Sends a link to the user with this email, if there is one, and at most one in five minutes. " +
      "Sends none while an invitation that a caller created is open. The response is always the same. " +
      `${RATE_LIMITS.login} requests a minute for each account and client IP. ` +
      "A backend sends them with `Authorization` of a secret key of the team with the scope `users:write`: " +
      "then they count per account only. Without email, the response is 501.",
    optionalScope: "users:write",
    body: () => z.strictObject({ teamId: text(1, 100), email: text(1, 254) }),
    bodyExample: { teamId: "0193477be89f4d2e6b8a0c13", email: "ada@example.com" },
    success: {
      description: "The link is sent if there is such a user.",
      message: "If there is such a user, we have sent them a link.",
    },
    errors: [emailNotConfigured, "rate_limited"],
  },
  ({ c, deps, body }) =>
    withBackend(c, body.teamId, (isBackend) =>
      requestReset(deps, { ...body, clientIp: isBackend ? null : clientIpOf(c) }, invitationUrl(c)),
    ),
);

export const operations = {
  describeInvitation: describe,
  acceptInvitation: accept,
  forgotPassword: forgot,
};
