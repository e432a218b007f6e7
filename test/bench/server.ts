import { execFileSync } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { createTestHarness } from "wrangler";
import { metadataOf, RESUMABLE, tusHeaders } from "../support/tus.ts";
import { Load, type Shot } from "./load.ts";

export const ROOT = join(import.meta.dirname, "../..");
const OPERATOR = "operator-token-of-the-bench-0123456789";
const DATABASES = ["DB", "DB_IDLE", "DB_SMALL", "DB_MIDDLE", "DB_LARGE"] as const;
export type Database = (typeof DATABASES)[number];

// It would ask Cloudflare for the facts of a request, which nothing here reads.
process.env.CLOUDFLARE_CF_FETCH_ENABLED = "false";
// It would print a line for each batch of the queue.
process.env.WRANGLER_LOG = "error";

/** A team of the bench, and what its requests are made of. */
export interface Team {
  teamId: string;
  token: string;
  tokenHash: string;
}

/** The service on a real server with storage of its own, gone when it is closed. */
export async function startServer() {
  const server = createTestHarness({ root: ROOT, workers: [{ configPath: "test/bench/wrangler.toml" }] });
  const { url } = await server.listen();
  const worker = server.getWorker<Record<Database, D1Database>>();
  for (const name of DATABASES) await worker.applyD1Migrations(name);
  const bindings = await worker.getEnv();
  const load = new Load(url);

  return {
    url: url.href,
    load,
    process: watchProcess(),

    async sql(database: Database, sql: string, ...values: unknown[]) {
      return bindings[database]
        .prepare(sql)
        .bind(...values)
        .all<Record<string, unknown>>();
    },

    async foundTeam(database: Database = "DB"): Promise<Team> {
      const { text } = await load.send(
        json("POST", "/auth/v1/apikeys", { name: "bench" }, { token: OPERATOR, database }),
      );
      const { teamId, key: token } = JSON.parse(text).data;
      const { results } = await this.sql(database, "select token_hash from api_keys where team_id = ?", teamId);
      return { teamId, token, tokenHash: String(results[0]?.token_hash) };
    },

    /** Gives the team rows, from number `first` on; their ids are `seededId` of the number. */
    async seed(table: "files" | "users", { teamId }: Team, first: number, last: number, database: Database = "DB") {
      const columns = {
        files: `(id, team_id, original_name, status, reserved_bytes, size_bytes, sha256, mime_type, file_type, processed_at,
          created_at, updated_at) select ${SEEDED_ID}, ?3, 'interview ' || i || '.mp3', 'completed', 5000000, 5000000, hex(zeroblob(32)),
          'audio/mpeg', 'audio file', 1795080000000, 1795080000000, 1795080000000`,
        users: `(id, team_id, first_name, last_name, email, email_key, password, created_at, updated_at)
          select ${SEEDED_ID}, ?3, 'Ada', 'Lovelace', i || '@example.com', i || '@example.com', hex(zeroblob(60)),
          1795080000000, 1795080000000`,
      };
      const numbers = "with recursive n(i) as (select ?1 union all select i + 1 from n where i < ?2)";
      await this.sql(
        database,
        `insert into ${table} ${columns[table]} from (${numbers} select i from n)`,
        first,
        last,
        teamId,
      );
    },

    /** Waits until no job is under way. */
    async idle() {
      for (;;) {
        const { results } = await this.sql("DB", UNDER_WAY);
        if (results.length === 0) return;
        await sleep(5);
      }
    },

    async close() {
      load.close();
      await server.close();
    },
  };
}
export type Server = Awaited<ReturnType<typeof startServer>>;

/** Of CPU in 200 ms, which the system tells in hundredths of a second. */
const SETTLED_SECONDS = 0.02;
const UNDER_WAY = "select 1 from files where status in ('pending', 'processing') and due_at is not null limit 1";
const SEEDED_ID = "printf('0193477be8a0%012x', i)";
export const seededId = (number: number) => `0193477be8a0${number.toString(16).padStart(12, "0")}`;

/** In whose name a request is sent, and on what stores. */
export interface As {
  token: string;
  /** Named, uploads leave their jobs undone. */
  database?: Database;
  /** With a database: bytes are taken, and none is kept. */
  isNowhere?: boolean;
}

export const headers = ({ token, database, isNowhere }: As) => ({
  Authorization: `Bearer ${token}`,
  ...(database && { "X-Bench-Database": database }),
  ...(isNowhere && { "X-Bench-Nowhere": "1" }),
});

export const get = (path: string, as: As): Shot => ({ method: "GET", path, headers: headers(as) });

export function json(method: Shot["method"], path: string, value: unknown, as?: As): Shot {
  const type = { "Content-Type": "application/json" };
  return { method, path, headers: { ...type, ...(as && headers(as)) }, body: [Buffer.from(JSON.stringify(value))] };
}

export function upload(bytes: Uint8Array, as: As): Shot {
  const head = '--bench\r\nContent-Disposition: form-data; name="file"; filename="a.mp3"\r\n\r\n';
  return {
    method: "POST",
    path: "/docs/v1/uploads",
    headers: { ...headers(as), "Content-Type": "multipart/form-data; boundary=bench" },
    body: [Buffer.from(head), bytes, Buffer.from("\r\n--bench--\r\n")],
  };
}

/** Begins a resumable upload of so many bytes, whose address is told in `location`. */
export const beginUpload = (bytes: number, as: As): Shot => ({
  method: "POST",
  path: RESUMABLE,
  headers: {
    ...headers(as),
    ...tusHeaders({ "Upload-Length": `${bytes}`, "Upload-Metadata": metadataOf({ filename: "a.wav" }) }),
  },
  status: 201,
});

export const append = (address: string, offsetBytes: number, bytes: Uint8Array, as: As): Shot => ({
  method: "PATCH",
  path: address,
  headers: {
    ...headers(as),
    ...tusHeaders({ "Upload-Offset": `${offsetBytes}`, "Content-Type": "application/offset+octet-stream" }),
  },
  body: [bytes],
  status: 204,
});

export const askOffset = (address: string, as: As): Shot => ({
  method: "HEAD",
  path: address,
  headers: { ...headers(as), ...tusHeaders() },
});

/** One request that begins the upload, and one for each chunk. */
export async function uploadInChunks(load: Load, file: Uint8Array, chunkBytes: number, as: As): Promise<void> {
  const { location } = await load.send(beginUpload(file.length, as));
  for (let offset = 0; offset < file.length; offset += chunkBytes) {
    await load.send(append(location, offset, file.subarray(offset, offset + chunkBytes), as), false);
  }
}

/** The runtime's process that runs the Worker; beside it the dev server runs a second, which only passes requests on. */
function watchProcess() {
  const ps = (...options: string[]) => execFileSync("ps", options, { encoding: "utf8" }).trim();
  const children = ps("-A", "-o", "pid=,ppid=,rss=,comm=")
    .split("\n")
    .map((line) => line.trim().split(/\s+/))
    .filter(([, parent, , command]) => Number(parent) === process.pid && command?.endsWith("workerd"))
    .sort((a, b) => Number(b[2]) - Number(a[2]));
  const pids = children.map(([pid = ""]) => pid);
  const [pid = ""] = pids;

  /** In bytes, with D1, R2 and the queue, which the local runtime keeps in this process. */
  const residentBytes = () => {
    const status = `/proc/${pid}/status`;
    const text = existsSync(status)
      ? /VmRSS:\s+(\d+)/.exec(readFileSync(status, "utf8"))?.[1]
      : ps("-o", "rss=", "-p", pid);
    return Number(text) * 1024;
  };
  const cpuSecondsOf = (pid: string) => {
    const stat = `/proc/${pid}/stat`;
    if (!existsSync(stat)) return Number.NaN;
    const fields = readFileSync(stat, "utf8").split(") ")[1]?.split(" ") ?? [];
    return (Number(fields[11]) + Number(fields[12])) / 100;
  };
  const allCpuSeconds = () => pids.reduce((sum, pid) => sum + cpuSecondsOf(pid), 0);

  return {
    /** Seconds of CPU spent so far; NaN where the system has no /proc. */
    cpuSeconds: (): number => cpuSecondsOf(pid),

    /** Waits until it and the one that passes requests on have nothing left to do. */
    async settled(): Promise<void> {
      for (let spentSeconds = Number.POSITIVE_INFINITY; spentSeconds > SETTLED_SECONDS; ) {
        const before = allCpuSeconds();
        await sleep(200);
        spentSeconds = allCpuSeconds() - before;
      }
    },

    /** By how many bytes memory grew at most while the work went on. */
    async growth(work: () => Promise<unknown>): Promise<number> {
      const before = residentBytes();
      let most = before;
      let isDone = false;
      const sample = async () => {
        while (!isDone) {
          most = Math.max(most, residentBytes());
          await sleep(10);
        }
      };
      const sampling = sample();
      try {
        await work();
      } finally {
        isDone = true;
        await sampling;
      }
      return most - before;
    },
  };
}
