import type { Log } from "./log.ts";
import { fingerprint } from "./secrets.ts";
import type { System } from "./system.ts";

/** Each question answers false once the caller has used up its minute; from then on without asking the binding. */
export interface Limiter {
  /** A request of this token, given by its hash. */
  token(tokenHash: string): Promise<boolean>;
  /** A request from this address whose token is missing or not valid. */
  address(address: string): Promise<boolean>;
  /**
   * Whether a request is refused for its address alone, which has used up its minute. A token that was authenticated in
   * the last quarter of an hour is not: others may share its address.
   */
  isRefused(address: string, tokenHash: string): boolean;
  authenticated(tokenHash: string): void;
  /** A login, counted by the address it comes from or the account it is for. */
  login(subject: string): Promise<boolean>;
  /** A new password of the team, which has to be hashed. */
  passwordHash(teamId: string): Promise<boolean>;
  /** A call that costs far more than a request, counted by the operation and its team, as often a minute as a login. */
  costly(subject: string): Promise<boolean>;
}

interface RateLimitBindings {
  TOKEN_LIMIT: RateLimit;
  ADDRESS_LIMIT: RateLimit;
  LOGIN_LIMIT: RateLimit;
  HASH_LIMIT: RateLimit;
}

/** So many requests of a token one permit of TOKEN_LIMIT pays for: asking for each costs as much as what it guards. */
export const REQUESTS_PER_PERMIT = 10;
/** The period of all limits in wrangler.toml. */
const LIMIT_PERIOD_SECONDS = 60;
/** Some 2 MB. Anybody can make up tokens to fill it with; who is forgotten for it asks for a permit again. */
const MAX_SUBJECTS = 10_000;

/** Whoever used a good token so recently is not locked out by others behind the same address. */
const AUTHENTICATED_MINUTES = 15;

/** What an isolate remembers of each subject until minutes have ended; the one written least recently is forgotten. */
class MinuteMemory {
  readonly #system: System;
  readonly #minutes: number;
  readonly #requests = new Map<string, { count: number; window: number }>();

  constructor(system: System, minutes = 1) {
    this.#system = system;
    this.#minutes = minutes;
  }

  get window(): number {
    return Math.floor(this.#system.now() / (LIMIT_PERIOD_SECONDS * 1000));
  }

  /** The requests that are paid for; 0 where the binding refused. */
  get(subject: string): number | undefined {
    const found = this.#requests.get(subject);
    return found && this.window - found.window < this.#minutes ? found.count : undefined;
  }

  set(subject: string, count: number): void {
    this.#requests.delete(subject);
    this.#requests.set(subject, { count, window: this.window });
    const [oldest] = this.#requests.keys();
    if (this.#requests.size > MAX_SUBJECTS && oldest !== undefined) this.#requests.delete(oldest);
  }

  delete(subject: string): void {
    this.#requests.delete(subject);
  }
}

/** One limit as an isolate applies it. A binding that fails lets the request pass: it protects, it is no gate. */
class Limit {
  readonly #binding: RateLimit;
  readonly #requestsPerPermit: number;
  readonly #memory: MinuteMemory;
  readonly #log: Log;

  constructor(binding: RateLimit, requestsPerPermit: number, system: System, log: Log) {
    this.#binding = binding;
    this.#requestsPerPermit = requestsPerPermit;
    this.#memory = new MinuteMemory(system);
    this.#log = log;
  }

  isRefused(subject: string): boolean {
    return this.#memory.get(subject) === 0;
  }

  async take(subject: string): Promise<boolean> {
    if (this.isRefused(subject)) return false;
    if (this.#spend(subject)) return true;
    const { window } = this.#memory;
    const isGranted = await this.#ask(subject);
    // What a permit of the minute before paid for has ended with it.
    if (window !== this.#memory.window) return isGranted;
    if (isGranted) {
      const count = (this.#memory.get(subject) ?? 0) + this.#requestsPerPermit - 1;
      if (count > 0) this.#memory.set(subject, count);
    } else if (!this.#spend(subject)) {
      this.#memory.set(subject, 0);
      return false;
    }
    return true;
  }

  #spend(subject: string): boolean {
    const count = this.#memory.get(subject) ?? 0;
    if (count > 1) this.#memory.set(subject, count - 1);
    if (count === 1) this.#memory.delete(subject);
    return count > 0;
  }

  async #ask(key: string): Promise<boolean> {
    try {
      return (await this.#binding.limit({ key })).success;
    } catch (cause) {
      this.#log("warn", "rate limit not applied", { cause });
      return true;
    }
  }
}

/** One for each isolate. The limits themselves are set in wrangler.toml. */
export function createLimiter(bindings: RateLimitBindings, system: System, log: Log): Limiter {
  const tokens = new Limit(bindings.TOKEN_LIMIT, REQUESTS_PER_PERMIT, system, log);
  const addresses = new Limit(bindings.ADDRESS_LIMIT, 1, system, log);
  const logins = new Limit(bindings.LOGIN_LIMIT, 1, system, log);
  const hashes = new Limit(bindings.HASH_LIMIT, 1, system, log);
  const authenticated = new MinuteMemory(system, AUTHENTICATED_MINUTES);
  return {
    token: (tokenHash) => tokens.take(tokenHash),
    address: (address) => addresses.take(address),
    isRefused: (address, tokenHash) => addresses.isRefused(address) && authenticated.get(tokenHash) === undefined,
    authenticated: (tokenHash) => authenticated.set(tokenHash, 1),
    // Hashed: an account's subject holds an email, which goes nowhere in the clear.
    login: (subject) => logins.take(fingerprint(subject)),
    passwordHash: (teamId) => hashes.take(teamId),
    costly: (subject) => logins.take(fingerprint(`costly/${subject}`)),
  };
}
