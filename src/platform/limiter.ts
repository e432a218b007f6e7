import type { Log } from "./log.ts";
import { fingerprint } from "./secrets.ts";
import type { System } from "./system.ts";

/** Each check resolves to false once the minute is used up, and from then on without asking the binding. */
export interface Limiter {
  /** Counts a request by its token's hash, and by its team once this isolate has authenticated the token. */
  token(tokenHash: string): Promise<boolean>;
  /** Counts a request of this client IP whose token is missing or invalid. */
  address(address: string): Promise<boolean>;
  /**
   * Whether to reject a request because its client IP has used up its minute. A token that was authenticated in the last
   * 15 minutes still works: others may share its client IP.
   */
  isRefused(address: string, tokenHash: string): boolean;
  /** `subject` is what the token's requests count for: its team. */
  authenticated(tokenHash: string, subject: string): void;
  /** From now on, the token's requests no longer count for a team. */
  rejected(tokenHash: string): void;
  /** Counts a login by its client IP or its account. */
  login(subject: string): Promise<boolean>;
  /** Counts a new password of the team. It has to be hashed. */
  passwordHash(teamId: string): Promise<boolean>;
  /** Counts an expensive operation of a team, which is limited like logins. */
  costly(subject: string): Promise<boolean>;
}

interface RateLimitBindings {
  TOKEN_LIMIT: RateLimit;
  ADDRESS_LIMIT: RateLimit;
  LOGIN_LIMIT: RateLimit;
  HASH_LIMIT: RateLimit;
}

/** Requests that one permit of TOKEN_LIMIT pays for. Asking for each request would cost as much as a read. */
export const REQUESTS_PER_PERMIT = 10;
/** The period of all limits in wrangler.toml. */
const LIMIT_PERIOD_SECONDS = 60;
/** About 2 MB. Anyone can make up tokens to fill the memory. A forgotten subject only asks for a permit again. */
const MAX_SUBJECTS = 10_000;

/** A token that worked recently is not locked out by others behind the same client IP. */
const AUTHENTICATED_MINUTES = 15;

/** Remembers a value per subject for some minutes. When it is full, it forgets the subject that was set least recently. */
class MinuteMemory<T> {
  readonly #system: System;
  readonly #minutes: number;
  readonly #entries = new Map<string, { value: T; window: number }>();

  constructor(system: System, minutes = 1) {
    this.#system = system;
    this.#minutes = minutes;
  }

  get window(): number {
    return Math.floor(this.#system.now() / (LIMIT_PERIOD_SECONDS * 1000));
  }

  get(subject: string): T | undefined {
    const found = this.#entries.get(subject);
    return found && this.window - found.window < this.#minutes ? found.value : undefined;
  }

  set(subject: string, value: T): void {
    this.#entries.delete(subject);
    this.#entries.set(subject, { value, window: this.window });
    const [oldest] = this.#entries.keys();
    if (this.#entries.size > MAX_SUBJECTS && oldest !== undefined) this.#entries.delete(oldest);
  }

  delete(subject: string): void {
    this.#entries.delete(subject);
  }
}

/** One limit in an isolate. If the binding fails, the limiter fails open: it protects the service, and no data. */
class Limit {
  readonly #binding: RateLimit;
  readonly #requestsPerPermit: number;
  /** Requests that are paid for. 0 if the binding rejected the subject. */
  readonly #memory: MinuteMemory<number>;
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
    // A permit of the previous minute pays for no later request.
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
      this.#log("warn", "rate_limit_failed", { cause });
      return true;
    }
  }
}

/** Each isolate has one limiter. The limits are set in wrangler.toml. */
export function createLimiter(bindings: RateLimitBindings, system: System, log: Log): Limiter {
  const tokens = new Limit(bindings.TOKEN_LIMIT, REQUESTS_PER_PERMIT, system, log);
  const addresses = new Limit(bindings.ADDRESS_LIMIT, 1, system, log);
  const logins = new Limit(bindings.LOGIN_LIMIT, 1, system, log);
  const hashes = new Limit(bindings.HASH_LIMIT, 1, system, log);
  /** The subject that each authenticated token counts for. */
  const authenticated = new MinuteMemory<string>(system, AUTHENTICATED_MINUTES);
  return {
    token: (tokenHash) => tokens.take(authenticated.get(tokenHash) ?? tokenHash),
    address: (address) => addresses.take(address),
    isRefused: (address, tokenHash) => addresses.isRefused(address) && authenticated.get(tokenHash) === undefined,
    authenticated: (tokenHash, subject) => authenticated.set(tokenHash, subject),
    rejected: (tokenHash) => authenticated.delete(tokenHash),
    // Hashed, because the subject of an account contains an email.
    login: (subject) => logins.take(fingerprint(subject)),
    passwordHash: (teamId) => hashes.take(teamId),
    costly: (subject) => logins.take(fingerprint(`costly/${subject}`)),
  };
}
