import { createHash, randomBytes, randomInt } from "node:crypto";
import { once } from "node:events";
import { readFileSync, writeSync } from "node:fs";
import { createServer } from "node:http";
import { type AddressInfo, connect, type Socket } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test, vi } from "vitest";
import { facts } from "../audio/facts.ts";
import { form, processed, upload } from "../support/client.ts";
import { Server, type TestTeam } from "../support/server.ts";

/* One real server over HTTP: what it stores and serves, bodies that fetch can't send, and what survives kills. */

/** The server's timeout of a stalled upload. Even on a slow machine, only uploads that stall on purpose reach it. */
const IDLE_SECONDS = 15;
/** Together they take longer than the timeout. */
const SLOW_PIECES = 6;
const PIECE_SECONDS = 3;

let server: Server;
let team: TestTeam;
/** These wait for the timeout while the other tests run. */
let still: OpenUpload;
let slow: Promise<OpenUpload>;
let tooLong: Promise<OpenUpload>;

beforeAll(async () => {
  // Otherwise wrangler reads the rest of a rejected body before it sends the response. Production doesn't.
  const env = { WRANGLER_DISABLE_REQUEST_BODY_DRAINING: "true" };
  server = await Server.start(["--var", `UPLOAD_IDLE_SECONDS:${IDLE_SECONDS}`], env);
  team = await server.newTeam();
  still = await openUpload("Content-Length: 1000000");
  await send(still.socket, PART + "x".repeat(1000));
  slow = uploadSlowly();
  tooLong = uploadTooLong();
});
afterAll(() => server?.remove());

const usageOf = async ({ call }: TestTeam) => (await call("GET", "/docs/v1/usage")).body.data;
const sample = (file: string) => readFileSync(join(import.meta.dirname, "../audio", file));
const bytesOf = async (answer: Response) => Buffer.from(await answer.arrayBuffer());

/** Makes every delivery and webhook look as if the recovery job's waits were over. */
function expireWaits(server: Server): void {
  server.sql("D1Database", "update deliveries set due_at = 0 where due_at is not null");
  server.sql("D1Database", "update webhooks set lease_id = null, lease_ends_at = 0");
}

/** Returns the name that a client saves a download under (RFC 6266: `filename*` wins over `filename`). */
function savedName(answer: Response): string {
  const header = answer.headers.get("Content-Disposition") ?? "";
  expect(header).toMatch(/^attachment; filename="[\x20-\x7e]*"; filename\*=UTF-8''[\w.~%!#$&+^`|-]*$/);
  return decodeURIComponent(header.replace(/.*filename\*=UTF-8''/, ""));
}

describe("a file", () => {
  const some = facts.filter(({ file }) => /^(tone-vbr\.mp3|tone-audio-only\.mp4|silent\.mp4|pixel\.png)$/.test(file));
  test.each(some)("uploads, processes, describes, and opens $file with equal bytes", async (fact) => {
    const bytes = sample(fact.file);
    const id = await upload(team, fact.file, bytes);
    const found = await processed(team, id);
    expect(found).toMatchObject({
      status: "completed",
      failure: null,
      originalName: fact.file,
      fileType: fact.fileType,
      mimeType: fact.mimeType,
      size: bytes.length,
    });
    if (fact.audio) {
      const { durationSeconds, ...exact } = fact.audio;
      expect(found.audio).toMatchObject(exact);
      expect(Math.abs(found.audio.durationSeconds - durationSeconds)).toBeLessThan(0.1);
    } else {
      expect(found.audio).toBeNull();
    }
    const opened = await fetch(await team.sign(id));
    expect(opened.status).toBe(200);
    // The content type is detected from the first 4 KiB.
    expect(opened.headers.get("Content-Type")).toBe(fact.mimeType);
    expect(savedName(opened)).toBe(fact.file);
    expect(bytes.equals(await bytesOf(opened))).toBe(true);
  });

  test("of 20 MB of random bytes is downloaded unchanged", async () => {
    const bytes = randomBytes(20_000_000);
    const id = await upload(team, "noise.bin", bytes);
    expect(await processed(team, id)).toMatchObject({ status: "completed", fileType: "other file", audio: null });
    const opened = await fetch(await team.sign(id));
    expect(bytes.equals(await bytesOf(opened))).toBe(true);
  });
});

describe("a signed URL", () => {
  let id: string;
  const bytes = sample("tone-vbr.mp3");
  beforeAll(async () => {
    id = await upload(team, "signed.mp3", bytes);
  });

  test.each([
    ["the first bytes", "bytes=0-99", [0, 100]],
    ["a middle", "bytes=1000-1999", [1000, 2000]],
    ["an open end", "bytes=9000-", [9000, bytes.length]],
    ["the last bytes", "bytes=-17", [bytes.length - 17, bytes.length]],
  ])("returns %s of the file by Range", async (_, range, [from, to]) => {
    const opened = await fetch(await team.sign(id), { headers: { Range: range } });
    expect(opened.status).toBe(206);
    expect(opened.headers.get("Content-Range")).toBe(`bytes ${from}-${Number(to) - 1}/${bytes.length}`);
    expect(bytes.subarray(from, to).equals(await bytesOf(opened))).toBe(true);
  });

  test.each<[string, (url: URL) => void]>([
    ["signature", (url) => flip(url, "X-Amz-Signature")],
    ["expiry", (url) => url.searchParams.set("X-Amz-Expires", "604800")],
    ["date", (url) => flip(url, "X-Amz-Date")],
    [
      "path",
      (url) => {
        url.pathname += "x";
      },
    ],
  ])("with a changed %s is rejected", async (_, change) => {
    const url = new URL(await team.sign(id));
    change(url);
    const opened = await fetch(url);
    expect(opened.status).toBe(403);
    expect(await opened.text()).not.toContain("ID3");
  });

  test("without a signature is rejected", async () => {
    const { data } = (await team.call("GET", `/docs/v1/uploads/${id}/metadata`)).body;
    // R2 responds 400 to a request without credentials.
    expect((await fetch(data.path)).status).toBe(400);
  });

  test("is rejected after it expires", async () => {
    const url = await team.sign(id, 1);
    const refused = await vi.waitUntil(
      async () => {
        const opened = await fetch(url);
        return opened.status === 403 && opened.text();
      },
      { timeout: 100_000, interval: 100 },
    );
    expect(refused).toMatch(/expired/i);
  });

  test("returns 404 after the file is deleted", async () => {
    const doomed = await upload(team, "doomed.mp3", bytes);
    const url = await team.sign(doomed);
    expect((await fetch(url)).status).toBe(200);
    expect((await team.call("DELETE", `/docs/v1/uploads/${doomed}`)).status).toBe(200);
    expect((await fetch(url)).status).toBe(404);
    expect((await team.call("GET", `/docs/v1/uploads/${doomed}`)).status).toBe(404);
  });
});

describe("a file name", () => {
  const family = "👩‍👩‍👧‍👦";
  test.each([
    ["accents, Chinese and signs", "Ünïcødé 录音 (1)+final's #3 100%.mp3"],
    ["a family of emoji", `${family} ${family}.mp3`],
    ["right to left", "تسجيل صوتي.mp3"],
    ["quotes, a semicolon and an asterisk", `she said "so"; *twice*.mp3`],
    ["what looks like an escape", "50%25 off %41.mp3"],
    ["200 bytes", `${"é".repeat(98)}.mp3`],
    ["a path", "../../etc/пароль.mp3", "пароль.mp3"],
    ["a Windows path", "C:\\music\\song.mp3", "song.mp3"],
    ["255 bytes, cut to 200 with its extension", `${"ü".repeat(125)}a.mp3`, `${"ü".repeat(98)}.mp3`],
  ])("with %s survives upload, list, and download", async (_, sent, kept = sent) => {
    const own = await server.newTeam();
    const id = await upload(own, sent, sample("tone.opus"));
    const { data } = (await own.call("GET", "/docs/v1/uploads")).body;
    expect(data).toMatchObject([{ _id: id, originalName: kept, filename: `${id}-${kept}` }]);
    expect(decodeURIComponent(new URL(data[0].path).pathname).endsWith(`/${own.teamId}/${id}-${kept}`)).toBe(true);
    const opened = await fetch(await own.sign(id));
    expect(opened.status).toBe(200);
    expect(savedName(opened)).toBe(kept);
  });
});

/** Replaces a digit, so that the value stays well-formed. */
function flip(url: URL, parameter: string): void {
  const value = url.searchParams.get(parameter) ?? "";
  const at = parameter === "X-Amz-Date" ? value.length - 2 : value.length - 1;
  const digit = value[at] === "1" ? "2" : "1";
  url.searchParams.set(parameter, value.slice(0, at) + digit + value.slice(at + 1));
}

const LIMIT_BYTES = 100_000_000;
const BOUNDARY = "----end-to-end";
const PART = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n`;
const END = `\r\n--${BOUNDARY}--\r\n`;

interface OpenUpload {
  team: TestTeam;
  socket: Socket;
  answer: Promise<string>;
}

/** Opens a connection and sends the head of an upload with these header lines. */
async function openUpload(...headers: string[]): Promise<OpenUpload> {
  const team = await server.newTeam();
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  const answer = new Promise<string>((resolve, reject) => {
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk.toString();
      // Each response is one JSON object.
      if (text.endsWith("}")) resolve(text);
    });
    socket.on("close", () => resolve(text));
    socket.on("error", (error) => (text === "" ? reject(error) : resolve(text)));
  });
  // Some tests never await it.
  answer.catch(() => undefined);
  const lines = [
    "POST /docs/v1/uploads HTTP/1.1",
    `Host: ${hostname}:${port}`,
    `Authorization: Bearer ${team.token}`,
    `Content-Type: multipart/form-data; boundary=${BOUNDARY}`,
    ...headers,
  ];
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  return { team, socket, answer };
}

/** Sends more bytes, with backpressure. */
async function send(socket: Socket, bytes: string | Uint8Array): Promise<void> {
  if (socket.write(bytes)) return;
  const either = new AbortController();
  const { signal } = either;
  await Promise.race([once(socket, "drain", { signal }), once(socket, "close", { signal })]).catch(() => undefined);
  either.abort();
}

async function sendChunk(socket: Socket, bytes: Uint8Array): Promise<void> {
  await send(socket, `${bytes.length.toString(16)}\r\n`);
  await send(socket, bytes);
  await send(socket, "\r\n");
}

/** Expects that nothing is listed or counted. The usage counts rows in any status. */
async function expectNothingKept(team: TestTeam): Promise<void> {
  await vi.waitUntil(async () => (await usageOf(team)).files === 0, { timeout: 100_000 });
  expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  expect((await team.call("GET", "/docs/v1/uploads")).body.data).toEqual([]);
}

async function hasRow(team: TestTeam): Promise<void> {
  await vi.waitUntil(async () => (await usageOf(team)).files === 1, { timeout: 100_000 });
}

async function uploadSlowly(): Promise<OpenUpload> {
  const piece = Buffer.alloc(1_000_000, "slow but steady ");
  const upload = await openUpload(`Content-Length: ${PART.length + SLOW_PIECES * piece.length + END.length}`);
  await send(upload.socket, PART);
  for (let i = 0; i < SLOW_PIECES; i++) {
    await new Promise((done) => setTimeout(done, PIECE_SECONDS * 1000));
    await send(upload.socket, piece);
  }
  await send(upload.socket, END);
  return upload;
}

/** Sends more than the limit without Content-Length, and never ends. */
async function uploadTooLong(): Promise<OpenUpload> {
  const upload = await openUpload("Transfer-Encoding: chunked");
  await sendChunk(upload.socket, Buffer.from(PART));
  const zeros = Buffer.alloc(1_000_000);
  for (let sent = 0; sent < LIMIT_BYTES + 4 * zeros.length; sent += zeros.length) {
    await sendChunk(upload.socket, zeros);
  }
  return upload;
}

describe("an upload that fetch can't send", () => {
  test("is rejected by its Content-Length before the body", async () => {
    const { team, socket, answer } = await openUpload("Content-Length: 200000000");
    await send(socket, PART);
    expect(await answer).toMatch(/^HTTP\/1\.1 413 .*"code":"file_too_large"/s);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("leaves nothing if the client disconnects during a small file", async () => {
    const { team, socket } = await openUpload("Content-Length: 1000000");
    await send(socket, PART + "x".repeat(100_000));
    await hasRow(team);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("leaves nothing if the client disconnects after some parts are stored", async () => {
    const { team, socket } = await openUpload("Content-Length: 40000000");
    await send(socket, PART);
    await send(socket, Buffer.alloc(20_000_000));
    await hasRow(team);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("leaves nothing if a chunked body ends before the last boundary", async () => {
    const { team, socket, answer } = await openUpload("Transfer-Encoding: chunked");
    await sendChunk(socket, Buffer.from(`${PART}some bytes`));
    await send(socket, "0\r\n\r\n");
    expect(await answer).toMatch(/^HTTP\/1\.1 400 .*"code":"malformed_multipart"/s);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("is not listed while it is in flight", async () => {
    const { team, socket } = await openUpload("Content-Length: 1000000");
    await send(socket, PART + "x".repeat(1000));
    await hasRow(team);
    expect((await team.call("GET", "/docs/v1/uploads")).body.data).toEqual([]);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("is rejected with 408 if it stalls", async () => {
    expect(await still.answer).toMatch(/^HTTP\/1\.1 408 .*"code":"upload_timeout"/s);
    still.socket.destroy();
    await expectNothingKept(still.team);
  });

  test("is rejected at the limit if it has no length and never ends", async () => {
    const { team, socket, answer } = await tooLong;
    expect(await answer).toMatch(/^HTTP\/1\.1 413 .*"code":"file_too_large"/s);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("is stored if it is slow but never stalls", async () => {
    const { team, socket, answer } = await slow;
    expect(await answer).toMatch(/^HTTP\/1\.1 200 /);
    socket.destroy();
    expect((await team.call("GET", "/docs/v1/uploads")).body.data).toMatchObject([{ originalName: "a.bin" }]);
  });

  test("leaves the server working", async () => {
    const team = await server.newTeam();
    const id = await upload(team, "after.txt", "still here");
    expect(await (await fetch(await team.sign(id))).text()).toBe("still here");
  });
});

test("sixteen slow uploads at once complete, although the isolate's memory holds nine", async () => {
  const team = await server.newTeam();
  const gate = Promise.withResolvers<void>();
  /** Holds back the last bytes until the gate opens. */
  const slow = (bytes: Buffer) => {
    let at = 0;
    return new ReadableStream<Uint8Array>({
      async pull(controller) {
        if (at >= bytes.length - 100_000) await gate.promise;
        if (at < bytes.length) controller.enqueue(bytes.subarray(at, at + 100_000));
        else controller.close();
        at += 100_000;
      },
    });
  };
  const send = (path: string, method: string, headers: Record<string, string>, bytes: Buffer) =>
    team.send(method, path, { headers, body: slow(bytes) });
  const files = Array.from({ length: 16 }, () => nameByDigest(6 * 1024 * 1024).bytes);
  const byForm = async (bytes: Buffer) => {
    const start = '--slow\r\nContent-Disposition: form-data; name="file"; filename="slow.bin"\r\n\r\n';
    const body = Buffer.concat([Buffer.from(start), bytes, Buffer.from("\r\n--slow--\r\n")]);
    const answer = await send(
      "/docs/v1/uploads",
      "POST",
      { "Content-Type": "multipart/form-data; boundary=slow" },
      body,
    );
    expect(answer.status).toBe(200);
    return answer.headers.get("Location")?.split("/").at(-1) ?? "";
  };
  const byTus = async (bytes: Buffer) => {
    const version = { "Tus-Resumable": "1.0.0" };
    const headers = { ...version, "Upload-Length": `${bytes.length}` };
    const made = await team.send("POST", RESUMABLE, { headers });
    const type = "application/offset+octet-stream";
    const part = { ...version, "Upload-Offset": "0", "Content-Type": type };
    expect((await send(made.headers.get("Location") ?? "", "PATCH", part, bytes)).status).toBe(204);
    return made.headers.get("Content-Location")?.split("/").at(-1) ?? "";
  };
  const sent = files.map((bytes, i) => (i % 2 === 0 ? byForm(bytes) : byTus(bytes)));
  await vi.waitUntil(async () => (await team.call("GET", "/docs/v1/usage")).body.data.files === files.length, {
    timeout: 100_000,
  });
  gate.resolve();
  const ids = await Promise.all(sent);
  for (const [i, id] of ids.entries()) {
    expect(await processed(team, id)).toMatchObject({ status: "completed", sha256: sha256(files[i] as Buffer) });
  }
});

/*
 * Kills the server and all its processes during uploads, and restarts it on the same state. An upload with a 200 response
 * must survive; any other must be stored completely or not at all.
 */

const KILLS = inject("isExhaustive") ? 4 : 2;
/** Sizes of the parallel uploads, from one byte to several parts. */
const SENDERS = [1, 20_000, 300_000, 2_000_000, 9_000_000, 12_000_000];

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Returns random bytes, and a name with their digest. */
function nameByDigest(size: number) {
  const bytes = randomBytes(size);
  // Random bytes could look like a damaged MP3.
  bytes[0] = 0;
  return { bytes, name: `${sha256(bytes)}.bin` };
}

/** Uploads one file after another until the server is killed. */
async function keepUploading(team: TestTeam, size: number, acknowledged: Map<string, string>): Promise<number> {
  for (let sent = 1; ; sent++) {
    const { bytes, name } = nameByDigest(size);
    try {
      const answer = await team.send("POST", "/docs/v1/uploads", { body: form(name, bytes) });
      // The status is the promise. The body may be interrupted.
      expect(answer.status).toBe(200);
      acknowledged.set(answer.headers.get("Location")?.split("/").at(-1) ?? "", name);
      await answer.arrayBuffer();
    } catch (error) {
      if (error instanceof TypeError) return sent;
      throw error;
    }
  }
}

/** Returns the growing set of files that a webhook reports as completed. */
async function collectCompleted(team: TestTeam): Promise<Set<string>> {
  const ids = new Set<string>();
  const receiver = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    ids.add(JSON.parse(Buffer.concat(chunks).toString()).subject.id);
    response.end();
  });
  await new Promise<void>((listening) => receiver.listen(0, "127.0.0.1", listening));
  onTestFinished(() => {
    receiver.closeAllConnections();
    receiver.close();
  });
  const url = `http://127.0.0.1:${(receiver.address() as AddressInfo).port}`;
  const { status, text } = await team.call("POST", "/auth/v1/webhooks", { json: { url, types: ["file.completed"] } });
  expect(status, text).toBe(200);
  return ids;
}

/** Resumable uploads: file size and bytes per request. */
const RESUMED = [
  { size: 700_000, chunkBytes: 100_000 },
  { size: 12_000_345, chunkBytes: 1_500_000 },
  { size: 12_000_345, chunkBytes: Number.POSITIVE_INFINITY },
];
const RESUMABLE = "/docs/v1/uploads/resumable";

/** Lets clients wait for kills and restarts of the server. */
class ServerState {
  kills = 0;
  /** Resolves when the server is up again. */
  isUp = Promise.withResolvers<void>();
  isDown = Promise.withResolvers<void>();

  down(): void {
    this.kills += 1;
    this.isUp = Promise.withResolvers();
    this.isDown.resolve();
  }

  up(): void {
    this.isDown = Promise.withResolvers();
    this.isUp.resolve();
  }
}

/** A client that resumes its uploads after each restart of the server. */
class Resumer {
  readonly #team: TestTeam;
  readonly #serverState: ServerState;
  /** How often an upload resumed after a kill. */
  resumed = 0;
  isInFlight = false;
  offset = 0;

  constructor(team: TestTeam, serverState: ServerState) {
    this.#team = team;
    this.#serverState = serverState;
  }

  /** Returns the response; undefined if the server was killed. */
  async #request(
    method: string,
    path: string,
    headers: Record<string, string>,
    body?: BodyInit | ReadableStream<Uint8Array>,
  ) {
    try {
      const all = { "Tus-Resumable": "1.0.0", ...headers };
      return await this.#team.send(method, path, { headers: all, ...(body !== undefined && { body }) });
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      await this.#serverState.isUp.promise;
      return undefined;
    }
  }

  /** Uploads one file across kills. @returns its id */
  async send(bytes: Buffer, name: string, chunkBytes: number): Promise<string> {
    const headers = { "Upload-Length": `${bytes.length}`, "Upload-Metadata": `filename ${btoa(name)}` };
    let made: Response | undefined;
    while (!made) made = await this.#request("POST", RESUMABLE, headers);
    expect(made.status).toBe(201);
    const path = made.headers.get("Location") ?? "";
    this.offset = 0;
    this.isInFlight = true;
    for (let kills = this.#serverState.kills; this.offset < bytes.length; ) {
      const to = Math.min(bytes.length, this.offset + chunkBytes);
      const part = { "Upload-Offset": `${this.offset}`, "Content-Type": "application/offset+octet-stream" };
      const piece = bytes.subarray(this.offset, to);
      const body = chunkBytes === Number.POSITIVE_INFINITY ? this.#untilKilled(piece) : piece;
      const sent = await this.#request("PATCH", path, part, body as BodyInit);
      if (sent) expect([204, 409]).toContain(sent.status);
      if (sent?.status === 204) this.#learn(sent);
      for (let answer = sent; answer?.status !== 204 && answer?.status !== 200; ) {
        answer = await this.#request("HEAD", path, {});
        if (answer) expect([200, 423]).toContain(answer.status);
        if (answer?.status === 200) this.#learn(answer);
      }
      if (this.#serverState.kills > kills) this.resumed += 1;
      kills = this.#serverState.kills;
    }
    this.isInFlight = false;
    return made.headers.get("Content-Location")?.split("/").at(-1) ?? "";
  }

  #learn(answer: Response): void {
    const offset = Number(answer.headers.get("Upload-Offset"));
    expect(offset, "a reported offset never decreases").toBeGreaterThanOrEqual(this.offset);
    this.offset = offset;
  }

  /** Holds back the second half until the next kill. */
  #untilKilled(bytes: Buffer): ReadableStream<Uint8Array> {
    const { kills, isDown } = this.#serverState;
    let at = 0;
    return new ReadableStream({
      async pull(controller) {
        if (at >= bytes.length / 2 && kills < KILLS) await isDown.promise;
        controller.enqueue(bytes.subarray(at, at + 100_000));
        at += 100_000;
        if (at >= bytes.length) controller.close();
      },
    });
  }
}

interface Listed {
  _id: string;
  originalName: string;
}

async function listAll(team: TestTeam): Promise<Listed[]> {
  const files: Listed[] = [];
  for (let page = 1; ; page++) {
    const { data } = (await team.call("GET", `/docs/v1/uploads?limit=100&page=${page}`)).body;
    files.push(...data);
    if (data.length < 100) return files;
  }
}

test(`the server loses no acknowledged upload in ${KILLS} kills, and stores none partially`, {
  timeout: 600_000,
}, async () => {
  const team = await server.newTeam();
  const completed = await collectCompleted(team);
  const acknowledged = new Map<string, string>();
  let sent = 0;
  let brokenOff = 0;
  const serverState = new ServerState();
  const resumers = RESUMED.map(() => new Resumer(team, serverState));
  let sentResumably = 0;
  const resuming = RESUMED.map(async ({ size, chunkBytes }, i) => {
    do {
      const { bytes, name } = nameByDigest(size);
      acknowledged.set((await resumers[i]?.send(bytes, name, chunkBytes)) ?? "", name);
      sentResumably += 1;
    } while (serverState.kills < KILLS);
  });
  // Failures are reported at the end.
  const resumed = Promise.allSettled(resuming);

  for (let kill = 1; kill <= KILLS; kill++) {
    const enough = acknowledged.size + randomInt(3, 30);
    const senders = SENDERS.map((size) => keepUploading(team, size, acknowledged));
    // At a random moment, with uploads in flight.
    await vi.waitUntil(() => acknowledged.size >= enough && resumers.at(-1)?.isInFlight, {
      timeout: 100_000,
      interval: 1,
    });
    serverState.down();
    await server.kill();
    for (const count of await Promise.all(senders)) sent += count;
    brokenOff += server.sql(
      "D1Database",
      `select id from files where status = 'receiving' and team_id = '${team.teamId}'
       and id not in (select file_id from uploads)`,
    ).length;
    // The recovery job cleans up dead form uploads only after hours.
    server.sql(
      "D1Database",
      "update files set due_at = 0, lease_ends_at = 0 where due_at is not null and id not in (select file_id from uploads where not is_finished)",
    );
    expireWaits(server);
    await server.restart();
    serverState.up();
    await server.recover();
  }
  await resumed;
  await Promise.all(resuming);
  const resumedUploads = resumers.reduce((sum, { resumed }) => sum + resumed, 0);

  const listed = await listAll(team);
  for (const { _id: id } of listed) {
    const { status, failure } = await processed(team, id);
    expect({ status, failure }).toEqual({ status: "completed", failure: null });
  }

  const ids = new Set(listed.map((file) => file._id));
  const lost = [...acknowledged.keys()].filter((id) => !ids.has(id));
  // The test command shows console.log only for failing tests.
  writeSync(
    process.stdout.fd,
    `kills: ${KILLS}, uploads sent: ${sent}, acknowledged: ${acknowledged.size}, lost: ${lost.length}, ` +
      `dead midway: ${brokenOff}, stored without an answer: ${listed.length - acknowledged.size + lost.length}; ` +
      `by resumable uploads: ${sentResumably}, resumed after a kill: ${resumedUploads} times\n`,
  );
  expect(resumedUploads).toBeGreaterThanOrEqual(KILLS);
  expect(lost).toEqual([]);

  for (const { _id: id, originalName } of listed) {
    const opened = await fetch(await team.sign(id));
    expect(opened.status).toBe(200);
    expect(`${sha256(new Uint8Array(await opened.arrayBuffer()))}.bin`).toBe(originalName);
    expect([originalName, undefined]).toContain(acknowledged.get(id));
  }
  await server.stop();
  // The recovery job, which each start runs first, cleans up finished uploads only after a day.
  server.sql("D1Database", "update uploads set due_at = 0");
  expireWaits(server);
  await server.restart();
  // The webhook reports every completed file.
  await vi.waitUntil(() => listed.every(({ _id: id }) => completed.has(id)), { timeout: 100_000, interval: 50 });
  // Interrupted uploads leave neither rows nor objects.
  expect((await usageOf(team)).files).toBe(listed.length);
  await server.stop();
  expect(server.sql("D1Database", "select file_id from uploads union all select file_id from upload_parts")).toEqual(
    [],
  );
  const objects = server
    .sql("R2Bucket", "select key from _mf_objects")
    .map((object) => String(object.key))
    .filter((key) => key.startsWith(`${team.teamId}/`));
  expect(objects.sort()).toEqual(listed.map((file) => `${team.teamId}/${file._id}-${file.originalName}`).sort());
});
