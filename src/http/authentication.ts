import type { Context } from "hono";
import {
  type Access,
  authorize,
  type Credential,
  checkCounted,
  readCredential,
  refuseAgain,
  type TokenUse,
  tokenName,
} from "../access/authorization.ts";
import { inDatabaseOfToken } from "../access/databases.ts";
import { noteUse } from "../access/last-use.ts";
import { visitorsOf } from "../access/limiter.ts";
import { AppError, type CommonCode, isError } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";

/** Counts the opening of a link, which has no token, for the client IP. @throws `rate_limited` */
export async function countOpening(c: Context<AppEnv>): Promise<void> {
  const clientIp = clientIpOf(c);
  if (clientIp === null || (await c.get("deps").limiter.countOpening(clientIp))) return;
  throw new AppError("rate_limited", { limit: "light" });
}

/**
 * The client IP that Cloudflare saw. For IPv6 its /64, because a client usually has a whole /64. Null if a Worker of the same
 * account calls through a service binding and does not pass the header on: no other request lacks it. The clients of such a Worker
 * can't be distinguished, so no limit of a client IP applies to them, or one of them would block the others.
 */
export function clientIpOf(c: Context<AppEnv>): string | null {
  const clientIp = c.req.header("CF-Connecting-IP") ?? null;
  if (!clientIp?.includes(":") || clientIp.includes(".")) return clientIp;
  const [before = "", after] = clientIp.toLowerCase().split("::");
  const head = before.split(":").filter(Boolean);
  const tail = after?.split(":").filter(Boolean) ?? [];
  const groups =
    after === undefined ? head : [...head, ...Array(Math.max(0, 8 - head.length - tail.length)).fill("0"), ...tail];
  return `${groups.slice(0, 4).join(":")}::/64`;
}

const MAX_USER_AGENT_CHARACTERS = 200;

/** The client as it names itself. Null if it doesn't. */
export const userAgentOf = (c: Context<AppEnv>): string | null =>
  [...(c.req.header("User-Agent") ?? "")].slice(0, MAX_USER_AGENT_CHARACTERS).join("") || null;

/** The name of the scheme is case-insensitive (RFC 9110, section 11.1). */
function bearerToken(c: Context<AppEnv>): string | undefined {
  return /^Bearer +(\S+)$/i.exec(c.req.header("Authorization")?.trim() ?? "")?.[1];
}

const blocked = () => new AppError("rate_limited", { limit: "client-ip" });

/**
 * Reads the token without a database, sets `deps.db` to the token's database, and calls `run`, which authorizes it. From then on,
 * the request is being counted for its caller. A request with a missing or invalid token counts for its client IP.
 * @throws `token_missing`, `token_invalid`, `rate_limited`, and the errors of `run`
 */
export async function withCredential<A extends Access, T>(
  c: Context<AppEnv>,
  use: TokenUse<A>,
  run: (credential: Credential<A>) => Promise<T>,
): Promise<T> {
  const { limiter } = c.get("deps");
  const clientIp = clientIpOf(c);
  let credential: Credential<A> | undefined;
  try {
    credential = readCredential(c.get("deps"), bearerToken(c), use);
    c.set("credential", credential);
    c.set("deps", inDatabaseOfToken(c.get("deps"), credential));
    const token = tokenName(credential);
    if (clientIp !== null && limiter.isBlocked(clientIp, token)) throw blocked();
    const { uploadToken } = credential;
    const exceeded = limiter.exceededBy(token, credential.weigh, uploadToken && visitorsOf(uploadToken.teamId));
    if (exceeded) throw new AppError("rate_limited", { limit: exceeded });
    if (uploadToken && !credential.weigh(false) && limiter.isUploadTokenBlocked(token)) {
      throw new AppError("rate_limited", { limit: "upload-token" });
    }
    await refuseAgain(c.get("deps"), credential);
    const result = await run(credential);
    await checkCounted(credential);
    const actor = credential.caller?.actor;
    if (actor && actor.kind !== "operator") noteUse(c.get("deps"), actor);
    return result;
  } catch (error) {
    const isUnauthenticated = isError(error, "token_missing", "token_invalid");
    if (!isUnauthenticated) {
      if (credential) await checkCounted(credential);
      throw error;
    }
    if (credential?.tokenHash) limiter.noteRejected(credential.tokenHash);
    throw clientIp === null || (await limiter.countUnauthenticated(clientIp)) ? error : blocked();
  }
}

/** Whether the operator calls, for a request that needs no token. A wrong token counts for its client IP. @throws as above */
export async function isOperator(c: Context<AppEnv>): Promise<boolean> {
  if (bearerToken(c) === undefined) return false;
  return withCredential(c, { access: "any token" }, async ({ tokenHash }) => tokenHash === null);
}

/**
 * Runs a request that needs no token but may fail to open something secret. Failures count against the client IP,
 * successes do not. A `resource` that was opened recently stays available from a blocked IP.
 * @throws `rate_limited`, and what `run` throws
 */
export async function limitFailures<T>(c: Context<AppEnv>, resource: string, run: () => Promise<T>): Promise<T> {
  const { limiter } = c.get("deps");
  const clientIp = clientIpOf(c);
  if (clientIp === null) return run();
  if (limiter.isBlocked(clientIp, resource)) throw blocked();
  try {
    const result = await run();
    limiter.noteAuthenticated(resource, null);
    return result;
  } catch (error) {
    const isUnknown = isError(error, "not_found", "token_invalid");
    throw isUnknown && !(await limiter.countUnauthenticated(clientIp)) ? blocked() : error;
  }
}

const NO_BACKEND: CommonCode[] = [
  "token_missing",
  "token_invalid",
  "team_suspended",
  "insufficient_scope",
  "forbidden",
];

/**
 * Logs in a user of the team. The request comes from the team's backend if it has a secret key with `users:write`. With any
 * other token, such as that of an expired session, it is a login like any other.
 * @throws `rate_limited`, and what `logIn` throws
 */
export async function withBackend<T>(
  c: Context<AppEnv>,
  teamId: string,
  logIn: (isBackend: boolean) => Promise<T>,
): Promise<T> {
  if (bearerToken(c) === undefined) return logIn(false);
  let isAuthorized = false;
  try {
    return await withCredential(c, { access: "users:write" }, async (credential) => {
      const actor = await authorize(c.get("deps"), credential);
      isAuthorized = true;
      await checkCounted(credential);
      return logIn(actor.kind === "secret" && actor.teamId === teamId);
    });
  } catch (error) {
    const isNoBackend = isError(error, ...NO_BACKEND) || (error instanceof AppError && error.limit === "client-ip");
    if (isAuthorized || !isNoBackend) throw error;
    return logIn(false);
  }
}
