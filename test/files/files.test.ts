import { env } from "cloudflare:workers";
import { beforeAll, describe, expect } from "vitest";
import document from "../all/openapi.json?raw";
import { sample } from "../audio/samples.ts";
import { joinBytes, sha256 } from "../support/bytes.ts";
import { DB } from "../support/databases.ts";
import { apiTest as test } from "../support/fixtures.ts";
import {
  atOnce,
  call,
  eventsOf,
  expectNoFiles,
  fieldsOf,
  idsIn,
  metadataOf,
  newTeam,
  processed,
  queueing,
  snapshot,
  type Team,
  tally,
  upload,
  usageOf,
} from "../support/harness.ts";
import { fileForm, sendForm } from "../support/raw-form.ts";

const { schemas } = JSON.parse(document).components as Record<string, Record<string, { properties: object }>>;
/** The fields of a schema of the document. */
const fieldsIn = (name: string) => fieldsOf(schemas?.[name]?.properties ?? {});
const UPLOADS = "/docs/v1/uploads";

let team: Team;
beforeAll(async () => {
  team = await newTeam();
});

/** One quoted ASCII string without escapes, one RFC 5987 value, and nothing else. */
const DISPOSITION =
  /^attachment; filename="[\x20-\x21\x23-\x24\x26-\x5b\x5d-\x7e]*"; filename\*=UTF-8''[A-Za-z0-9!~_.\-%]*$/;

/** Uploads the form. @returns the file's metadata, and its key and headers in R2 */
async function store(body: Uint8Array<ArrayBuffer>) {
  const { id, status, text } = await sendForm(team, body);
  expect(status, text).toBe(200);
  const file = await metadataOf(team, id);
  const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/${id}`, include: ["httpMetadata"] });
  expect(objects).toHaveLength(1);
  const { key = "", httpMetadata } = objects[0] ?? {};
  expect(file.filename).toBe(`${id}-${file.originalName}`);
  expect(key).toBe(`${team.teamId}/${file.filename}`);
  const { contentType, contentDisposition: disposition = "" } = httpMetadata ?? {};
  expect(disposition).toMatch(DISPOSITION);
  expect(decodeURIComponent(disposition.split("UTF-8''").at(-1) ?? "")).toBe(file.originalName);
  return { ...file, name: file.originalName, key, contentType } as Record<string, string>;
}

describe("The name of a file", () => {
  const letters = (count: number) => "é".repeat(count);
  test.each<[sent: string, kept?: string]>([
    ["Ünïcødé 录音 (1)+final's #3 100%.mp3"],
    ["🎧 мелодия – نغمة.mp3"],
    ["a=b;c&d,e$f!g*h~i`j^k[l]{m}.mp3"],
    [".hidden"],
    ["__proto__"],
    ["a.mp3?x=y#z"],
    ["a.mp3::$DATA"],
    ["..%252fa.mp3"],
    [`${"a".repeat(251)}.mp3`, `${"a".repeat(196)}.mp3`],
    [`${letters(125)}.mp3`, `${letters(98)}.mp3`],
    [`${"👩‍👩‍👧".repeat(14)}.mp3`, `${"👩‍👩‍👧".repeat(10)}.mp3`],
    ["../../../etc/passwd", "passwd"],
    ["a/../../b.mp3", "b.mp3"],
    ["..\\..\\windows\\system.ini", "system.ini"],
    ["a\u0000b\u0007\u001b[31m\u0085.mp3", "ab[31m.mp3"],
    ["song\u202e3pm.exe\u2066\u2069", "song3pm.exe"],
    ["a.mp3;type=text/html", "html"],
    ["a%22; filename=%22evil.html%0D%0ASet-Cookie: x=1", 'a"; filename="evil.htmlSet-Cookie: x=1'],
    ["..", "unnamed"],
    ["...", "unnamed"],
    ["", "unnamed"],
    ["   ", "unnamed"],
    ["dir/", "unnamed"],
    ["../%0D%0A/../", "unnamed"],
  ])("is stored without its unsafe parts if it is sent as %j", async (sent, kept = sent) => {
    const { name, filename = "", path = "", key = "" } = await store(fileForm("hello", `filename="${sent}"`));
    expect(name).toBe(kept);
    expect(path).toMatch(/^https:\/\/[^/]+\/[A-Za-z0-9._~%/-]+$/);
    const segments = new URL(path).pathname.split("/").map(decodeURIComponent);
    expect(segments).toEqual(["", env.S3_BUCKET, team.teamId, filename]);
    expect(await (await env.BUCKET.get(key))?.text()).toBe("hello");
  });

  test.each<[string, string, string]>([
    ["filename*", "filename*=UTF-8''..%2F..%2Fa.mp3", "a.mp3"],
    ["filename* in Latin-1", "filename*=ISO-8859-1''..%5C%E9.mp3", "é.mp3"],
    ["filename* with NUL", "filename*=UTF-8''a.mp3%00.html", "a.mp3.html"],
    ["both parameters, one of them harmless", "filename=\"a.mp3\"; filename*=UTF-8''..%2Fb.mp3", "b.mp3"],
  ])("stays in the team's folder if it is sent by %s", async (_, parameters, kept) => {
    expect((await store(fileForm("x", parameters))).name).toBe(kept);
  });

  test.each([
    ["5,000 letters of three bytes", "早".repeat(5000)],
    ["5,000 letters with an extension of 31", `${"x".repeat(5000)}.${"y".repeat(31)}`],
    ["one letter under 5,000 marks", `a${"\u0301".repeat(5000)}.mp3`],
    ["300 emoji of 25 bytes", `${"👨‍👩‍👧‍👦".repeat(300)}.mp3`],
    ["an extension of 300 letters", `a.${"x".repeat(300)}`],
    ["dots only between letters", "a.".repeat(200)],
  ])("is shortened to 200 bytes, and never empty, if it is sent as %s", async (_, sent) => {
    const { name = "", key = "" } = await store(fileForm("x", `filename="${sent}"`));
    expect(Buffer.byteLength(name)).toBeLessThanOrEqual(200);
    expect(Buffer.byteLength(key)).toBeLessThanOrEqual(1024);
    expect(name.replace(/\.mp3$/, "")).not.toBe("");
  });

  test.each([
    ["a line break as forms encode it", 'filename="a%0D%0AX-Evil: 1%0D%0A%0D%0A<script>.mp3"'],
    ["a line break in filename*", "filename*=UTF-8''a%0D%0AX-Evil:%201.mp3"],
    ["a line feed only", "filename*=UTF-8''a%0AX-Evil:%201.mp3"],
    ["a Unicode line separator", "filename*=UTF-8''a%E2%80%A8X-Evil:%201.mp3"],
    ["a next-line character", "filename*=UTF-8''a%C2%85X-Evil:%201.mp3"],
    ["a quote and a parameter", 'filename="a%22; filename=%22evil.html"'],
    ["an escaped quote", 'filename="a\\"; filename*=UTF-8\'\'evil.html"'],
    ["a backslash before the closing quote", "filename*=UTF-8''a%5C"],
    ["a semicolon and inline", "filename*=UTF-8''a;%20inline.html"],
    ["an RFC 2047 word", 'filename="=?utf-8?b?ZXZpbC5odG1s?="'],
    ["percent signs", "filename*=UTF-8''%2522%250d%250a.mp3"],
  ])("injects no header with %s", async (_, parameters) => {
    const { name } = await store(fileForm("x", parameters));
    expect(name).not.toMatch(/[\p{Cc}\u2028\u2029]/u);
  });
});

const HTML = "<!doctype html><html><script>fetch('/auth/v1/apikeys')</script></html>";
const SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>';

describe("The bytes of a file", () => {
  const TEXT = "text/plain; charset=utf-8";
  const BINARY = "application/octet-stream";
  const [MP3, WAV] = [sample("tone-cbr.mp3").bytes, sample("tone.wav").bytes];
  const zeros = (count: number) => new Uint8Array(count);
  const zip = "PK\u0003\u0004\u0014".padEnd(60, "\u0000");

  test.each<[string, string | Uint8Array, string, string]>([
    ["HTML", HTML, "text file", TEXT],
    ["HTML after white space", `\n\n\t ${HTML}`, "text file", TEXT],
    ["HTML after a byte order mark", `\ufeff${HTML}`, "text file", TEXT],
    ["HTML in UTF-7", "+ADw-script+AD4-alert(1)+ADw-/script+AD4-", "text file", TEXT],
    ["HTML after zero bytes", joinBytes(zeros(300), HTML), "other file", BINARY],
    ["SVG", SVG, "text file", TEXT],
    ["SVG with an XML declaration", `<?xml version="1.0"?>${SVG}`, "text file", TEXT],
    [
      "XML with an external entity",
      '<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
      "text file",
      TEXT,
    ],
    ["JavaScript", "alert(document.domain)", "text file", TEXT],
    ["JSON", '{"a":1}', "text file", TEXT],
    ["CSS", "body{background:url(//evil.example)}", "text file", TEXT],
    ["a shell script", "#!/bin/sh\nreboot", "text file", TEXT],
    ["a Windows program", joinBytes("MZ", zeros(200)), "other file", BINARY],
    ["WebAssembly", joinBytes("\0asm", new Uint8Array([1, 0, 0, 0])), "other file", BINARY],
    ["Flash", joinBytes("FWS", zeros(100)), "other file", BINARY],
    ["a ZIP with a program in front", joinBytes("MZ", zeros(60), zip), "other file", BINARY],
    ["a RIFF of an unknown form", joinBytes("RIFF\x24\0\0\0HTML", HTML), "other file", BINARY],
    ["noise", new Uint8Array([1, 0, 2, 255, 254, 7, 0, 0]), "other file", BINARY],
    ["a page with an MP3 after it", joinBytes(HTML, MP3), "audio file", "audio/mpeg"],
    [
      "an MP3 with a page in its tag",
      joinBytes("ID3\u0004\0\0\0\0\0\u007f", HTML, zeros(200)),
      "audio file",
      "audio/mpeg",
    ],
    ["an MP3 with a page after it", joinBytes(MP3, HTML), "audio file", "audio/mpeg"],
    ["a WAV with a page after it", joinBytes(WAV, HTML), "audio file", "audio/wav"],
    ["a video", sample("silent.mp4").bytes, "video file", "video/mp4"],
    ["a PNG", sample("pixel.png").bytes, "image file", "image/png"],
    ["a GIF that is a script", `GIF89a/*${"\0".repeat(20)}*/=1;alert(1)`, "image file", "image/gif"],
    ["a PDF that is a page", joinBytes("%PDF-1.4\n", HTML, zeros(9)), "document file", "application/pdf"],
    ["a ZIP", zip, "archive file", "application/zip"],
  ])(
    "determine the type, whatever the name and the declared type say, if they are %s",
    async (_, content, fileType, type) => {
      for (const [name, declared] of [
        ["song.mp3", "audio/mpeg"],
        ["page.html", "text/html"],
      ]) {
        const stored = await store(fileForm(content, `filename="${name}"`, declared));
        expect([stored.fileType, stored.contentType]).toEqual([fileType, type]);
        if (type !== BINARY) expect(stored.mimeType).toBe(type.split(";")[0]);
      }
    },
  );

  test.each(["x", "a".repeat(500)])("determine the type if the declared type is %s", async (declared) => {
    expect((await store(fileForm(HTML, 'filename="a.html"', declared))).contentType).toBe(TEXT);
  });

  test("are rejected if the declared type contains a second Content-Disposition", async () => {
    const form = fileForm(HTML, 'filename="a.html"', "text/html\r\nContent-Disposition: inline");
    expect(await sendForm(team, form)).toMatchObject({ status: 400, code: "malformed_multipart" });
  });
});

describe("Listing files", () => {
  test("lists the documented fields of each file, newest first", async ({ team }) => {
    const { bytes } = sample("tone-vbr.mp3");
    const ids = [await upload(team, "a.txt", "a"), await upload(team, "b.mp3", bytes)];
    const { body } = await team.call("GET", UPLOADS);
    expect(fieldsOf(body)).toEqual(["data", "message"]);
    for (const file of body.data) expect(fieldsOf(file)).toEqual(fieldsIn("StoredFile"));
    expect(idsIn(body.data)).toEqual(ids.toSorted().reverse());
    const file = body.data.find(({ _id }: { _id: string }) => _id === ids[1]);
    expect(file).toMatchObject({ teamId: team.teamId, fileType: "audio file", status: "pending" });
    expect(file).toMatchObject({ size: bytes.length, durationSeconds: null });
    expect(file.path).toBe(`${env.S3_ENDPOINT}/${env.S3_BUCKET}/${team.teamId}/${file.filename}`);
  });
});

describe("The metadata of a file", () => {
  test("contain what processing detected in an audio file", async () => {
    const team = await newTeam(queueing);
    const { bytes, audio, title } = sample("tone-vbr.mp3");
    const id = await upload(team, "tone.mp3", bytes);
    const file = await processed(team, id);
    expect(fieldsOf(file)).toEqual(fieldsIn("FileMetadata"));
    expect(file).toMatchObject({ status: "completed", size: bytes.length, mimeType: "audio/mpeg", failure: null });
    expect([file.sha256, file.fileType]).toEqual([sha256(bytes), "audio file"]);
    expect(fieldsOf(file.audio)).toEqual(fieldsIn("AudioMetadata"));
    expect(file.audio.durationSeconds).toBeCloseTo(audio?.durationSeconds ?? 0, 1);
    expect([file.audio.sampleRate, file.audio.tags.title]).toEqual([audio?.sampleRate, title]);
    expect(Date.parse(file.processedAt)).toBeGreaterThanOrEqual(Date.parse(file.createdAt));
    expect(file.__v).toBeGreaterThan(0);
    expect(file.durationSeconds).toBe(file.audio.durationSeconds);
    const listed = [UPLOADS, `${UPLOADS}?status=completed&fileType=audio+file`].map((path) => team.call("GET", path));
    for (const { body } of await Promise.all(listed)) {
      const { size, mimeType, durationSeconds } = file;
      expect(body.data).toMatchObject([{ size, mimeType, durationSeconds }]);
    }
  });

  test("contain no audio fields if the file is not audio, and the file is completed", async () => {
    const team = await newTeam(queueing);
    const found = await processed(team, await upload(team, "note.txt", "hello"));
    expect(found).toMatchObject({ status: "completed", audio: null, failure: null });
  });

  test("give the reason if an audio file is unreadable", async () => {
    const team = await newTeam(queueing);
    const found = await processed(team, await upload(team, "tone.flac", `fLaC${"\u0000\u0081".repeat(2000)}`));
    expect(found).toMatchObject({ status: "failed", audio: null, failure: { code: "audio_unreadable" } });
    expect(fieldsOf(found.failure)).toEqual(["code", "message"]);
  });
});

describe("Deleting a file", () => {
  test.each(["pending", "processing", "completed", "failed"])("removes its bytes while it is %s", async (status) => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "hello");
    await DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
    const { body } = await team.call("DELETE", `${UPLOADS}/${id}`);
    expect(body).toEqual({ status: true, message: expect.any(String) });
    await expectNoFiles(team);
    for (const [method, path] of [
      ["GET", ""],
      ["GET", "/metadata"],
      ["POST", "/reprocess"],
      ["DELETE", ""],
    ] as const) {
      expect((await team.call(method, `${UPLOADS}/${id}${path}`)).status).toBe(404);
    }
  });
});

describe("Parallel changes of a file", () => {
  test("delete it once and count it once if twenty requests do it", async ({ team }) => {
    await upload(team, "kept.txt", "kept");
    const path = `${UPLOADS}/${await upload(team, "raced.txt", "raced")}`;
    const { 200: deleted, not_found: _, ...others } = tally(await atOnce(20, () => team.call("DELETE", path)));
    expect(deleted).toBeGreaterThanOrEqual(1);
    expect(others).toEqual({});
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 4 });
    expect((await env.BUCKET.list({ prefix: team.teamId })).objects).toHaveLength(1);
  });

  test("leave nothing of a file that is reprocessed while it is deleted", async ({ team }) => {
    const path = `${UPLOADS}/${await upload(team, "raced.txt", "raced")}`;
    await DB.prepare("update files set status = 'completed' where team_id = ?").bind(team.teamId).run();
    await atOnce(20, (i) => (i === 10 ? team.call("DELETE", path) : team.call("POST", `${path}/reprocess`)));
    await expectNoFiles(team);
  });
});

describe("Reprocessing a file", () => {
  test.each(["completed", "failed"])("sets a %s file to pending, and processes it", async (status) => {
    const team = await newTeam(queueing);
    const id = await upload(team, "tone.wav", sample("tone.wav").bytes);
    const first = await processed(team, id);
    await DB.prepare("update files set status = ?, audio = null where id = ?").bind(status, id).run();
    const again = (worker: { call: typeof call }) =>
      worker.call("POST", `${UPLOADS}/${id}/reprocess`, { token: team.token });

    const { status: code, body } = await again({ call });
    expect([code, fieldsOf(body), body.status]).toEqual([200, ["message", "status"], true]);
    expect(await metadataOf(team, id)).toMatchObject({ status: "pending", audio: null, processedAt: null });
    await again(queueing);
    const second = await processed(team, id);
    expect(second.audio).toEqual(first.audio);
    expect(second.__v).toBeGreaterThan(first.__v);
  });

  test("leaves a file that is being processed unchanged", async ({ team }) => {
    const id = await upload(team, "a.txt", "hello");
    await DB.prepare("update files set status = 'processing' where id = ?").bind(id).run();
    const before = await snapshot(team.teamId);
    expect((await team.call("POST", `${UPLOADS}/${id}/reprocess`)).status).toBe(200);
    expect(await snapshot(team.teamId)).toEqual(before);
  });
});

test("the usage of a team counts its files, bytes and events, next to their limits", async ({ team }) => {
  const [maxFiles, maxBytes, maxEvents] = [env.MAX_TEAM_FILES, env.MAX_TEAM_BYTES, env.MAX_TEAM_EVENTS].map(Number);
  const expectUsage = async (files: number, bytes: number) => {
    const events = (await eventsOf(team)).filter(({ type }: { type: string }) => /^(file|link)\./.test(type)).length;
    expect(await usageOf(team)).toEqual({
      files,
      bytes,
      events,
      maxFiles,
      maxBytes,
      maxEvents,
      trashFiles: 0,
      trashBytes: 0,
    });
  };
  await expectUsage(0, 0);
  const id = await upload(team, "a.txt", "hello");
  await upload(team, "b.txt", "world!");
  await expectUsage(2, 11);
  await team.call("DELETE", `${UPLOADS}/${id}`);
  await expectUsage(1, 6);
});
