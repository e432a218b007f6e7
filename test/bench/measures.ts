import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Effects } from "../support/bindings.ts";
import { type Call, type Load, repeat } from "./load.ts";
import { type Bill, billOf, sumBills } from "./prices.ts";
import {
  createLink,
  formUpload,
  get,
  headers,
  json,
  ROOT,
  type Server,
  seededId,
  type Team,
  uploadInChunks,
} from "./server.ts";

/** How much to measure, and where to report progress. */
export interface Scope {
  isQuick: boolean;
  log: (message: string) => void;
}

const CONNECTIONS = 16;
export const MEGABYTE = 1_000_000;
const MEBIBYTE = 1024 * 1024;
export const SMALL_FILE = Buffer.alloc(64 * 1024, "stowage ");
const MP3 = readFileSync(join(ROOT, "test/audio/tone-cbr.mp3"));

function percentile(numbers: number[], fraction: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(fraction * sorted.length))] ?? Number.NaN;
}
const median = (numbers: number[]): number => percentile(numbers, 0.5);

/** Medians of rounds of [baseline, measured] rates, and the median, least and largest of their ratios. */
export function summarize(rounds: [number, number][]) {
  const ratios = rounds.map(([baseline, measured]) => measured / baseline);
  return {
    baseline: median(rounds.map(([baseline]) => baseline)),
    measured: median(rounds.map(([, measured]) => measured)),
    ratio: median(ratios),
    least: Math.min(...ratios),
    most: Math.max(...ratios),
  };
}

interface Side {
  work: () => Promise<unknown>;
  /** Creates what `count` runs of the work need. */
  prepare?: (count: number) => Promise<void>;
}
interface Operation {
  name: string;
  bare: Side;
  ours: Side;
  goal?: number;
  connections?: number;
  /** Runs per round; by default a round has a duration. */
  count?: number;
  /** Requests per run. */
  requests?: number;
}

/** Compares the service with bare handlers, in turns, so that a machine that slows down does so for both. */
export async function measureOverhead(server: Server, { isQuick, log }: Scope) {
  const seconds = isQuick ? 0.4 : 1;
  const rows = [];
  for (const operation of await overheadOperations(server, isQuick)) {
    if (isQuick && operation.goal === undefined) continue;
    const { name, goal = null, connections = CONNECTIONS, count, requests = 1 } = operation;
    log(`overhead: ${name}`);
    const volume = { connections, ...(count === undefined ? { seconds } : { count }) };
    const measure = async ({ work, prepare }: Side) => {
      if (count !== undefined) await prepare?.(count);
      return (await server.load.run(work, volume)) * requests;
    };
    for (const { work, prepare } of [operation.bare, operation.ours]) {
      await prepare?.(connections);
      await server.load.run(
        work,
        count === undefined ? { connections, seconds: seconds / 3 } : { connections, count: connections },
      );
    }
    const rounds: [number, number][] = [];
    for (let round = 0; round < (isQuick ? 2 : 7); round++) {
      const sides = round % 2 === 0 ? (["bare", "ours"] as const) : (["ours", "bare"] as const);
      const rates = { bare: 0, ours: 0 };
      for (const side of sides) rates[side] = await measure(operation[side]);
      rounds.push([rates.bare, rates.ours]);
    }
    await server.idle();
    rows.push({ name, connections, goal, ...summarize(rounds) });
  }
  return rows;
}

async function overheadOperations(server: Server, isQuick: boolean): Promise<Operation[]> {
  const { load } = server;
  const team = await server.createTeam();
  const idle = await server.createTeam("DB_IDLE");
  await server.seed("users", team, 1, 1000);
  await server.seed("files", team, 1, 1000);
  const id = seededId(500);
  const repeating = (call: Call): Side => ({ work: () => load.send(call, false) });
  const bareGet = repeating(get(`/bare/get?hash=${team.tokenHash}&id=${id}`, team));
  const barePut = (bytes: Buffer, path = "/bare/put"): Call => ({ method: "POST", path, body: [bytes] });
  const barePutAndWrite = barePut(SMALL_FILE, `/bare/putAndWrite?team=${team.teamId}`);
  const large = Buffer.alloc(80 * MEGABYTE, 7);
  const recording = Buffer.alloc(95 * MEGABYTE, 7);

  let users = 0;
  const createUser = (path: string): Side => ({
    work: () =>
      load.send(json("POST", path, { email: `${++users}@example.org`, password: "correct horse" }, team), false),
  });
  const deletion = (upload: Call, idOf: (reply: { location: string; text: string }) => string, path: string): Side => {
    const ids: string[] = [];
    return {
      prepare: async (count) => {
        ids.push(...(await repeat(count, CONNECTIONS, async () => idOf(await load.send(upload)))));
      },
      work: () =>
        load.send({ method: "DELETE", path: path.replace("{id}", ids.pop() ?? ""), headers: headers(idle) }, false),
    };
  };
  const inChunks = (mebibytes: number): Operation => ({
    name: `resumable upload of 95 MB in chunks of ${mebibytes} MiB`,
    goal: 0.8,
    connections: 2,
    count: 2,
    requests: 1 + Math.ceil(recording.length / (mebibytes * MEBIBYTE)),
    bare: { work: () => bareParts(load, recording, mebibytes * MEBIBYTE) },
    ours: { work: () => uploadInChunks(load, recording, mebibytes * MEBIBYTE, idle) },
  });

  const song = Buffer.alloc(5 * MEGABYTE, 7);
  const linked = await createLink(load, song, idle);
  /** Each part of the song by its link, in turn, as a player that seeks. */
  const download = (name: string, bytes: number, connections = CONNECTIONS): Operation => {
    let offset = 0;
    const next = (call: (offset: number) => Call): Side => ({
      work: () => {
        offset = (offset + bytes) % song.length;
        return load.send(call(offset), false);
      },
    });
    const range = (first: number) => ({ Range: `bytes=${first}-${first + bytes - 1}` });
    return {
      name,
      goal: 0.8,
      connections,
      bare: next((first) => get(`/bare/download?key=${linked.key}&offset=${first}&length=${bytes}`, team)),
      ours: next((first) => ({
        ...get(linked.path, idle),
        headers: { ...headers(idle), ...range(first) },
        status: 206,
      })),
    };
  };

  return [
    {
      name: "no-op",
      bare: repeating(get("/bare/empty", team)),
      ours: repeating({ ...get("/nowhere", team), status: 404 }),
    },
    { name: "get user", goal: 0.8, bare: bareGet, ours: repeating(get(`/auth/v1/users/${id}`, team)) },
    { name: "get signed URL", goal: 0.8, bare: bareGet, ours: repeating(get(`/docs/v1/uploads/${id}`, team)) },
    {
      name: "list 20 files",
      goal: 0.75,
      bare: repeating(get(`/bare/list?team=${team.teamId}`, team)),
      ours: repeating(get("/docs/v1/uploads", team)),
    },
    download("download 100 KB of 5 MB by link", 100_000),
    download("download 5 MB by link", song.length, 4),
    {
      name: "upload 64 KB",
      goal: 0.6,
      bare: repeating(barePutAndWrite),
      ours: repeating(formUpload(SMALL_FILE, idle)),
    },
    {
      name: "upload 64 KB and process it",
      bare: repeating(barePutAndWrite),
      ours: repeating(formUpload(SMALL_FILE, team)),
    },
    {
      name: "upload 80 MB",
      goal: 0.85,
      connections: 2,
      count: isQuick ? 2 : 4,
      bare: repeating(barePut(large)),
      ours: repeating(formUpload(large, idle)),
    },
    inChunks(80),
    inChunks(5),
    {
      name: "delete file",
      goal: 0.5,
      count: isQuick ? 48 : 200,
      bare: deletion(barePutAndWrite, ({ text }) => JSON.parse(text).id, `/bare/remove?team=${team.teamId}&id={id}`),
      ours: deletion(
        formUpload(SMALL_FILE, idle),
        ({ location }) => location.split("/").at(-1) ?? "",
        "/docs/v1/uploads/{id}",
      ),
    },
    {
      name: "create user",
      bare: createUser(`/bare/createUser?team=${team.teamId}`),
      ours: createUser("/auth/v1/users"),
    },
  ];
}

/** Stores a file as parts, in as many requests as a resumable upload needs. */
async function bareParts(load: Load, file: Uint8Array, chunkBytes: number): Promise<void> {
  const { key, uploadId } = JSON.parse((await load.send({ method: "POST", path: "/bare/begin" })).text);
  const etags: string[] = [];
  for (let offset = 0; offset < file.length; offset += chunkBytes) {
    const isLast = offset + chunkBytes >= file.length;
    const part = { key, uploadId, number: `${etags.length + 1}`, ...(isLast && { etags: etags.join() }) };
    const body = [file.subarray(offset, offset + chunkBytes)];
    const { text } = await load.send({ method: "PATCH", path: `/bare/part?${new URLSearchParams(part)}`, body });
    etags.push(JSON.parse(text).etag);
  }
}

/** Measures the time from the upload's response to `completed`, as a client sees it. */
export async function measureCompletion(server: Server, { isQuick, log }: Scope) {
  log("time to completed");
  const team = await server.createTeam();
  const milliseconds = await repeat(isQuick ? 20 : 200, 1, async () => {
    const { location } = await server.load.send(formUpload(MP3, team));
    const startedAt = performance.now();
    for (;;) {
      const { text } = await server.load.send(get(`${location}/metadata`, team));
      const { status } = JSON.parse(text).data;
      if (status === "completed") return performance.now() - startedAt;
      if (status === "failed") throw new Error(text);
      await sleep(1);
    }
  });
  return { files: milliseconds.length, median: median(milliseconds), p99: percentile(milliseconds, 0.99) };
}

/** Measures the deployed bundle, and the CPU time to start it on this machine. */
export function measureStart({ isQuick, log }: Scope) {
  log("size and start");
  const folder = join(ROOT, ".wrangler/bench");
  const wrangler = (...args: string[]) =>
    execFileSync(process.execPath, [join(ROOT, "node_modules/wrangler/bin/wrangler.js"), ...args], {
      cwd: ROOT,
      encoding: "utf8",
      env: { ...process.env, NO_COLOR: "1", WRANGLER_LOG: "log" },
      stdio: ["ignore", "pipe", "ignore"],
    });
  const numberIn = (text: string, pattern: RegExp) => Number(pattern.exec(text)?.[1]);
  const output = wrangler("deploy", "--dry-run", "--outdir", join(folder, "bundle"));
  const starts = Array.from({ length: isQuick ? 1 : 5 }, () =>
    wrangler("check", "startup", "--outfile", join(folder, "startup.cpuprofile")),
  );
  return {
    compressedKibibytes: numberIn(output, /gzip: ([\d.]+) KiB/),
    startMilliseconds: median(starts.map((text) => numberIn(text, /Active: ([\d.]+) ms/))),
  };
}

const SEED_ROWS = 100_000;

/** Measures the same calls on databases of different sizes, in turns. All rows belong to one team. */
export async function measureGrowth(server: Server, { isQuick, log }: Scope) {
  const sizes = [["DB_SMALL", 1000] as const, ["DB_MIDDLE", 100_000] as const, ["DB_LARGE", 1_000_000] as const];
  const teams: { rows: number; team: Team; cursor: string }[] = [];
  for (const [database, rows] of isQuick ? sizes.slice(0, 2) : sizes) {
    log(`growth: inserting ${rows.toLocaleString("en")} rows`);
    const team = await server.createTeam(database);
    for (let from = 1; from <= rows; from += SEED_ROWS) {
      await server.seed("files", team, from, Math.min(rows, from + SEED_ROWS - 1));
    }
    const { next: cursor } = await server.load.send(get("/docs/v1/uploads", team));
    teams.push({ rows, team, cursor });
  }
  const operations: [name: string, call: (of: (typeof teams)[number]) => Call][] = [
    ["list, first page", ({ team }) => get("/docs/v1/uploads", team)],
    ["list, next page by cursor", ({ team, cursor }) => get(cursor, team)],
    ["get metadata", ({ team, rows }) => get(`/docs/v1/uploads/${seededId(rows / 2)}/metadata`, team)],
    ["upload 64 KB", ({ team }) => formUpload(SMALL_FILE, team)],
  ];
  const result = [];
  for (const [name, call] of operations) {
    log(`growth: ${name}`);
    const rates = teams.map((): number[] => []);
    for (let round = -1; round < (isQuick ? 2 : 4); round++) {
      for (const [i, team] of teams.entries()) {
        const volume = { connections: CONNECTIONS, seconds: isQuick ? 0.3 : 1 };
        const rate = await server.load.run(() => server.load.send(call(team), false), volume);
        // The first round warms up and is not counted.
        if (round >= 0) rates[i]?.push(rate);
      }
    }
    result.push({ name, sizes: teams.map(({ rows }, i) => ({ rows, perSecond: median(rates[i] ?? []) })) });
  }
  return result;
}

/** Counts what each operation is billed: calls on watched bindings, and the CPU time of the process. */
export async function countCosts(server: Server, { isQuick, log }: Scope) {
  const { load } = server;
  const team = await server.createTeam();
  await server.seed("files", team, 2_000_001, 2_001_000);
  await server.seed("users", team, 2_000_001, 2_001_000);
  const times = isQuick ? 10 : 50;
  const song = Buffer.alloc(5 * MEGABYTE);
  for (let at = 0; at < song.length; at += MP3.length) MP3.copy(song, at);
  const paths: string[] = [];
  const user = (i: number) => ({ email: `cost-${i}@example.com`, password: "correct horse" });
  const uploadAndProcess = async () => {
    paths.push((await load.send(formUpload(song, team))).location);
    await server.idle();
  };
  const recording = silentWav(100 * MEGABYTE);
  const uploadResumable = async () => {
    await uploadInChunks(load, recording, 80 * MEBIBYTE, team);
    await server.idle();
  };
  const operations: [name: string, times: number, invocations: number, run: (index: number) => Promise<unknown>][] = [
    ["get user", times, 1, (i) => load.send(get(`/auth/v1/users/${seededId(2_000_001 + i)}`, team))],
    ["get metadata", times, 1, (i) => load.send(get(`/docs/v1/uploads/${seededId(2_000_001 + i)}/metadata`, team))],
    ["get signed URL", times, 1, (i) => load.send(get(`/docs/v1/uploads/${seededId(2_000_001 + i)}`, team))],
    ["list 20 files", times, 1, () => load.send(get("/docs/v1/uploads", team))],
    ["create user", times, 1, (i) => load.send(json("POST", "/auth/v1/users", user(i), team))],
    ["log in", 5, 1, (i) => load.send(json("POST", "/auth/v1/login", { ...user(i), teamId: team.teamId }, team))],
    ["upload 5 MB and process it", times, 2, uploadAndProcess],
    ["delete file", times, 1, (i) => load.send({ method: "DELETE", path: paths[i] ?? "", headers: headers(team) })],
    ["resumable upload of 100 MB in chunks of 80 MiB", 1, 4, uploadResumable],
  ];
  const costs: Record<string, Bill> = {};
  for (const [name, times, invocations, run] of operations) {
    log(`cost: ${name}`);
    await load.send(get("/control/watch", team));
    const cpuBefore = server.process.cpuSeconds();
    await repeat(times, 1, run);
    const cpuMilliseconds = (server.process.cpuSeconds() - cpuBefore) * 1000;
    // Work in waitUntil is counted too.
    await sleep(50);
    const effects: Effects = JSON.parse((await load.send(get("/control/effects", team))).text);
    costs[name] = sumBills([1 / times, billOf(effects, invocations * times, cpuMilliseconds)]);
  }
  return costs;
}

function silentWav(bytes: number): Buffer {
  const file = Buffer.alloc(bytes);
  const headerBytes = readFileSync(join(ROOT, "test/audio/tone.wav")).copy(file, 0, 0, 44);
  file.writeUInt32LE(bytes - 8, 4);
  file.writeUInt32LE(bytes - headerBytes, headerBytes - 4);
  return file;
}
