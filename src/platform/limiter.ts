import { fingerprint } from "./secrets.ts";
import type { System } from "./system.ts";

/** Asks before the expensive: false once the caller has had its share of the minute. */
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
/** The period of TOKEN_LIMIT. What is left of a permit by then is forfeited, so nobody saves up for a burst. */
const WINDOW_MILLISECONDS = 60_000;
/** Some 2 MB. Anybody can make up tokens to fill it with; who is forgotten for it asks for a permit again. */
const MOST_TOKENS = 10_000;

interface Permit {
  /** How many it still pays for. */
  requests: number;
  until: number;
}

/**
 * One for each isolate, which keeps what is left of the tokens' permits. The limits themselves are set in wrangler.toml.
 * A limiter that fails lets the call pass: it protects, it is no gate.
 */
export function openLimiter(bindings: RateLimitBindings, system: System): Limiter {
  const permits = new Map<string, Permit>();
  const ask = async (limit: RateLimit, key: string) => {
    try {
      return (await limit.limit({ key })).success;
    } catch {
      return true;
    }
  };
  return {
    async token(tokenHash) {
      const now = system.now();
      const permit = () => {
        const found = permits.get(tokenHash);
        return found && found.requests > 0 && now < found.until ? found : undefined;
      };
      const held = permit();
      if (held) {
        held.requests -= 1;
        return true;
      }
      if (!(await ask(bindings.TOKEN_LIMIT, tokenHash))) return false;
      if (permits.size >= MOST_TOKENS) permits.clear();
      // Another request may have paid in the meantime.
      const requests = (permit()?.requests ?? 0) + REQUESTS_PER_PERMIT - 1;
      permits.set(tokenHash, { requests, until: now + WINDOW_MILLISECONDS });
      return true;
    },
    address: (address) => ask(bindings.ADDRESS_LIMIT, address),
    // Hashed: an account's subject holds an email, which goes nowhere in the clear.
    login: (subject) => ask(bindings.LOGIN_LIMIT, fingerprint(subject)),
  };
}
