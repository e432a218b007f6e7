import { createMessageBatch } from "cloudflare:test";
import { beforeAll, expect, test } from "vitest";
import worker from "../../src/index.ts";
import manual from "../../src/OPERATIONS.md?raw";
import type { Job } from "../../src/platform/messages.ts";
import { sample } from "../audio/samples.ts";
import { MEBIBYTE } from "../support/bytes.ts";
import { buildRequest, type CallOptions } from "../support/client.ts";
import { dataOf, fill, idsIn, newTeam, read, type Team } from "../support/harness.ts";
import { app, isolateFor, watched } from "../support/isolates.ts";
import { type Bill, billOf, dollarsPerMillion, monthlyDollars, PRICES, sumBills } from "../support/prices.ts";
import { base64, tusHeaders } from "../support/tus.ts";

/*
 * The prices that OPERATIONS.md states: rows, calls and messages are counted here, and only the CPU time is taken from the table,
 * which says when it was measured.
 */

const LISTED = 20;
const UPLOADED_BYTES = 5e6;
const RESUMABLE_BYTES = 100e6;
const CHUNK_BYTES = 80 * MEBIBYTE;
const DECIMALS = 2;

let team: Team;

/** Sends a request, and runs nothing that it enqueues. */
async function send(method: string, path: string, options: CallOptions = {}) {
  const token = team.token;
  const { result, inTotal } = await watched(
    async (env, ctx) => app.fetch(buildRequest(method, path, { token, ...options }), env, ctx),
    await isolateFor(token),
  );
  if (!result.ok) throw new Error(`${method} ${path}: ${result.status} ${await result.text()}`);
  return { response: result, bill: billOf(inTotal, 1) };
}

/** Handles a message as the consumer of its queue does. */
async function consume(queue: string, job: Job): Promise<Bill> {
  const batch = createMessageBatch(queue, [{ id: "1", timestamp: new Date(), attempts: 1, body: job }]);
  const { inTotal } = await watched(async (env, ctx) => worker.queue(batch, env as never, ctx));
  return billOf(inTotal, 1);
}

/** Five minutes of MP3. */
function song(): File {
  const { bytes } = sample("tone-cbr.mp3");
  const whole = new Uint8Array(UPLOADED_BYTES);
  for (let at = 0; at < whole.length; at += bytes.length) whole.set(bytes.subarray(0, whole.length - at), at);
  return new File([whole], "song.mp3");
}

/** Counts an upload, its processing, its waveform, and its deletion. */
async function countFile() {
  const body = new FormData();
  body.append("file", song());
  const upload = await send("POST", "/docs/v1/uploads", { body });
  const { data } = await upload.response.json<{ data: { _id: string } }>();
  const job = { teamId: team.teamId, fileId: data._id };
  const processing = await consume("stowage-jobs", job);
  const waveform = await consume("stowage-waveforms", { ...job, attempt: 0 });
  expect((await dataOf(team.call("GET", `/docs/v1/uploads/${data._id}/metadata`))).hasWaveform).toBe(true);
  const { bill: deletion } = await send("DELETE", `/docs/v1/uploads/${data._id}`);
  // The message of the waveform belongs to its line.
  const message = { queueOperations: 3 };
  return {
    processed: sumBills([1, upload.bill], [1, processing], [-1, message]),
    waveform: sumBills([1, waveform], [1, message]),
    deletion,
  };
}

/** Counts a resumable upload of a WAV file, whose last request commits it, and its processing. */
async function countResumable(): Promise<Bill> {
  const path = "/docs/v1/uploads/resumable";
  const headers = { "Upload-Length": `${RESUMABLE_BYTES}`, "Upload-Metadata": `filename ${base64("long.wav")}` };
  const creation = await send("POST", path, { headers: tusHeaders(headers) });
  const location = creation.response.headers.get("Location") ?? "";
  const wav = new Uint8Array(RESUMABLE_BYTES);
  wav.set(sample("tone.wav").bytes.subarray(0, 44));
  new DataView(wav.buffer).setUint32(4, wav.length - 8, true);
  new DataView(wav.buffer).setUint32(40, wav.length - 44, true);
  const bills = [creation.bill];
  for (let offset = 0; offset < wav.length; offset += CHUNK_BYTES) {
    const body = wav.subarray(offset, offset + CHUNK_BYTES);
    const headers = {
      "Upload-Offset": `${offset}`,
      "Content-Type": "application/offset+octet-stream",
      "Content-Length": `${body.length}`,
    };
    bills.push((await send("PATCH", location, { headers: tusHeaders(headers), body })).bill);
  }
  const fileId = location.split("/").at(-1)?.split(".")[0] ?? "";
  const job = { teamId: team.teamId, fileId };
  const assembling = await consume("stowage-jobs", job);
  const processing = await consume("stowage-jobs", job);
  expect((await dataOf(team.call("GET", `/docs/v1/uploads/${fileId}/metadata`))).status).toBe("completed");
  return sumBills(...[...bills, assembling, processing].map((bill): [number, Bill] => [1, bill]), [
    -1,
    { queueOperations: 3 },
  ]);
}

/** The rows of the table below a heading, without those of its head. */
function tableBelow(heading: string): string[][] {
  const lines = (manual.split(`\n${heading}\n`)[1] ?? "").split("\n");
  const start = lines.findIndex((line) => line.startsWith("|"));
  const end = lines.findIndex((line, i) => i > start && !line.startsWith("|"));
  return lines.slice(start + 2, end).map((line) =>
    line
      .split("|")
      .slice(1, -1)
      .map((cell) => cell.trim()),
  );
}

const counts: Record<string, Bill> = {};
const stated = tableBelow("### One operation");
/** With the stated CPU time. */
const costOf = (name: string): Bill => {
  const cpu = stated.find(([of]) => of === name)?.at(-2) ?? "";
  return { ...counts[name], cpuMilliseconds: Number(cpu.replaceAll(",", "")) };
};

beforeAll(async () => {
  team = await newTeam();
  await fill(team, "files", LISTED);
  await fill(team, "users", LISTED);
  const [file] = idsIn(await read(team, "/docs/v1/uploads"));
  const account = { email: "cost@example.com", password: "correct horse battery" };
  const created = await send("POST", "/auth/v1/users", { json: account });
  const { data } = await created.response.json<{ data: { _id: string } }>();
  const { bill: reading } = await send("GET", `/auth/v1/users/${data._id}`);
  const { bill: login } = await send("POST", "/auth/v1/login", { json: { ...account, teamId: team.teamId } });
  const listing = await send("GET", `/docs/v1/uploads?limit=${LISTED}`);
  expect((await listing.response.json<{ data: unknown[] }>()).data).toHaveLength(LISTED);
  const { processed, waveform, deletion } = await countFile();
  Object.assign(counts, {
    "get user": reading,
    "get metadata": (await send("GET", `/docs/v1/uploads/${file}/metadata`)).bill,
    "get signed URL": (await send("GET", `/docs/v1/uploads/${file}`)).bill,
    "list 20 files": listing.bill,
    "create user": created.bill,
    "log in": login,
    "upload 5 MB and process it": processed,
    "its waveform, of 5 minutes": waveform,
    "delete it": deletion,
    "resumable upload of 100 MB in chunks of 80 MiB": await countResumable(),
  });
});

const format = (value: number, digits = 0) =>
  value.toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });

test("OPERATIONS.md states what each operation reads, writes and calls, and its price with the stated CPU time", () => {
  const counted = Object.keys(counts).map((name) => {
    const { requests, rowsRead, rowsWritten, r2ClassA, r2ClassB, queueOperations, cpuMilliseconds } = costOf(name);
    const uses = [requests, rowsRead, rowsWritten, r2ClassA, r2ClassB, queueOperations, cpuMilliseconds];
    return [name, ...uses.map((use) => format(use ?? 0)), format(dollarsPerMillion(costOf(name)), DECIMALS)];
  });
  expect(stated).toEqual(counted);
});

test("OPERATIONS.md states the price of the sample month: a million uploads with waveforms, and ten million reads", () => {
  const [uploads, reads, cronRuns, rowBytes] = [1e6, 10e6, 12 * 24 * 30, 700];
  const month = sumBills(
    [uploads, costOf("upload 5 MB and process it")],
    [uploads, costOf("its waveform, of 5 minutes")],
    [0.5 * reads, costOf("list 20 files")],
    [0.25 * reads, costOf("get metadata")],
    [0.25 * reads, costOf("get signed URL")],
    // Each signed URL is opened once.
    [0.25 * reads, { r2ClassB: 1 }],
    [cronRuns, { requests: 1 }],
    [1, { r2Gigabytes: (uploads * UPLOADED_BYTES) / 1e9, databaseGigabytes: (uploads * rowBytes) / 1e9 }],
  );
  const dollars = monthlyDollars(month);
  const total = Object.values(dollars).reduce((sum, one) => sum + one, PRICES.planPerMonth as number);
  const columns = [
    dollars.requests + dollars.cpuMilliseconds + dollars.logGigabytes,
    dollars.rowsRead + dollars.rowsWritten + dollars.databaseGigabytes + dollars.queueOperations,
    dollars.r2ClassA + dollars.r2ClassB,
    dollars.r2Gigabytes,
    total,
  ];
  expect(tableBelow("### A month")).toEqual([
    [
      "1,000,000 uploads of 5 MB, all kept, and 10,000,000 reads",
      ...columns.map((dollars) => format(dollars, DECIMALS)),
    ],
  ]);
});

test("OPERATIONS.md names the day of the prices", () => {
  expect(manual).toContain(`Prices of ${PRICES.date}`);
});
