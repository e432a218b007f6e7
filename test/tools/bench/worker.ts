import { createHash } from "node:crypto";
import { readDeps } from "../../../src/deps.ts";
import service from "../../../src/index.ts";
import type { WaveformJob } from "../../../src/platform/messages.ts";
import * as lists from "../../../src/service.ts";
import { handleJob } from "../../../src/upkeep/consumer.ts";
import { type Effects, ProxiedBindings } from "../../support/bindings.ts";
import { spread } from "./spreading.ts";

/* The service, and bare handlers that do the least work the platform allows: no token, no checks, no schema, no log. */

export { SearchObject, WebhookObject } from "../../../src/index.ts";

interface BenchEnv extends Env {
  IDLE_DB: D1Database;
  JOBS_IDLE: Queue;
}
type Bare = (request: Request, env: BenchEnv, url: URL) => Promise<Response>;

// In production the platform collects log lines. Here they would go through the process that generates the load.
console.info = () => {};

const newId = () => crypto.randomUUID().replaceAll("-", "").slice(0, 24);

/** Sends bytes of a stored object. */
const download: Bare = async (_, env, url) => {
  const { key = "", offset, length } = Object.fromEntries(url.searchParams);
  const object = await env.BUCKET.get(key, { range: { offset: Number(offset), length: Number(length) } });
  return new Response(object?.body);
};

/** Reads a credential and a user in one batch. */
const getUser: Bare = async (_, env, url) => {
  const [, user] = await env.DB.batch([
    env.DB.prepare("select id from api_keys where token_hash = ?").bind(url.searchParams.get("hash")),
    env.DB.prepare("select * from users where id = ?").bind(url.searchParams.get("id")),
  ]);
  return Response.json(user?.results[0]);
};

const listFiles: Bare = async (_, env, url) => {
  const { results } = await env.DB.prepare("select * from files where team_id = ? order by id desc limit 20")
    .bind(url.searchParams.get("team"))
    .all();
  return Response.json(results);
};

/** Asks the rate limiter while the other handler runs, as each request of the service does. */
const counted =
  (handler: Bare): Bare =>
  async (request, env, url) => {
    const asked = env.LIGHT_LIMIT.limit({ key: "bare" });
    const response = await handler(request, env, url);
    return (await asked).success ? response : new Response(null, { status: 429 });
  };

/** Reads the row of a link, then sends bytes of the object. */
const lookUpAndDownload: Bare = async (request, env, url) => {
  const { results } = await env.IDLE_DB.prepare(
    "select * from links join files on files.id = file_id where links.id = ?",
  )
    .bind(url.searchParams.get("link"))
    .all();
  return results.length === 0 ? new Response(null, { status: 404 }) : download(request, env, url);
};

const bare: Record<string, Bare> = {
  get: getUser,
  getAndCount: counted(getUser),
  list: listFiles,
  listAndCount: counted(listFiles),

  /** Stores the raw body. */
  put: async (request, env) => {
    await env.BUCKET.put(`bare/${newId()}`, request.body);
    return Response.json({ message: "Stored." });
  },

  download,

  lookUpAndDownload,
  lookUpAndDownloadAndCount: counted(lookUpAndDownload),

  /** Sends zeros. */
  zeros: async (_, __, url) => new Response(zeros(Number(url.searchParams.get("bytes")))),

  /** Creates a multipart upload. */
  begin: async (_, env) => {
    const { key, uploadId } = await env.BUCKET.createMultipartUpload(`bare/${newId()}`);
    return Response.json({ key, uploadId });
  },

  /** Stores the raw body as a part. The last request carries the etags of the earlier parts. */
  part: async (request, env, url) => {
    const { key = "", uploadId = "", number, etags } = Object.fromEntries(url.searchParams);
    const upload = env.BUCKET.resumeMultipartUpload(key, uploadId);
    const { etag } = await upload.uploadPart(Number(number), request.body as ReadableStream);
    if (etags !== undefined) {
      const all = [...etags.split(",").filter(Boolean), etag];
      await upload.complete(all.map((etag, i) => ({ partNumber: i + 1, etag })));
    }
    return Response.json({ etag });
  },

  /** Reads and drops the body. */
  read: async ({ body }) => {
    if (body) await drop(body, 256 * 1024);
    return Response.json({ message: "Read." });
  },

  /** Reads and drops the body, and computes the digests of a form upload. */
  hash: async ({ body }) => {
    const digests = [createHash("md5"), createHash("sha256")];
    const take = (bytes: Uint8Array) => {
      for (const digest of digests) digest.update(bytes);
    };
    if (body) await drop(body, 256 * 1024, take);
    return Response.json({ digests: digests.map((digest) => digest.digest("hex")) });
  },

  /** Inserts a row, stores the raw body, and updates the row. */
  putAndWrite: async (request, env, url) => {
    const id = newId();
    const team = url.searchParams.get("team");
    const row = [id, team, team, "a.bin", "pending", 0, 0, "", "", "other file", 1, 1];
    await env.DB.prepare(
      "insert into files (id, team_id, key_id, original_name, status, reserved_bytes, size_bytes, etag, mime_type, file_type, created_at, updated_at) values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
    )
      .bind(...row)
      .run();
    const size = Number(request.headers.get("Content-Length"));
    await env.BUCKET.put(`bare/${id}`, request.body);
    await env.DB.prepare(
      "update files set status = 'completed', size_bytes = ?, reserved_bytes = ? where team_id = ? and id = ?",
    )
      .bind(size, size, team, id)
      .run();
    return Response.json({ id });
  },
};

/** Without it, the messages of waveforms go to a queue that nothing consumes. */
let isMeasuring = true;
let watched: { env: BenchEnv; effects: Effects } | undefined;

/** Lets the bench count calls, with proxies around the bindings, add events, measure waveforms, and make many files pending. */
const control: Record<string, Bare> = {
  /** The body may have other settings. */
  watch: async (request, env) => {
    const bindings = new ProxiedBindings();
    const settings = request.body ? await request.json<object>() : {};
    watched = { env: bindings.wrap({ ...env, ...settings }), effects: bindings.effects };
    return Response.json({});
  },
  /** The effects since the last call, without an end of the watch. */
  rows: async () => {
    const { rowsRead, rowsWritten, trips } = watched?.effects ?? {};
    if (watched) Object.assign(watched.effects, { rowsRead: 0, rowsWritten: 0, trips: 0 });
    return Response.json({ rowsRead, rowsWritten, trips });
  },
  effects: async () => {
    const effects = watched?.effects ?? {};
    watched = undefined;
    return Response.json(effects);
  },
  /** Copies a team's newest event. */
  events: async (request, env) => {
    const { teamId, count } = await request.json<{ teamId: string; count: number }>();
    await env.DB.prepare(
      `insert into events with recursive n(i) as (select 1 union all select i + 1 from n where i < ?2)
       select team_id, seq + i, 'apikey.created', created_at, actor, subject_id, subject_version, data, position + i
       from n, (select * from events where team_id = ?1 order by seq desc limit 1)`,
    )
      .bind(teamId, count)
      .run();
    return Response.json({});
  },
  measuring: async (request) => {
    isMeasuring = await request.json<boolean>();
    return Response.json({});
  },
  /** Measures a waveform. @returns the outcome */
  waveform: async (request, env) => {
    const deps = readDeps(env, { waitUntil: () => {} }, lists);
    return Response.json(await handleJob(deps, "stowage-waveforms", await request.json<WaveformJob>()));
  },
  spread: async (request, env) => Response.json(await spread(env as never, await request.json())),
  /** Makes all files of a team pending, and runs the recovery job, which sends their messages. */
  pending: async (request, env) => {
    const { teamId } = await request.json<{ teamId: string }>();
    const columns = "status = 'pending', processed_at = null, updated_at = 1, due_at = 1";
    await env.DB.prepare(`update files set ${columns} where team_id = ?`).bind(teamId).run();
    const work: Promise<unknown>[] = [];
    const ctx = { waitUntil: (promise: Promise<unknown>) => void work.push(promise) } as unknown as ExecutionContext;
    await service.scheduled({} as ScheduledController, env, ctx);
    await Promise.all(work);
    return Response.json({});
  },
};

/** Reads into one buffer, because garbage would count as growth. */
async function drop(
  stream: ReadableStream<Uint8Array>,
  bufferBytes: number,
  take?: (bytes: Uint8Array) => void,
): Promise<void> {
  const reader = stream.getReader({ mode: "byob" });
  let next = await reader.read(new Uint8Array(bufferBytes));
  while (!next.done) {
    take?.(next.value);
    next = await reader.read(new Uint8Array(next.value.buffer));
  }
}

const ZEROS = new Uint8Array(64 * 1024);

/** A stream of zeros, in place of a stored object. */
function zeros(length: number): ReadableStream<Uint8Array> {
  const { readable, writable } = new FixedLengthStream(length);
  const fill = async () => {
    const writer = writable.getWriter();
    for (let left = length; left > 0; left -= ZEROS.length) await writer.write(ZEROS.subarray(0, left));
    await writer.close();
  };
  // A reader that cancels makes a write fail.
  fill().catch(() => undefined);
  return readable;
}

const take = async (bytes: ArrayBufferView | ReadableStream) => {
  if (bytes instanceof ReadableStream) await drop(bytes, 16 * 1024);
};

/** Accepts bytes and drops them, so that the local R2's memory is not measured. */
const DROPPING_BUCKET = {
  put: async (_: string, bytes: ArrayBufferView | ReadableStream) => {
    await take(bytes);
    return { etag: "" };
  },
  get: async (_: string, { range }: { range: { length: number } }) => ({ body: zeros(range.length) }),
  delete: async () => {},
  createMultipartUpload: async () => ({ uploadId: "" }),
  resumeMultipartUpload: () => ({
    uploadPart: async (partNumber: number, bytes: ArrayBufferView | ReadableStream) => {
      await take(bytes);
      return { partNumber, etag: "" };
    },
    complete: async () => ({ etag: "" }),
    abort: async () => {},
  }),
} as unknown as R2Bucket;

/** One environment for each mode of a team, because the service caches what it derives from an environment. */
const environments = new Map<string, BenchEnv>();

function environment({ headers }: Request, env: BenchEnv): BenchEnv {
  const mode = headers.get("X-Bench-Mode");
  if (mode === null) return watched?.env ?? env;
  const others = mode === "idle" ? { DB: env.IDLE_DB } : { BUCKET: DROPPING_BUCKET };
  const known = environments.get(mode) ?? { ...env, ...others, JOBS: env.JOBS_IDLE, BULK_JOBS: env.JOBS_IDLE };
  environments.set(mode, known);
  return known;
}

function unmeasured(env: BenchEnv): BenchEnv {
  const known = environments.get("unmeasured") ?? { ...env, WAVEFORMS: env.JOBS_IDLE };
  environments.set("unmeasured", known);
  return known;
}

export default {
  fetch(request, env, ctx) {
    const url = new URL(request.url);
    const [, group, name = ""] = url.pathname.split("/");
    const handler = group === "bare" ? bare[name] : group === "control" ? control[name] : undefined;
    return handler ? handler(request, env, url) : service.fetch(request, environment(request, env), ctx);
  },
  queue: (batch, env, ctx) => service.queue(batch, watched?.env ?? (isMeasuring ? env : unmeasured(env)), ctx),
} satisfies ExportedHandler<BenchEnv>;
