import { type Deps, readDeps } from "../../src/deps.ts";
import { createByteStore } from "../../src/platform/byte-store.ts";
import { createDb } from "../../src/platform/db.ts";
import { createJobs } from "../../src/platform/jobs.ts";

export type { Deps, Settings } from "../../src/deps.ts";
export { readDeps };

export type Change = (deps: Deps) => Deps;

export const compose =
  (...changes: Change[]): Change =>
  (deps) =>
    changes.reduce((changed, change) => change(changed), deps);

/** What the domain needs, with D1, R2 and the Queue replaced. */
export function withBindings(deps: Deps, { DB, BUCKET, JOBS }: Pick<Env, "DB" | "BUCKET" | "JOBS">): Deps {
  return { ...deps, db: createDb(DB), bytes: createByteStore(BUCKET, deps.system), jobs: createJobs(JOBS as never) };
}

/** A queue that takes messages and delivers none. */
export const sink = { send: async () => {}, sendBatch: async () => {} } as unknown as Queue;

/** Messages go nowhere: for tests that need no processing. */
export const withoutJobs: Change = (deps) => ({ ...deps, jobs: { send: async () => {}, sendAll: async () => {} } });

const HASH = `$scrypt$ln=14,r=8,p=5,keyid=00000000$${"a".repeat(22)}$${"b".repeat(43)}`;
/** Passwords get one hash: for tests that are not about hashing, which takes 0.1 s. */
export const withoutHashing: Change = (deps) => ({
  ...deps,
  secrets: { ...deps.secrets, hashPassword: async () => HASH },
});

export const withoutLimits: Change = (deps) => ({
  ...deps,
  limiter: {
    token: async () => true,
    address: async () => true,
    isRefused: () => false,
    authenticated: () => {},
    login: async () => true,
  },
});
