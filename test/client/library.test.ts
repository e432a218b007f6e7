import { execFile } from "node:child_process";
import { getEventListeners, once } from "node:events";
import { appendFileSync, mkdtempSync, openAsBlob, readFileSync, rmSync, truncateSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { inspect, promisify } from "node:util";
import { afterEach, describe, expect, onTestFinished, test, vi } from "vitest";
import {
  type FetchFunction,
  type FileStatus,
  type SavedUpload,
  type StoredFile,
  Stowage,
  StowageError,
  type UploadOptions,
} from "../../src/client/index.ts";
import { SignatureError, verifyMessage } from "../../src/client/signatures.ts";
import { MEBIBYTE, sha256 } from "../support/bytes.ts";
import { bytesOf, collect, newTeam, url } from "../support/team.ts";
import { exhaustive, isExhaustive } from "../support/tiers.ts";
import { cutShort, hangUp, json, openLine, refusal, scripted } from "./support.ts";

const USAGE = { message: "Usage of the team.", data: { files: 0, bytes: 0, maxFiles: 1, maxBytes: 1 } };
/** Above the size from which uploads are resumable. */
const LARGE = new File([new Uint8Array(9 * MEBIBYTE)], "x");
/** The headers of an interrupted upload of this file. */
const OFFSET = { "Tus-Resumable": "1.0.0", "Upload-Length": LARGE.size, "Upload-Offset": "5" };
const USER = { email: "a@example.com", password: "12345678" };

afterEach(() => vi.restoreAllMocks());

/** Starts a resumable upload, and aborts it once its URL is known. @returns the URL */
async function begin({ files }: Stowage, file: File, options: UploadOptions = {}): Promise<string> {
  const stop = new AbortController();
  let uploadUrl = "";
  const onResumeUrl = (started: string) => {
    uploadUrl = started;
    stop.abort(new Error("enough"));
  };
  const begun = files.upload(file, { resumableFromBytes: 1, signal: stop.signal, onResumeUrl, ...options });
  await expect(begun).rejects.toThrow("enough");
  return uploadUrl;
}

function messageOf(run: () => unknown): string {
  try {
    run();
  } catch (error) {
    return (error as Error).message;
  }
  return "";
}

/** All methods of the client and its resources, with the number of their arguments. */
function methodsOf(stowage: Stowage) {
  const owners = Object.entries(stowage).filter(([name]) => name !== "connection");
  const methods = [stowage, ...owners.map(([, owner]) => owner)]
    .filter((owner) => typeof owner === "object")
    .flatMap((owner) =>
      Object.getOwnPropertyNames(Object.getPrototypeOf(owner))
        .filter((name) => name !== "constructor")
        .map((name) => [name, (...args: unknown[]) => owner[name](...args)] as const),
    )
    .map(([name, method]) => {
      const [, count] = / takes (\d) /.exec(messageOf(() => method(...Array(9)))) ?? [];
      return [name, method, Number(count)] as const;
    });
  expect(methods.length).toBeGreaterThan(50);
  return methods;
}

describe("files", () => {
  test.each([
    ["below 8 MB is sent as a form", 70_000, 1],
    ["above 8 MB is sent as a resumable upload", 9 * MEBIBYTE, 2],
  ])("a file %s, listed, processed, downloaded completely and in part, and deleted", async (_, size, requests) => {
    const { stowage } = await newTeam();
    const bytes = bytesOf(size);
    const progress: number[] = [];
    const { id } = await stowage.files.upload(new File([bytes], "naïve name.bin"), {
      onProgress: (sent, total) => {
        expect(total).toBe(size);
        progress.push(sent);
      },
    });
    expect(progress.at(-1)).toBe(size);
    expect(progress).toEqual([...new Set(progress)].toSorted((a, b) => a - b));
    expect(progress.length).toBeGreaterThan(requests - 1);
    const file = await stowage.files.waitUntilProcessed(id);
    expect(file).toMatchObject({ status: "completed", size, originalName: "naïve name.bin" });
    expect(file.sha256).toBe(sha256(bytes));
    const whole = await stowage.files.download(id);
    expect(Buffer.from(await whole.arrayBuffer()).equals(bytes)).toBe(true);
    for (const from of [size - 100, size]) {
      const part = await stowage.files.download(id, { from });
      expect([part.status, Buffer.from(await part.arrayBuffer()).equals(bytes.subarray(from))]).toEqual([206, true]);
    }
    const beyond = stowage.files.download(id, { from: size + 1 });
    await expect(beyond).rejects.toMatchObject({ name: "StowageError", code: "range_not_satisfiable", status: 416 });
    for (const from of [-1, 0.5, Number.NaN])
      await expect(stowage.files.download(id, { from })).rejects.toThrow(TypeError);
    expect(await stowage.usage()).toMatchObject({ files: 1, bytes: size });
    await stowage.files.delete(id);
    await expect(stowage.files.get(id)).rejects.toMatchObject({ code: "not_found", status: 404 });
  });

  test("a waveform is null until it is set, is rounded to bytes, and is null again without its file", async () => {
    const { stowage } = await newTeam();
    const { id } = await stowage.files.upload(new File(["text"], "a.txt"));
    expect(await stowage.files.waveform(id)).toBeNull();
    const sent = [Array(16).fill(0.5), Array(16).fill(-1)];
    const kept = [Array(16).fill(0.504), Array(16).fill(-1)];
    expect(await stowage.files.setWaveform(id, sent)).toEqual(kept);
    expect(await stowage.files.waveform(id)).toEqual(kept);
    await expect(stowage.files.setWaveform(id, [[2]])).rejects.toMatchObject({ code: "invalid_input" });
    await stowage.files.delete(id);
    expect(await stowage.files.waveform(id)).toBeNull();
    await expect(stowage.files.setWaveform(id, sent)).rejects.toMatchObject({ code: "not_found" });
    const wrong = new Stowage({ url, key: "stow_sk_wrong" });
    await expect(wrong.files.waveform(id)).rejects.toMatchObject({ code: "token_invalid" });
  });

  test("a transcript is null until it is set, is returned as it was sent, and can be deleted", async () => {
    const { stowage } = await newTeam();
    const { id } = await stowage.files.upload(new File(["text"], "a.txt"));
    expect(await stowage.files.getTranscript(id)).toBeNull();
    const vtt = "WEBVTT\n\n00:00.000 --> 00:01.000\nGrüezi 🎙\n";
    const size = Buffer.byteLength(vtt);
    const stored = await stowage.files.setTranscript(id, vtt, { language: "gsw" });
    expect(stored).toMatchObject({ language: "gsw", size });
    expect(await stowage.files.getTranscript(id)).toBe(vtt);
    expect((await stowage.files.get(id)).transcript).toEqual(stored);
    const wrong = stowage.files.setTranscript(id, "WEBVTT\n00:00.000 --> 00:01.000");
    await expect(wrong).rejects.toMatchObject({ code: "invalid_input", message: expect.stringContaining("Line 1") });
    await stowage.files.deleteTranscript(id);
    expect(await stowage.files.getTranscript(id)).toBeNull();
    await expect(stowage.files.setTranscript("", vtt)).rejects.toThrow('The ID is ""');
    const other = new Stowage({ url, key: "stow_sk_wrong" });
    await expect(other.files.getTranscript(id)).rejects.toMatchObject({ code: "token_invalid" });
  });

  test("rejects surplus arguments, which would have no effect", () => {
    const stowage = new Stowage({ url, key: null });
    for (const [name, method] of methodsOf(stowage))
      expect(() => method(...Array(9)), name).toThrow(new RegExp(`^${name} takes [1-4] arguments, not 9`));
    // A default value would make `length`, by which arguments are counted, too small.
    const files = [
      "accounts",
      "events",
      "files",
      "links",
      "stowage",
      "teams",
      "trash",
      "unfinished-uploads",
      "webhooks",
    ];
    for (const name of files)
      expect(readFileSync(join(import.meta.dirname, `../../src/client/${name}.ts`), "utf8")).not.toMatch(
        /^ {2}(?!constructor)[\w* ]*\([^;{]*= \{\}[,)]|^ {4}\w+: [^;=]+ = \{\},$/m,
      );
    // Such as an item with its index and its list.
    const get = stowage.files.get.bind(stowage.files) as (...args: unknown[]) => unknown;
    expect(() => ["a"].map(get)).toThrow("get takes 2 arguments, not 3.");
  });

  test("takes options last, also of a transcript, a session and an invitation", async () => {
    const { stowage, requests } = await scripted(json(200, { data: { _id: "1" } }));
    const options = { headers: { "X-Test": "options" } };
    await stowage.files.setTranscript("1", "WEBVTT", { language: "en" }, options);
    await stowage.sessions.create({ expiresIn: 300 }, options);
    await stowage.describeInvitation({ token: "token" }, options);
    expect(requests.map(({ headers }) => headers["x-test"])).toEqual(["options", "options", "options"]);
  });

  test.each([
    [5, '"5"'],
    ["5", '"5"'],
    ['"5"', '"5"'],
    ['W/"5"', '"5"'],
  ])("sends version %j as If-Match: %s", async (version, tag) => {
    const { stowage, requests } = await scripted(json(200, { data: { _id: "1" } }));
    await stowage.users.update("1", { firstName: "Ada" }, { version });
    expect(requests[0]?.headers["if-match"]).toBe(tag);
  });

  test.each(["latest", "", "*", '"5", "6"', -1, 1.5])("rejects version %j without a request", async (version) => {
    const { stowage, requests } = await scripted(json(200, { data: { _id: "1" } }));
    await expect(stowage.users.update("1", {}, { version })).rejects.toThrow(`The version is ${version}.`);
    expect(requests).toEqual([]);
  });

  test.each([Number.POSITIVE_INFINITY, 2 ** 31])("waits for a response with a timeout of %d", async (timeout) => {
    const { stowage } = await scripted((_, response) => setImmediate(() => response.end('{"data":{"bytes":1}}')));
    expect(await stowage.usage({ timeout, maxRetries: 0 })).toEqual({ bytes: 1 });
  });

  test.each([
    ["has been deleted meanwhile", 404, "not_found"],
    ["comes whole, although it should continue", 200, "unexpected_response"],
  ])("a download of a file that %s fails", async (_, status, code) => {
    const signed = ({ headers }: IncomingMessage) => ({ signedUrl: `http://${headers.host}/bytes` });
    const { stowage } = await scripted(
      (request, response) => response.end(JSON.stringify(signed(request))),
      (_, response) => response.writeHead(status).end("<Error/>"),
    );
    await expect(stowage.files.download("1", { from: 5 })).rejects.toMatchObject({ code, status });
  });

  test("waitUntilProcessed resolves for an upload token, which may read only the status", async () => {
    const { stowage } = await newTeam();
    const { token } = await stowage.files.createUploadToken();
    const { files } = new Stowage({ url, key: token });
    const { id } = await files.upload(new File(["text"], "a.txt"));
    const found = await files.waitUntilProcessed<FileStatus>(id);
    expect(found).toEqual({ _id: id, id, status: "completed", failure: null });
    const { id: foreign } = await stowage.files.upload(new File(["text"], "a.txt"));
    await expect(files.waitUntilProcessed(foreign)).rejects.toMatchObject({ name: "StowageError" });
  });

  test.each(["completed", "failed"])("waitUntilProcessed resolves when the file is %s", async (status) => {
    const statuses = ["pending", "processing", status].map((status) => json(200, { data: { status } }));
    const { stowage, requests } = await scripted(...statuses);
    expect(await stowage.files.waitUntilProcessed("1")).toEqual({ status });
    expect(requests).toHaveLength(3);
  });

  test("a file is held and released, and the trash of a service without one is empty", async () => {
    const { stowage } = await newTeam();
    const { files, trash } = stowage;
    const { id } = await files.upload(new File(["text"], "a.txt"));
    expect(await files.hold(id, "case 1")).toMatchObject({ reason: "case 1" });
    await expect(files.delete(id, { permanent: true })).rejects.toMatchObject({ code: "file_held" });
    await files.release(id);
    await expect(trash.restore(id)).rejects.toMatchObject({ code: "not_in_trash" });
    await expect(trash.delete(id)).rejects.toMatchObject({ code: "not_in_trash" });
    await files.delete(id);
    expect(await collect(trash.list())).toEqual([]);
    expect(await trash.setRetention(30)).toEqual({ days: 30 });
  });

  test("a list follows its pages with its filters, from any page and repeatedly, and stops with its reader", async () => {
    const { stowage } = await newTeam();
    const newestFirst = ["b.txt", "a3.txt", "a2.txt", "a1.txt"];
    for (const name of newestFirst.toReversed()) await stowage.files.upload(new File(["text"], name));
    const names = (files: StoredFile[]) => files.map((file) => file.originalName);
    const list = stowage.files.list({ limit: 1 });
    for (const _ of [1, 2]) expect(names(await collect(list))).toEqual(newestFirst);
    expect(names(await collect(stowage.files.list({ limit: 2, name: "a" })))).toEqual(["a1.txt", "a2.txt", "a3.txt"]);
    expect(await collect(list, 2)).toHaveLength(2);
    for (const limit of [0, 1, 3, 9]) {
      const found = await stowage.files.list({ limit: 2 }).toArray({ limit });
      expect(names(found)).toEqual(newestFirst.slice(0, limit));
    }
    const first = await stowage.files.list({ name: "a", limit: 2 });
    expect(names(first.items)).toEqual(["a1.txt", "a2.txt"]);
    const second = await stowage.files.list({ name: "a", limit: 2 }).page(first.next ?? "");
    expect({ names: names(second.items), next: second.next }).toEqual({ names: ["a3.txt"], next: undefined });
    for (const name of ["one", "two"]) await stowage.keys.create({ name });
    expect((await stowage.keys.list({ limit: 2 })).items.map(({ name }) => name)).toEqual(["two", "one"]);
  });

  test("files are uploaded with properties, found by them, and changed one by one and in batches", async () => {
    const { stowage } = await newTeam();
    const { files } = stowage;
    const properties = { folder: "a/b", reference: "r", tags: ["x", "é"], metadata: { n: 1 } };
    const ids: string[] = [];
    for (const resumableFromBytes of [1, 100]) {
      ids.push((await files.upload(new File(["text"], "a.txt"), { properties, resumableFromBytes })).id);
    }
    const [first = "", second = ""] = ids;
    expect(await files.get(first)).toMatchObject({ ...properties, name: "a.txt" });
    expect((await collect(files.list({ folder: "a/b", tag: "é" }))).map(({ _id }) => _id)).toEqual([second, first]);
    await files.setTranscript(second, "WEBVTT\n\n00:00.000 --> 00:01.000\nHm.\n");
    expect(await files.list({ include: "metadata" }).toArray({ limit: 9 })).toEqual([
      await files.get(second),
      await files.get(first),
    ]);
    expect((await collect(files.list({ hasTranscript: true }))).map(({ id }) => id)).toEqual([second]);
    expect((await collect(files.list({ hasTranscript: false, tag: "x" }))).map(({ id }) => id)).toEqual([first]);
    expect(await collect(files.folders())).toEqual(["a"]);
    expect(await collect(files.folders({ under: "a" }))).toEqual(["a/b"]);

    const { name, __v: version } = await files.update(first, { name: "B.txt", reference: null });
    expect(name).toBe("B.txt");
    expect((await files.list({ search: "b.T" }).toArray({ limit: 5 })).map(({ _id }) => _id)).toEqual([first]);
    expect(await files.update(first, { folder: "c" }, { version })).toMatchObject({ folder: "c", reference: null });
    await expect(files.update(first, { folder: "d" }, { version })).rejects.toMatchObject({ code: "version_mismatch" });

    const unknown = "0".repeat(24);
    expect(await files.batch({ action: "move", ids: [second, unknown], folder: "c" })).toEqual([
      { _id: second, id: second, ok: true },
      { _id: unknown, id: unknown, ok: false, code: "not_found" },
    ]);
    expect(await collect(files.folders())).toEqual(["c"]);
    expect(await files.batch({ action: "delete", ids })).toEqual(ids.map((id) => ({ _id: id, id, ok: true })));
  });

  test("an upload of anything else than bytes fails with an error that names the remedy", async () => {
    const { files } = new Stowage({ url, key: null });
    for (const input of [undefined, 5, {}]) {
      await expect(files.upload(input as unknown as Blob)).rejects.toThrow("upload takes a Blob, bytes");
    }
    await expect(files.upload(new Blob().stream())).rejects.toThrow("needs its `size`");
    for (const path of ["/missing.mp3", tmpdir()]) {
      const message = expect.stringContaining(`Can't read ${path}: `);
      await expect(files.upload(path)).rejects.toMatchObject({
        name: "StowageError",
        code: "file_unreadable",
        message,
      });
    }
  });

  test.each([5000, (isExhaustive ? 23 : 9) * MEBIBYTE])(
    "a path and a stream of %i bytes are uploaded",
    async (size) => {
      const { key, stowage } = await newTeam();
      const bytes = bytesOf(size);
      const folder = mkdtempSync(join(tmpdir(), "stowage path "));
      writeFileSync(join(folder, "song.bin"), bytes);
      const line = await openLine("cut", 6 * MEBIBYTE, 3);
      const { files } = new Stowage({ url: line.url, key });
      const { id: first } = await files.upload(join(folder, "song.bin"));
      expect(await stowage.files.waitUntilProcessed(first)).toMatchObject({ originalName: "song.bin", size });
      for (const stream of [new Blob([bytes]).stream(), Readable.from([bytes.subarray(0, 100), bytes.subarray(100)])]) {
        const { id } = await files.upload(stream, { size, name: "stream.bin" });
        expect(await stowage.files.waitUntilProcessed(id)).toMatchObject({ sha256: sha256(bytes) });
      }
      rmSync(folder, { recursive: true });
    },
  );

  test.each([10, 9 * MEBIBYTE])("a failed upload of a stream of %i bytes leaves nothing behind", async (size) => {
    const { stowage } = await newTeam();
    for (const actual of [size - 1, size + 1]) {
      const upload = stowage.files.upload(new Blob([bytesOf(actual)]).stream(), { size });
      await expect(upload).rejects.toMatchObject({ code: "file_changed", message: /^The stream has/ });
    }
    const stop = new AbortController();
    const cancel = vi.fn();
    let pulls = 0;
    // The source waits for ever after its first chunk.
    const pull = (controller: ReadableStreamDefaultController) => {
      if (pulls++ === 0) return controller.enqueue(new Uint8Array(Math.min(size - 1, 6 * MEBIBYTE)));
      stop.abort(new Error("enough"));
      return new Promise<void>(() => {});
    };
    const waiting = stowage.files.upload(new ReadableStream({ pull, cancel }), { size, signal: stop.signal });
    await expect(waiting).rejects.toThrow("enough");
    expect(cancel).toHaveBeenCalledOnce();
    // An abort does not wait for the service.
    await vi.waitUntil(async () => (await collect(stowage.unfinishedUploads.list())).length === 0);
    const broken = new ReadableStream({ pull: (controller) => controller.error(new Error("The disk is gone.")) });
    await expect(stowage.files.upload(broken, { size })).rejects.toThrow("The disk is gone.");
    expect(await stowage.files.list().toArray({ limit: 1 })).toEqual([]);
  });

  test.each([10, 9 * MEBIBYTE])("a stream of %i bytes that stays open is uploaded, and canceled", async (size) => {
    const { stowage } = await newTeam();
    const bytes = bytesOf(size);
    const cancel = vi.fn();
    let pulls = 0;
    const pull = (controller: ReadableStreamDefaultController) => {
      if (pulls++ > 0) return new Promise<void>(() => {});
      controller.enqueue(bytes);
    };
    const { id } = await stowage.files.upload(new ReadableStream({ pull, cancel }), { size });
    expect(await stowage.files.get(id)).toMatchObject({ sha256: sha256(bytes) });
    expect(cancel).toHaveBeenCalledOnce();
  });

  test("a given fetch sends every request, with the given headers for the service", async () => {
    const { key } = await newTeam();
    const requests: [string, string | null][] = [];
    const counting = (target: string, init: RequestInit) => {
      requests.push([new URL(target).pathname.split("/")[1] ?? "", new Headers(init.headers).get("X-Team")]);
      return fetch(target, init);
    };
    const { files } = new Stowage({ url, key, fetch: counting, headers: { "X-Team": "radio", authorization: "no" } });
    const progress: number[] = [];
    const options = { onProgress: (sentBytes: number) => progress.push(sentBytes) };
    const { id } = await files.upload(new File([bytesOf(9 * MEBIBYTE)], "a.bin"), options);
    expect(progress.at(-1)).toBe(9 * MEBIBYTE);
    await files.upload(new File(["text"], "a.txt"));
    await (await files.download(id)).text();
    expect(requests.filter(([folder]) => folder === "docs").length).toBeGreaterThan(3);
    for (const [folder, header] of requests) expect(header).toBe(folder === "docs" ? "radio" : null);
  });

  test.each([
    ["one request below 8 MB", 7_999_999, ["POST"]],
    ["a creation and appending ones from 8 MB on", 8_000_000, ["POST", "PATCH"]],
  ])("an upload takes %s", async (_, size, expected) => {
    const { key } = await newTeam();
    const methods: string[] = [];
    const counting = (target: string, init: RequestInit) => {
      methods.push(init.method ?? "");
      return fetch(target, init);
    };
    const { files } = new Stowage({ url, key, fetch: counting });
    await files.upload(bytesOf(size), { store: new Map(), storeKey: "a" });
    expect([methods[0], ...new Set(methods.slice(1))]).toEqual(expected);
  });

  test("a resumable upload appends 256 KiB, then what the connection carries in 10 s, up to whole parts of 80 MiB", async () => {
    const appended: number[] = [];
    const { stowage } = await scripted(({ method, headers }, response) => {
      if (method === "POST") response.writeHead(201, { Location: "/docs/v1/uploads/resumable/1.2" });
      else {
        appended.push(Number(headers["content-length"]));
        const storedBytes = appended.reduce((sum, bytes) => sum + bytes, 0);
        response.writeHead(204, { "Upload-Offset": storedBytes, "Content-Location": "/docs/v1/uploads/1" });
      }
      setTimeout(() => response.end(), appended.length === 1 ? 500 : 0);
    });
    const size = 200 * MEBIBYTE;
    await stowage.files.upload(bytesOf(size), { name: "a.bin" });
    const [first, second = 0, ...others] = appended;
    expect(first).toBe(MEBIBYTE / 4);
    expect(second).toBeGreaterThan(MEBIBYTE / 4);
    expect(second).toBeLessThanOrEqual(5 * MEBIBYTE);
    expect(Math.max(...others)).toBeLessThanOrEqual(80 * MEBIBYTE);
    const ends = appended.map((_, i) => appended.slice(0, i + 1).reduce((sum, bytes) => sum + bytes, 0));
    const surplus = ends.slice(2, -1).map((end) => end % (5 * MEBIBYTE));
    expect(surplus.every((bytes, i) => bytes === 0 || (appended[i + 2] ?? 0) < 5 * MEBIBYTE)).toBe(true);
    expect(ends.at(-1)).toBe(size);
  });

  // In a separate process, because the memory of the test would count, too.
  exhaustive.each(["path", "stream", "Blob"])(
    "an upload of 1 GB by %s takes at most 100 MiB of memory",
    async (input) => {
      const size = 1_000_000_000;
      let storedBytes = 0;
      const sink = await scripted(({ method, headers }, response) => {
        if (method === "POST") response.writeHead(201, { Location: "/docs/v1/uploads/resumable/1.2" });
        else {
          storedBytes += Number(headers["content-length"]);
          response.writeHead(204, { "Upload-Offset": storedBytes, "Content-Location": "/docs/v1/uploads/1" });
        }
        response.end();
      });
      const folder = mkdtempSync(join(tmpdir(), "stowage large "));
      onTestFinished(() => rmSync(folder, { recursive: true }));
      const path = join(folder, "large.bin");
      writeFileSync(path, "");
      truncateSync(path, size);
      const program = `import { openAsBlob } from "node:fs";
        import { Stowage } from ${JSON.stringify(join(import.meta.dirname, "../../src/client/index.ts"))};
        const { files } = new Stowage({ url: "${sink.url}", key: null });
        const chunk = new Uint8Array(1_000_000);
        async function* stream() { for (let sent = 0; sent < ${size}; sent += chunk.length) yield chunk; }
        const input = { path: () => process.argv[1], stream, Blob: () => openAsBlob(process.argv[1]) }.${input};
        const idle = process.memoryUsage.rss();
        let peak = 0;
        const onProgress = () => { peak = Math.max(peak, process.memoryUsage.rss()); };
        await files.upload(await input(), { size: ${size}, onProgress });
        console.log(peak - idle);`;
      const run = promisify(execFile);
      const { stdout } = await run(process.execPath, ["--input-type=module", "-e", program, path]);
      expect(storedBytes).toBe(size);
      expect(Number(stdout)).toBeLessThanOrEqual(100 * MEBIBYTE);
      expect(Number(stdout)).toBeGreaterThan(0);
    },
  );

  test("a form upload whose response is lost is retried with the same key, and stored once", async () => {
    const { key, stowage } = await newTeam();
    const line = await openLine("drop the answer", 1000, 1);
    const { id } = await new Stowage({ url: line.url, key }).files.upload(new File([bytesOf(5000)], "once.bin"));
    expect(line.faults).toBe(1);
    expect((await collect(stowage.files.list())).map((file) => file._id)).toEqual([id]);
  });

  test("a file below 8 MB is stored once over connections that reset after each 3 MB, as a resumable upload", async () => {
    const { key, stowage } = await newTeam();
    const bytes = bytesOf(7_000_000);
    const line = await openLine("cut", 3_000_000);
    const store = new Map<string, SavedUpload>();
    const file = new File([bytes], "interview.bin");
    const { id } = await new Stowage({ url: line.url, key }).files.upload(file, { store });
    expect(line.faults).toBeGreaterThan(1);
    expect(await stowage.files.waitUntilProcessed(id)).toMatchObject({ sha256: sha256(bytes) });
    expect((await collect(stowage.files.list())).map(({ _id }) => _id)).toEqual([id]);
    expect(await collect(stowage.unfinishedUploads.list())).toEqual([]);
    expect(store.size).toBe(0);
  });

  test("a file below 8 MB that is too slow for one request continues as a resumable upload", async () => {
    const { stowage, requests } = await scripted(
      refusal(408, "upload_timeout"),
      (_, response) => void response.writeHead(201, { Location: "/docs/v1/uploads/resumable/1.2" }).end(),
      (_, response) =>
        void response.writeHead(204, { "Upload-Offset": 5, "Content-Location": "/docs/v1/uploads/1" }).end(),
    );
    expect(await stowage.files.upload(new File(["Hello"], "slow.txt"))).toEqual({ id: "1" });
    const sent = requests.map(({ method, url }) => `${method} ${url}`);
    expect(sent.slice(1)).toEqual(["POST /docs/v1/uploads/resumable", "PATCH /docs/v1/uploads/resumable/1.2"]);
  });

  test("a saved upload of a file below 8 MB that continued as a resumable one resumes at its stored offset", async () => {
    const { stowage } = await newTeam();
    const file = new File([bytesOf(5000)], "small.bin");
    const store = new Map<string, SavedUpload>();
    const uploadUrl = await begin(stowage, file, { store });
    const { id } = await stowage.files.upload(file, { store });
    expect(uploadUrl).toContain(`/${id}.`);
  });

  test("a resumable upload whose creation loses its response leaves no reservation", async () => {
    const { key, stowage } = await newTeam();
    const line = await openLine("drop the answer", 1, 1);
    const file = new File([bytesOf(1000)], "once.bin");
    const { id } = await new Stowage({ url: line.url, key }).files.upload(file, { resumableFromBytes: 0 });
    expect(line.faults).toBe(1);
    expect(await collect(stowage.unfinishedUploads.list())).toEqual([]);
    expect((await collect(stowage.files.list())).map((stored) => stored._id)).toEqual([id]);
    expect(await stowage.usage()).toMatchObject({ files: 1, bytes: 1000 });
  });

  test("a resumable upload continues as long as each connection stores some bytes", async () => {
    const { key, stowage } = await newTeam();
    const bytes = bytesOf(12 * MEBIBYTE);
    const line = await openLine("cut", 1.5 * MEBIBYTE);
    const { id } = await new Stowage({ url: line.url, key, maxRetries: 3 }).files.upload(new File([bytes], "cut.bin"));
    expect(line.faults).toBeGreaterThan(3);
    expect(await stowage.files.waitUntilProcessed(id)).toMatchObject({ sha256: sha256(bytes) });
  });

  test("an upload resumes from a store, which forgets it once the file is stored", async () => {
    const { key, stowage } = await newTeam();
    const store = new Map<string, SavedUpload>();
    const [small, large] = [new File(["x"], "small.txt"), new File([bytesOf(9 * MEBIBYTE)], "large.bin")];
    const line = await openLine("drop the answer", 100);
    const unlucky = new Stowage({ url: line.url, key, maxRetries: 0 });
    const storeKey = "small";
    await expect(unlucky.files.upload(small, { store, storeKey })).rejects.toMatchObject({ isTransient: true });
    const { id } = await stowage.files.upload(small, { store, storeKey });
    expect((await collect(stowage.files.list())).map(({ _id }) => _id)).toEqual([id]);
    const uploadUrl = await begin(stowage, large, { store });
    expect([...store.values()]).toEqual([{ idempotencyKey: expect.any(String), url: uploadUrl }]);
    const { id: resumed } = await stowage.files.upload(large, { store });
    expect(uploadUrl).toContain(`/${resumed}.`);
    expect(store.size).toBe(0);
    await expect(stowage.files.upload(new Blob(["x"]), { store })).rejects.toThrow("need a `storeKey`");
  });

  test("an upload is resumed only with a file of the same size, and only at the client's service", async () => {
    const { key, stowage } = await newTeam();
    const bytes = bytesOf(9 * MEBIBYTE);
    const uploadUrl = await begin(stowage, new File([bytes], "a.bin"));
    const other = new File([bytes.subarray(1)], "b.bin");
    await expect(stowage.files.upload(other, { resumeUrl: uploadUrl })).rejects.toMatchObject({ code: "file_changed" });
    const thief = await scripted(hangUp);
    const resumeUrl = uploadUrl.replace(url, thief.url);
    const { id } = await new Stowage({ url, key }).files.upload(new File([bytes], "a.bin"), { resumeUrl });
    expect(await stowage.files.waitUntilProcessed(id)).toMatchObject({ sha256: sha256(bytes) });
    expect(await collect(stowage.files.list())).toHaveLength(1);
    expect(thief.requests).toEqual([]);
  });

  test("an unfinished upload is listed, and canceled by its URL or its id, also twice", async () => {
    const { stowage } = await newTeam();
    const file = new File([bytesOf(9 * MEBIBYTE)], "a.bin");
    const uploadUrl = await begin(stowage, file);
    const [, uploadId] = /(\w+)\.\w+$/.exec(uploadUrl) ?? [];
    expect(await collect(stowage.unfinishedUploads.list())).toMatchObject([
      { _id: uploadId, name: "a.bin", size: file.size },
    ]);
    await stowage.unfinishedUploads.cancel(uploadUrl);
    expect(await collect(stowage.unfinishedUploads.list())).toEqual([]);
    await stowage.unfinishedUploads.cancel(uploadUrl.replace(url, ""));
    await begin(stowage, file);
    const [{ _id: id = "" } = {}] = await collect(stowage.unfinishedUploads.list());
    await stowage.unfinishedUploads.cancel(id);
    await stowage.unfinishedUploads.cancel(id);
    expect(await collect(stowage.unfinishedUploads.list())).toEqual([]);
    // The upload is gone, so a new one starts.
    const { id: restarted } = await stowage.files.upload(file, { resumeUrl: uploadUrl });
    expect(uploadUrl).not.toContain(restarted);
    await expect(stowage.unfinishedUploads.cancel(restarted)).rejects.toMatchObject({ code: "forbidden" });
    expect(await stowage.files.get(restarted)).toMatchObject({ size: file.size });
  });

  test("a link opens a file without a token until it is revoked, and only its creation contains the URLs", async () => {
    const { stowage } = await newTeam();
    const { id } = await stowage.files.upload(new File(["text"], "a.txt"));
    const expiresAt = new Date(Date.now() + 60_000).toISOString();
    const { url: linkUrl, pageUrl, embedUrl, ...link } = await stowage.links.create(id, { expiresAt, name: "b.txt" });
    expect(link).toMatchObject({ fileId: id, name: "b.txt", expiresAt });
    expect(await (await fetch(linkUrl)).text()).toBe("text");
    for (const page of [pageUrl, embedUrl]) expect((await fetch(page)).status).toBe(200);
    expect(await stowage.links.list(id).toArray()).toEqual([link]);
    await stowage.links.delete(link._id);
    expect((await fetch(linkUrl)).status).toBe(404);
    expect(await stowage.links.list(id).toArray()).toEqual([]);
  });

  test.each([1, 9 * MEBIBYTE])("an upload of %i bytes with an invalid key fails immediately", async (size) => {
    const stowage = new Stowage({ url, key: "stow_sk_wrong" });
    const refused = stowage.files.upload(new File([new Uint8Array(size)], "refused.bin"));
    await expect(refused).rejects.toMatchObject({ name: "StowageError", code: "token_invalid", status: 401 });
  });

  test("an upload with the wrong checksum stores nothing as a form, and ends as failed if it is resumable", async () => {
    const { stowage } = await newTeam();
    const form = stowage.files.upload(new File(["text"], "a"), { sha256: "0".repeat(64) });
    await expect(form).rejects.toMatchObject({ code: "digest_mismatch" });
    expect(await collect(stowage.files.list())).toEqual([]);
    const { id } = await stowage.files.upload(new File([bytesOf(9 * MEBIBYTE)], "a"), { sha256: "0".repeat(64) });
    expect(await stowage.files.waitUntilProcessed(id)).toMatchObject({
      status: "failed",
      failure: { code: "bytes_altered" },
    });
  });

  test("an unreadable file fails its upload, but not the process", async () => {
    const { stowage, key } = await newTeam();
    const folder = mkdtempSync(join(tmpdir(), "stowage changed "));
    const path = join(folder, "changed.bin");
    for (const [size, url] of [
      [3_000_000, (await scripted(hangUp)).url],
      [9_000_000, stowage.url],
    ] as const) {
      writeFileSync(path, Buffer.alloc(size));
      const file = await openAsBlob(path);
      appendFileSync(path, "more");
      const onRetry = vi.fn();
      const upload = new Stowage({ url, key, onRetry }).files.upload(file);
      await expect(upload).rejects.toThrow("could not be read");
      expect(onRetry).not.toHaveBeenCalled();
    }
    rmSync(folder, { recursive: true });
  });
});

describe("users, keys, and events", () => {
  test("a user is created, updated by version, logged in, listed, and deleted", async () => {
    const { stowage, teamId } = await newTeam();
    const credentials = { email: "ada@example.com", password: "correct horse battery" };
    const { _id: id } = await stowage.users.create({ firstName: "Ada", role: "admin", ...credentials });
    expect(await stowage.users.update(id, { lastName: "King" }, { version: 0 })).toMatchObject({ __v: 1 });
    const late = stowage.users.update(id, { lastName: "Byron" }, { version: 0 });
    await expect(late).rejects.toMatchObject({ code: "version_mismatch", status: 412 });
    await expect(stowage.users.create(credentials)).rejects.toMatchObject({ code: "email_taken" });
    const { key } = await new Stowage({ url, key: null }).logIn({ teamId, ...credentials });
    expect(await new Stowage({ url, key }).users.get(id)).toMatchObject({ lastName: "King" });
    expect((await collect(stowage.users.list({ limit: 1 }))).map((user) => user._id)).toEqual([id]);
    const lateDelete = stowage.users.delete(id, {}, { version: 0 });
    await expect(lateDelete).rejects.toMatchObject({ code: "version_mismatch" });
    await stowage.users.delete(id, {}, { version: 1 });
    expect(await collect(stowage.users.list())).toEqual([]);
  });

  test("a session has its key's name, and ends by logging out", async () => {
    const { stowage } = await newTeam();
    const { id, key, name } = await stowage.sessions.create();
    expect(name).toBe("test");
    expect(await collect(stowage.sessions.list())).toMatchObject([{ _id: id }]);
    const session = new Stowage({ url, key });
    await session.logOut();
    await expect(session.usage()).rejects.toMatchObject({ code: "token_invalid" });
    await expect(stowage.logOut()).rejects.toMatchObject({ code: "forbidden" });
  });

  test("a key is created, listed, and rejected after its deletion", async () => {
    const { stowage } = await newTeam();
    const { id, key } = await stowage.keys.create({ name: "Player", isPublic: true });
    expect((await collect(stowage.keys.list())).map(({ name }) => name)).toEqual(["Player", "test"]);
    expect(await stowage.keys.get(id)).toMatchObject({ isPublic: true });
    expect(await new Stowage({ url, key }).me()).toMatchObject({ kind: "public", scopes: ["files:upload"] });
    expect(await stowage.keys.update(id, { name: "Web player" })).toMatchObject({ name: "Web player" });
    expect(await stowage.keys.get(id)).toMatchObject({ name: "Web player", key });
    await stowage.keys.delete(id);
    const refused = new Stowage({ url, key }).files.upload(new File(["x"], "x.txt"));
    await expect(refused).rejects.toMatchObject({ code: "token_invalid" });
  });

  test("a call takes its own timeout, retries, and headers, and shows its response", async () => {
    const { stowage } = await newTeam();
    const { data, response } = await stowage.me().withResponse();
    expect(data).toMatchObject({ kind: "secret" });
    expect([response.status, response.headers.get("X-Request-Id")]).toEqual([200, expect.any(String)]);
    const attempt = vi.fn(
      (_: unknown, { signal }: RequestInit = {}) =>
        new Promise<Response>((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason))),
    );
    const silent = new Stowage({ url, key: null, fetch: attempt });
    const call = silent.usage({ timeout: 50, maxRetries: 1, headers: { "X-Team": "radio" } });
    await expect(call).rejects.toThrow("(no response for 50 ms)");
    const headers = attempt.mock.calls.map(([, init]) => new Headers(init?.headers).get("X-Team"));
    expect(headers).toEqual(["radio", "radio"]);
    await expect(stowage.files.get("")).rejects.toThrow('The ID is "".');
    expect(await stowage.keys.list().toArray()).toHaveLength(1);
  });

  test("every method returns a promise that also shows the response", async () => {
    const { url } = await scripted(refusal(403, "forbidden"));
    for (const [name, method, count] of methodsOf(new Stowage({ url, key: null }))) {
      if (name === "follow") continue;
      const call = method(...[new File(["x"], "x"), {}, {}].slice(0, count));
      expect(call, name).toBeInstanceOf(Promise);
      await expect(call.withResponse(), name).rejects.toMatchObject({ code: "forbidden" });
    }
  });

  test("what is not there is null, with its response", async () => {
    const { stowage } = await newTeam();
    const { data, response } = await stowage.files.upload(new File(["text"], "a.txt")).withResponse();
    expect([data.id, response.status]).toEqual([expect.any(String), 200]);
    for (const call of [stowage.files.waveform(data.id), stowage.files.getTranscript(data.id)]) {
      const found = await call.withResponse();
      expect([found.data, found.response.status]).toEqual([null, 404]);
    }
    const canceled = await stowage.unfinishedUploads.cancel("0".repeat(24)).withResponse();
    expect(canceled.response.status).toBe(404);
    const file = await stowage.files.waitUntilProcessed(data.id).withResponse();
    expect([file.data.status, file.response.status]).toEqual(["completed", 200]);
    const download = await stowage.files.download(data.id).withResponse();
    expect([await download.data.text(), download.response.status]).toEqual(["text", 200]);
  });

  test("every record has an id, and the fields of a team stay as they are", async () => {
    const { stowage } = await newTeam();
    const metadata = { _id: "own", a: [{ _id: "own" }] };
    const { id } = await stowage.files.upload(new File(["text"], "a.txt"), { properties: { metadata } });
    expect(await stowage.files.get(id)).toMatchObject({ id, _id: id, metadata });
    expect((await stowage.files.get(id)).metadata).toEqual(metadata);
    const user = await stowage.users.create(USER);
    expect(user.id).toBe(user._id);
    expect((await stowage.users.export(user.id)).user).toMatchObject({ id: user.id });
    const [event] = (await stowage.events.list({ type: "file.uploaded" })).items;
    expect(event).toMatchObject({ id: event?._id, data: { id, _id: id } });
  });

  test("a wrong host name or certificate fails at once, unless the service has responded before", async () => {
    let isThere = false;
    const attempt = vi.fn(async () => {
      if (isThere) return new Response(JSON.stringify(USAGE));
      throw new TypeError("fetch failed", { cause: { code: "ENOTFOUND" } });
    });
    const stowage = new Stowage({ url, key: null, maxRetries: 1, fetch: attempt });
    await expect(stowage.usage()).rejects.toMatchObject({ code: "connection_failed", isTransient: false });
    expect(attempt).toHaveBeenCalledTimes(1);
    isThere = true;
    await stowage.usage();
    isThere = false;
    await expect(stowage.usage()).rejects.toMatchObject({ isTransient: true });
    expect(attempt).toHaveBeenCalledTimes(4);
  });

  test("an error for invalid input names the fields", async () => {
    const { stowage } = await newTeam();
    const error = await stowage.users.create({ email: "nobody", password: "short" }).catch((caught) => caught);
    expect(error).toBeInstanceOf(StowageError);
    expect(error).toMatchObject({
      code: "invalid_input",
      status: 400,
      requestId: expect.stringMatching(/^[0-9a-f-]{36}$/),
    });
    expect(error.errors.map(({ path }: { path: string }) => path)).toEqual(["email", "password"]);
  });

  test("follow yields each event after the given one once, until the signal aborts", async () => {
    const { stowage } = await newTeam();
    await stowage.keys.create({ name: "before" });
    const [latest] = await collect(stowage.events.list({ limit: 1 }));
    const stop = new AbortController();
    const after = latest?._id ?? "";
    const following = stowage.events.follow({ type: "apikey.created", after }, { signal: stop.signal });
    for (const name of ["after 1", "after 2"]) {
      const { id } = await stowage.keys.create({ name });
      expect((await following.next()).value).toMatchObject({ type: "apikey.created", subject: { id } });
    }
    const never = following.next();
    stop.abort(new Error("enough"));
    await expect(never).rejects.toThrow("enough");
  });

  test("follow yields what happened after an instant, and then continues after the last event", async () => {
    const event = (_id: string) => json(200, { data: [{ _id }] });
    const { stowage, requests } = await scripted(event("1"), event("2"));
    const following = stowage.events.follow({ after: "2026-11-20T08:00:00Z" });
    expect((await collect(following, 2)).map(({ _id }) => _id)).toEqual(["1", "2"]);
    const asked = requests.map((request) => new URL(request.url, url).searchParams);
    expect(asked.map((query) => [query.get("createdAfter"), query.get("after")])).toEqual([
      ["2026-11-20T08:00:00Z", null],
      [null, "1"],
    ]);
  });

  test("follow starts after the latest event by default", async () => {
    const event = (_id: string) => json(200, { data: [{ _id }] });
    const { stowage, requests } = await scripted(event("1"), event("2"), json(200, { data: [] }), event("3"));
    const following = stowage.events.follow({ teamId: "one" });
    expect((await collect(following, 2)).map(({ _id }) => _id)).toEqual(["2", "3"]);
    const asked = requests.map((request) => new URL(request.url, url).searchParams);
    expect(asked.map((query) => query.get("after"))).toEqual([null, "1", "2", "2"]);
    expect(asked.map((query) => query.get("teamId"))).toEqual(Array(4).fill("one"));
  });
});

describe("webhooks", () => {
  test("a message is verified only with its signing secret", async () => {
    const { stowage } = await newTeam();
    const messages: { body: string; headers: Record<string, string | string[] | undefined> }[] = [];
    const receiver = createServer(async (request, response) => {
      const body = (await request.setEncoding("utf8").toArray()).join("");
      messages.push({ body, headers: request.headers });
      response.end("ok");
    }).listen(0, "127.0.0.1");
    await once(receiver, "listening");
    const { port } = receiver.address() as { port: number };
    const { _id: id, secret } = await stowage.webhooks.create({
      url: `http://127.0.0.1:${port}/hook`,
      types: ["file.failed"],
    });
    expect(await stowage.webhooks.test(id)).toMatchObject({ httpStatus: 200 });
    const message = messages[0] ?? { body: "", headers: {} };
    expect(await verifyMessage(message.body, message.headers, secret)).toMatchObject({
      type: "webhook.test",
    });
    const headers = new Headers(message.headers as Record<string, string>);
    expect(await verifyMessage(Buffer.from(message.body), headers, secret)).toMatchObject({
      type: "webhook.test",
    });
    for (const none of [undefined as unknown as string, "garbage"])
      await expect(verifyMessage(message.body, message.headers, none)).rejects.toThrow("must be `whsec_`");
    const { secret: second } = await stowage.webhooks.rotateSecret(id);
    await stowage.webhooks.test(id);
    const doublySigned = messages[1] ?? message;
    for (const either of [secret, second])
      await expect(verifyMessage(doublySigned.body, doublySigned.headers, either)).resolves.toBeTruthy();
    const { secret: other } = await stowage.webhooks.rotateSecret(id, { revokeOld: true });
    await expect(verifyMessage(message.body, headers, other)).rejects.toBeInstanceOf(SignatureError);
    await expect(verifyMessage(`${message.body} `, headers, secret)).rejects.toBeInstanceOf(SignatureError);
    await expect(verifyMessage(message.body, {}, secret)).rejects.toBeInstanceOf(SignatureError);
    const otherKind = String(message.headers["webhook-signature"]).replace("v1,", "v2,");
    const headersOfOtherKind = { ...message.headers, "webhook-signature": otherKind };
    await expect(verifyMessage(message.body, headersOfOtherKind, secret)).rejects.toBeInstanceOf(SignatureError);
    const now = Date.now() + 6 * 60 * 1000;
    await expect(verifyMessage(message.body, headers, secret, { now })).rejects.toThrow("too old");
    await expect(verifyMessage(message.body, headers, secret, { now, toleranceSeconds: 600 })).resolves.toBeTruthy();
    const before = Date.now() - 6 * 60 * 1000;
    await expect(verifyMessage(message.body, headers, secret, { now: before })).rejects.toThrow("too new");
    expect(await stowage.webhooks.update(id, { status: "disabled" })).toMatchObject({ status: "disabled" });
    expect(await stowage.webhooks.list().toArray()).toHaveLength(1);
    await stowage.webhooks.delete(id);
    expect(await stowage.webhooks.list().toArray()).toEqual([]);
    receiver.close();
  });
});

describe("after a transient error", () => {
  test.each([
    ["is away for a moment", refusal(503, "unavailable", { "Retry-After": "0" })],
    ["hangs up", hangUp],
    ["is behind a proxy that fails", json(502, "Bad gateway")],
    ["disconnects in its response", cutShort(200)],
    ["disconnects in a refusal", cutShort(503)],
    ["disconnects in a refusal whose code may be transient", cutShort(409)],
  ])("a read is retried if the service %s", async (_, step) => {
    const { stowage, requests } = await scripted(step, step, json(200, USAGE));
    expect(await stowage.usage()).toEqual(USAGE.data);
    expect(requests).toHaveLength(3);
  });

  test.each([
    [503, "unavailable"],
    [409, "idempotency_in_progress"],
  ] as const)("retries a form upload four times after %i %s, with the same Idempotency-Key", async (status, code) => {
    const failure = refusal(status, code, { "Retry-After": "0" });
    const stored = json(200, { message: "" }, { Location: "/docs/v1/uploads/1" });
    const { stowage, requests } = await scripted(failure, failure, failure, failure, stored);
    expect(await stowage.files.upload(new File(["x"], "x.txt"))).toEqual({ id: "1" });
    const keys = requests.map(({ headers }) => headers["idempotency-key"]);
    expect(keys).toEqual(Array(5).fill(expect.stringMatching(/^[\w+/]{22}==$/)));
    expect(new Set(keys).size).toBe(1);
  });

  test("a waveform whose response was lost is sent again", async () => {
    const channels = [Array(16).fill(0)];
    const { stowage, requests } = await scripted(hangUp, json(200, { message: "", data: { channels } }));
    expect(await stowage.files.setWaveform("1", channels)).toEqual(channels);
    expect(requests).toHaveLength(2);
  });

  test("a retry waits for Retry-After", async () => {
    const { stowage, requests } = await scripted(
      refusal(429, "rate_limited", { "Retry-After": "1" }),
      json(200, USAGE),
    );
    await stowage.usage();
    const [first, second] = requests.map(({ at }) => at);
    expect((second ?? 0) - (first ?? 0)).toBeGreaterThanOrEqual(1000);
  });

  test.each([
    [true, [408, 423, 429, 500, 502, 503, 504, 520, 526, 530]],
    [false, [400, 401, 404, 409, 410, 501]],
  ])("a read is retried (%s) for the statuses %j", async (isPassing, statuses) => {
    for (const status of statuses) {
      const headers: Record<string, string> = isPassing ? { "Retry-After": "0" } : {};
      const { stowage, requests } = await scripted(json(status, {}, headers), json(200, USAGE));
      const read = stowage.usage();
      if (isPassing) expect(await read).toEqual(USAGE.data);
      else await expect(read).rejects.toMatchObject({ status });
      expect(requests, String(status)).toHaveLength(isPassing ? 2 : 1);
    }
  });

  test("a refusal is transient if the service says when to retry, but a call does not wait for the uploads of others", async () => {
    const headers = { "Retry-After": "0" };
    const { stowage } = await scripted(refusal(409, "idempotency_in_progress", headers), json(200, USAGE));
    expect(await stowage.usage()).toEqual(USAGE.data);
    const full = await scripted(refusal(409, "too_many_unfinished_uploads", headers));
    await expect(full.stowage.usage()).rejects.toMatchObject({ isTransient: true, retryAfterSeconds: 0 });
    expect(full.requests).toHaveLength(1);
  });

  const twoPages = () =>
    scripted(
      json(200, { data: [{ _id: "1" }] }, { Link: '</docs/v1/uploads?cursor=c>; rel="next"', "X-Request-Id": "first" }),
      json(200, { data: [{ _id: "2" }] }),
    );

  test("a list is a promise of its first page, which one request reads, and an unused list sends none", async () => {
    const { stowage, requests } = await twoPages();
    const list = stowage.files.list();
    expect(requests).toEqual([]);
    expect(list).toBeInstanceOf(Promise);
    const first = { items: [{ _id: "1", id: "1" }], next: "?cursor=c" };
    expect(await Promise.all([list, list.then(), list.finally(() => {})])).toMatchObject([first, first, first]);
    const { data, response } = await list.withResponse();
    expect([data, response.headers.get("X-Request-Id")]).toEqual([await list, "first"]);
    expect(requests).toHaveLength(1);
    expect(await list.page("?cursor=c")).toMatchObject({ items: [{ id: "2" }], next: undefined });
    const failing = new Stowage({ url: (await scripted(refusal(403, "forbidden"))).url, key: null }).files.list();
    expect(await failing.catch((error) => error.code)).toBe("forbidden");
  });

  test("a page has the further fields of its response, which differ from page to page", async () => {
    const found = (isComplete: boolean) => ({ message: "", data: [], isComplete, isFull: !isComplete });
    const { stowage } = await scripted(
      json(200, found(false), { Link: '</docs/v1/transcripts?search=a&cursor=c>; rel="next"' }),
      json(200, found(true)),
    );
    const list = stowage.files.searchTranscripts("a");
    const { isComplete, isFull, next } = await list;
    expect([isComplete, isFull, next]).toEqual([false, true, "?search=a&cursor=c"]);
    const second = await list.page(next ?? "");
    expect([second.isComplete, second.isFull, second.next]).toEqual([true, false, undefined]);
    expect(Object.keys(second)).toEqual(["items", "next", "isComplete", "isFull"]);
  });

  test("a page takes its place from `next`, and its filters from the list", async () => {
    const { stowage, requests } = await twoPages();
    const list = stowage.files.list({ under: "memos", limit: 2 });
    await list.page("?limit=100&under=other&cursor=c&page=3");
    expect(requests.map(({ url }) => url.split("?")[1])).toEqual(["limit=2&under=memos&cursor=c&page=3"]);
  });

  test.each([undefined, null, "", "?limit=2"])("a page is never the first one again: %j is no `next`", async (next) => {
    const { stowage, requests } = await twoPages();
    const list = stowage.files.list();
    expect(() => list.page(next as string)).toThrow(TypeError);
    expect(requests).toEqual([]);
  });

  test("a filter takes a Date", async () => {
    const { stowage, requests } = await scripted(
      ...[1, 2].map(() => json(200, { data: [] })),
      refusal(403, "forbidden"),
    );
    const at = new Date(0);
    await stowage.files.list({ createdAfter: at });
    await stowage.events.list({ createdBefore: at });
    await stowage.events
      .follow({ after: at })
      .next()
      .catch(() => {});
    const sent = requests.map(({ url }) => new URL(url, "http://x").searchParams);
    expect(sent.map((query) => query.get("createdAfter") ?? query.get("createdBefore"))).toEqual(
      Array(3).fill(at.toISOString()),
    );
  });

  test("a client prints its key neither as JSON nor in a console", async () => {
    const stowage = new Stowage({ url, key: "stow_sk_secret", headers: { "X-Secret": "secret" } });
    expect(JSON.stringify(stowage) + inspect(stowage, { depth: 9, showHidden: true })).not.toMatch(/secret/i);
  });

  test("a list and an awaited page yield the items of all pages, and read no page twice", async () => {
    const { stowage, requests } = await twoPages();
    const list = stowage.files.list();
    const idsOf = async (pages: AsyncIterable<{ id: string }>) => (await collect(pages)).map(({ id }) => id);
    expect(await idsOf(await list)).toEqual(["1", "2"]);
    expect(requests).toHaveLength(2);
    expect(await idsOf(list)).toEqual(["1", "2"]);
    expect(requests.map(({ url }) => url.split("?")[1])).toEqual([
      "limit=100",
      "limit=100&cursor=c",
      "limit=100&cursor=c",
    ]);
  });

  test("an error has `isTimeout` after a timeout, but not after a lost connection", async () => {
    for (const [step, timeout, isTimeout] of [
      [() => {}, 100, true],
      [hangUp, 60_000, false],
      [refusal(408, "upload_timeout"), 60_000, true],
    ] as const) {
      const { url } = await scripted(step);
      const call = new Stowage({ url, key: null, timeout, maxRetries: 0 }).usage();
      await expect(call).rejects.toMatchObject({ name: "StowageError", isTimeout });
    }
  });

  test("a download fails if no bytes arrive for two minutes while they are awaited, but may be read slowly", async () => {
    const timers = vi.spyOn(globalThis, "setTimeout");
    const stalls = () => timers.mock.calls.filter(([, milliseconds]) => milliseconds === 120_000);
    const service = await scripted(
      (_, response) => void response.end(JSON.stringify({ status: true, signedUrl: `${service.url}/bytes` })),
      (_, response) => void response.writeHead(200, { "Content-Length": 10 }).write("begun"),
    );
    const response = await new Stowage({ url: service.url, key: null }).files.download("1");
    expect(response.headers.get("Content-Length")).toBe("10");
    const reader = (response.body as ReadableStream<Uint8Array>).getReader();
    expect(stalls()).toHaveLength(1);
    expect(new TextDecoder().decode((await reader.read()).value)).toBe("begun");
    const rest = reader.read();
    await vi.waitUntil(() => stalls().length === 3);
    stalls().at(-1)?.[0]();
    await expect(rest).rejects.toMatchObject({ code: "connection_failed", isTimeout: true, isTransient: true });
  });

  test("a call without response for a minute is retried", async () => {
    const timers = vi.spyOn(globalThis, "setTimeout");
    const pass = () => timers.mock.calls.findLast(([, milliseconds]) => milliseconds === 60_000)?.[0]();
    const { stowage, requests } = await scripted(pass, json(200, USAGE));
    expect(await stowage.usage()).toEqual(USAGE.data);
    expect(requests).toHaveLength(2);
  });

  test.each([
    ["PATCH", refusal(409, "offset_mismatch")],
    ["HEAD", refusal(503, "unavailable", { "Retry-After": "0" })],
  ])("a resumable upload asks for its offset again instead of restarting if %s fails", async (refused, step) => {
    const { size } = LARGE;
    let isRefused = false;
    const { stowage, requests } = await scripted((request, response) => {
      if (request.method === refused && !isRefused) {
        isRefused = true;
        step(request, response);
      } else if (request.method === "HEAD") response.writeHead(200, OFFSET).end();
      else response.writeHead(204, { "Upload-Offset": size, "Content-Location": "/docs/v1/uploads/1" }).end();
    });
    expect(await stowage.files.upload(LARGE, { resumeUrl: "/docs/v1/uploads/resumable/1.2" })).toEqual({ id: "1" });
    expect(requests.map(({ method }) => method)).not.toContain("POST");
  });

  test("a Retry-After above two minutes fails the call", async () => {
    const { stowage, requests } = await scripted(refusal(429, "rate_limited", { "Retry-After": "3600" }));
    await expect(stowage.usage()).rejects.toMatchObject({ code: "rate_limited", retryAfterSeconds: 3600 });
    expect(requests).toHaveLength(1);
  });

  test.each([
    ["unavailable", refusal(503, "unavailable", { "Retry-After": "0" }), "unavailable"],
    ["out of reach", hangUp, "connection_failed"],
  ])("no user is created twice if the service is %s", async (_, step, code) => {
    const { stowage, requests } = await scripted(step);
    await expect(stowage.users.create(USER)).rejects.toMatchObject({ code });
    expect(requests).toHaveLength(1);
  });

  test("a request that always fails with 500 is retried four times, whatever the number of retries", async () => {
    const service = await scripted(json(500, {}, { "Retry-After": "0" }));
    const attempts: number[] = [];
    const onRetry = (_: StowageError, attempt: number) => void attempts.push(attempt);
    const read = new Stowage({ url: service.url, key: null, maxRetries: 50, onRetry }).usage();
    await expect(read).rejects.toMatchObject({ status: 500 });
    expect(attempts).toEqual([0, 1, 2, 3]);
  });

  test.each<[string, (stowage: Stowage) => Promise<unknown>, isRepeated: boolean]>([
    ["a new folder", ({ files }) => files.createFolder("a"), true],
    ["an upload token", ({ files }) => files.createUploadToken(), true],
    ["another processing", ({ files }) => files.reprocess("1"), true],
    ["tags for files", ({ files }) => files.batch({ action: "tag", ids: ["1"], tags: ["a"] }), true],
    ["a deletion of files", ({ files }) => files.batch({ action: "delete", ids: ["1"] }), false],
    ["the name of a file", ({ files }) => files.update("1", { name: "a" }), true],
    ["the name of a version of a file", ({ files }) => files.update("1", { name: "a" }, { version: 3 }), false],
    ["another name of a folder", ({ files }) => files.moveFolder("a", "b"), false],
    ["the name of a key", ({ keys }) => keys.update("1", { name: "a" }), true],
    ["a new key", ({ keys }) => keys.create({ name: "a" }), false],
    ["a new secret beside the old one", ({ webhooks }) => webhooks.rotateSecret("1"), true],
    ["a new secret in place of the old one", ({ webhooks }) => webhooks.rotateSecret("1", { revokeOld: true }), false],
    ["whom a token invites", (stowage) => stowage.describeInvitation({ token: "a" }), true],
  ])("a request is repeated only if that does no harm: %s", async (_, call, isRepeated) => {
    const { stowage, requests } = await scripted(hangUp, json(200, { message: "", data: [] }));
    const isDone = await call(stowage).then(
      () => true,
      () => false,
    );
    expect({ isDone, requests: requests.length }).toEqual({ isDone: isRepeated, requests: isRepeated ? 2 : 1 });
  });

  test("any request is retried after a rate limit, because nothing was executed", async () => {
    const limited = refusal(429, "rate_limited", { "Retry-After": "0" });
    const { stowage } = await scripted(limited, json(200, { message: "", data: { _id: "1" } }));
    expect(await stowage.users.create(USER)).toEqual({ _id: "1", id: "1" });
  });

  test.each([
    ["loses its response", hangUp],
    ["loses a part of its response", cutShort(200)],
    ["fails with 500", json(500, {}, { "Retry-After": "0" })],
  ])("a repeated delete that finds nothing succeeds if the first attempt %s", async (_, step) => {
    for (const resource of ["files", "teams"] as const) {
      const { stowage, requests } = await scripted(step, refusal(404, "not_found"));
      await stowage[resource].delete("1");
      expect(requests).toHaveLength(2);
    }
  });

  test("a delete that finds nothing fails if no earlier attempt can have deleted it", async () => {
    const limited = refusal(429, "rate_limited", { "Retry-After": "0" });
    for (const steps of [[], [limited], [refusal(423, "upload_locked", { "Retry-After": "0" })]]) {
      const { stowage } = await scripted(...steps, refusal(404, "not_found"));
      await expect(stowage.files.delete("1")).rejects.toMatchObject({ code: "not_found" });
    }
    const proxied = await scripted(hangUp, json(404, "There is no such page."));
    await expect(proxied.stowage.files.delete("1")).rejects.toMatchObject({ code: "unexpected_response" });
  });

  test("a resumable upload fails after its retries store nothing", async () => {
    const { url, requests } = await scripted((request, response) => {
      if (request.method === "PATCH") refusal(503, "unavailable", { "Retry-After": "0" })(request, response);
      else response.writeHead(200, OFFSET).end();
    });
    const resumeUrl = "/docs/v1/uploads/resumable/1.2";
    const upload = new Stowage({ url, key: null, maxRetries: 2 }).files.upload(LARGE, { resumeUrl });
    await expect(upload).rejects.toMatchObject({ code: "unavailable" });
    expect(requests.map(({ method }) => method).join()).toBe("HEAD,PATCH,HEAD,PATCH,HEAD,PATCH");
  });

  test("a resumable upload retries, then fails, if the service stops responding", async () => {
    const timers = vi.spyOn(globalThis, "setTimeout");
    // Ends the two minutes without a response as soon as the bytes have arrived.
    const pass = () => timers.mock.calls.findLast(([, milliseconds]) => milliseconds === 120_000)?.[0]();
    const service = await scripted(({ method }, response) => {
      if (method === "PATCH") pass();
      else response.writeHead(200, OFFSET).end();
    });
    // With or without a fetch of the caller.
    for (const given of [{}, { fetch: (target: string, init: RequestInit) => fetch(target, init) }]) {
      const stowage = new Stowage({ url: service.url, key: null, maxRetries: 1, ...given });
      const upload = stowage.files.upload(LARGE, { resumeUrl: "/docs/v1/uploads/resumable/1.2" });
      await expect(upload).rejects.toMatchObject({ code: "connection_failed", message: /no response for 120000 ms/ });
    }
    expect(service.requests.map(({ method }) => method).join()).toBe(Array(4).fill("HEAD,PATCH").join());
  });

  test.each([
    ["does not respond before the given timeout", () => {}],
    ["always disconnects", hangUp],
  ])("a call fails after the configured retries if the service %s", async (_, step) => {
    const { url } = await scripted(step);
    const onRetry = vi.fn();
    const call = new Stowage({
      url,
      key: null,
      timeout: step === hangUp ? 60_000 : 100,
      maxRetries: 1,
      onRetry,
    }).usage();
    await expect(call).rejects.toMatchObject({ code: "connection_failed", status: 0 });
    expect(onRetry).toHaveBeenCalledOnce();
  });

  test("reports the route of each call that succeeds", async () => {
    const service = await scripted(json(200, { message: "", data: { _id: "1" } }), refusal(403, "forbidden"));
    const onSuccess = vi.fn();
    const { users } = new Stowage({ url: service.url, key: null, onSuccess });
    await users.create(USER);
    await expect(users.create(USER)).rejects.toMatchObject({ code: "forbidden" });
    expect(onSuccess.mock.calls).toEqual([["POST /auth/v1/users"]]);
  });

  test.each([
    ["a page", (_: unknown, response: ServerResponse) => void response.end("<html>")],
    ["nothing", json(200, null)],
    ["a text", json(200, "OK")],
    ["an empty object", json(200, {})],
    ["a redirection", json(307, {}, { Location: "/docs/v1/usage" })],
    ["malformed errors", json(400, { code: "", message: "", errors: "many" })],
  ])("rejects a response of another server as unexpected_response: %s", async (name, step) => {
    const service = await scripted(step);
    const stowage = new Stowage({ url: service.url, key: null });
    const { files, keys, users } = stowage;
    const code = name.startsWith("malformed") ? "" : "unexpected_response";
    for (const call of [
      () => stowage.usage(),
      () => users.create(USER),
      () => collect(keys.list()),
      () => files.upload(new File(["x"], "x.txt")),
    ]) {
      const error = await call().catch((caught) => caught);
      expect(error).toBeInstanceOf(StowageError);
      if (code !== "") expect(error.code).toBe(code);
      expect(error.errors).toEqual([]);
    }
    expect(service.requests).toHaveLength(4);
  });

  test("an error of a callback ends a resumable upload immediately", async () => {
    const { stowage } = await newTeam();
    for (const name of ["onProgress", "onResumeUrl"]) {
      const callback = vi.fn(() => {
        throw new Error("No room to note it.");
      });
      await expect(stowage.files.upload(LARGE, { [name]: callback })).rejects.toThrow("No room to note it.");
      expect(callback).toHaveBeenCalledOnce();
    }
  });

  test("the URL keeps its path without console, query and fragment, and a key that no header can carry is rejected", async () => {
    const service = await scripted(json(200, USAGE));
    await new Stowage({ url: `${service.url}/proxied/console/files?a=b#c`, key: null }).usage();
    expect(service.requests[0]?.url).toBe("/proxied/docs/v1/usage");
    expect(() => new Stowage({ url: service.url, key: "sch\u00f6n\u2026" })).toThrow(TypeError);
  });

  test.each(["localhost:8787", "stowage.example", "/api", "ftp://stowage.example", ""])(
    "the URL %j without http scheme is rejected",
    (url) => {
      expect(() => new Stowage({ url, key: "secret" })).toThrow("must start with https:// or http://");
    },
  );
});

describe("the URL and the key of a client", () => {
  afterEach(() => vi.unstubAllEnvs());

  test("default to STOWAGE_URL and STOWAGE_KEY, and the key is sent to no other URL", async () => {
    const service = await scripted(json(200, USAGE));
    vi.stubEnv("STOWAGE_URL", service.url);
    vi.stubEnv("STOWAGE_KEY", "secret");
    await new Stowage().usage();
    expect(service.requests[0]?.headers.authorization).toBe("Bearer secret");
    await new Stowage({ url: `${service.url.replace("localhost", "LOCALHOST")}/` }).usage();
    expect(service.requests[1]?.headers.authorization).toBe("Bearer secret");
    expect(() => new Stowage({ url: "https://other.example" })).toThrow("No key.");
    await new Stowage({ key: null }).usage();
    expect(service.requests[2]?.headers.authorization).toBeUndefined();
  });

  test("are required before any call", () => {
    const unset: string | undefined = process.env.STOWAGE_UNSET;
    expect(() => new Stowage({ key: "secret" })).toThrow("No URL. Pass `url`, or set STOWAGE_URL.");
    for (const key of [unset, ""])
      expect(() => new Stowage({ url: "https://stowage.example", key })).toThrow("No key. Pass `key`");
  });
});

describe("an abort", () => {
  test.each([
    ["while it begins", "POST"],
    ["once it has begun", "PATCH"],
  ])("of an upload %s leaves nothing on the service, unless it can be resumed", async (_, aborted) => {
    const { stowage, key } = await newTeam();
    for (const store of [undefined, new Map<string, SavedUpload>()]) {
      const stop = new AbortController();
      const sent: string[] = [];
      const fetchAborted: FetchFunction = async (target, init) => {
        if (init.method === aborted) stop.abort(new Error("enough"));
        const response = await fetch(target, init);
        sent.push(`${init.method} ${response.ok}`);
        return response;
      };
      const { files } = new Stowage({ url, key, fetch: fetchAborted });
      const options = { signal: stop.signal, store, storeKey: "key" };
      await expect(files.upload(LARGE, options)).rejects.toThrow("enough");
      if (store) await vi.waitUntil(() => store.get("key")?.url);
      else await vi.waitUntil(() => sent.includes("DELETE true"));
      expect(await stowage.unfinishedUploads.list().toArray()).toHaveLength(store ? 1 : 0);
    }
  });

  test("is awaited by at most ten listeners of a signal, however many calls share it", async () => {
    const stop = new AbortController();
    const service = await scripted(() => {});
    const { files } = new Stowage({ url: service.url, key: null });
    const options = { signal: stop.signal, resumableFromBytes: 1 };
    const uploads = Array.from({ length: 30 }, () => files.upload(new File(["x"], "x"), options));
    const calls = Array.from({ length: 30 }, () => files.get("1", { signal: stop.signal }));
    const ended = Promise.allSettled([...uploads, ...calls]);
    await vi.waitUntil(() => service.requests.length === 60);
    expect(getEventListeners(stop.signal, "abort").length).toBeLessThanOrEqual(10);
    stop.abort(new Error("enough"));
    for (const { status } of await ended) expect(status).toBe("rejected");
  });

  test("rejects a call that waits for a response or a retry, with the signal's reason", async () => {
    for (const isSilent of [true, false]) {
      const stop = new AbortController();
      const abort = () => stop.abort(new Error("enough"));
      const service = await scripted(isSilent ? abort : refusal(503, "unavailable", { "Retry-After": "60" }));
      // The wait begins after the callback.
      const onRetry = () => queueMicrotask(abort);
      const call = new Stowage({ url: service.url, key: null, onRetry }).usage({ signal: stop.signal });
      await expect(call).rejects.toThrow("enough");
      expect(service.requests).toHaveLength(1);
    }
  });

  test("rejects a call that reads a response, even if the reader never settles", async () => {
    const { stowage } = await scripted((_, response) => void response.writeHead(200).write("{"));
    const stop = new AbortController();
    vi.spyOn(Response.prototype, "text").mockImplementation(() => {
      stop.abort(new Error("enough"));
      return new Promise(() => {});
    });
    const call = stowage.usage({ signal: stop.signal });
    await expect(call).rejects.toThrow("enough");
  });

  test("rejects a download whose server does not respond", async () => {
    const stop = new AbortController();
    const service = await scripted(
      (_, response) => void response.end(JSON.stringify({ status: true, signedUrl: `${service.url}/bytes` })),
      () => stop.abort(new Error("enough")),
    );
    const call = new Stowage({ url: service.url, key: null }).files.download("1", {}, { signal: stop.signal });
    await expect(call).rejects.toThrow("enough");
  });

  test("ends an upload after a lost response, which saves nothing more", async () => {
    const stop = new AbortController();
    const { stowage } = await scripted(hangUp, () => stop.abort(new Error("enough")));
    const set = vi.fn();
    const store = { get: () => undefined, set, delete: () => {} };
    const options = { signal: stop.signal, store, storeKey: "a", name: "a.txt" };
    await expect(stowage.files.upload(new Blob(["text"]), options)).rejects.toThrow("enough");
    await new Promise(setImmediate);
    expect(set).toHaveBeenCalledTimes(1);
  });

  test("sends nothing if the signal has aborted before any call", async () => {
    const service = await scripted(refusal(400, "invalid_input"));
    const stowage = new Stowage({ url: service.url, key: null });
    const options = { signal: AbortSignal.abort(new Error("enough")) };
    // Each method finds the options in its last argument. The first one is also a file, and stands for an ID.
    const first = Object.assign(new File(["x"], "x"), options);
    const methods = methodsOf(stowage);
    for (const [name, call] of [
      ...methods.map(([name, method, count]) => {
        return [name, () => method(...[first, options, options, options].slice(0, count))] as const;
      }),
      ["a resumable upload", () => stowage.files.upload(first, { resumableFromBytes: 1, ...options })] as const,
      ["cancel by URL", () => stowage.unfinishedUploads.cancel("1.2", options)] as const,
      ["follow from an event", () => stowage.events.follow({ after: "1" }, options)] as const,
    ]) {
      const run = async () => {
        const result = call();
        return Symbol.asyncIterator in result ? collect(result) : result;
      };
      await expect(run(), name).rejects.toThrow("enough");
    }
    expect(service.requests).toEqual([]);
  });
});

test("the token goes only to the service, never to signed URLs or another host of the next page", async () => {
  const store = await scripted(json(200, {}));
  const service = await scripted(
    (_, response) => void response.end(JSON.stringify({ status: true, signedUrl: `${store.url}/file` })),
    (_, response) => {
      response.setHeader("Link", `<${store.url}/docs/v1/uploads?cursor=c>; rel="next"`);
      response.end(JSON.stringify({ data: [] }));
    },
    json(200, { data: [] }),
  );
  const stowage = new Stowage({ url: `${service.url}/`, key: "secret" });
  await stowage.files.download("1");
  expect(store.requests).toMatchObject([{ url: "/file" }]);
  expect(store.requests[0]?.headers.authorization).toBeUndefined();
  await collect(stowage.files.list());
  expect(service.requests.map((request) => request.url)).toEqual([
    "/docs/v1/uploads/1",
    "/docs/v1/uploads?limit=100",
    "/docs/v1/uploads?limit=100&cursor=c",
  ]);
  expect(store.requests).toHaveLength(1);
});
