import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { fingerprint } from "../platform/secrets.ts";

/*
 * Only this file hashes passwords. A hash takes 0.1 s of CPU and blocks the isolate. The queue of an isolate limits the
 * number of waiting requests. The limit of a team bounds the passwords per minute that its callers make it hash.
 */

/** @throws `rate_limited` */
async function countAndHash<T>(deps: Deps, teamId: string, hash: () => Promise<T>): Promise<T> {
  if (!(await deps.limiter.countPasswordHash(teamId))) throw new AppError("rate_limited", { limit: "password" });
  return deps.hashQueue.run(`change/${teamId}`, hash);
}

/**
 * Hashes a new password of a team's user. May wait for seconds, so the caller must be authorized again before the write.
 * @throws `rate_limited`
 */
export const hashPassword = (deps: Deps, teamId: string, password: string): Promise<string> =>
  countAndHash(deps, teamId, () => deps.secrets.hashPassword(password));

/**
 * Checks the password of a user who is logged in. Any role may ask, so it counts like a new password.
 * @throws `rate_limited`
 */
export const verifyOwnPassword = (deps: Deps, teamId: string, password: string, hash: string): Promise<boolean> =>
  countAndHash(deps, teamId, () => deps.secrets.verifyPassword(password, hash));

// Logins wait apart from the team's other hashes. Nobody can use up the minute of a team by failed logins to it:
// those count per client IP and per account. A team shares its turn with those whose ids have the same first digit of a hash,
// whether they exist or not: a separate turn that is full would show that a team exists.
const loginOf = (teamId: string) => `login/${fingerprint(teamId).slice(0, 1)}`;

/** Checks the password of a login. Waits in the same turn whether there is such a team or not. @throws `rate_limited` */
export function verifyPassword(deps: Deps, teamId: string, password: string, hash: string | null): Promise<boolean> {
  return deps.hashQueue.run(loginOf(teamId), () => deps.secrets.verifyPassword(password, hash));
}

/** Hashes the verified password of a login under the current master key. @throws `rate_limited` */
export function rehashPassword(deps: Deps, teamId: string, password: string): Promise<string> {
  return deps.hashQueue.run(loginOf(teamId), () => deps.secrets.hashPassword(password));
}
