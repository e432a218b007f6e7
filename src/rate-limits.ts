/** The period of all rate limits. */
export const RATE_LIMIT_SECONDS = 60;

/**
 * Requests in that period for each subject: a team, a client IP without a valid token, and so on. The platform
 * enforces the limits of `[[ratelimits]]` in wrangler.toml; a test compares them with these, which responses state.
 */
export const RATE_LIMITS = {
  team: 6000,
  "client-ip": 300,
  login: 10,
  password: 60,
  "expensive-call": 10,
  search: 120,
  link: 6000,
} as const;

export type RateLimitName = keyof typeof RATE_LIMITS;
