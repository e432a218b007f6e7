import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { Server, type TestTeam } from "../support/server.ts";

/** Bodies that fetch would not send: they lie about their length, break off, or stand still. */
let server: Server;
let team: TestTeam;
beforeAll(async () => {
  // Otherwise wrangler reads what a refusal left unread before it lets the answer go. Production does not.
  const env = { WRANGLER_DISABLE_REQUEST_BODY_DRAINING: "true" };
  server = await Server.start(["--var", "UPLOAD_IDLE_SECONDS:2"], env);
});
afterAll(() => server?.remove());

const LIMIT_BYTES = 100_000_000;
const BOUNDARY = "----end-to-end";
const PART = `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n`;
const END = `\r\n--${BOUNDARY}--\r\n`;

/** Opens a connection and sends an upload's head, with the header lines given. */
async function openUpload(...headers: string[]): Promise<{ socket: Socket; answer: Promise<string> }> {
  team = await server.newTeam();
  const { hostname, port } = new URL(server.url);
  const socket = connect(Number(port), hostname);
  const answer = new Promise<string>((resolve, reject) => {
    let text = "";
    socket.on("data", (chunk) => {
      text += chunk.toString();
      // Every answer of ours is one JSON object.
      if (text.endsWith("}")) resolve(text);
    });
    socket.on("close", () => resolve(text));
    socket.on("error", (error) => (text === "" ? reject(error) : resolve(text)));
  });
  // Some tests never ask.
  answer.catch(() => undefined);
  const lines = [
    "POST /docs/v1/uploads HTTP/1.1",
    `Host: ${hostname}:${port}`,
    `Authorization: Bearer ${team.token}`,
    `Content-Type: multipart/form-data; boundary=${BOUNDARY}`,
    ...headers,
  ];
  socket.write(`${lines.join("\r\n")}\r\n\r\n`);
  return { socket, answer };
}

/** Sends more, as fast as the server takes it. */
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

/** Neither listed nor counted: rows are counted in whatever state they are. */
async function expectNothingKept(): Promise<void> {
  await vi.waitUntil(async () => (await team.read("/docs/v1/usage")).data.files === 0, { timeout: 20_000 });
  expect((await team.read("/docs/v1/usage")).data).toMatchObject({ files: 0, bytes: 0 });
  expect((await team.read("/docs/v1/uploads")).data).toEqual([]);
}

async function hasRow(): Promise<void> {
  await vi.waitUntil(async () => (await team.read("/docs/v1/usage")).data.files === 1, { timeout: 10_000 });
}

test("a Content-Length over the limit is refused before the body is sent", async () => {
  const { socket, answer } = await openUpload("Content-Length: 200000000");
  await send(socket, PART);
  expect(await answer).toMatch(/^HTTP\/1\.1 413 .*"code":"file_too_large"/s);
  socket.destroy();
  await expectNothingKept();
});

test("a body of no stated length is refused at the limit, while it is still being sent", async () => {
  const { socket, answer } = await openUpload("Transfer-Encoding: chunked");
  let isAnswered = false;
  answer.finally(() => {
    isAnswered = true;
  });
  await sendChunk(socket, Buffer.from(PART));
  const zeros = Buffer.alloc(1_000_000);
  for (let sent = 0; sent < LIMIT_BYTES + 4 * zeros.length && !isAnswered; sent += zeros.length) {
    await sendChunk(socket, zeros);
  }
  expect(await answer).toMatch(/^HTTP\/1\.1 413 .*"code":"file_too_large"/s);
  socket.destroy();
  await expectNothingKept();
});

test("a client that goes away in the middle of a small file leaves nothing", async () => {
  const { socket } = await openUpload("Content-Length: 1000000");
  await send(socket, PART + "x".repeat(100_000));
  await hasRow();
  socket.destroy();
  await expectNothingKept();
});

test("a client that goes away when parts are stored already leaves nothing", async () => {
  const { socket } = await openUpload("Content-Length: 40000000");
  await send(socket, PART);
  await send(socket, Buffer.alloc(20_000_000));
  await hasRow();
  socket.destroy();
  await expectNothingKept();
});

test("a client that closes a chunked body before its last boundary leaves nothing", async () => {
  const { socket, answer } = await openUpload("Transfer-Encoding: chunked");
  await sendChunk(socket, Buffer.from(`${PART}some bytes`));
  await send(socket, "0\r\n\r\n");
  expect(await answer).toMatch(/^HTTP\/1\.1 400 .*"code":"malformed_multipart"/s);
  socket.destroy();
  await expectNothingKept();
});

test("a body that stands still is given up with 408", async () => {
  const { socket, answer } = await openUpload("Content-Length: 1000000");
  await send(socket, PART + "x".repeat(1000));
  expect(await answer).toMatch(/^HTTP\/1\.1 408 .*"code":"upload_timeout"/s);
  socket.destroy();
  await expectNothingKept();
});

test("a body that is slow but moves on is taken", async () => {
  const pieces = Array.from({ length: 16 }, () => "slow but steady ".repeat(128));
  const { socket, answer } = await openUpload(`Content-Length: ${PART.length + pieces.join("").length + END.length}`);
  await send(socket, PART);
  for (const piece of pieces) {
    // The pace of the client is what is tested: all together take longer than may pass between two.
    await new Promise((done) => setTimeout(done, 150));
    await send(socket, piece);
  }
  await send(socket, END);
  expect(await answer).toMatch(/^HTTP\/1\.1 200 /);
  socket.destroy();
  expect((await team.read("/docs/v1/uploads")).data).toMatchObject([{ originalName: "a.bin" }]);
});

test("an upload under way is not listed", async () => {
  const { socket } = await openUpload("Content-Length: 1000000");
  await send(socket, PART + "x".repeat(1000));
  await hasRow();
  expect((await team.read("/docs/v1/uploads")).data).toEqual([]);
  socket.destroy();
  await expectNothingKept();
});

test("the server goes on as before after all of this", async () => {
  team = await server.newTeam();
  const id = await team.upload("after.txt", Buffer.from("still here"));
  expect(await (await fetch(await team.sign(id))).text()).toBe("still here");
});
