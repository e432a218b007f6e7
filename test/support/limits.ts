import { createLimiter } from "../../src/access/limiter.ts";
import { realSystem } from "../../src/platform/system.ts";
import { RATE_LIMITS } from "../../src/rate-limits.ts";
import type { Change } from "./deps.ts";
import { compose, startWorker, type TestWorker, withoutJobs } from "./harness.ts";

/* Rate limits on a stopped clock, so that a test reaches a limit on a machine of any speed. */

/** A rate limit of the platform, counting by key. It records the keys that it has checked. */
export class Permits implements RateLimit {
  readonly keys: string[] = [];
  readonly #limit: number;
  #counts = new Map<string, number>();

  constructor(limit: number) {
    this.#limit = limit;
  }

  async limit({ key }: RateLimitOptions): Promise<RateLimitOutcome> {
    this.keys.push(key);
    const count = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.set(key, count);
    return { success: count <= this.#limit };
  }

  startNextMinute(): void {
    this.#counts = new Map();
  }
}

/** The documented limits. `documented-limits.node.test.ts` compares them with those of wrangler.toml. */
const DOCUMENTED = {
  LIGHT_LIMIT: RATE_LIMITS.light as number,
  HEAVY_LIMIT: RATE_LIMITS.heavy as number,
  VISITORS_LIMIT: RATE_LIMITS.visitors as number,
  UPLOAD_TOKEN_LIMIT: RATE_LIMITS["upload-token"] as number,
  TRANSCRIPT_LIMIT: RATE_LIMITS.transcripts as number,
  CONTRIBUTOR_LIGHT_LIMIT: RATE_LIMITS["contributor-light"] as number,
  CONTRIBUTOR_HEAVY_LIMIT: RATE_LIMITS["contributor-heavy"] as number,
  CLIENT_IP_LIMIT: RATE_LIMITS["client-ip"] as number,
  LOGIN_LIMIT: RATE_LIMITS.login as number,
  HASH_LIMIT: RATE_LIMITS.password as number,
};

/**
 * Starts a Worker whose limits count within one minute that never ends. Limits that the test does not choose are the
 * documented ones.
 */
export function startLimited(limits: Partial<typeof DOCUMENTED> = {}, change: Change = (deps) => deps): TestWorker {
  const bindings = Object.fromEntries(
    Object.entries({ ...DOCUMENTED, ...limits }).map(([name, limit]) => [name, new Permits(limit)]),
  ) as Record<keyof typeof DOCUMENTED, Permits>;
  const now = realSystem.now();
  const limiter = createLimiter(bindings, { ...realSystem, now: () => now }, () => undefined);
  return startWorker(compose(withoutJobs, change, (deps) => ({ ...deps, limiter })));
}
