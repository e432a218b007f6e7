import type { Deps } from "../deps.ts";
import { AppError, errorCode, isError } from "../errors.ts";

/*
 * Only failed logins count, ten a minute. They count for the account, so that its password can't be guessed from many
 * client IPs, and for the client IP, so that one can't guess the passwords of many accounts.
 *
 * An account is counted before its password is checked, and a login that doesn't fail gives its place back. So guesses that
 * arrive at once can't exceed the limit, and a locked account also refuses the right password.
 *
 * A client IP is counted after the check. Many people may share it, and those who log in at once must not wait for one
 * another. Its failures may exceed the limit by those that arrive at once. The queue for hashing bounds their number.
 */

export const loginFailed = errorCode("login_failed", 401, "Incorrect team ID, email, or password.");

const rateLimited = () => new AppError("rate_limited", { limit: "login" });

/**
 * Counts a request to reset a password, for its client IP and account, whether there is such a user or not. A client IP that
 * is blocked counts for no account, so it can't block others.
 * @throws `rate_limited`
 */
export async function limitResets(
  { limiter }: Deps,
  { account, clientIp }: { account: string; clientIp: string | null },
): Promise<void> {
  const counters = [...(clientIp === null ? [] : [`reset/client-ip/${clientIp}`]), `reset/account/${account}`];
  for (const counter of counters) if (!(await limiter.countGuess(counter))) throw rateLimited();
}

/**
 * Runs a login and counts it if it fails. `clientIp` is null for a login by a backend: its client IP is that of all its users.
 * @throws `rate_limited`, and what `logIn` throws
 */
export async function limitFailedLogins<T>(
  { limiter }: Deps,
  { account, clientIp }: { account: string; clientIp: string | null },
  logIn: () => Promise<T>,
): Promise<T> {
  if (clientIp !== null) {
    if (limiter.isLoginBlocked(clientIp)) throw rateLimited();
    if (!(await limiter.countLogin(clientIp))) throw new AppError("rate_limited", { limit: "client-ip" });
  }
  const permit = await limiter.takeLogin(account);
  if (!permit) throw rateLimited();
  let hasFailed = false;
  try {
    return await logIn();
  } catch (error) {
    hasFailed = isError(error, loginFailed);
    if (hasFailed && clientIp !== null && !(await limiter.countFailedLogin(clientIp))) throw rateLimited();
    throw error;
  } finally {
    if (!hasFailed) permit.giveBack();
  }
}
