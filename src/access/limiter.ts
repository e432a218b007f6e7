import { Limit, MinuteMemory } from "../platform/limit.ts";
import type { Log } from "../platform/log.ts";
import { fingerprint } from "../platform/secrets.ts";
import type { System } from "../platform/system.ts";

interface RateLimitBindings {
  TOKEN_LIMIT: RateLimit;
  CLIENT_IP_LIMIT: RateLimit;
  LOGIN_LIMIT: RateLimit;
  HASH_LIMIT: RateLimit;
  SEARCH_LIMIT: RateLimit;
}

/** Requests that one permit of TOKEN_LIMIT pays for. Asking for each request would cost as much as a read. */
export const REQUESTS_PER_PERMIT = 10;

/** A token that worked recently is not locked out by others behind the same client IP. */
const AUTHENTICATED_MINUTES = 15;

/**
 * Each isolate has one limiter. The limits are set in wrangler.toml. Each check resolves to false above the limit, and
 * stays false until the minute ends without asking the binding again.
 */
export function createLimiter(bindings: RateLimitBindings, system: System, log: Log) {
  const tokens = new Limit(bindings.TOKEN_LIMIT, REQUESTS_PER_PERMIT, system, log);
  const clientIps = new Limit(bindings.CLIENT_IP_LIMIT, 1, system, log);
  const logins = new Limit(bindings.LOGIN_LIMIT, 1, system, log);
  const hashes = new Limit(bindings.HASH_LIMIT, 1, system, log);
  const searches = new Limit(bindings.SEARCH_LIMIT, 1, system, log);
  /** The counter that each authenticated token counts for. */
  const authenticated = new MinuteMemory<string>(system, AUTHENTICATED_MINUTES);
  const isAuthenticated = (tokenHash: string) => authenticated.get(tokenHash) !== undefined;
  const counterOf = (tokenHash: string) => authenticated.get(tokenHash) ?? tokenHash;
  return {
    /**
     * Counts a request by its token's hash, and by its team once this isolate has authenticated the token. One that does
     * the work of several counts as `requests`. The opening of a link counts by the link's client IP instead.
     */
    countRequest: (tokenHash: string, requests?: number) => tokens.count(counterOf(tokenHash), requests),
    /** Counts a request of this client IP whose token is missing or invalid. */
    countUnauthenticated: (clientIp: string) => clientIps.count(clientIp),
    /**
     * Whether to reject a request because its client IP has used up its minute. A token that was authenticated in the last
     * 15 minutes still works: others may share its client IP.
     */
    isBlocked: (clientIp: string, tokenHash: string) => clientIps.isBlocked(clientIp) && !isAuthenticated(tokenHash),
    /** Whether the token's requests count for its team. */
    isAuthenticated,
    /** `counter` is what the token's requests count for: its team. */
    noteAuthenticated: (tokenHash: string, counter: string) => authenticated.set(tokenHash, counter),
    /** Counts a request for the team that was counted for its token before the token was authenticated. */
    countLateRequest: (counter: string) => tokens.count(counter),
    /** From now on, the token's requests no longer count for a team. */
    noteRejected: (tokenHash: string) => authenticated.delete(tokenHash),
    /** Counts a guess of the password of a user who is logged in, or a request to reset one. */
    countGuess: (counter: string) => logins.count(fingerprint(counter)),
    /** Counts a login of an account, unless its permit is given back. Hashed, because the account contains an email. */
    takeLogin: (account: string) => logins.take(fingerprint(`account/${account}`)),
    /** Counts a login of a client IP, whether it succeeds or fails: each costs a round trip, and may cost a hash. */
    countLogin: (clientIp: string) => clientIps.count(`login/${clientIp}`),
    /** Counts a failed login of a client IP. */
    countFailedLogin: (clientIp: string) => logins.count(fingerprint(`client-ip/${clientIp}`)),
    /** Whether the client IP has used up its failed logins. */
    isLoginBlocked: (clientIp: string) => logins.isBlocked(fingerprint(`client-ip/${clientIp}`)),
    /** Counts a new password of the team. It has to be hashed. */
    countPasswordHash: (teamId: string) => hashes.count(teamId),
    /** Counts a search, by the token's team or its hash like `countRequest`. */
    countSearch: (tokenHash: string) => searches.count(counterOf(tokenHash)),
    /** Counts expensive operations of a team, which are limited like logins. */
    countExpensiveCall: (counter: string, calls?: number) => logins.count(fingerprint(`expensive/${counter}`), calls),
  };
}

export type Limiter = ReturnType<typeof createLimiter>;
