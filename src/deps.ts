import type { SQL } from "drizzle-orm";
import * as z from "zod";
import type { TeamActor } from "./access/actor.ts";
import { type Callers, createCallers } from "./access/callers.ts";
import { createLimiter, type Limiter } from "./access/limiter.ts";
import type { Audio } from "./audio/inspect.ts";
import { AppError } from "./errors.ts";
import type { About } from "./events/event-type.ts";
import { lazy } from "./lazy.ts";
import { Bodies } from "./platform/bodies.ts";
import { type ByteStore, createByteStore } from "./platform/byte-store.ts";
import {
  type Batch,
  createDatabases,
  type Databases,
  type Db,
  databaseBindings,
  NO_DB,
  type Query,
  type RowsOf,
} from "./platform/db.ts";
import { HashQueue } from "./platform/hash-queue.ts";
import { createHealth, type Health } from "./platform/health.ts";
import { createJobs, type Jobs } from "./platform/jobs.ts";
import { consoleLog, type Log } from "./platform/log.ts";
import { Lru } from "./platform/lru.ts";
import { createMailer, type Mailer } from "./platform/mailer.ts";
import type { FileJob, RecoveryJob, WaveformJob } from "./platform/messages.ts";
import { once } from "./platform/retry.ts";
import { loadSecrets, type Secrets } from "./platform/secrets.ts";
import { createSender, type Sender } from "./platform/sender.ts";
import { createSigner, type Signer } from "./platform/signer.ts";
import { isTokenShaped, realSystem, type System } from "./platform/system.ts";
import { createSearchIndexes, type SearchIndexes } from "./search/indexes.ts";
import { createOutboxes, type Outboxes } from "./webhooks/outboxes.ts";

export interface Settings {
  /** Largest form upload. */
  maxUploadBytes: number;
  /** Largest resumable upload. */
  maxFileBytes: number;
  uploadIdleMilliseconds: number;
  /** A database of this size gets no new team. */
  maxDatabaseBytes: number;
  maxTeamBytes: number;
  maxTeamFiles: number;
  /** A team's oldest events above this number are deleted. */
  maxTeamEvents: number;
  /** Retention of the event log. */
  eventDays: number;
  /** How long the trash keeps deleted files. 0: there is no trash. */
  trashDays: number;
  /** The name of the dead letter queue. */
  deadLetterQueue: string;
  /** The origin of signed URLs; null without S3 credentials. The pages' CSP allows media from it. */
  storeOrigin: string | null;
  /** For local development: webhooks may use http, any port, and loopback hosts. */
  isInsecureWebhookAllowed: boolean;
  /** The host that serves links and nothing else; null if links are on the service's own host. */
  linkHost: string | null;
  /** The origin of links to the console that the service hands out. Null: that of the request. */
  publicUrl: string | null;
  /** Null if unset. Then no token is the operator token. */
  operatorToken: string | null;
}

/** A kind of work of the recovery job. A batch takes what has been due longest, up to a fixed number of rows, and may die at any point. */
export interface RecoveryStep {
  name: string;
  /** The names under which it counts what it did. */
  counts: string[];
  /** Does the next batch. @returns how much it changed */
  runBatch(deps: Deps): Promise<Record<string, number>>;
  /** How many batches a run does at most. Together, they send fewer than the 1,000 queries that D1 allows an invocation. */
  maxBatches: number;
  /** How many queries a batch sends at most. */
  queries: number;
}

/** Rows that a deleted team has, of one table or of one kind in it. */
export interface TeamRows {
  /** Deletes the next of them, once the objects that must notice it are awake. */
  remove(deps: Deps): Query<D1Result>[] | Promise<Query<D1Result>[]>;
  /** Whether the team of a row of `teams` has none left. */
  isGone: SQL;
}

/** A user who loses what their records may go on with. */
export interface LossOfAccess {
  actor: TeamActor;
  user: { id: string; teamId: string };
  cause: "deleted" | "demoted";
  /** Whether the batch is about to delete or demote the user. */
  willLose: SQL;
}

/** The consequences of a loss of access: a part of the batch, before the change of the user, and work that is awaited after it. */
export interface AfterLoss<B extends Batch = Batch> {
  before: B;
  committed(rows: RowsOf<B>): Promise<void>;
}

/** A file that a batch completes, and the facts of its audio; null if it is not audio that the service reads. */
export interface CompletedFile {
  file: { teamId: string; id: string; ownerId: string | null; claim: number; sizeBytes: number };
  audio: Audio | null;
}

/** The consequences of a completed file: a part of its batch, behind the update, and work that begins after it. */
export interface AfterCompletion<B extends Batch = Batch> {
  after: B;
  committed(rows: RowsOf<B>): void;
}

/** An object that reads the log of a team. */
export interface Follower {
  /**
   * Has it read the new events soon, and if its record or its team `isChanged`, this before it does anything else.
   * @returns the number of the last event that it has read
   */
  wake(isChanged: boolean): Promise<number>;
}

/** A kind of follower. */
export interface FollowerKind {
  /** Events that wake it in every team, also before it has a row in `followers`. Then the id of its object is that of the team. */
  wants?: About[];
  /** The name of the field of `/health` that says since when its followers are behind. None if they may wait for other servers. */
  lag?: string;
  /** Its object. */
  open(deps: Deps, key: { teamId: string; id: string }): Follower;
}

/** The lists of service.ts through which rules reach those of other folders. The order of each is that in which they run. */
export interface Service {
  recoverySteps: RecoveryStep[];
  teamRows: TeamRows[];
  userLosesAccess: ((deps: Deps, loss: LossOfAccess) => AfterLoss)[];
  fileCompleted: ((deps: Deps, completed: CompletedFile) => AfterCompletion)[];
  /** The kinds of followers, by name. */
  followers: Record<string, FollowerKind>;
}

/** Everything that the domain needs from outside. */
export interface Deps {
  service: Service;
  settings: Settings;
  secrets: Secrets;
  hashQueue: HashQueue;
  signer: Signer;
  limiter: Limiter;
  /** The callers of this isolate in the last minutes, see `readAs`. */
  callers: Callers;
  system: System;
  log: Log;
  databases: Databases;
  /** The database of the team that this is about, see access/databases.ts. */
  db: Db;
  /** When this isolate last stored that a key was used, by the key's id, see access/last-use.ts. */
  notedUses: Lru<number>;
  /** When this isolate last looked whether the recovery job runs, by the number of the database, see upkeep/heartbeat.ts. */
  recoveryChecks: Pick<Map<string, number>, "get" | "set">;
  /** The HEAD request that polls a resumable upload in this isolate, by the upload's id, see uploads/resumable.ts. */
  pollers: Lru<symbol>;
  /** Until when a consumer in this isolate decodes a file, see waveforms/measuring.ts. */
  decoding: { endsAt: number };
  bytes: ByteStore;
  /** The bodies that this isolate is receiving. */
  bodies: Bodies;
  jobs: Jobs<FileJob>;
  /** For the files of teams that have many to process. */
  bulkJobs: Jobs<FileJob>;
  waveformJobs: Jobs<WaveformJob>;
  recoveryJobs: Jobs<RecoveryJob>;
  outboxes: Outboxes;
  searchIndexes: SearchIndexes;
  sender: Sender;
  /** Null if the service sends no emails. */
  mailer: Mailer | null;
  health: Health;
  /** The static files of the web pages. */
  pages: Pick<Fetcher, "fetch">;
  /** The request's id. Null in jobs and in the recovery job. */
  requestId: string | null;
  /** Keeps the invocation alive until the work settles, even after the response or a disconnect. */
  after(work: Promise<unknown>): void;
}

/** The dependencies that all invocations of an isolate share. */
type IsolateDeps = Omit<Deps, "service" | "after" | "requestId">;

/** About 1 MB. A forgotten use only costs a round trip that no request waits for. */
const MAX_NOTED_USES = 5000;
/** Less than 1 MB. A HEAD that is forgotten while it polls gets 423, and its client retries. */
const MAX_POLLERS = 5000;

/** R2's limit for one `put`: 5 GiB minus 5 MiB. Processing may rewrite an object with one. */
const MAX_PUT_BYTES = 5 * 1024 ** 3 - 5 * 1024 ** 2;

const WHOLE_NUMBER = "Must be a whole number above 0.";
/** D1's Time Travel, which restores a database to an earlier moment, reaches back as far. */
export const MAX_TRASH_DAYS = 30;
const TRASH = `Must be a whole number from 0 to ${MAX_TRASH_DAYS}.`;
const binding = <T>(method: keyof T & string) =>
  z.custom<T>((value) => typeof (value as Record<string, unknown> | undefined)?.[method] === "function", "No binding.");
const settingsSchema = lazy(() => {
  const positive = z.coerce.number(WHOLE_NUMBER).int(WHOLE_NUMBER).positive(WHOLE_NUMBER);
  const secret = z.string().min(1);
  return z.object({
    DB: binding<D1Database>("batch"),
    BUCKET: binding<R2Bucket>("put"),
    JOBS: binding<Queue<FileJob>>("send"),
    BULK_JOBS: binding<Queue<FileJob>>("send"),
    WAVEFORMS: binding<Queue<WaveformJob>>("send"),
    WEBHOOKS: binding<DurableObjectNamespace>("getByName"),
    SEARCH: binding<DurableObjectNamespace>("getByName"),
    RECOVERY: binding<Queue<RecoveryJob>>("send"),
    PAGES: binding<Fetcher>("fetch"),
    LIGHT_LIMIT: binding<RateLimit>("limit"),
    HEAVY_LIMIT: binding<RateLimit>("limit"),
    VISITORS_LIMIT: binding<RateLimit>("limit"),
    UPLOAD_TOKEN_LIMIT: binding<RateLimit>("limit"),
    TRANSCRIPT_LIMIT: binding<RateLimit>("limit"),
    CONTRIBUTOR_LIGHT_LIMIT: binding<RateLimit>("limit"),
    CONTRIBUTOR_HEAVY_LIMIT: binding<RateLimit>("limit"),
    CLIENT_IP_LIMIT: binding<RateLimit>("limit"),
    LOGIN_LIMIT: binding<RateLimit>("limit"),
    HASH_LIMIT: binding<RateLimit>("limit"),
    MAX_UPLOAD_BYTES: positive,
    MAX_FILE_BYTES: positive.max(
      MAX_PUT_BYTES,
      `Must be at most ${MAX_PUT_BYTES}, the largest object that R2 stores with one put.`,
    ),
    UPLOAD_IDLE_SECONDS: z.coerce.number().positive(),
    MAX_DATABASE_BYTES: positive,
    MAX_TEAM_BYTES: positive,
    MAX_TEAM_FILES: positive,
    MAX_TEAM_EVENTS: positive,
    EVENT_DAYS: positive,
    TRASH_DAYS: z
      .string()
      .regex(/^\d+$/, TRASH)
      .transform(Number)
      .refine((days) => days <= MAX_TRASH_DAYS, TRASH),
    LINK_HOST: z
      .string()
      .regex(/^[a-z0-9.-]+(:\d+)?$/, "Must be a host name in lower case, without a scheme or path.")
      .optional(),
    DEAD_LETTER_QUEUE: z.string().min(1),
    WEBHOOK_ALLOW_INSECURE: z.enum(["true", ""], 'Must be "true" or empty.').optional(),
    EMAIL: binding<SendEmail>("send").optional(),
    EMAIL_FROM: z.email().optional(),
    PUBLIC_URL: z
      .url({
        protocol: /^https?$/,
        abort: true,
        error: "Must be the origin of the service, such as https://files.example.com.",
      })
      .refine((url) => new URL(url).href === `${new URL(url).origin}/`, "Must have no path.")
      .optional(),
    OPERATOR_TOKEN: z
      .string()
      .min(32, "Must have at least 32 characters.")
      .refine((token) => !isTokenShaped(token), "Must not look like an API key.")
      .optional(),
    MASTER_KEY: secret,
    S3_ENDPOINT: z.url().optional(),
    S3_BUCKET: z.string().min(1),
    S3_ACCESS_KEY_ID: secret.optional(),
    S3_SECRET_ACCESS_KEY: secret.optional(),
  });
});

/** Without S3 credentials, links take the place of signed URLs. A part of them is a mistake, as is EMAIL without a sender. */
const envSchema = lazy(() =>
  settingsSchema().superRefine((env, context) => {
    for (const name of ["EMAIL_FROM", "PUBLIC_URL"] as const) {
      if (env.EMAIL && !env[name]) {
        context.addIssue({ code: "custom", path: [name], message: "Is missing, but EMAIL needs it." });
      }
    }
    if (!env.S3_ACCESS_KEY_ID && !env.S3_SECRET_ACCESS_KEY) return;
    for (const name of ["S3_ENDPOINT", "S3_ACCESS_KEY_ID", "S3_SECRET_ACCESS_KEY"] as const) {
      if (!env[name])
        context.addIssue({ code: "custom", path: [name], message: "Is missing, but the S3 key needs it." });
    }
  }),
);

/** Returns a line for each setting that the Worker would reject. Never includes values. */
export function findSettingProblems(settings: Record<string, unknown>): string[] {
  const issues = settingsSchema().safeParse(settings).error?.issues ?? [];
  return issues
    .filter(({ path }) => String(path[0]) in settings)
    .map(({ path, message }) => `${String(path[0])}: ${message}`);
}

/** @returns why these names of bindings can't be databases, one line for each */
export const findDatabaseProblems = (names: string[]): string[] =>
  names
    .filter((name) => name.startsWith("DB") && databaseBindings({ [name]: null }).length === 0)
    .map((name) => `${name}: Databases are DB, DB_1, DB_2, … up to DB_999.`);

/** @throws Error that names every missing or wrong binding and setting, without their values */
function parseEnv(env: Env): z.output<ReturnType<typeof envSchema>> {
  const { success, data, error } = envSchema().safeParse(env);
  const misnamed = findDatabaseProblems(Object.keys(env));
  if (success && misnamed.length === 0) return data;
  const issues = error?.issues ?? [];
  const problems = [...issues.map(({ path, message }) => `${path.join(".")}: ${message}`), ...misnamed];
  throw new Error(`The Worker is not set up. ${problems.join(" ")}`);
}

const created = new WeakMap<Env, IsolateDeps>();

/** Created once per isolate: deriving keys from MASTER_KEY is slow, and the limiter keeps counts. */
function isolateDeps(env: Env): IsolateDeps {
  const known = created.get(env);
  if (known) return known;
  const vars = parseEnv(env);
  const { S3_ENDPOINT: endpoint, S3_ACCESS_KEY_ID: accessKeyId, S3_SECRET_ACCESS_KEY: secretAccessKey } = vars;
  const credentials = accessKeyId && secretAccessKey ? { accessKeyId, secretAccessKey } : null;
  const parts = {
    system: realSystem,
    databases: createDatabases(env),
    db: NO_DB,
    notedUses: new Lru<number>(MAX_NOTED_USES),
    recoveryChecks: new Map<string, number>(),
    pollers: new Lru<symbol>(MAX_POLLERS),
    decoding: { endsAt: 0 },
    bytes: createByteStore(vars.BUCKET, realSystem),
    bodies: new Bodies(),
    jobs: createJobs(vars.JOBS),
    bulkJobs: createJobs(vars.BULK_JOBS),
    waveformJobs: createJobs(vars.WAVEFORMS),
    recoveryJobs: createJobs(vars.RECOVERY),
  };
  const deps: IsolateDeps = {
    ...parts,
    settings: {
      maxUploadBytes: vars.MAX_UPLOAD_BYTES,
      maxFileBytes: vars.MAX_FILE_BYTES,
      uploadIdleMilliseconds: vars.UPLOAD_IDLE_SECONDS * 1000,
      maxDatabaseBytes: vars.MAX_DATABASE_BYTES,
      maxTeamBytes: vars.MAX_TEAM_BYTES,
      maxTeamFiles: vars.MAX_TEAM_FILES,
      maxTeamEvents: vars.MAX_TEAM_EVENTS,
      eventDays: vars.EVENT_DAYS,
      trashDays: vars.TRASH_DAYS,
      deadLetterQueue: vars.DEAD_LETTER_QUEUE,
      storeOrigin: endpoint && credentials ? new URL(endpoint).origin : null,
      isInsecureWebhookAllowed: vars.WEBHOOK_ALLOW_INSECURE === "true",
      linkHost: vars.LINK_HOST ?? null,
      publicUrl: vars.PUBLIC_URL ?? null,
      operatorToken: vars.OPERATOR_TOKEN ?? null,
    },
    secrets: loadSecrets(vars.MASTER_KEY, realSystem),
    hashQueue: new HashQueue(realSystem),
    signer: createSigner({
      endpoint: endpoint?.replace(/\/$/, "") ?? null,
      bucket: vars.S3_BUCKET,
      credentials,
    }),
    outboxes: createOutboxes(vars.WEBHOOKS, realSystem),
    searchIndexes: createSearchIndexes(vars.SEARCH, realSystem),
    limiter: createLimiter(vars, realSystem, consoleLog),
    callers: createCallers(realSystem),
    log: consoleLog,
    sender: createSender(realSystem),
    mailer: vars.EMAIL && vars.EMAIL_FROM ? createMailer(vars.EMAIL, vars.EMAIL_FROM) : null,
    health: createHealth(parts),
    pages: { fetch: (...request) => once(() => vars.PAGES.fetch(...request)) },
  };
  created.set(env, deps);
  return deps;
}

/**
 * The only code that reads the environment, for all three handlers.
 * @throws `unavailable` if a binding or setting is missing or wrong. The logged cause names it
 */
export function readDeps(env: Env, ctx: Pick<ExecutionContext, "waitUntil">, service: Service): Deps {
  try {
    return { ...isolateDeps(env), service, requestId: null, after: (work) => ctx.waitUntil(work) };
  } catch (cause) {
    throw new AppError("unavailable", { cause });
  }
}
