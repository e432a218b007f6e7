import { once } from "node:events";
import { appendFileSync, globSync, readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { facts } from "../audio/facts.ts";
import { noise, sha256 } from "../support/bytes.ts";
import { processed, upload } from "../support/client.ts";
import { clonePreparedProject } from "../support/project.ts";
import { Server, type TestTeam } from "../support/server.ts";
import { exhaustive, isExhaustive } from "../support/tiers.ts";

/* One real server over HTTP: what it stores and serves, and bodies that fetch can't send. */

/** The server's timeout of a stalled upload. Even on a slow machine, only uploads that stall on purpose reach it. */
const IDLE_SECONDS = 15;
/** Its limit of a form upload: the real one, or one that is reached sooner. */
const LIMIT_BYTES = isExhaustive ? 100_000_000 : 25_000_000;
/** The pause between two pieces of a slow upload, far shorter than the timeout. */
const PIECE_MILLISECONDS = 500;

let server: Server;
let team: TestTeam;
/** These wait for the timeout while the other tests run. */
let stall: ReturnType<typeof stallBesideSlow>;
let tooLong: Promise<OpenUpload>;

beforeAll(async () => {
  // Otherwise wrangler reads the rest of a rejected body before it sends the response. Production doesn't.
  const env = { WRANGLER_DISABLE_REQUEST_BODY_DRAINING: "true" };
  const vars = ["--var", `UPLOAD_IDLE_SECONDS:${IDLE_SECONDS}`, "--var", "EMAIL_FROM:accounts@example.com"];
  vars.push("--var", "PUBLIC_URL:https://files.example.com", "--var", `MAX_UPLOAD_BYTES:${LIMIT_BYTES}`);
  const folder = await clonePreparedProject();
  appendFileSync(join(folder, "wrangler.toml"), '\n[[send_email]]\nname = "EMAIL"\n');
  server = await Server.start(vars, env, { folder });
  team = await server.newTeam();
  stall = stallBesideSlow();
  tooLong = uploadTooLong();
});
afterAll(() => server?.remove());

const usageOf = async ({ call }: TestTeam) => (await call("GET", "/docs/v1/usage")).body.data;
const sample = (file: string) => readFileSync(join(import.meta.dirname, "../audio", file));
const bytesOf = async (answer: Response) => Buffer.from(await answer.arrayBuffer());

/** Returns the name that a client saves a download under (RFC 6266: `filename*` wins over `filename`). */
function savedName(answer: Response): string {
  const header = answer.headers.get("Content-Disposition") ?? "";
  expect(header).toMatch(/^attachment; filename="[\x20-\x7e]*"; filename\*=UTF-8''[\w.~%!#$&+^`|-]*$/);
  return decodeURIComponent(header.replace(/.*filename\*=UTF-8''/, ""));
}

describe("a file", () => {
  const some = facts.filter(({ file }) => ["tone-vbr.mp3", "pixel.png"].includes(file));
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

  exhaustive("of 20 MB of noise is downloaded unchanged", async () => {
    const bytes = noise(20_000_000);
    const id = await upload(team, "noise.bin", bytes);
    expect(await processed(team, id)).toMatchObject({ status: "completed", fileType: "other file", audio: null });
    const opened = await fetch(await team.sign(id));
    expect(bytes.equals(await bytesOf(opened))).toBe(true);
  });
});

describe("an email", () => {
  /** The emails that the local server has written so far. */
  const mails = () =>
    globSync("**/email-text/*.txt", { cwd: join(server.folder, ".wrangler") }).map((file) =>
      readFileSync(join(server.folder, ".wrangler", file), "utf8"),
    );
  const post = (path: string, json: object, token?: string) => server.call("POST", `/auth/v1/${path}`, { json, token });

  test("brings the link of an invitation, and of a forgotten password, each of which logs in once", async () => {
    const { teamId, token } = team;
    const email = "ada@example.com";
    const { _id } = (await post("users", { email }, token)).body.data;
    // A user gets one such mail in five minutes, so another one forgets the password.
    const forgetful = "grace@example.com";
    const { _id: forgetfulId } = (await post("users", { email: forgetful, password: "old horse battery" }, token)).body
      .data;
    const known = new Set<string>();
    const nextLink = async (id: string): Promise<string> => {
      const text = await vi.waitUntil(() => mails().find((mail) => !known.has(mail)), { timeout: 60_000 });
      known.add(text);
      const [link = ""] = /https:\S+/.exec(text) ?? [];
      expect(link).toMatch(new RegExp(`^https://files\\.example\\.com/console/invitation#stow_in_${id}\\.`));
      return new URL(link).hash.slice(1);
    };
    const invited = await post(`users/${_id}/invitations`, { email: true }, token);
    expect(invited.body.data).toEqual({ sent: true });
    const use = async (link: string, email: string, password: string) => {
      const { body } = await post("invitations/accept", { token: link, password });
      expect((await server.call("GET", "/auth/v1/me", { token: body.data.key })).body.data).toMatchObject({ teamId });
      expect((await post("invitations/accept", { token: link, password })).code).toBe("token_invalid");
      expect((await post("login", { teamId, email, password })).status).toBe(200);
    };
    await use(await nextLink(_id), email, "correct horse battery");
    expect((await post("password/forgot", { teamId, email: forgetful })).status).toBe(200);
    expect((await post("password/forgot", { teamId, email: "unknown@example.com" })).status).toBe(200);
    await use(await nextLink(forgetfulId), forgetful, "staple horse battery");
    expect(known.size).toBe(2);
    expect(mails()).toHaveLength(2);
  });
});

describe("a signed URL", () => {
  let id: string;
  const bytes = sample("tone-vbr.mp3");
  beforeAll(async () => {
    id = await upload(team, "signed.mp3", bytes);
  });

  test.each([
    ["a middle", "bytes=1000-1999", [1000, 2000]],
    ["the last bytes", "bytes=-17", [bytes.length - 17, bytes.length]],
  ])("returns %s of the file by Range", async (_, range, [from, to]) => {
    const opened = await fetch(await team.sign(id), { headers: { Range: range } });
    expect(opened.status).toBe(206);
    expect(opened.headers.get("Content-Range")).toBe(`bytes ${from}-${Number(to) - 1}/${bytes.length}`);
    expect(bytes.subarray(from, to).equals(await bytesOf(opened))).toBe(true);
  });

  // links/signed-urls shows what the signature covers. This shows that the store checks it.
  test("with a changed signature is rejected", async () => {
    const url = await team.sign(id);
    const opened = await fetch(`${url.slice(0, -1)}${url.endsWith("1") ? "2" : "1"}`);
    expect(opened.status).toBe(403);
    expect(await opened.text()).not.toContain("ID3");
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
  // The rules for names have their tests in files/files. These pass a real client, the store, and a download.
  test.each([
    ["accents, Chinese, signs and quotes", `Ünïcødé 录音 (1)+final's #3 100%25 "so"; *twice*.mp3`],
    ["a path and more than 200 bytes", `../../etc/${"ü".repeat(125)}a.mp3`, `${"ü".repeat(98)}.mp3`],
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

/** An upload that stalls, and one that began before it and sends a piece from time to time until the other is rejected. */
async function stallBesideSlow(): Promise<{ still: OpenUpload; slow: OpenUpload }> {
  const slow = await openUpload("Transfer-Encoding: chunked");
  await sendChunk(slow.socket, Buffer.from(PART));
  const still = await openUpload("Content-Length: 1000000");
  await send(still.socket, PART + "x".repeat(1000));
  let isRejected = false;
  const end = () => {
    isRejected = true;
  };
  still.answer.then(end, end);
  while (!isRejected) {
    await sleep(PIECE_MILLISECONDS);
    await sendChunk(slow.socket, Buffer.alloc(200_000, "slow but steady "));
  }
  await sendChunk(slow.socket, Buffer.from(END));
  await send(slow.socket, "0\r\n\r\n");
  return { still, slow };
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
    const { team, socket } = await openUpload("Content-Length: 24000000");
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
    const { team, socket, answer } = (await stall).still;
    expect(await answer).toMatch(/^HTTP\/1\.1 408 .*"code":"upload_timeout"/s);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("is rejected at the limit if it has no length and never ends", async () => {
    const { team, socket, answer } = await tooLong;
    expect(await answer).toMatch(/^HTTP\/1\.1 413 .*"code":"file_too_large"/s);
    socket.destroy();
    await expectNothingKept(team);
  });

  test("is stored if it is slow but never stalls", async () => {
    const { team, socket, answer } = (await stall).slow;
    expect(await answer).toMatch(/^HTTP\/1\.1 200 /);
    socket.destroy();
    expect((await team.call("GET", "/docs/v1/uploads")).body.data).toMatchObject([{ originalName: "a.bin" }]);
  });

  test("that is rejected leaves the server working for its team", async () => {
    const { team, socket, answer } = await openUpload(`Content-Length: ${2 * LIMIT_BYTES}`);
    await send(socket, PART);
    expect(await answer).toMatch(/^HTTP\/1\.1 413 /);
    socket.destroy();
    const id = await upload(team, "after.txt", "still here");
    expect(await (await fetch(await team.sign(id))).text()).toBe("still here");
  });
});

const RESUMABLE = "/docs/v1/uploads/resumable";

exhaustive("sixteen slow uploads at once complete, although the isolate's memory holds nine", async () => {
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
  const files = Array.from({ length: 16 }, () => noise(6 * 1024 * 1024));
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
