import { createHash, scrypt } from "node:crypto";
import service from "../../src/index.ts";
import { type Effects, ProxiedBindings } from "../support/bindings.ts";

/*
 * Ours, beside bare handlers that do for each operation the least that the platform can do for it: no token, no checks,
 * no schema, no log.
 */

interface BenchEnv extends Env {
  DB_IDLE: D1Database;
  DB_SMALL: D1Database;
  DB_MIDDLE: D1Database;
  DB_LARGE: D1Database;
  JOBS_IDLE: Queue;
}
type Bare = (request: Request, env: BenchEnv, url: URL) => Promise<Response>;

// In production the platform takes the lines; here they would go through the process that makes the load.
console.info = () => {};

const newId = () => crypto.randomUUID().replaceAll("-", "").slice(0, 24);

const bare: Record<string, Bare> = {
  empty: async () => Response.json({ message: "Hello." }),

  /** One batch of two statements: a credential and a user. */
  get: async (_, env, url) => {
    const [, user] = await env.DB.batch([
      env.DB.prepare("select id from api_keys where token_hash = ?").bind(url.searchParams.get("hash")),
      env.DB.prepare("select * from users where id = ?").bind(url.searchParams.get("id")),
    ]);
    return Response.json(user?.results[0]);
  },

  list: async (_, env, url) => {
    const { results } = await env.DB.prepare("select * from files where team_id = ? order by id desc limit 20")
      .bind(url.searchParams.get("team"))
      .all();
    return Response.json(results);
  },

  /** The raw body, whose length is known. */
  put: async (request, env) => {
    await env.BUCKET.put(`bare/${newId()}`, request.body);
    return Response.json({ message: "Stored." });
  },

  /** Begins an object that comes in parts. */
  begin: async (_, env) => {
    const { key, uploadId } = await env.BUCKET.createMultipartUpload(`bare/${newId()}`);
    return Response.json({ key, uploadId });
  },

  /** The raw body as a part of it; the last comes with the etags of all before. */
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

  /** Reads the body and drops it. */
  read: async ({ body }) => {
    if (body) await drop(body, 256 * 1024);
    return Response.json({ message: "Read." });
  },

  /** Reads the body and drops it, with the digests that are taken of a form. */
  hash: async ({ body }) => {
    const digests = [createHash("md5"), createHash("sha256")];
    const take = (bytes: Uint8Array) => {
      for (const digest of digests) digest.update(bytes);
    };
    if (body) await drop(body, 256 * 1024, take);
    return Response.json({ digests: digests.map((digest) => digest.digest("hex")) });
  },

  /** The same as `put`, with two writes to D1: a row before the bytes, and its change after them. */
  putAndWrite: async (request, env, url) => {
    const id = newId();
    const team = url.searchParams.get("team");
    const row = [id, team, "a.bin", "receiving", 0, 1, 1];
    await env.DB.prepare(
      "insert into files (id, team_id, original_name, status, reserved_bytes, created_at, updated_at) values (?, ?, ?, ?, ?, ?, ?)",
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

  /** What is uploaded by the one above is deleted by this. */
  remove: async (_, env, url) => {
    const id = url.searchParams.get("id");
    await env.BUCKET.delete(`bare/${id}`);
    await env.DB.prepare("delete from files where team_id = ? and id = ?").bind(url.searchParams.get("team"), id).run();
    return Response.json({ message: "Deleted." });
  },

  /** The same hash of the password, and one insert. */
  createUser: async (request, env, url) => {
    const { email, password } = await request.json<{ email: string; password: string }>();
    const options = { N: 2 ** 14, r: 8, p: 5, maxmem: 64 * 1024 * 1024 };
    const hash = await new Promise<Buffer>((resolve, reject) =>
      scrypt(password, "salt", 32, options, (error, key) => (error ? reject(error) : resolve(key))),
    );
    const row = [newId(), url.searchParams.get("team"), "", "", email, email, hash.toString("hex"), 1, 1];
    await env.DB.prepare("insert into users values (?, ?, ?, ?, ?, ?, ?, ?, ?, 0)")
      .bind(...row)
      .run();
    return Response.json({ email });
  },
};

let watched: { env: BenchEnv; effects: Effects } | undefined;

/** For the bench itself: what calls cost, by proxies around the bindings. */
const control: Record<string, Bare> = {
  watch: async (_, env) => {
    const bindings = new ProxiedBindings();
    watched = { env: bindings.wrap(env), effects: bindings.effects };
    return Response.json({});
  },
  effects: async () => {
    const effects = watched?.effects ?? {};
    watched = undefined;
    return Response.json(effects);
  },
};

/** Reads into one buffer: garbage would count as growth. */
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

/** What a part that R2 held would be read as. */
function zeros(length: number): ReadableStream<Uint8Array> {
  const { readable, writable } = new FixedLengthStream(length);
  const fill = async () => {
    const writer = writable.getWriter();
    for (let left = length; left > 0; left -= ZEROS.length) await writer.write(ZEROS.subarray(0, left));
    await writer.close();
  };
  // Whoever reads no further ends it.
  fill().catch(() => undefined);
  return readable;
}

const take = async (bytes: ArrayBufferView | ReadableStream) => {
  if (bytes instanceof ReadableStream) await drop(bytes, 16 * 1024);
};

/** Takes bytes and keeps none, so that only the Worker's own memory shows and not the local R2's. */
const NOWHERE = {
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

/** One environment for each wish: ours keeps what it derives from an environment. */
const environments = new Map<string, BenchEnv>();

/** A request that names a database works on that one, and leaves its jobs on the queue that nobody empties. */
function environment({ headers }: Request, env: BenchEnv): BenchEnv {
  const database = headers.get("X-Bench-Database");
  if (database === null) return watched?.env ?? env;
  const isNowhere = headers.has("X-Bench-Nowhere");
  const wish = `${database} ${isNowhere}`;
  const known = environments.get(wish) ?? {
    ...env,
    DB: env[database as "DB_IDLE"],
    JOBS: env.JOBS_IDLE,
    ...(isNowhere && { BUCKET: NOWHERE }),
  };
  environments.set(wish, known);
  return known;
}

export default {
  fetch(request, env, ctx) {
    const url = new URL(request.url);
    const [, group, name = ""] = url.pathname.split("/");
    const handler = group === "bare" ? bare[name] : group === "control" ? control[name] : undefined;
    return handler ? handler(request, env, url) : service.fetch(request, environment(request, env), ctx);
  },
  queue: (batch, env, ctx) => service.queue(batch, watched?.env ?? env, ctx),
} satisfies ExportedHandler<BenchEnv>;
