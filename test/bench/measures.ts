import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Effects } from "../support/bindings.ts";
import { type Load, repeat, type Shot } from "./load.ts";
import { type Bill, bill, total } from "./prices.ts";
import {
  type Database,
  get,
  headers,
  json,
  ROOT,
  type Server,
  seededId,
  type Team,
  upload,
  uploadInChunks,
} from "./server.ts";

/** How much is done: the full form, or the quick one for daily use. */
export interface Extent {
  isQuick: boolean;
  say: (what: string) => void;
}

const CONNECTIONS = 16;
export const MEGABYTE = 1_000_000;
export const MEBIBYTE = 1024 * 1024;
export const SMALL_FILE = Buffer.alloc(64 * 1024, "stowage ");
const MP3 = readFileSync(join(ROOT, "test/audio/tone-cbr.mp3"));

export const median = (numbers: number[]): number => percentile(numbers, 0.5);
export function percentile(numbers: number[], share: number): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? Number.NaN;
}

interface Side {
  work: () => Promise<unknown>;
  /** Makes what is needed to work so many times. */
  prepare?: (count: number) => Promise<void>;
}
interface Operation {
  name: string;
  bare: Side;
  ours: Side;
  goal?: number;
  connections?: number;
  /** How often in a round; without it a round has its time. */
  count?: number;
  /** How many it takes, one after the other. */
  requests?: number;
}

/** Ours against the bare handlers, by turns: a machine that slows down or speeds up does so for both. */
export async function measureOverhead(server: Server, { isQuick, say }: Extent) {
  const seconds = isQuick ? 0.4 : 1;
  const rows = [];
  for (const operation of await overheadOperations(server, isQuick)) {
    if (isQuick && operation.goal === undefined) continue;
    const { name, goal, connections = CONNECTIONS, count, requests = 1 } = operation;
    say(`overhead: ${name}`);
    // Short rounds by turns, and many of them: a machine's mood lasts longer than one.
    const timedRounds = isQuick ? 2 : 9;
    const countedRounds = isQuick ? 1 : 5;
    const rounds = count === undefined ? timedRounds : countedRounds;
    const volume = { connections, ...(count === undefined ? { seconds } : { count }) };
    const cpu = { bare: { seconds: 0, requests: 0 }, ours: { seconds: 0, requests: 0 } };
    const measure = async (side: "bare" | "ours") => {
      const { work, prepare } = operation[side];
      if (count !== undefined) await prepare?.(count);
      const before = server.process.cpuSeconds();
      const { done, perSecond } = await server.load.run(work, volume);
      cpu[side].seconds += server.process.cpuSeconds() - before;
      cpu[side].requests += done * requests;
      return perSecond * requests;
    };
    const warm = { ...volume, ...(count === undefined ? { seconds: seconds / 3 } : { count: connections }) };
    for (const { work, prepare } of [operation.bare, operation.ours]) {
      await prepare?.(connections);
      await server.load.run(work, warm);
    }
    const results: { bare: number; ours: number }[] = [];
    for (let round = 0; round < rounds; round++) {
      const first = round % 2 === 0 ? "bare" : "ours";
      const second = first === "bare" ? "ours" : "bare";
      const rates = { [first]: await measure(first), [second]: await measure(second) };
      results.push(rates as { bare: number; ours: number });
    }
    await server.idle();
    const ratios = results.map(({ bare, ours }) => ours / bare);
    rows.push({
      name,
      connections,
      barePerSecond: median(results.map(({ bare }) => bare)),
      oursPerSecond: median(results.map(({ ours }) => ours)),
      ratio: median(ratios),
      least: Math.min(...ratios),
      most: Math.max(...ratios),
      goal: goal ?? null,
      bareCpuMilliseconds: (cpu.bare.seconds * 1000) / cpu.bare.requests,
      oursCpuMilliseconds: (cpu.ours.seconds * 1000) / cpu.ours.requests,
    });
  }
  return rows;
}

async function overheadOperations(server: Server, isQuick: boolean): Promise<Operation[]> {
  const team = await server.foundTeam();
  const idle = { ...(await server.foundTeam("DB_IDLE")), database: "DB_IDLE" as const };
  await server.seed("users", team, 1, 1000);
  await server.seed("files", team, 1, 1000);
  const id = seededId(500);
  const still = (shot: Shot): Side => ({ work: () => server.load.send(shot, false) });
  const bareGet = still(get(`/bare/get?hash=${team.tokenHash}&id=${id}`, team));
  const barePut = (bytes: Buffer, path = "/bare/put"): Shot => ({ method: "POST", path, body: [bytes] });
  const barePutAndWrite = barePut(SMALL_FILE, `/bare/putAndWrite?team=${team.teamId}`);
  const large = Buffer.alloc(80 * MEGABYTE, 7);

  let users = 0;
  const newUser = (path: string): Side => ({
    work: () => {
      const user = { email: `${++users}@example.org`, password: "correct horse" };
      return server.load.send(json("POST", path, user, team), false);
    },
  });
  /** Deletes what was put for it. */
  const deletion = (put: Shot, idOf: (reply: { location: string; text: string }) => string, path: string): Side => {
    const ids: string[] = [];
    return {
      prepare: async (count) => {
        ids.push(...(await repeat(count, CONNECTIONS, async () => idOf(await server.load.send(put)))));
      },
      work: () => {
        const target = path.replace("{id}", ids.pop() ?? "");
        return server.load.send({ method: "DELETE", path: target, headers: headers(idle) }, false);
      },
    };
  };

  const recording = Buffer.alloc(95 * MEGABYTE, 7);
  const inChunks = (size: string, chunkBytes: number): Operation => ({
    name: `95 MB by tus, ${size} each`,
    goal: 0.8,
    connections: 2,
    count: 2,
    requests: 1 + Math.ceil(recording.length / chunkBytes),
    bare: { work: () => bareParts(server.load, recording, chunkBytes) },
    ours: { work: () => uploadInChunks(server.load, recording, chunkBytes, idle) },
  });

  return [
    { name: "nothing", bare: still(get("/bare/empty", team)), ours: still({ ...get("/nowhere", team), status: 404 }) },
    { name: "get user", goal: 0.8, bare: bareGet, ours: still(get(`/auth/v1/users/${id}`, team)) },
    { name: "get signed address", goal: 0.8, bare: bareGet, ours: still(get(`/docs/v1/uploads/${id}`, team)) },
    {
      name: "list 20 files",
      goal: 0.75,
      bare: still(get(`/bare/list?team=${team.teamId}`, team)),
      ours: still(get("/docs/v1/uploads", team)),
    },
    {
      name: "upload 64 KB",
      goal: 0.6,
      bare: still(barePutAndWrite),
      ours: still(upload(SMALL_FILE, idle)),
    },
    { name: "upload 64 KB, and its job", bare: still(barePutAndWrite), ours: still(upload(SMALL_FILE, team)) },
    {
      name: "upload 80 MB",
      goal: 0.85,
      connections: 2,
      count: isQuick ? 2 : 4,
      bare: still(barePut(large)),
      ours: still(upload(large, idle)),
    },
    inChunks("80 MiB", 80 * MEBIBYTE),
    inChunks("5 MiB", 5 * MEBIBYTE),
    {
      name: "delete file",
      count: isQuick ? 48 : 200,
      bare: deletion(barePutAndWrite, ({ text }) => JSON.parse(text).id, `/bare/remove?team=${team.teamId}&id={id}`),
      ours: deletion(
        upload(SMALL_FILE, idle),
        ({ location }) => location.split("/").at(-1) ?? "",
        "/docs/v1/uploads/{id}",
      ),
    },
    {
      name: "create user",
      bare: newUser(`/bare/createUser?team=${team.teamId}`),
      ours: newUser("/auth/v1/users"),
    },
  ];
}

/** As many requests as a resumable upload takes, and R2's parts alone. */
async function bareParts(load: Load, file: Uint8Array, chunkBytes: number): Promise<void> {
  const { key, uploadId } = JSON.parse((await load.send({ method: "POST", path: "/bare/begin" })).text);
  const etags: string[] = [];
  for (let offset = 0; offset < file.length; offset += chunkBytes) {
    const isLast = offset + chunkBytes >= file.length;
    const part = { key, uploadId, number: `${etags.length + 1}`, ...(isLast && { etags: etags.join() }) };
    const path = `/bare/part?${new URLSearchParams(part)}`;
    const body = [file.subarray(offset, offset + chunkBytes)];
    etags.push(JSON.parse((await load.send({ method: "PATCH", path, body })).text).etag);
  }
}

/** From the upload's answer to `completed`, as a client sees it. */
export async function measureCompletion(server: Server, { isQuick, say }: Extent) {
  say("time to completed");
  const team = await server.foundTeam();
  const milliseconds = await repeat(isQuick ? 20 : 200, 1, async () => {
    const { location } = await server.load.send(upload(MP3, team));
    const answeredAt = performance.now();
    for (;;) {
      const { text } = await server.load.send(get(`${location}/metadata`, team));
      const { status } = JSON.parse(text).data;
      if (status === "completed") return performance.now() - answeredAt;
      if (status === "failed") throw new Error(text);
      await sleep(1);
    }
  });
  return {
    files: milliseconds.length,
    medianMilliseconds: median(milliseconds),
    p99Milliseconds: percentile(milliseconds, 0.99),
    goalMilliseconds: 1000,
  };
}

/** The bundle as it is deployed, and what it costs to start it on this machine. */
export function measureStart({ isQuick, say }: Extent) {
  say("size and start");
  const folder = join(ROOT, ".wrangler/bench");
  const wrangler = (...words: string[]) =>
    execFileSync(process.execPath, [join(ROOT, "node_modules/wrangler/bin/wrangler.js"), ...words], {
      cwd: ROOT,
      encoding: "utf8",
      env: { ...process.env, NO_COLOR: "1", WRANGLER_LOG: "log" },
      stdio: ["ignore", "pipe", "ignore"],
    });
  const number = (text: string, pattern: RegExp) => Number(pattern.exec(text)?.[1]);
  const deployed = wrangler("deploy", "--dry-run", "--outdir", join(folder, "bundle"));
  const starts = Array.from({ length: isQuick ? 1 : 5 }, () =>
    wrangler("check", "startup", "--outfile", join(folder, "startup.cpuprofile")),
  );
  wrangler("deploy", "--dry-run", "--minify=false", "--outdir", join(folder, "plain"));
  return {
    kibibytes: number(deployed, /Total Upload: ([\d.]+) KiB/),
    compressedKibibytes: number(deployed, /gzip: ([\d.]+) KiB/),
    goalKibibytes: 250,
    startMilliseconds: median(starts.map((text) => number(text, /Active: ([\d.]+) ms/))),
    goalMilliseconds: 50,
    ...packagesOf(readFileSync(join(folder, "plain/index.js"), "utf8")),
  };
}

/** Which packages run when the Worker starts, and which wait for an `import()`: esbuild wraps those in a function. */
function packagesOf(bundle: string) {
  const modules = bundle.split(/^\/\/ (?=\S*node_modules\/)/m).slice(1);
  const eager = new Set<string>();
  const lazy = new Set<string>();
  for (const text of modules) {
    const name = /^\S*node_modules\/((?:@[^/\s]+\/)?[^/\s]+)/.exec(text)?.[1] ?? "";
    const isWrapped = /= __(esm|commonJS)\(\{/.test(text.split(/^\/\/ src\//m)[0] ?? "");
    (isWrapped ? lazy : eager).add(name);
  }
  return { eagerPackages: [...eager].sort(), lazyPackages: [...lazy].filter((name) => !eager.has(name)).sort() };
}

const SIZES: [Database, number][] = [
  ["DB_SMALL", 1000],
  ["DB_MIDDLE", 100_000],
  ["DB_LARGE", 1_000_000],
];
const SEED_STEP = 100_000;

/** The same calls in databases of different sizes, by turns; all rows are one team's. */
export async function measureGrowth(server: Server, { isQuick, say }: Extent) {
  const sizes = isQuick ? SIZES.slice(0, 2) : SIZES;
  const teams: { rows: number; as: Team & { database: Database }; cursor: string }[] = [];
  for (const [database, rows] of sizes) {
    say(`growth: inserting ${rows.toLocaleString("en")} rows`);
    const as = { ...(await server.foundTeam(database)), database };
    for (let from = 1; from <= rows; from += SEED_STEP) {
      await server.seed("files", as, from, Math.min(rows, from + SEED_STEP - 1), database);
    }
    // The cursor that a client has that has walked through half of the list.
    const half = await server.load.send(get(`/docs/v1/uploads?page=${rows / 40}`, as));
    teams.push({ rows, as, cursor: half.next });
  }
  const operations: [name: string, shot: (team: (typeof teams)[number]) => Shot][] = [
    ["list, first page", ({ as }) => get("/docs/v1/uploads", as)],
    ["list, by cursor at its middle", ({ as, cursor }) => get(cursor, as)],
    ["get metadata", ({ as, rows }) => get(`/docs/v1/uploads/${seededId(rows / 2)}/metadata`, as)],
    ["upload 64 KB", ({ as }) => upload(SMALL_FILE, as)],
  ];
  const rounds = isQuick ? 2 : 4;
  const seconds = isQuick ? 0.3 : 1;
  const result = [];
  for (const [name, shot] of operations) {
    say(`growth: ${name}`);
    const rates = teams.map((): number[] => []);
    for (let round = -1; round < rounds; round++) {
      for (const [i, team] of teams.entries()) {
        const { perSecond } = await server.load.run(() => server.load.send(shot(team), false), {
          connections: CONNECTIONS,
          seconds,
        });
        if (round >= 0) rates[i]?.push(perSecond);
      }
    }
    const [smallest = []] = rates;
    result.push({
      name,
      sizes: teams.map(({ rows }, i) => ({
        rows,
        perSecond: median(rates[i] ?? []),
        ratio: median((rates[i] ?? []).map((rate, round) => rate / (smallest[round] ?? Number.NaN))),
      })),
    });
  }
  return result;
}

/** What one of each operation is billed: counted on watched bindings, its CPU from the process. */
export async function countCosts(server: Server, { isQuick, say }: Extent) {
  say("cost");
  const team = await server.foundTeam();
  await server.seed("files", team, 2_000_001, 2_001_000);
  await server.seed("users", team, 2_000_001, 2_001_000);
  const times = isQuick ? 10 : 50;
  const { load } = server;
  const song = Buffer.alloc(5 * MEGABYTE);
  for (let at = 0; at < song.length; at += MP3.length) MP3.copy(song, at);
  const ids: string[] = [];
  const user = (i: number) => ({ email: `cost-${i}@example.com`, password: "correct horse" });
  const send = (shot: Shot) => load.send(shot);

  const operations: [name: string, invocations: number, run: (index: number) => Promise<unknown>][] = [
    ["get user", 1, (i) => send(get(`/auth/v1/users/${seededId(2_000_001 + i)}`, team))],
    ["get metadata", 1, (i) => send(get(`/docs/v1/uploads/${seededId(2_000_001 + i)}/metadata`, team))],
    ["get signed address", 1, (i) => send(get(`/docs/v1/uploads/${seededId(2_000_001 + i)}`, team))],
    ["list 20 files", 1, () => send(get("/docs/v1/uploads", team))],
    ["create user", 1, (i) => send(json("POST", "/auth/v1/users", user(i), team))],
    ["log in", 1, (i) => send(json("POST", "/auth/v1/login", { ...user(i), teamId: team.teamId }))],
    [
      "upload 5 MB, and its job",
      2,
      async () => {
        const { location } = await send(upload(song, team));
        ids.push(location);
        await server.idle();
      },
    ],
    ["delete file", 1, (i) => send({ method: "DELETE", path: ids[i] ?? "", headers: headers(team) })],
  ];
  const costs: Record<string, Bill> = {};
  for (const [name, invocations, run] of operations) {
    say(`cost: ${name}`);
    const count = async () => {
      await repeat(times, 1, run);
      return invocations * times;
    };
    costs[name] = total([1 / times, await billed(server, team, count)]);
  }
  return costs;
}

/** What the work is billed, which tells how many invocations it was. */
async function billed({ load, process }: Server, team: Team, work: () => Promise<number>): Promise<Bill> {
  await load.send(get("/control/watch", team));
  const cpuBefore = process.cpuSeconds();
  const invocations = await work();
  const cpuMilliseconds = (process.cpuSeconds() - cpuBefore) * 1000;
  // What goes on after the answer is to be counted too.
  await sleep(50);
  const effects: Effects = JSON.parse((await load.send(get("/control/effects", team))).text);
  return bill(effects, invocations, cpuMilliseconds);
}

/** What a GB is billed that comes by tus, its job included. */
export async function countGigabytes(server: Server, { isQuick, say }: Extent) {
  const team = await server.foundTeam();
  const bytes = (isQuick ? 100 : 250) * MEGABYTE;
  const recording = recordingOf(bytes);
  const rows = [];
  for (const mebibytes of [80, 5]) {
    say(`cost: ${bytes / MEGABYTE} MB by tus in chunks of ${mebibytes} MiB`);
    const chunkBytes = mebibytes * MEBIBYTE;
    const requests = 1 + Math.ceil(bytes / chunkBytes);
    const count = async () => {
      await uploadInChunks(server.load, recording, chunkBytes, team);
      await server.idle();
      return requests + 1;
    };
    const cost = total([1e9 / bytes, await billed(server, team, count)]);
    rows.push({ mebibytes, bytes, requests: (requests * 1e9) / bytes, cost });
  }
  return rows;
}

/** Silence, as a WAV. */
function recordingOf(bytes: number): Buffer {
  const file = Buffer.alloc(bytes);
  const headBytes = readFileSync(join(ROOT, "test/audio/tone.wav")).copy(file, 0, 0, 44);
  file.writeUInt32LE(bytes - 8, 4);
  file.writeUInt32LE(bytes - headBytes, headBytes - 4);
  return file;
}
