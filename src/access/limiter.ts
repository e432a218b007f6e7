import { Limit, MinuteMemory } from "../platform/limit.ts";
import type { Log } from "../platform/log.ts";
import { fingerprint } from "../platform/secrets.ts";
import type { System } from "../platform/system.ts";
import { type Actor, type CallerRow, isVisitor } from "./actor.ts";

interface RateLimitBindings {
  LIGHT_LIMIT: RateLimit;
  HEAVY_LIMIT: RateLimit;
  VISITORS_LIMIT: RateLimit;
  UPLOAD_TOKEN_LIMIT: RateLimit;
  TRANSCRIPT_LIMIT: RateLimit;
  CONTRIBUTOR_LIGHT_LIMIT: RateLimit;
  CONTRIBUTOR_HEAVY_LIMIT: RateLimit;
  CLIENT_IP_LIMIT: RateLimit;
  LOGIN_LIMIT: RateLimit;
  HASH_LIMIT: RateLimit;
}

/** A token that worked recently is not locked out by others behind the same client IP. */
export const AUTHENTICATED_MINUTES = 15;

/** Which limit a request counts for. */
export type RequestLimit =
  | "light"
  | "heavy"
  | "visitors"
  | "upload-token"
  | "transcripts"
  | "contributor-light"
  | "contributor-heavy";

/** The callers that share the limits of an authenticated caller. */
export interface Sharers {
  counter: string;
  isContributor: boolean;
  isVisitor?: true;
}

/** Returns whose limits a caller shares. Neither visitors nor contributors use up those of the team. */
export function sharersOf(actor: Actor): Sharers {
  if (actor.kind === "operator") return { counter: "operator", isContributor: false };
  if (isVisitor(actor)) return visitorsOf(actor.teamId);
  return { counter: actor.ownerId ?? actor.teamId, isContributor: actor.ownerId !== null };
}

/** The visitors of a team, who share its limits. */
export const visitorsOf = (teamId: string): Sharers => ({
  counter: `${teamId}/public`,
  isContributor: false,
  isVisitor: true,
});

/** Whether a request is heavy. Transcripts are, but have their own limit, except for a contributor. */
export type Weight = boolean | "transcripts";

export function limitOf({ isContributor, isVisitor }: Sharers, weight: Weight): RequestLimit {
  if (isVisitor && !weight) return "visitors";
  if (isContributor) return weight ? "contributor-heavy" : "contributor-light";
  if (weight === "transcripts") return weight;
  return weight ? "heavy" : "light";
}

/** A login that has been counted. */
interface LoginPermit {
  /** Doesn't count the login after all: another one of this isolate can use its place until the minute ends. */
  giveBack(): void;
}

/**
 * Each isolate has one limiter. The limits are set in wrangler.toml. Each check resolves to false above the limit, and
 * stays false until the minute ends without asking the binding again.
 */
export function createLimiter(bindings: RateLimitBindings, system: System, log: Log) {
  const limit = (binding: RateLimit) => new Limit(binding, system, log);
  const requests: Record<RequestLimit, Limit> = {
    light: limit(bindings.LIGHT_LIMIT),
    heavy: limit(bindings.HEAVY_LIMIT),
    visitors: limit(bindings.VISITORS_LIMIT),
    "upload-token": limit(bindings.UPLOAD_TOKEN_LIMIT),
    transcripts: limit(bindings.TRANSCRIPT_LIMIT),
    "contributor-light": limit(bindings.CONTRIBUTOR_LIGHT_LIMIT),
    "contributor-heavy": limit(bindings.CONTRIBUTOR_HEAVY_LIMIT),
  };
  const clientIps = limit(bindings.CLIENT_IP_LIMIT);
  const logins = limit(bindings.LOGIN_LIMIT);
  const hashes = limit(bindings.HASH_LIMIT);
  /** Places of logins that were given back. */
  const returnedLogins = new MinuteMemory<number>(system);
  /** The callers that share the limits of each authenticated token. */
  const authenticated = new MinuteMemory<Sharers | null>(system, AUTHENTICATED_MINUTES);
  /** The callers that lacked the permission for a request, by their tokens. */
  const refused = new MinuteMemory<CallerRow>(system);
  const refusalsOf = (tokenHash: string) => `token/${tokenHash}`;
  return {
    /** Counts a request of an authenticated caller. */
    countRequest: (sharers: Sharers, weight: Weight) => requests[limitOf(sharers, weight)].count(sharers.counter),
    /** Counts a light request of an upload token, so that one visitor can't use up what all may send. */
    countUploadToken: (tokenHash: string) => requests["upload-token"].count(tokenHash),
    isUploadTokenBlocked: (tokenHash: string) => requests["upload-token"].isBlocked(tokenHash),
    /** Counts further places of a heavy request that changes many files. */
    countPlaces: (sharers: Sharers, places: number) => requests[limitOf(sharers, true)].count(sharers.counter, places),
    /** Counts a request that its token has no permission for. It counts only for the token, so it blocks no other. */
    async countRefusal(tokenHash: string, { counter }: Sharers, limit: RequestLimit): Promise<boolean> {
      const counts = [refusalsOf(tokenHash), `${counter}/refused`].map((name) => requests[limit].count(name));
      const [isCounted = true] = await Promise.all(counts);
      return isCounted;
    },
    /** Whether the token, or those that share its limits, had so many refusals that none of them costs a database any more. */
    areRefusalsBlocked: (tokenHash: string, { counter }: Sharers, limit: RequestLimit): boolean =>
      [refusalsOf(tokenHash), `${counter}/refused`].some((name) => requests[limit].isBlocked(name)),
    noteRefused: (tokenHash: string, row: CallerRow) => refused.set(tokenHash, row),
    /** The caller with this token as it was when it lacked a permission in this minute. */
    refusedCaller: (tokenHash: string) => refused.get(tokenHash),
    /** Counts a request without a token, such as the opening of a link, for its client IP. */
    countOpening: (clientIp: string) => requests.light.count(`client-ip/${clientIp}`),
    /** Counts a request of this client IP whose token is missing or invalid. */
    countUnauthenticated: (clientIp: string) => clientIps.count(clientIp),
    /**
     * Whether to reject a request because its client IP has used up its minute. A token that was authenticated in the last
     * 15 minutes still works: others may share its client IP.
     */
    isBlocked: (clientIp: string, tokenHash: string) =>
      clientIps.isBlocked(clientIp) && authenticated.get(tokenHash) === undefined,
    /**
     * Which limit the token has used up, as far as this isolate knows. A rejection then costs no database. By default, an isolate
     * knows `sharers` of the tokens that it has authenticated.
     */
    exceededBy(
      tokenHash: string,
      weigh: (isContributor: boolean) => Weight,
      sharers = authenticated.get(tokenHash),
    ): RequestLimit | null {
      if (!sharers) return null;
      const name = limitOf(sharers, weigh(sharers.isContributor));
      return requests[name].isBlocked(sharers.counter) ? name : null;
    },
    /** `sharers` is null for the secret of a link or an invitation, whose requests count for their client IP. */
    noteAuthenticated: (tokenHash: string, sharers: Sharers | null) => authenticated.set(tokenHash, sharers),
    noteRejected(tokenHash: string) {
      authenticated.delete(tokenHash);
      refused.delete(tokenHash);
    },
    /** Counts a guess of the password of a user who is logged in, or a request to reset one. */
    countGuess: (counter: string) => logins.count(fingerprint(counter)),
    /** Counts a login of an account, unless its place is given back. Hashed, because the account contains an email. */
    async takeLogin(account: string): Promise<LoginPermit | null> {
      const counter = fingerprint(`account/${account}`);
      const { window } = returnedLogins;
      const returned = returnedLogins.get(counter) ?? 0;
      if (returned > 0) returnedLogins.set(counter, returned - 1);
      else if (!(await logins.count(counter))) return null;
      const giveBack = () => {
        if (window === returnedLogins.window) returnedLogins.set(counter, (returnedLogins.get(counter) ?? 0) + 1);
      };
      return { giveBack };
    },
    /** Counts a login of a client IP, whether it succeeds or fails: each costs a round trip, and may cost a hash. */
    countLogin: (clientIp: string) => clientIps.count(`login/${clientIp}`),
    /** Counts a failed login of a client IP. */
    countFailedLogin: (clientIp: string) => logins.count(fingerprint(`client-ip/${clientIp}`)),
    /** Whether the client IP has used up its failed logins. */
    isLoginBlocked: (clientIp: string) => logins.isBlocked(fingerprint(`client-ip/${clientIp}`)),
    /** Counts a password of the team that is set or checked. It has to be hashed. */
    countPasswordHash: (teamId: string) => hashes.count(teamId),
  };
}

export type Limiter = ReturnType<typeof createLimiter>;
