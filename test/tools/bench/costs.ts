import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { Effects } from "../../support/bindings.ts";
import { repeat } from "./load.ts";
import {
  formUpload,
  get,
  headers,
  json,
  MEBIBYTE,
  MEGABYTE,
  ROOT,
  type Scope,
  type Server,
  seededId,
  uploadInChunks,
} from "./server.ts";

/**
 * Cloudflare's list prices in US dollars (Workers Paid plan), as documented on PRICES.date. `included` is the plan's
 * monthly allowance.
 */
export const PRICES = {
  date: "2026-11-21",
  planPerMonth: 5,
  // https://developers.cloudflare.com/workers/platform/pricing/
  requests: { perMillion: 0.3, included: 10e6 },
  cpuMilliseconds: { perMillion: 0.02, included: 30e6 },
  logEvents: { perMillion: 0.6, included: 20e6 },
  // https://developers.cloudflare.com/d1/platform/pricing/
  rowsRead: { perMillion: 0.001, included: 25e9 },
  rowsWritten: { perMillion: 1, included: 50e6 },
  databaseGigabytes: { perMillion: 0.75e6, included: 5 },
  // https://developers.cloudflare.com/r2/pricing/
  r2ClassA: { perMillion: 4.5, included: 1e6 },
  r2ClassB: { perMillion: 0.36, included: 10e6 },
  r2Gigabytes: { perMillion: 0.015e6, included: 10 },
  // https://developers.cloudflare.com/queues/platform/pricing/
  queueOperations: { perMillion: 0.4, included: 1e6 },
} as const;

type Item = Exclude<keyof typeof PRICES, "date" | "planPerMonth">;
/** Usage of each priced item. */
export type Bill = Partial<Record<Item, number>>;

const CLASS_A = ["put", "createMultipartUpload", "uploadPart", "complete", "list"];
const CLASS_B = ["get", "head"];

/** Converts counted effects to billed items. Each queue message is billed three times: write, read, delete. */
function billOf(effects: Effects, invocations: number, cpuMilliseconds: number): Bill {
  const r2 = (names: string[]) => effects.r2.filter((name) => names.includes(name)).length;
  return {
    requests: invocations,
    cpuMilliseconds,
    // Our log line. Cloudflare's own for each invocation is turned off in wrangler.toml.
    logEvents: invocations,
    rowsRead: effects.rowsRead,
    rowsWritten: effects.rowsWritten,
    r2ClassA: r2(CLASS_A),
    r2ClassB: r2(CLASS_B),
    queueOperations: 3 * effects.messages,
  };
}

const items = (bill: Bill) => Object.entries(bill) as [Item, number][];

/** Sums bills, each multiplied by a factor. */
function sumBills(...parts: [factor: number, bill: Bill][]): Bill {
  const sum: Bill = {};
  for (const [factor, bill] of parts) {
    for (const [item, usage] of items(bill)) sum[item] = (sum[item] ?? 0) + factor * usage;
  }
  return sum;
}

const dollars = (item: Item, usage: number) => (usage * PRICES[item].perMillion) / 1e6;

/** The price of a million such operations beyond the plan's allowance. */
export const dollarsPerMillion = (bill: Bill): number =>
  items(bill).reduce((sum, [item, usage]) => sum + dollars(item, usage * 1e6), 0);

/** A file's row with its indexes; 320 bytes were measured without audio metadata. */
const ROW_BYTES = 700;

/**
 * The bill of a month with a million uploads of 5 MB, all kept, and ten million reads: half list files, a quarter get
 * metadata, and a quarter get a signed URL and open it.
 */
export function monthlyBill(costs: Record<string, Bill>) {
  const [uploads, reads, cronRuns] = [1e6, 10e6, 12 * 24 * 30];
  const cost = (name: string) => costs[name] ?? {};
  const month = sumBills(
    [uploads, cost("upload 5 MB and process it")],
    [0.5 * reads, cost("list 20 files")],
    [0.25 * reads, cost("get metadata")],
    [0.25 * reads, cost("get signed URL")],
    [0.25 * reads, { r2ClassB: 1 }],
    [cronRuns, { requests: 1, logEvents: 1 }],
    [1, { r2Gigabytes: (uploads * 5e6) / 1e9, databaseGigabytes: (uploads * ROW_BYTES) / 1e9 }],
  );
  const lines = items(month).map(([item, usage]) => ({
    item,
    usage,
    dollars: dollars(item, Math.max(0, usage - PRICES[item].included)),
  }));
  const total = lines.reduce((sum, line) => sum + line.dollars, PRICES.planPerMonth as number);
  return { lines, total };
}

/** Counts what each operation is billed: calls on watched bindings, and the CPU time of the process. */
export async function countCosts(server: Server, { isQuick, log }: Scope) {
  const { load } = server;
  const team = await server.createTeam();
  await server.seed("files", team, 1000);
  await server.seed("users", team, 1000);
  const times = isQuick ? 10 : 50;
  const mp3 = readFileSync(join(ROOT, "test/audio/tone-cbr.mp3"));
  const song = Buffer.alloc(5 * MEGABYTE, mp3);
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
    ["get user", times, 1, (i) => load.send(get(`/auth/v1/users/${seededId(1 + i)}`, team))],
    ["get metadata", times, 1, (i) => load.send(get(`/docs/v1/uploads/${seededId(1 + i)}/metadata`, team))],
    ["get signed URL", times, 1, (i) => load.send(get(`/docs/v1/uploads/${seededId(1 + i)}`, team))],
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
