/** The period of all rate limits. */
export const RATE_LIMIT_SECONDS = 60;

/**
 * Requests in that period for each subject: a team, a client IP without a valid token, and so on. The platform
 * enforces the limits of `[[ratelimits]]` in wrangler.toml; a test compares them with these, which responses state.
 */
export const RATE_LIMITS = {
  light: 6000,
  heavy: 120,
  visitors: 30_000,
  "upload-token": 600,
  transcripts: 600,
  "contributor-light": 1500,
  "contributor-heavy": 30,
  "client-ip": 300,
  login: 10,
  password: 60,
} as const;

export type RateLimitName = keyof typeof RATE_LIMITS;

/**
 * Account events a day of a team, and of those the ones that one of its users causes, who so can't use up those of the team. The
 * trigger `events_limited` holds both. They keep a database small, in which each such event stays for `EVENT_DAYS`.
 */
export const MAX_DAILY_ACCOUNT_EVENTS = 20_000;
export const MAX_DAILY_USER_EVENTS = 2000;
