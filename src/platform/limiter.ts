import { RATE_LIMIT_SECONDS } from "../rate-limits.ts";
import type { Log } from "./log.ts";
import { Lru } from "./lru.ts";
import { fingerprint } from "./secrets.ts";
import type { System } from "./system.ts";

interface RateLimitBindings {
  TOKEN_LIMIT: RateLimit;
  CLIENT_IP_LIMIT: RateLimit;
  LOGIN_LIMIT: RateLimit;
  HASH_LIMIT: RateLimit;
  SEARCH_LIMIT: RateLimit;
}

/** Requests that one permit of TOKEN_LIMIT pays for. Asking for each request would cost as much as a read. */
export const REQUESTS_PER_PERMIT = 10;
/** About 2 MB. Anyone can make up tokens to fill the memory. A forgotten counter only asks for a permit again. */
const MAX_COUNTERS = 10_000;

/** A token that worked recently is not locked out by others behind the same client IP. */
const AUTHENTICATED_MINUTES = 15;

/** Remembers a value per counter for some minutes. */
class MinuteMemory<T> {
  readonly #system: System;
  readonly #minutes: number;
  readonly #entries = new Lru<{ value: T; window: number }>(MAX_COUNTERS);

  constructor(system: System, minutes = 1) {
    this.#system = system;
    this.#minutes = minutes;
  }

  get window(): number {
    return Math.floor(this.#system.now() / (RATE_LIMIT_SECONDS * 1000));
  }

  get(counter: string): T | undefined {
    const found = this.#entries.get(counter);
    return found && this.window - found.window < this.#minutes ? found.value : undefined;
  }

  set(counter: string, value: T): void {
    this.#entries.set(counter, { value, window: this.window });
  }

  delete(counter: string): void {
    this.#entries.delete(counter);
  }
}

/** One limit in an isolate. If the binding fails, the limiter fails open: it protects the service, and no data. */
class Limit {
  readonly #binding: RateLimit;
  readonly #requestsPerPermit: number;
  /** Requests that are paid for. 0 if the binding rejected the counter. */
  readonly #memory: MinuteMemory<number>;
  readonly #log: Log;

  constructor(binding: RateLimit, requestsPerPermit: number, system: System, log: Log) {
    this.#binding = binding;
    this.#requestsPerPermit = requestsPerPermit;
    this.#memory = new MinuteMemory(system);
    this.#log = log;
  }

  isBlocked(counter: string): boolean {
    return this.#memory.get(counter) === 0;
  }

  /** @returns false if the binding rejected the counter in this minute. The requests before are used up */
  async count(counter: string, requests = 1): Promise<boolean> {
    for (let counted = 0; counted < requests; counted += 1) {
      if (!(await this.#countOne(counter))) return false;
    }
    return true;
  }

  async #countOne(counter: string): Promise<boolean> {
    if (this.isBlocked(counter)) return false;
    if (this.#spend(counter)) return true;
    const { window } = this.#memory;
    const isGranted = await this.#requestPermit(counter);
    // Don't carry permits into the next minute.
    if (window !== this.#memory.window) return isGranted;
    if (isGranted) {
      const paidFor = (this.#memory.get(counter) ?? 0) + this.#requestsPerPermit - 1;
      if (paidFor > 0) this.#memory.set(counter, paidFor);
    } else if (!this.#spend(counter)) {
      this.#memory.set(counter, 0);
      return false;
    }
    return true;
  }

  #spend(counter: string): boolean {
    const paidFor = this.#memory.get(counter) ?? 0;
    if (paidFor > 1) this.#memory.set(counter, paidFor - 1);
    if (paidFor === 1) this.#memory.delete(counter);
    return paidFor > 0;
  }

  async #requestPermit(key: string): Promise<boolean> {
    try {
      return (await this.#binding.limit({ key })).success;
    } catch (cause) {
      this.#log("warn", "rate_limit_failed", { cause });
      return true;
    }
  }
}

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
    token: (tokenHash: string, requests?: number) => tokens.count(counterOf(tokenHash), requests),
    /** Counts a request of this client IP whose token is missing or invalid. */
    clientIp: (clientIp: string) => clientIps.count(clientIp),
    /**
     * Whether to reject a request because its client IP has used up its minute. A token that was authenticated in the last
     * 15 minutes still works: others may share its client IP.
     */
    isBlocked: (clientIp: string, tokenHash: string) => clientIps.isBlocked(clientIp) && !isAuthenticated(tokenHash),
    /** Whether the token's requests count for its team. */
    isAuthenticated,
    /** `counter` is what the token's requests count for: its team. */
    authenticated: (tokenHash: string, counter: string) => authenticated.set(tokenHash, counter),
    /** From now on, the token's requests no longer count for a team. */
    rejected: (tokenHash: string) => authenticated.delete(tokenHash),
    /** Counts a login by its client IP or its account. Hashed, because the counter of an account contains an email. */
    login: (counter: string) => logins.count(fingerprint(counter)),
    /** Counts a new password of the team. It has to be hashed. */
    passwordHash: (teamId: string) => hashes.count(teamId),
    /** Counts a search, by the token's team or its hash like `token`. */
    search: (tokenHash: string) => searches.count(counterOf(tokenHash)),
    /** Counts expensive operations of a team, which are limited like logins. */
    expensiveCall: (counter: string, calls?: number) => logins.count(fingerprint(`expensive/${counter}`), calls),
  };
}

export type Limiter = ReturnType<typeof createLimiter>;
