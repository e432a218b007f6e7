import type { Context } from "hono";
import {
  type Access,
  type Actor,
  authorize,
  type Credential,
  readCredential,
} from "../domain/accounts/authorization.ts";
import { noteUse } from "../domain/accounts/last-use.ts";
import { ensureAuthorized } from "../domain/accounts/write-authorization.ts";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";

/** Counts an expensive operation of a team, as one call or as several. @throws `rate_limited` */
export async function countExpensiveCall(
  c: Context<AppEnv>,
  operation: string,
  { teamId }: { teamId: string },
  calls = 1,
): Promise<void> {
  await ensureAuthorized(c.var.deps);
  if (!(await c.var.deps.limiter.expensiveCall(`${operation}/${teamId}`, calls)))
    throw new AppError("rate_limited", { limit: "expensive-call" });
}

/** Counts further requests for one that does the work of several. @throws `rate_limited` */
export async function countRequests(c: Context<AppEnv>, { tokenHash }: Credential, requests: number): Promise<void> {
  if (!(await c.var.deps.limiter.token(tokenHash ?? OPERATOR_COUNTER, requests))) {
    throw new AppError("rate_limited", { limit: "team" });
  }
}

/** Counts a search for the caller's team. A new token is authorized first: before that, its team is unknown. */
export async function countSearch(c: Context<AppEnv>, credential: Credential): Promise<void> {
  const { deps } = c.var;
  const tokenHash = credential.tokenHash ?? OPERATOR_COUNTER;
  if (!deps.limiter.isAuthenticated(tokenHash)) {
    await authorize(deps, credential);
    noteCaller(c, credential);
  }
  if (!(await deps.limiter.search(tokenHash))) {
    throw new AppError("rate_limited", { limit: "search" });
  }
}

/** Counts the opening of a link, which has no token, for the client IP. @throws `rate_limited` */
export async function countOpening(c: Context<AppEnv>): Promise<void> {
  if (!(await c.var.deps.limiter.token(`link/${clientIpOf(c)}`))) throw new AppError("rate_limited", { limit: "link" });
}

/** The client IP that Cloudflare saw. For IPv6 its /64, because a client usually has a whole /64. */
export function clientIpOf(c: Context<AppEnv>): string {
  const clientIp = c.req.header("CF-Connecting-IP") ?? "unknown";
  if (!clientIp.includes(":") || clientIp.includes(".")) return clientIp;
  const [before = "", after] = clientIp.toLowerCase().split("::");
  const head = before.split(":").filter(Boolean);
  const tail = after?.split(":").filter(Boolean) ?? [];
  const groups =
    after === undefined ? head : [...head, ...Array(Math.max(0, 8 - head.length - tail.length)).fill("0"), ...tail];
  return `${groups.slice(0, 4).join(":")}::/64`;
}

/** The name of the scheme is case-insensitive (RFC 9110, section 11.1). */
function bearerToken(c: Context<AppEnv>): string | undefined {
  return /^Bearer +(\S+)$/i.exec(c.req.header("Authorization")?.trim() ?? "")?.[1];
}

/** Returns the counter that a caller's requests count for. Visitors with public keys can't use up the limit of secret keys. */
function counterOf(actor: Actor): string {
  if (actor.kind === "operator") return OPERATOR_COUNTER;
  return actor.kind === "public" ? `${actor.teamId}/public` : actor.teamId;
}
const OPERATOR_COUNTER = "operator";

const blocked = () => new AppError("rate_limited", { limit: "client-ip" });

/** Notes an authenticated caller for the log and the limiter. */
export function noteCaller(c: Context<AppEnv>, { tokenHash, actor }: Credential): void {
  if (!actor) return;
  c.set("actor", actor);
  c.var.deps.limiter.authenticated(tokenHash ?? OPERATOR_COUNTER, counterOf(actor));
}

/**
 * Reads and counts the token without the database, then calls `run`, which authorizes it. A request with a missing or
 * invalid token counts for its client IP.
 * @throws `token_missing`, `token_invalid`, `rate_limited`, and the errors of `run`
 */
export async function withCredential<A extends Access, T>(
  c: Context<AppEnv>,
  { access, graceMilliseconds }: { access: A; graceMilliseconds?: number | undefined },
  run: (credential: Credential<A>) => Promise<T>,
): Promise<T> {
  const { limiter } = c.var.deps;
  const clientIp = clientIpOf(c);
  let credential: Credential<A> | undefined;
  try {
    credential = readCredential(c.var.deps, bearerToken(c), access, graceMilliseconds);
    const tokenHash = credential.tokenHash ?? OPERATOR_COUNTER;
    if (limiter.isBlocked(clientIp, tokenHash)) throw blocked();
    if (!(await limiter.token(tokenHash))) throw new AppError("rate_limited", { limit: "team" });
    const result = await run(credential);
    noteCaller(c, credential);
    if (credential.actor && credential.actor.kind !== "operator") noteUse(c.var.deps, credential.actor);
    return result;
  } catch (error) {
    const isUnauthenticated =
      error instanceof AppError && (error.code === "token_missing" || error.code === "token_invalid");
    if (!isUnauthenticated) {
      if (credential) noteCaller(c, credential);
      throw error;
    }
    if (credential?.tokenHash) limiter.rejected(credential.tokenHash);
    throw (await limiter.clientIp(clientIp)) ? error : blocked();
  }
}

/**
 * Runs a request that needs no token but may fail to open something secret. Failures count against the client IP,
 * successes do not. A `resource` that was opened recently stays available from a blocked IP.
 * @throws `rate_limited`, and what `run` throws
 */
export async function limitFailures<T>(c: Context<AppEnv>, resource: string, run: () => Promise<T>): Promise<T> {
  const { limiter } = c.var.deps;
  const clientIp = clientIpOf(c);
  if (limiter.isBlocked(clientIp, resource)) throw blocked();
  try {
    const result = await run();
    limiter.authenticated(resource, resource);
    return result;
  } catch (error) {
    const isUnknown = error instanceof AppError && error.code === "not_found";
    throw isUnknown && !(await limiter.clientIp(clientIp)) ? blocked() : error;
  }
}
