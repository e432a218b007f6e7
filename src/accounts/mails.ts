import { and, eq, gt, gte, inArray, isNotNull, lte, max, ne, not, or, type SQL, sql } from "drizzle-orm";
import type { Deps, RecoveryStep } from "../deps.ts";
import { AppError } from "../errors.ts";
import { deleteFirst, hasRow, insertWhere, write } from "../platform/db.ts";
import { DAY, HOUR, MINUTE, newId, SECOND } from "../platform/system.ts";
import { sentMails } from "./mails.schema.ts";
import { teams } from "./teams.schema.ts";
import { users } from "./users.schema.ts";
import { isUser, type UserKey } from "./users.ts";

/*
 * The limits of emails to users and to the addresses of teams. The service vouches for each with the operator's domain, so no
 * caller may fill a mailbox with them, and no team may spend what the domain may send. An email that can't be sent counts for the
 * day, too.
 */

/** A user gets at most one email in this time, and so does a mailbox, whichever users of the team have it. */
export const MAIL_PAUSE_MILLISECONDS = 5 * MINUTE;
/** Emails a day: enough to invite a company. */
export const MAX_TEAM_MAILS = 500;
/** Emails a day of all teams in a database. */
export const MAX_MAILS = 5000;
/** A place becomes free when an email is a day old. */
const FULL_RETRY_SECONDS = HOUR / SECOND;
/** Rows of a statement. */
const REMOVED_MAILS = 500;

/** The mailbox of a user's email: many mail servers ignore what follows a plus sign. */
const mailbox = sql<string>`iif(instr(${users.emailKey}, '+') between 2 and instr(${users.emailKey}, '@'),
  substr(${users.emailKey}, 1, instr(${users.emailKey}, '+') - 1) || substr(${users.emailKey}, instr(${users.emailKey}, '@')),
  ${users.emailKey})`;

export type MailRefusal = "mail_paused" | "mails_exceeded";

/** Resets, for which anyone can ask, and notices to teams leave the other half of a day to invitations. */
export const HALF_SHARE = 0.5;

/** Whether the emails of a day reach a number: those of a team, or of the database. */
const areSent = ({ db, system }: Deps, most: number, where?: SQL) => {
  const ofDay = db
    .select({ id: sentMails.id })
    .from(sentMails)
    .where(and(where, gt(sentMails.sentAt, system.now() - DAY)))
    .limit(most);
  return sql`(select count(*) from ${ofDay}) >= ${most}`;
};

/** An email to a user, which is sent after a batch, and may take a share of the emails of a day. */
export function newMail(deps: Deps, user: UserKey, share = 1) {
  const { db, system } = deps;
  const id = newId(system, db.number);
  const now = system.now();
  // A repeated batch finds its own row.
  const isOther = ne(sentMails.id, id);
  const isRecent = and(
    eq(sentMails.teamId, user.teamId),
    or(eq(sentMails.userId, user.id), eq(sentMails.mailbox, mailbox)),
    gte(sentMails.sentAt, now - MAIL_PAUSE_MILLISECONDS),
    isOther,
  );
  const isFull = (most: number, ofTeam?: SQL) => areSent(deps, most, and(ofTeam, isOther));
  const refusals: Record<MailRefusal, SQL> = {
    mail_paused: hasRow(sentMails, isRecent),
    mails_exceeded: sql`(${isFull(MAX_TEAM_MAILS * share, eq(sentMails.teamId, user.teamId))} or ${isFull(MAX_MAILS * share)})`,
  };
  return {
    id,
    /** Reasons not to send it, for a statement on the user's row. */
    refusals,
    /** When the last email that this one waits for was sent, for such a statement. */
    lastSentAt: sql<number | null>`${db
      .select({ at: max(sentMails.sentAt) })
      .from(sentMails)
      .where(isRecent)}`,
    /** Counts it, if the user meets the condition. */
    count: (condition: SQL | undefined) =>
      insertWhere(
        db,
        sentMails,
        { id, teamId: user.teamId, userId: user.id, mailbox, sentAt: now },
        and(isUser(user), condition),
        sql`${users}`,
      ),
  };
}

export function mailRefusalError({ system }: Deps, refusal: MailRefusal, lastSentAt: number | null): AppError {
  if (refusal === "mails_exceeded") {
    const message = "The team or the service has sent the emails of a day. Hand over a link, or retry later.";
    return new AppError("rate_limited", { message, retryAfterSeconds: FULL_RETRY_SECONDS });
  }
  const retryAt = (lastSentAt ?? system.now()) + MAIL_PAUSE_MILLISECONDS;
  return new AppError("rate_limited", {
    message: "This user or mailbox got an email in the last five minutes. Retry later.",
    retryAfterSeconds: Math.max(1, Math.ceil((retryAt - system.now()) / SECOND)),
  });
}

/** Sends a counted email for a caller. If that fails, the next one need not wait. @throws Error as the mailer does */
export async function sendMail(deps: Deps, id: string, mail: { to: string; subject: string; text: string }) {
  try {
    await deps.mailer?.send(mail);
  } catch (error) {
    const failed = deps.db.update(sentMails).set({ userId: "", mailbox: "" }).where(eq(sentMails.id, id));
    await write(deps, failed, { isIdempotent: true, caller: null });
    throw error;
  }
}

const WHY_NOTIFIED = "You get this email because the operator of the service has entered your address for the team.";

/** The URL of a page of the console. `PUBLIC_URL` is required with emails. */
export const consoleUrl = ({ settings }: Deps, path: string): string => `${settings.publicUrl ?? ""}/console${path}`;

/** An email to the address of a team. */
export interface Notice {
  teamId: string;
  /** Follows the name of the team, such as `Radio Lovelace: an API key expires soon`. */
  subject: string;
  text: string;
}

/**
 * Sends notices to those of the teams that have an address. They count among the emails of a day, of which they take a half.
 * Each is sent at most once, and may be lost; the event of the same change is not. Never rejects.
 */
export async function notifyTeams(deps: Deps, notices: Notice[]): Promise<void> {
  const { mailer, db, system } = deps;
  if (!mailer || notices.length === 0) return;
  const isAddressed = and(
    inArray(
      teams.id,
      notices.map(({ teamId }) => teamId),
    ),
    isNotNull(teams.notificationEmail),
    not(areSent(deps, MAX_TEAM_MAILS * HALF_SHARE, eq(sentMails.teamId, teams.id))),
    not(areSent(deps, MAX_MAILS * HALF_SHARE)),
  );
  // Without a user, it lets no email to a user wait.
  const counted = { id: newId(system, db.number), userId: "", mailbox: "", sentAt: system.now() };
  const columns = { ...counted, id: sql`${counted.id} || ${teams.id}`, teamId: sql`${teams.id}` };
  const batch = {
    addressed: db
      .select({ id: teams.id, name: teams.name, to: teams.notificationEmail })
      .from(teams)
      .where(isAddressed),
    count: insertWhere(db, sentMails, columns, isAddressed, sql`${teams}`),
  };
  try {
    const { addressed } = await write(deps, batch, { isIdempotent: true, caller: null });
    await Promise.all(
      addressed.map(async ({ id, name, to }) => {
        const notice = notices.find(({ teamId }) => teamId === id);
        if (to === null || !notice) return;
        await mailer.send({ to, subject: `${name}: ${notice.subject}`, text: `${notice.text}\n\n${WHY_NOTIFIED}` });
      }),
    );
  } catch (cause) {
    deps.log("error", "email_failed", { cause });
  }
}

/** Removes emails that no limit counts any more. */
async function removeOldMails(deps: Deps) {
  const where = lte(sentMails.sentAt, deps.system.now() - DAY);
  const remove = deleteFirst(deps.db, sentMails, { where, orderBy: sentMails.sentAt, limit: REMOVED_MAILS });
  const rows = await write(deps, remove, { isIdempotent: true, caller: null });
  return { mailsRemoved: rows.length };
}

export const oldMails: RecoveryStep = {
  name: "old mails",
  counts: ["mailsRemoved"],
  runBatch: removeOldMails,
  maxBatches: 10,
  queries: 1,
};
