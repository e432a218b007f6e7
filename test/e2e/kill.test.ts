import { createHash, randomBytes, randomInt } from "node:crypto";
import { writeSync } from "node:fs";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { form, Server, type TestTeam } from "../support/server.ts";

/*
 * A real server is killed with everything that belongs to it while uploads run, and started again on the same state.
 * An answer of 200 is a promise that outlives it; whatever got no such answer is there whole, or not at all.
 */

const KILLS = 4;
/** At once. From one byte to several parts. */
const SENDERS = [1, 20_000, 300_000, 2_000_000, 9_000_000, 12_000_000];

let server: Server;
beforeAll(async () => {
  server = await Server.start();
});
afterAll(() => server?.remove());

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");

/** Uploads one file after another until the server is gone. Each name holds the digest of its bytes. */
async function keepUploading(team: TestTeam, size: number, acknowledged: Map<string, string>): Promise<number> {
  for (let sent = 1; ; sent++) {
    const bytes = randomBytes(size);
    // By chance they might begin as an MP3 does, and fail as one.
    bytes[0] = 0;
    const name = `${sha256(bytes)}.bin`;
    try {
      const answer = await team.fetch("/docs/v1/uploads", { method: "POST", body: form(name, bytes) });
      // The head of the answer is the promise; its body may be cut off.
      expect(answer.status).toBe(200);
      acknowledged.set(answer.headers.get("Location")?.split("/").at(-1) ?? "", name);
      await answer.arrayBuffer();
    } catch (error) {
      if (error instanceof TypeError) return sent;
      throw error;
    }
  }
}

interface Listed {
  _id: string;
  originalName: string;
}

async function listAll(team: TestTeam): Promise<Listed[]> {
  const files: Listed[] = [];
  for (let page = 1; ; page++) {
    const { data } = await team.read(`/docs/v1/uploads?limit=100&page=${page}`);
    files.push(...data);
    if (data.length < 100) return files;
  }
}

test(`${KILLS} kills lose no upload that was acknowledged, and leave none half done`, {
  timeout: 600_000,
}, async () => {
  const team = await server.newTeam();
  const acknowledged = new Map<string, string>();
  let sent = 0;
  let brokenOff = 0;

  for (let kill = 1; kill <= KILLS; kill++) {
    const enough = acknowledged.size + randomInt(3, 30);
    const senders = SENDERS.map((size) => keepUploading(team, size, acknowledged));
    // In full flow, at a moment of chance.
    await vi.waitUntil(() => acknowledged.size >= enough, { timeout: 100_000, interval: 1 });
    await server.kill();
    for (const count of await Promise.all(senders)) sent += count;
    brokenOff += server.sql("D1Database", "select id from files where status = 'receiving'").length;
    // Stands in for the day that recovery waits before it takes an upload for dead.
    server.sql("D1Database", "update files set due_at = 0 where due_at is not null");
    await server.restart();
    await server.recover();
  }

  const listed = await listAll(team);
  for (const { _id: id } of listed) {
    const { status, failure } = await team.processed(id);
    expect({ status, failure }).toEqual({ status: "completed", failure: null });
  }

  const ids = new Set(listed.map((file) => file._id));
  const lost = [...acknowledged.keys()].filter((id) => !ids.has(id));
  // Not by console.log, which the test command shows of failing tests alone.
  writeSync(
    process.stdout.fd,
    `kills: ${KILLS}, uploads sent: ${sent}, acknowledged: ${acknowledged.size}, lost: ${lost.length}, ` +
      `dead midway: ${brokenOff}, stored without an answer: ${listed.length - acknowledged.size + lost.length}\n`,
  );
  expect(lost).toEqual([]);

  for (const { _id: id, originalName } of listed) {
    const opened = await fetch(await team.sign(id));
    expect(opened.status).toBe(200);
    expect(`${sha256(new Uint8Array(await opened.arrayBuffer()))}.bin`).toBe(originalName);
    expect([originalName, undefined]).toContain(acknowledged.get(id));
  }
  // What broke off has left nothing behind, neither row nor object.
  expect((await team.read("/docs/v1/usage")).data.files).toBe(listed.length);
  await server.stop();
  const objects = server.sql("R2Bucket", "select key from _mf_objects").map((object) => object.key);
  expect(objects.sort()).toEqual(listed.map((file) => `${team.teamId}/${file._id}-${file.originalName}`).sort());
});
