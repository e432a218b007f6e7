import { writeSync } from "node:fs";
import { expect, onTestFinished, test, vi } from "vitest";
import { noise, randomFrom, sha256 } from "../support/bytes.ts";
import { form, processed } from "../support/client.ts";
import { Receiver } from "../support/receiver.ts";
import { Server, type TestTeam } from "../support/server.ts";

/*
 * Kills the server and all its processes during uploads, and restarts it on the same state. An upload with a 200 response
 * must survive; any other must be stored completely or not at all.
 */

const KILLS = 4;
/** Chooses the moments of the kills. */
const random = randomFrom(Number(process.env.STOWAGE_SEED ?? 1));
/** Sizes of the parallel uploads, from one byte to several parts. */
const SENDERS = [1, 20_000, 300_000, 2_000_000, 9_000_000, 12_000_000];

/** Returns noise, and a name with its digest. */
function nameByDigest(size: number) {
  const bytes = noise(size);
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

/** Returns a function that lists the files that a webhook has reported as completed. */
async function collectCompleted(team: TestTeam): Promise<() => Set<string>> {
  const receiver = await Receiver.open();
  onTestFinished(() => receiver.close());
  const json = { url: receiver.url, types: ["file.completed"] };
  const { status, text } = await team.call("POST", "/auth/v1/webhooks", { json });
  expect(status, text).toBe(200);
  return () => new Set(receiver.received.map(({ body }) => JSON.parse(body).subject.id));
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
  // No upload that waits for a kill times out, also on a slow machine.
  const server = await Server.start(["--var", "UPLOAD_IDLE_SECONDS:600"]);
  onTestFinished(() => server.remove());
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
    const enough = acknowledged.size + 3 + (random() % 27);
    const senders = SENDERS.map((size) => keepUploading(team, size, acknowledged));
    // With uploads in flight.
    await vi.waitUntil(() => acknowledged.size >= enough && resumers.at(-1)?.isInFlight, {
      timeout: 100_000,
      interval: 1,
    });
    serverState.down();
    await server.kill();
    for (const count of await Promise.all(senders)) sent += count;
    brokenOff += server.sql(
      "D1Database",
      `select file_id from uploads where status = 'receiving' and secret_hash is null and team_id = '${team.teamId}'`,
    ).length;
    // The recovery job cleans up dead form uploads only after hours.
    server.sql("D1Database", "update files set due_at = 0, lease_ends_at = 0 where due_at is not null");
    server.sql("D1Database", "update uploads set due_at = 0 where secret_hash is null");
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
  await server.restart();
  // The webhook reports every completed file.
  await vi.waitUntil(() => listed.every(({ _id: id }) => completed().has(id)), { timeout: 100_000, interval: 50 });
  // Interrupted uploads leave neither rows nor objects.
  expect((await team.call("GET", "/docs/v1/usage")).body.data.files).toBe(listed.length);
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
