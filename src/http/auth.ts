import type { Context, MiddlewareHandler } from "hono";
import type { Right } from "../domain/actor.ts";
import { identify, prove } from "../domain/proof.ts";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./operation.ts";

const WINDOW_SECONDS = 60;

export function rateLimited(): AppError {
  return new AppError("rate_limited", { retryAfterSeconds: WINDOW_SECONDS });
}

/** The client's address as Cloudflare saw it. Of IPv6 the /64, since whoever has one address has all of those. */
export function clientAddress(c: Context<AppEnv>): string {
  const address = c.req.header("CF-Connecting-IP") ?? "unknown";
  if (!address.includes(":") || address.includes(".")) return address;
  const [before = "", after] = address.toLowerCase().split("::");
  const head = before.split(":").filter(Boolean);
  const tail = after?.split(":").filter(Boolean) ?? [];
  const groups =
    after === undefined ? head : [...head, ...Array(Math.max(0, 8 - head.length - tail.length)).fill("0"), ...tail];
  return `${groups.slice(0, 4).join(":")}::/64`;
}

/** The scheme's name is case-insensitive (RFC 9110, section 11.1). */
function bearerToken(c: Context<AppEnv>): string | undefined {
  return /^Bearer +(\S+)$/i.exec(c.req.header("Authorization")?.trim() ?? "")?.[1];
}

/** A caller who fails to prove who they are spends from the allowance of their address. @returns what to answer */
export async function chargeAddress(c: Context<AppEnv>, error: Error): Promise<Error> {
  const isUnproven = error instanceof AppError && (error.code === "token_missing" || error.code === "token_invalid");
  return isUnproven && !(await c.var.deps.limiter.address(clientAddress(c))) ? rateLimited() : error;
}

/** Reads the token, without a database, and asks the limiter. Whether the token is good is for `prove` to find out. */
export const identified: MiddlewareHandler<AppEnv> = async (c, next) => {
  const { deps } = c.var;
  const caller = identify(deps, bearerToken(c));
  const subject = caller.kind === "bearer" ? caller.tokenHash : "operator";
  if (!(await deps.limiter.token(subject))) throw rateLimited();
  c.set("caller", caller);
  await next();
};

/** Proves the caller before anything is read, written or computed for them. */
export function proven(right: Right): MiddlewareHandler<AppEnv> {
  return async (c, next) => {
    const [actor] = await prove(c.var.deps, c.var.caller, right);
    c.set("actor", actor);
    await next();
  };
}
