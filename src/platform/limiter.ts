import { fingerprint } from "./secrets.ts";
import type { System } from "./system.ts";

/** Each answers false once the caller has had its share of the minute. */
export interface Limiter {
  token(tokenHash: string): Promise<boolean>;
  address(address: string): Promise<boolean>;
  /** By whatever a login is counted: the address it comes from, the account it is for. */
  login(subject: string): Promise<boolean>;
}

interface RateLimitBindings {
  TOKEN_LIMIT: RateLimit;
  ADDRESS_LIMIT: RateLimit;
  LOGIN_LIMIT: RateLimit;
}

/** So many requests of a token one permit of TOKEN_LIMIT pays for: asking for each costs as much as what it guards. */
export const REQUESTS_PER_PERMIT = 10;
/** The period of TOKEN_LIMIT. With it ends what was paid for in it, so nobody saves up for a burst. */
const WINDOW_MILLISECONDS = 60_000;
/** Some 2 MB. Anybody can make up tokens to fill it with; who is forgotten for it asks for a permit again. */
const MOST_TOKENS = 10_000;

/** The requests that a token's permits still pay for in this isolate. */
class Allowance {
  readonly #left = new Map<string, { requests: number; window: number }>();

  /** Takes one request, if there is one. */
  spend(token: string, window: number): boolean {
    const found = this.#left.get(token);
    if (!found || found.requests === 0 || found.window !== window) return false;
    found.requests -= 1;
    return true;
  }

  add(token: string, window: number, requests: number): void {
    const found = this.#left.get(token);
    // An answer from before the window's end comes too late for what it pays for.
    if (found && found.window > window) return;
    const before = found?.window === window ? found.requests : 0;
    // Behind all others: the first is then the one that has asked least recently.
    this.#left.delete(token);
    this.#left.set(token, { requests: before + requests, window });
    const [oldest] = this.#left.keys();
    if (this.#left.size > MOST_TOKENS && oldest !== undefined) this.#left.delete(oldest);
  }
}

/**
 * One for each isolate. The limits themselves are set in wrangler.toml. A limiter that fails lets the call pass: it
 * protects, it is no gate.
 */
export function openLimiter(bindings: RateLimitBindings, system: System): Limiter {
  const allowance = new Allowance();
  const ask = async (limit: RateLimit, key: string) => {
    try {
      return (await limit.limit({ key })).success;
    } catch {
      return true;
    }
  };
  return {
    async token(tokenHash) {
      const window = Math.floor(system.now() / WINDOW_MILLISECONDS);
      if (allowance.spend(tokenHash, window)) return true;
      // Others that asked at the same time may have got the last permits.
      if (!(await ask(bindings.TOKEN_LIMIT, tokenHash))) return allowance.spend(tokenHash, window);
      allowance.add(tokenHash, window, REQUESTS_PER_PERMIT - 1);
      return true;
    },
    address: (address) => ask(bindings.ADDRESS_LIMIT, address),
    // Hashed: an account's subject holds an email, which goes nowhere in the clear.
    login: (subject) => ask(bindings.LOGIN_LIMIT, fingerprint(subject)),
  };
}
