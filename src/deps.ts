import * as z from "zod";
import { AppError } from "./errors.ts";
import { type ByteStore, openByteStore } from "./platform/byte-store.ts";
import { type Db, openDb } from "./platform/db.ts";
import { type Jobs, openJobs } from "./platform/jobs.ts";
import { type Limiter, openLimiter } from "./platform/limiter.ts";
import { consoleLog, type Log } from "./platform/log.ts";
import { loadSecrets, type Secrets } from "./platform/secrets.ts";
import { createSigner, type Signer } from "./platform/signer.ts";
import { isTokenShaped, realSystem, type System } from "./platform/system.ts";

export interface Settings {
  maxUploadBytes: number;
  uploadIdleMilliseconds: number;
  maxTeamBytes: number;
  maxTeamFiles: number;
  /** Null where the operator's token is not set: then nobody is the operator. */
  operatorToken: string | null;
}

/** All that the domain needs of the outside. */
export interface Deps {
  settings: Settings;
  secrets: Secrets;
  signer: Signer;
  limiter: Limiter;
  system: System;
  log: Log;
  db: Db;
  bytes: ByteStore;
  jobs: Jobs;
  /** Lets work go on after the answer, and after the client has gone away. */
  after(work: Promise<unknown>): void;
}

/** All but what belongs to one invocation. */
type Lasting = Omit<Deps, "after">;

const positive = z.coerce.number().int().positive();
const settingsSchema = z.object({
  MAX_UPLOAD_BYTES: positive,
  UPLOAD_IDLE_SECONDS: z.coerce.number().positive(),
  MAX_TEAM_BYTES: positive,
  MAX_TEAM_FILES: positive,
  OPERATOR_TOKEN: z
    .string()
    .min(32, "OPERATOR_TOKEN needs 32 characters at least.")
    .refine((token) => !isTokenShaped(token), "OPERATOR_TOKEN must not look like an API key.")
    .optional(),
  MASTER_KEY: z.string("The secret MASTER_KEY is not set."),
  S3_ENDPOINT: z.url(),
  S3_BUCKET: z.string().min(1),
  S3_ACCESS_KEY_ID: z.string("The secret S3_ACCESS_KEY_ID is not set.").min(1),
  S3_SECRET_ACCESS_KEY: z.string("The secret S3_SECRET_ACCESS_KEY is not set.").min(1),
});

const lasting = new WeakMap<Env, Lasting>();

/** Once for each isolate: deriving keys from MASTER_KEY costs more than a request, and the limiter remembers. */
function openLasting(env: Env): Lasting {
  const known = lasting.get(env);
  if (known) return known;
  const vars = settingsSchema.parse(env);
  const opened: Lasting = {
    settings: {
      maxUploadBytes: vars.MAX_UPLOAD_BYTES,
      uploadIdleMilliseconds: vars.UPLOAD_IDLE_SECONDS * 1000,
      maxTeamBytes: vars.MAX_TEAM_BYTES,
      maxTeamFiles: vars.MAX_TEAM_FILES,
      operatorToken: vars.OPERATOR_TOKEN ?? null,
    },
    secrets: loadSecrets(vars.MASTER_KEY, realSystem),
    signer: createSigner({
      endpoint: vars.S3_ENDPOINT.replace(/\/$/, ""),
      bucket: vars.S3_BUCKET,
      accessKeyId: vars.S3_ACCESS_KEY_ID,
      secretAccessKey: vars.S3_SECRET_ACCESS_KEY,
    }),
    limiter: openLimiter(env, realSystem),
    system: realSystem,
    log: consoleLog,
    db: openDb(env.DB),
    bytes: openByteStore(env.BUCKET, realSystem),
    jobs: openJobs(env.JOBS),
  };
  lasting.set(env, opened);
  return opened;
}

/** The one reader of the environment, for all three handlers. A Worker that is set up wrongly answers `unavailable`. */
export function readDeps(env: Env, ctx: Pick<ExecutionContext, "waitUntil">): Deps {
  try {
    return { ...openLasting(env), after: (work) => ctx.waitUntil(work) };
  } catch (cause) {
    throw new AppError("unavailable", { cause });
  }
}
