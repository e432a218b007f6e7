import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createTestHarness } from "wrangler";
import { metadataOf, RESUMABLE, tusHeaders } from "../../support/tus.ts";
import { type Call, Load } from "./load.ts";

export const ROOT = join(import.meta.dirname, "../../..");
const OPERATOR_TOKEN = "operator-token-of-the-bench-0123456789";
export const MEGABYTE = 1_000_000;
export const MEBIBYTE = 1024 * 1024;
export const SMALL_FILE = Buffer.alloc(64 * 1024, "stowage ");

/** How much to measure, and where to report progress. */
export interface Scope {
  isQuick: boolean;
  log: (message: string) => void;
}

/**
 * A team's requests use other bindings. `idle`: another database, and a queue without a consumer, so that jobs don't take
 * part in a measurement. `dropping`: the same queue, and an R2 that drops the bytes.
 */
export type Mode = "idle" | "dropping";

// Otherwise the server asks Cloudflare for request properties that nothing here reads, and logs every queue batch.
process.env.CLOUDFLARE_CF_FETCH_ENABLED = "false";
process.env.WRANGLER_LOG = "error";

/** A team of the bench, and the token of its key. */
export interface Team {
  teamId: string;
  token: string;
  tokenHash: string;
  mode?: Mode;
}

const PENDING_JOBS = "select 1 from files where status in ('pending', 'processing') and due_at is not null limit 1";
const SEEDED_ID = "printf('0193477be8a0%012x', i)";
export const seededId = (number: number) => `0193477be8a0${number.toString(16).padStart(12, "0")}`;

/** Starts the service on a real local server with its own storage, deleted on close. */
export async function startServer() {
  const server = createTestHarness({ root: ROOT, workers: [{ configPath: "test/tools/bench/wrangler.toml" }] });
  const { url } = await server.listen();
  const worker = server.getWorker<{ DB: D1Database; IDLE_DB: D1Database }>();
  for (const name of ["DB", "IDLE_DB"] as const) await worker.applyD1Migrations(name);
  const { DB, IDLE_DB } = await worker.getEnv();
  const load = new Load(url);
  const query = async (database: D1Database, sql: string, ...values: unknown[]) =>
    (
      await database
        .prepare(sql)
        .bind(...values)
        .all<Record<string, unknown>>()
    ).results;

  return {
    url: url.href,
    load,
    process: watchProcess(),

    /** Prepares further databases. */
    async migrate(names: string[]): Promise<void> {
      for (const name of names) await worker.applyD1Migrations(name as "DB");
    },

    async createTeam(mode?: Mode): Promise<Team> {
      const inMode = mode && { mode };
      const operator = { teamId: "", token: OPERATOR_TOKEN, tokenHash: "", ...inMode };
      const { text } = await load.send(json("POST", "/auth/v1/apikeys", { name: "bench" }, operator));
      const { teamId, key: token } = JSON.parse(text).data;
      const database = mode === "idle" ? IDLE_DB : DB;
      const [row] = await query(database, "select token_hash from api_keys where team_id = ?", teamId);
      return { teamId, token, tokenHash: String(row?.token_hash), ...inMode };
    },

    /** Runs a query in the database of teams that are not idle. */
    query: (sql: string, ...values: unknown[]) => query(DB, sql, ...values),

    /** Inserts rows for a team that is not idle; the id of row i, from 1, is `seededId(i)`. */
    async seed(table: "files" | "users", { teamId }: Team, count: number, sizeBytes = 5 * MEGABYTE) {
      const columns = {
        files: `(id, team_id, key_id, original_name, status, reserved_bytes, size_bytes, sha256, etag, mime_type, file_type, processed_at,
          created_at, updated_at) select ${SEEDED_ID}, ?2, ?2, 'interview ' || i || '.mp3', 'completed', ${sizeBytes},
          ${sizeBytes}, hex(zeroblob(32)), 'x', 'audio/mpeg', 'audio file', 1795080000000, 1795080000000, 1795080000000`,
        users: `(id, team_id, first_name, last_name, email, email_key, password, role, created_at, updated_at)
          select ${SEEDED_ID}, ?2, 'Ada', 'Lovelace', i || '@example.com', i || '@example.com', hex(zeroblob(60)), 'admin',
          1795080000000, 1795080000000`,
      };
      const numbers = "with recursive n(i) as (select 1 union all select i + 1 from n where i < ?1)";
      await query(DB, `insert into ${table} ${columns[table]} from (${numbers} select i from n)`, count, teamId);
    },

    /** Calls a control of the bench's Worker. */
    async control(name: string, value: unknown): Promise<unknown> {
      const body = [Buffer.from(JSON.stringify(value))];
      return JSON.parse((await load.send({ method: "POST", path: `/control/${name}`, body })).text);
    },

    /** The files of a team that wait for their job. */
    async countPending({ teamId }: Team): Promise<number> {
      const pending = "select count(*) as count from files where team_id = ? and status in ('pending', 'processing')";
      return Number((await query(DB, pending, teamId))[0]?.count);
    },

    /** The files of a team that have a waveform. */
    async countMeasured({ teamId }: Team): Promise<number> {
      const measured = "select count(*) as count from file_objects where team_id = ? and preview is not null";
      return Number((await query(DB, measured, teamId))[0]?.count);
    },

    /** Waits until no file is waiting for its job. */
    async idle() {
      while ((await query(DB, PENDING_JOBS)).length > 0) await sleep(5);
    },

    async close() {
      load.close();
      await server.close();
    },
  };
}
export type Server = Awaited<ReturnType<typeof startServer>>;

export const headers = ({ token, mode }: Team) => ({
  Authorization: `Bearer ${token}`,
  ...(mode && { "X-Bench-Mode": mode }),
});

export const get = (path: string, team: Team): Call => ({ method: "GET", path, headers: headers(team) });

export function json(method: Call["method"], path: string, value: unknown, team: Team): Call {
  const body = [Buffer.from(JSON.stringify(value))];
  return { method, path, headers: { ...headers(team), "Content-Type": "application/json" }, body };
}

export const formUpload = (bytes: Uint8Array, team: Team): Call => formOf(bytes, headers(team), "/docs/v1/uploads");

/** A form with one file. */
export function formOf(bytes: Uint8Array, headers: Record<string, string>, path: string): Call {
  const head = '--bench\r\nContent-Disposition: form-data; name="file"; filename="a.mp3"\r\n\r\n';
  return {
    method: "POST",
    path,
    headers: { ...headers, "Content-Type": "multipart/form-data; boundary=bench" },
    body: [Buffer.from(head), bytes, Buffer.from("\r\n--bench--\r\n")],
  };
}

/** Creates a link to an uploaded file. @returns its id and its path */
export async function createLink(load: Load, file: string, team: Team): Promise<{ id: string; path: string }> {
  const { _id, url } = JSON.parse((await load.send(json("POST", `${file}/links`, {}, team))).text).data;
  return { id: _id, path: new URL(url).pathname };
}

/** Creates a resumable upload; its URL is in the reply's `location`. */
export function createResumable(sizeBytes: number, team: Team): Call {
  const metadata = metadataOf({ filename: "a.wav" });
  const tus = tusHeaders({ "Upload-Length": `${sizeBytes}`, "Upload-Metadata": metadata });
  return { method: "POST", path: RESUMABLE, headers: { ...headers(team), ...tus }, status: 201 };
}

export function appendChunk(url: string, offsetBytes: number, bytes: Uint8Array, team: Team): Call {
  const tus = tusHeaders({ "Upload-Offset": `${offsetBytes}`, "Content-Type": "application/offset+octet-stream" });
  return { method: "PATCH", path: url, headers: { ...headers(team), ...tus }, body: [bytes], status: 204 };
}

/** Uploads a file with one request to create the upload, and one for each chunk. */
export async function uploadInChunks(load: Load, file: Uint8Array, chunkBytes: number, team: Team): Promise<void> {
  const { location } = await load.send(createResumable(file.length, team));
  for (let offset = 0; offset < file.length; offset += chunkBytes) {
    await load.send(appendChunk(location, offset, file.subarray(offset, offset + chunkBytes), team), false);
  }
}

/** /proc reports CPU time in hundredths of a second. */
const PROC_TICKS_PER_SECOND = 100;
/** A process that uses less CPU than this in 200 ms is idle. */
const IDLE_CPU_SECONDS = 0.02;

/** Watches the workerd process that runs the Worker. The dev server runs a second one that only forwards requests. */
function watchProcess() {
  const children = execFileSync("ps", ["-A", "-o", "pid=,ppid=,rss=,comm="], { encoding: "utf8" })
    .trim()
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, parent, , command]) => Number(parent) === process.pid && command?.endsWith("workerd"))
    .sort((a, b) => Number(b[2]) - Number(a[2]));
  const pids = children.map(([pid = ""]) => pid);
  const [pid = ""] = pids;
  const readProc = (pid: string, name: string) =>
    existsSync(`/proc/${pid}/${name}`) ? readFileSync(`/proc/${pid}/${name}`, "utf8") : "";
  const residentBytes = () => Number(/VmRSS:\s+(\d+)/.exec(readProc(pid, "status"))?.[1]) * 1024;
  const cpuSeconds = (pid: string) => {
    const fields = readProc(pid, "stat").split(") ")[1]?.split(" ") ?? [];
    return (Number(fields[11]) + Number(fields[12])) / PROC_TICKS_PER_SECOND;
  };

  return {
    /** CPU used so far, with D1, R2 and the queue, which the local runtime keeps in this process. NaN without /proc. */
    cpuSeconds: (): number => cpuSeconds(pid),

    /** Waits until both processes are idle. */
    async settled(): Promise<void> {
      const total = () => pids.reduce((sum, pid) => sum + cpuSeconds(pid), 0);
      for (let spentSeconds = Number.POSITIVE_INFINITY; spentSeconds > IDLE_CPU_SECONDS; ) {
        const before = total();
        await sleep(200);
        spentSeconds = total() - before;
      }
    },

    /** @returns the largest growth of resident memory while the work runs, in bytes */
    async growth(work: () => Promise<unknown>): Promise<number> {
      const before = residentBytes();
      let peak = before;
      const sampling = setInterval(() => {
        peak = Math.max(peak, residentBytes());
      }, 10);
      await work().finally(() => clearInterval(sampling));
      return peak - before;
    },
  };
}
