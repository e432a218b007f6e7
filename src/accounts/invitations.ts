import { and, eq, gt, isNull, lte, not, or, type SQL, sql } from "drizzle-orm";
import { exceeds, isPrincipalAllowed, principalOf, refusalError, type TeamActor } from "../access/authorization.ts";
import { databaseOf, inDatabase } from "../access/databases.ts";
import { limitResets } from "../access/login-limits.ts";
import { hashPassword } from "../access/passwords.ts";
import { maskOfRole, SCOPES, scopesOfRole } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError, errorCode } from "../errors.ts";
import { fieldsOf, recorded, SYSTEM, writeWithEvent } from "../events/events.ts";
import { firstOf, hasRow, read } from "../platform/db.ts";
import { newSecret, parseSecretUrl, renderSecretUrl } from "../platform/secret-url.ts";
import { fingerprint } from "../platform/secrets.ts";
import { DAY, HOUR, SECOND } from "../platform/system.ts";
import { USER_EVENTS } from "./account-event-types.ts";
import type { ApiKey } from "./key-rows.ts";
import { HALF_SHARE, type MailRefusal, mailRefusalError, newMail, sendMail } from "./mails.ts";
import { newUserSession } from "./sessions.ts";
import { teams } from "./teams.schema.ts";
import { users } from "./users.schema.ts";
import { emailKey, endSessions, hasPassword, isUser, type UserKey } from "./users.ts";

/*
 * Invitations: links with which a person sets the password of a user. A password reset is one, too. The user's row has the
 * hash of the only valid one. It ends when it is used, after a day, with a newer one, and when the email, the role or the
 * password changes. One by a caller is valid only while that caller could still create it, for the role that the user has.
 */

export const emailNotConfigured = errorCode(
  "email_not_configured",
  501,
  "This service sends no emails. Use the link of an invitation instead.",
);

export const DEFAULT_INVITATION_SECONDS = DAY / SECOND;
export const MIN_INVITATION_SECONDS = HOUR / SECOND;
export const MAX_INVITATION_SECONDS = (14 * DAY) / SECOND;

/** Lets secret scanners find it. The user's id follows, because the row is found by it. */
const PREFIX = "stow_in_";

const isActiveTeam = and(eq(teams.id, users.teamId), eq(teams.status, "active"));

export interface Invitation {
  token: string;
  /** SHA-256 of its secret, hex. */
  hash: string;
  expiresAt: number;
}

/** Returns the URL at which a person uses the invitation with this token. */
export type InvitationUrl = (token: string) => string;

/** Whether the caller who created the invitation could still do so. */
const isByPresentCaller = (deps: Deps) =>
  isPrincipalAllowed(
    deps,
    { teamId: users.teamId, id: users.invitationBy, ownerId: null },
    sql`(${SCOPES["users:write"]} | ${maskOfRole(users.role)})`,
  );

/** A new invitation, and the update that stores it in place of an older one if `condition` holds. */
function newInvitation(
  deps: Deps,
  user: UserKey,
  invitationBy: SQL<string> | null,
  condition: SQL | undefined,
  expiresInSeconds = DEFAULT_INVITATION_SECONDS,
) {
  const secret = newSecret(deps.system);
  const invitationEndsAt = deps.system.now() + expiresInSeconds * SECOND;
  const invitationHash = fingerprint(secret);
  const token = PREFIX + renderSecretUrl({ id: user.id, secret });
  const invitation = { token, hash: invitationHash, expiresAt: invitationEndsAt };
  const isNew = sql`${users.invitationHash} is not ${invitationHash}`;
  const replace = deps.db
    .update(users)
    .set({ invitationHash, invitationEndsAt, invitationBy })
    .where(and(isUser(user), isNew, condition))
    .returning({ id: users.id });
  return { invitation, replace };
}

/* By a caller */

/**
 * Creates an invitation, in place of an older one. With `email`, sends its link to the user.
 * @throws `not_found`, `insufficient_scope` if the caller doesn't cover the user's role, `email_not_configured`, `unavailable`
 *   if the email can't be sent, `rate_limited` if too many were
 */
export async function inviteUser(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { email, expiresInSeconds }: { email: { urlOf: InvitationUrl } | null; expiresInSeconds: number },
): Promise<Invitation> {
  const { db, mailer } = deps;
  if (email && !mailer) throw new AppError(emailNotConfigured);
  const target = { id, teamId: actor.teamId };
  const mail = email && newMail(deps, target);
  const refusal = firstOf({
    insufficient_scope: exceeds(actor, maskOfRole(users.role)),
    ...mail?.refusals,
  });
  const { invitation, replace } = newInvitation(
    deps,
    target,
    principalOf(deps, actor),
    isNull(refusal),
    expiresInSeconds,
  );
  const lastSentAt = mail?.lastSentAt ?? sql<number | null>`null`;
  const columns = { refusal, lastSentAt, role: users.role, email: users.email, teamName: teams.name };
  const batch = {
    found: db.select(columns).from(users).innerJoin(teams, eq(teams.id, users.teamId)).where(isUser(target)),
    replace: recorded(deps, { type: USER_EVENTS.invited, initiator: actor, subject: target }, replace),
    counted: mail ? mail.count(isNull(refusal)) : [],
  };
  const {
    found: [user],
  } = await writeWithEvent(deps, batch, {
    isIdempotent: true,
    caller: actor,
    granted: actor.scopes,
  });
  if (!user) throw new AppError("not_found");
  if (isMailRefusal(user.refusal)) throw mailRefusalError(deps, user.refusal, user.lastSentAt);
  if (user.refusal !== null) throw refusalError(user.refusal, actor, scopesOfRole(user.role));
  if (email && mail) {
    await sendMail(deps, mail.id, invitationMail(user, invitation, email.urlOf)).catch((cause) => {
      throw new AppError("unavailable", { cause });
    });
  }
  return invitation;
}

const isMailRefusal = (refusal: string | null): refusal is MailRefusal =>
  refusal === "mail_paused" || refusal === "mails_exceeded";

/** Contains nothing that a caller of the team chose, because the service vouches for it. */
function invitationMail(
  { email, teamName }: { email: string; teamName: string },
  { token, expiresAt }: Invitation,
  urlOf: InvitationUrl,
) {
  const until = new Date(expiresAt).toISOString().slice(0, 16).replace("T", " ");
  return {
    to: email,
    subject: `Set your password for ${teamName}`,
    text: `Open this link to set your password for ${teamName}. It works once, until ${until} UTC:

${urlOf(token)}

If you did not expect this email, ignore it.
`,
  };
}

/* By the user, without a session */

/**
 * Sends a link to the user with this email, if there is one. Nothing that depends on the user happens before the response,
 * so neither the response nor its time shows whether there is one.
 * @throws `email_not_configured`, `rate_limited`
 */
export async function requestReset(
  given: Deps,
  { teamId, email, clientIp }: { teamId: string; email: string; clientIp: string | null },
  urlOf: InvitationUrl,
): Promise<void> {
  if (!given.mailer) throw new AppError(emailNotConfigured);
  const key = emailKey(email);
  await limitResets(given, { account: `${teamId}/${key}`, clientIp });
  const deps = inDatabase(given, databaseOf(teamId));
  // No team has an id with the number of another database.
  if (!deps) return;
  // The same query for every email. It fails during an outage, which the caller should know about.
  await read(deps, deps.db.select({ id: teams.id }).from(teams).where(eq(teams.id, teamId)));
  deps.after(
    sendReset(deps, teamId, key, urlOf).catch((cause) => deps.log("error", "email_failed", { teamId, cause })),
  );
}

async function sendReset(deps: Deps, teamId: string, key: string, urlOf: InvitationUrl): Promise<void> {
  const { db, system } = deps;
  const [user] = await read(
    deps,
    db
      .select({ id: users.id, teamId: users.teamId, email: users.email, teamName: teams.name })
      .from(users)
      .innerJoin(teams, isActiveTeam)
      .where(and(eq(users.teamId, teamId), eq(users.emailKey, key))),
  );
  if (!user) return;
  const now = system.now();
  // Anyone can ask for a reset, so it does not end what a caller created.
  const isDue = or(
    isNull(users.invitationHash),
    isNull(users.invitationBy),
    not(isByPresentCaller(deps)),
    lte(users.invitationEndsAt, now),
  );
  const mail = newMail(deps, user, HALF_SHARE);
  const isSent = and(eq(users.emailKey, key), isDue, isNull(firstOf(mail.refusals)));
  const { invitation, replace } = newInvitation(deps, user, null, isSent);
  const counted = mail.count(eq(users.invitationHash, invitation.hash));
  const batch = {
    invited: recorded(deps, { type: USER_EVENTS.invited, initiator: SYSTEM, subject: user }, replace),
    counted,
  };
  const { invited } = await writeWithEvent(deps, batch, { isIdempotent: false, caller: null });
  // If that fails, the next one still waits: else anyone could use up the emails of a day by a mailbox that refuses them.
  if (invited.change.length > 0) await deps.mailer?.send(invitationMail(user, invitation, urlOf));
}

/** The condition of an open invitation, and the database of its user. @throws `token_invalid` */
function openInvitation(given: Deps, token: string) {
  const link = token.startsWith(PREFIX) ? parseSecretUrl(token.slice(PREFIX.length)) : undefined;
  const deps = link && inDatabase(given, databaseOf(link.id));
  if (!deps) throw new AppError("token_invalid");
  const isOpen = () =>
    and(
      eq(users.id, link.id),
      eq(users.invitationHash, fingerprint(link.secret)),
      gt(users.invitationEndsAt, deps.system.now()),
      or(isNull(users.invitationBy), isByPresentCaller(deps)),
      hasRow(teams, isActiveTeam),
    );
  return { deps, isOpen };
}

/** Returns whom an invitation is for. @throws `token_invalid` if it has ended */
export async function describeInvitation(given: Deps, token: string) {
  const { deps, isOpen } = openInvitation(given, token);
  const columns = { email: users.email, role: users.role, teamName: teams.name, password: users.password };
  const [user] = await read(deps, deps.db.select(columns).from(users).innerJoin(teams, isActiveTeam).where(isOpen()));
  if (!user) throw new AppError("token_invalid");
  const { password, ...described } = user;
  return { ...described, hasPassword: hasPassword({ password }) };
}

export interface NewPassword {
  /** The token of the invitation. */
  token: string;
  password: string;
  firstName?: string | undefined;
  lastName?: string | undefined;
  userAgent: string | null;
}

/**
 * Sets the password of the invited user, ends the user's sessions and logs the user in. An invitation works once: the
 * condition of the update lets one of several requests pass.
 * @returns a session, as a login does
 * @throws `token_invalid` if the invitation has ended; `rate_limited`
 */
export async function acceptInvitation(
  given: Deps,
  { token, password, firstName, lastName, userAgent }: NewPassword,
): Promise<ApiKey> {
  const { deps, isOpen } = openInvitation(given, token);
  const { db, system } = deps;
  const [user] = await read(deps, db.select().from(users).where(isOpen()));
  if (!user) throw new AppError("token_invalid");
  const hash = await hashPassword(deps, user.teamId, password);
  const names = { firstName: firstName ?? user.firstName, lastName: lastName ?? user.lastName };
  const updated = { ...user, ...names, password: hash, version: user.version + 1 };
  const { initiator, login, view } = newUserSession(deps, updated, { userAgent });
  const set = {
    firstName,
    lastName,
    password: hash,
    invitationHash: null,
    updatedAt: system.now(),
    version: sql`${users.version} + 1`,
  };
  const accept = db
    .update(users)
    .set(set)
    .where(and(isUser(user), isOpen()));
  const accepted = {
    type: USER_EVENTS.updated,
    initiator,
    subject: user,
    data: { fields: fieldsOf({ firstName, lastName, password }) },
  };
  const batch = {
    accept: recorded(deps, accepted, accept),
    sessions: endSessions(deps, user, hash, initiator.keyId),
    login,
  };
  const {
    login: {
      stored: [session],
    },
  } = await writeWithEvent(deps, batch, { isIdempotent: true, caller: null });
  if (!session) throw new AppError("token_invalid");
  return view(session);
}
