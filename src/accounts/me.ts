import { and, eq, isNull } from "drizzle-orm";
import { type Actor, type ActorWith, authorize, type Credential, isKey, readAs } from "../access/authorization.ts";
import { hashPassword, verifyOwnPassword } from "../access/passwords.ts";
import { type Role, type Scope, scopesIn } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError, invalidField } from "../errors.ts";
import { recorded, writeWithEvent } from "../events/events.ts";
import { read } from "../platform/db.ts";
import { USER_EVENTS } from "./account-event-types.ts";
import { apiKeys } from "./keys.schema.ts";
import { users } from "./users.schema.ts";
import { endSessions, replacePassword } from "./users.ts";

/* Operations on the caller itself, which need no scope. */

/** The caller. Fields that do not apply to its kind are null. */
export interface Me {
  kind: ActorWith<"any token">["kind"];
  teamId: string | null;
  keyId: string | null;
  userId: string | null;
  role: Role | null;
  scopes: Scope[] | null;
  expiresAt: number | null;
}

/** The user who logged in. A session that an API key created has the scopes of the key, and is not its user's. */
const isLoggedInUser = and(eq(users.id, apiKeys.userId), eq(users.teamId, apiKeys.teamId), isNull(apiKeys.scopes));

export async function fetchMe(deps: Deps, credential: Credential<"any token">): Promise<Me> {
  const { tokenHash } = credential;
  const nothing = {
    teamId: null,
    keyId: null,
    userId: null,
    role: null,
    scopes: null,
    expiresAt: null,
  };
  if (tokenHash === null) {
    await authorize(deps, credential);
    return { ...nothing, kind: "operator" };
  }
  const {
    actor,
    rows: [row],
  } = await readAs(deps, credential, ({ teamId }) =>
    deps.db
      .select({ expiresAt: apiKeys.expiresAt, role: users.role })
      .from(apiKeys)
      .leftJoin(users, isLoggedInUser)
      .where(and(eq(apiKeys.tokenHash, tokenHash), eq(apiKeys.teamId, teamId))),
  );
  const { ownerId, right, ...caller } = { ownerId: null, right: null, ...actor };
  return { ...nothing, ...caller, ...row, scopes: scopesIn(actor.scopes) };
}

/**
 * Changes the password of the user whose session calls, and ends the user's other sessions and invitation.
 * @throws `forbidden` unless the session of a login calls; `invalid_input` if the current password is wrong; `rate_limited`;
 *   `conflict` if the password was changed at the same time
 */
export async function changeOwnPassword(
  deps: Deps,
  actor: Actor,
  { currentPassword, newPassword }: { currentPassword: string; newPassword: string },
): Promise<void> {
  const user = actor.kind === "session" ? await loggedInUser(deps, actor) : undefined;
  if (actor.kind !== "session" || !user) {
    throw new AppError("forbidden", { message: "Only the session of a user can change the user's password." });
  }
  const { teamId } = actor;
  // A stolen session must not become a way to guess the password.
  if (!(await deps.limiter.countGuess(`password/${user.id}`))) throw new AppError("rate_limited", { limit: "login" });
  if (!(await verifyOwnPassword(deps, teamId, currentPassword, user.password))) {
    throw invalidField("currentPassword", "Incorrect password.");
  }
  const password = await hashPassword(deps, teamId, newPassword);
  const target = { id: user.id, teamId };
  const event = { type: USER_EVENTS.updated, initiator: actor, subject: target, data: { fields: ["password"] } };
  const batch = {
    replaced: recorded(deps, event, replacePassword(deps, target, user.password, password, { invitationHash: null })),
    sessions: endSessions(deps, target, password, actor.keyId),
  };
  const { replaced } = await writeWithEvent(deps, batch, { isIdempotent: false, caller: actor });
  if (replaced.change.length === 0) throw new AppError("conflict");
}

async function loggedInUser(deps: Deps, { keyId, teamId }: { keyId: string; teamId: string }) {
  const [user] = await read(
    deps,
    deps.db
      .select({ id: users.id, password: users.password })
      .from(apiKeys)
      .innerJoin(users, isLoggedInUser)
      .where(isKey(teamId, keyId)),
  );
  return user;
}
