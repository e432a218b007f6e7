import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { authorizeAgain, ensureAuthorized } from "./write-authorization.ts";

/*
 * Only this file hashes passwords. A hash takes 0.1 s of CPU and blocks the isolate. The queue of an isolate limits the
 * number of waiting requests. The limit of a team bounds its new passwords per minute.
 */

/** Hashes a new password of a team's user. The next batch authorizes the caller again. @throws `rate_limited` */
export async function hashPassword(deps: Deps, teamId: string, password: string): Promise<string> {
  await ensureAuthorized(deps);
  if (!(await deps.limiter.passwordHash(teamId))) throw new AppError("rate_limited", { limit: "password" });
  const hash = await deps.hashQueue.run(`change/${teamId}`, () => deps.secrets.hashPassword(password));
  authorizeAgain(deps);
  return hash;
}

// Logins wait apart from the team's other hashes. Nobody can use up the minute of a team by failed logins to it:
// logins count per client IP and per account. Teams that don't exist wait as one, or made-up names would fill the queue.
const loginOf = (teamId: string | null) => `login/${teamId ?? ""}`;

/** Checks a password. `teamId` is null if there is no such team. @throws `rate_limited` */
export function verifyPassword(
  deps: Deps,
  teamId: string | null,
  password: string,
  hash: string | null,
): Promise<boolean> {
  return deps.hashQueue.run(loginOf(teamId), () => deps.secrets.verifyPassword(password, hash));
}

/** Hashes the verified password of a login under the current master key. @throws `rate_limited` */
export function rehashPassword(deps: Deps, teamId: string, password: string): Promise<string> {
  return deps.hashQueue.run(loginOf(teamId), () => deps.secrets.hashPassword(password));
}
