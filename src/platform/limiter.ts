import { fingerprint } from "./secrets.ts";

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

/** The limits themselves are set in wrangler.toml. A limiter that fails lets the call pass: it protects, it is no gate. */
export function openLimiter(bindings: RateLimitBindings): Limiter {
  const ask = async (limit: RateLimit, key: string) => {
    try {
      return (await limit.limit({ key })).success;
    } catch {
      return true;
    }
  };
  return {
    token: (tokenHash) => ask(bindings.TOKEN_LIMIT, tokenHash),
    address: (address) => ask(bindings.ADDRESS_LIMIT, address),
    // Hashed: an account's subject holds an email, which goes nowhere in the clear.
    login: (subject) => ask(bindings.LOGIN_LIMIT, fingerprint(subject)),
  };
}
