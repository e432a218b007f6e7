import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { beforeAll, describe, expect, test } from "vitest";
import { sample } from "../audio/samples.ts";
import {
  atOnce,
  call,
  fieldsOf,
  form,
  newTeam,
  processed,
  queueing,
  snapshot,
  type Team,
  tally,
  upload,
  withinOneMinute,
} from "../support/harness.ts";
import { bytesOf, fileForm, sendForm } from "../support/raw-form.ts";

const FIELDS = [
  ...["__v", "_id", "artist", "createdAt", "durationSeconds", "fileType", "filename", "folder", "mimeType", "name"],
  ...["originalName", "path", "reference", "size", "status", "tags", "teamId", "title", "updatedAt"],
];
const METADATA_FIELDS = [...FIELDS, "audio", "failure", "hasWaveform", "metadata", "processedAt", "sha256"].sort();
const AUDIO_FIELDS = ["bitrate", "channels", "codec", "container", "durationSeconds", "lossless", "sampleRate", "tags"];
const UPLOADS = "/docs/v1/uploads";

const sha256 = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex");
const metadata = async (team: Team, id: string) => (await team.call("GET", `${UPLOADS}/${id}/metadata`)).body.data;
const usageOf = async (team: Team) => (await team.call("GET", "/docs/v1/usage")).body.data;
const list = async (team: Team) => (await team.call("GET", UPLOADS)).body.data;
const objectOf = (team: Team, { filename }: { filename: string }) => env.BUCKET.get(`${team.teamId}/${filename}`);

let team: Team;
beforeAll(async () => {
  team = await newTeam();
});

/** One quoted ASCII string without escapes, one RFC 5987 value, and nothing else. */
const DISPOSITION =
  /^attachment; filename="[\x20-\x21\x23-\x24\x26-\x5b\x5d-\x7e]*"; filename\*=UTF-8''[A-Za-z0-9!~_.\-%]*$/;

interface Stored {
  name: string;
  filename: string;
  path: string;
  fileType: string;
  mimeType: string;
  key: string;
  contentType: string | undefined;
  disposition: string;
}

/** Uploads the form. @returns the file as the API and R2 return it */
async function store(body: Uint8Array<ArrayBuffer>): Promise<Stored> {
  const { status, headers, text } = await sendForm(team, body);
  expect(status, text).toBe(200);
  const id = headers.get("Location")?.split("/").at(-1) ?? "";
  const { data } = (await team.call("GET", `/docs/v1/uploads/${id}/metadata`)).body;
  const { objects } = await env.BUCKET.list({ prefix: `${team.teamId}/${id}`, include: ["httpMetadata"] });
  expect(objects).toHaveLength(1);
  const { key = "", httpMetadata } = objects[0] ?? {};
  expect(data.filename).toBe(`${id}-${data.originalName}`);
  expect(key).toBe(`${team.teamId}/${data.filename}`);
  return {
    name: data.originalName,
    filename: data.filename,
    path: data.path,
    fileType: data.fileType,
    mimeType: data.mimeType,
    key,
    contentType: httpMetadata?.contentType,
    disposition: httpMetadata?.contentDisposition ?? "",
  };
}

describe("The name of a file", () => {
  const letters = (count: number) => "é".repeat(count);
  test.each<[sent: string, kept?: string]>([
    ["Ünïcødé 录音 (1)+final's #3 100%.mp3"],
    ["🎧 мелодия – نغمة.mp3"],
    ["a=b;c&d,e$f!g*h~i`j^k[l]{m}.mp3"],
    ["no extension"],
    [".hidden"],
    ["CON"],
    ["__proto__"],
    ["$(reboot).mp3"],
    ["+ !'()*&=@:,.mp3"],
    ["a.mp3?x=y#z"],
    ["a.mp3::$DATA"],
    ["%2e%2e%2fa.mp3"],
    ["..%252fa.mp3"],
    [`${"a".repeat(251)}.mp3`, `${"a".repeat(196)}.mp3`],
    [`${letters(125)}.mp3`, `${letters(98)}.mp3`],
    [`${"👩‍👩‍👧".repeat(14)}.mp3`, `${"👩‍👩‍👧".repeat(10)}.mp3`],
    ["/etc/../tmp/song.mp3", "song.mp3"],
    ["../../../etc/passwd", "passwd"],
    ["a/../../b.mp3", "b.mp3"],
    ["C:\\music\\song.mp3", "song.mp3"],
    ["..\\..\\windows\\system.ini", "system.ini"],
    ["a\u0000b\u0007\u001b[31m\u0085.mp3", "ab[31m.mp3"],
    ["song\u202e3pm.exe\u2066\u2069", "song3pm.exe"],
    ["a.mp3;type=text/html", "html"],
    ["<script>alert(1)</script>.mp3", "script>.mp3"],
    ["a%22; filename=%22evil.html%0D%0ASet-Cookie: x=1", 'a"; filename="evil.htmlSet-Cookie: x=1'],
    ["..", "unnamed"],
    [".", "unnamed"],
    ["...", "unnamed"],
    ["", "unnamed"],
    ["   ", "unnamed"],
    ["dir/", "unnamed"],
    ["../%0D%0A/../", "unnamed"],
    ["\u0001", "unnamed"],
  ])("is stored without its unsafe parts if it is sent as %j", async (sent, kept = sent) => {
    const { name, filename, path, key, disposition } = await store(fileForm("hello", `filename="${sent}"`));
    expect(name).toBe(kept);
    expect(new URL(path).pathname.split("/").map(decodeURIComponent)).toEqual([
      ...["", env.S3_BUCKET, team.teamId],
      filename,
    ]);
    expect(path).toMatch(/^https:\/\/[^/]+\/[A-Za-z0-9._~%/-]+$/);
    expect(await (await env.BUCKET.get(key))?.text()).toBe("hello");
    expect(disposition).toMatch(DISPOSITION);
    expect(decodeURIComponent(disposition.split("UTF-8''").at(-1) ?? "")).toBe(kept);
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
    ["300 letters", `${"x".repeat(300)}.mp3`],
    ["5,000 letters of three bytes", "早".repeat(5000)],
    ["5,000 letters with an extension of 31", `${"x".repeat(5000)}.${"y".repeat(31)}`],
    ["one letter under 5,000 marks", `a${"\u0301".repeat(5000)}.mp3`],
    ["300 emoji of 25 bytes", `${"👨‍👩‍👧‍👦".repeat(300)}.mp3`],
    ["an extension of 300 letters", `a.${"x".repeat(300)}`],
    ["dots only between letters", "a.".repeat(200)],
    ["one letter under 2,000 marks", `a${"\u0301".repeat(2000)}`],
  ])("is shortened to 200 bytes, and never empty, if it is sent as %s", async (_, sent) => {
    const { name, key } = await store(fileForm("x", `filename="${sent}"`));
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
    const { disposition, name } = await store(fileForm("x", parameters));
    expect(disposition).toMatch(DISPOSITION);
    expect(decodeURIComponent(disposition.split("UTF-8''").at(-1) ?? "")).toBe(name);
    expect(name).not.toMatch(/[\p{Cc}\u2028\u2029]/u);
  });
});

const HTML = "<!doctype html><html><script>fetch('/auth/v1/apikeys')</script></html>";
const SVG = '<svg xmlns="http://www.w3.org/2000/svg" onload="alert(1)"/>';
const ACTIVE = /html|svg|xml|script|css|flash|pdf$|wasm|json/;

describe("The bytes of a file", () => {
  const text = "text/plain; charset=utf-8";
  test.each<[string, string | Uint8Array, string | RegExp]>([
    ["HTML", HTML, text],
    ["HTML after white space", `\n\n\t ${HTML}`, text],
    ["HTML after a byte order mark", `\ufeff${HTML}`, text],
    [
      "HTML in UTF-16",
      bytesOf(new Uint8Array([0xff, 0xfe]), Buffer.from(HTML, "utf16le")),
      /^(text\/plain|application\/octet-stream)/,
    ],
    ["HTML in UTF-7", "+ADw-script+AD4-alert(1)+ADw-/script+AD4-", text],
    ["SVG", SVG, text],
    ["SVG with an XML declaration", `<?xml version="1.0"?>${SVG}`, text],
    [
      "XML with an external entity",
      '<?xml version="1.0"?><!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><a>&b;</a>',
      text,
    ],
    ["JavaScript", "alert(document.domain)", text],
    ["JSON", '{"a":1}', text],
    ["CSS", "body{background:url(//evil.example)}", text],
    ["a shell script", "#!/bin/sh\nreboot", text],
    ["a Windows program", bytesOf("MZ", new Uint8Array(200)), "application/octet-stream"],
    ["WebAssembly", bytesOf("\0asm", new Uint8Array([1, 0, 0, 0])), "application/octet-stream"],
    ["Flash", bytesOf("FWS", new Uint8Array(100)), "application/octet-stream"],
    ["HTML after zero bytes", bytesOf(new Uint8Array(300), HTML), "application/octet-stream"],
  ])("are stored with a type that cannot run if they are %s sent as audio", async (_, content, type) => {
    const stored = await store(fileForm(content, 'filename="song.mp3"', "audio/mpeg"));
    expect(stored.contentType).toMatch(type);
    expect(stored.fileType).not.toBe("audio file");
    expect(stored.disposition).toMatch(/^attachment; /);
  });

  test.each<[string, string | Uint8Array, RegExp]>([
    ["a GIF that is a script", `GIF89a/*${"\0".repeat(20)}*/=1;alert(1)`, /^(image\/gif|application\/octet-stream)$/],
    ["a PDF that is a page", bytesOf("%PDF-1.4\n", HTML, new Uint8Array(9)), /^application\/(pdf|octet-stream)$/],
    ["an MP3 with a page in its tag", bytesOf("ID3\u0004\0\0\0\0\0\u007f", HTML, new Uint8Array(200)), /^audio\/mpeg$/],
    ["an MP3 with a page after it", bytesOf(sample("tone-cbr.mp3").bytes, HTML), /^audio\/mpeg$/],
    ["a WAV with a page after it", bytesOf(sample("tone.wav").bytes, HTML), /^audio\/wav$/],
    [
      "a page with an MP3 after it",
      bytesOf(HTML, sample("tone-cbr.mp3").bytes),
      /^(text\/plain; charset=utf-8|application\/octet-stream)$/,
    ],
    [
      "a ZIP with a program in front",
      bytesOf("MZ", new Uint8Array(60), "PK\u0003\u0004", new Uint8Array(60)),
      /^application\/octet-stream$/,
    ],
    ["a RIFF of an unknown form", bytesOf("RIFF\x24\0\0\0HTML", HTML), /^application\/octet-stream$|^text\/plain/],
  ])("are served with a type that cannot run if they are %s", async (_, content, type) => {
    const stored = await store(fileForm(content, 'filename="song.html"', "text/html"));
    expect(stored.contentType).toMatch(type);
    expect(stored.contentType).not.toMatch(stored.contentType === "application/pdf" ? /html/ : ACTIVE);
    expect(stored.disposition).toMatch(/^attachment; /);
  });

  test("determine the type, whatever type a client declares", async () => {
    for (const declared of [
      "text/html",
      "image/svg+xml",
      "text/html\r\nContent-Disposition: inline",
      "x",
      "a".repeat(500),
    ]) {
      const answer = await sendForm(team, fileForm(HTML, 'filename="a.html"', declared));
      if (answer.status !== 200) expect(answer.body.code).toBe("malformed_multipart");
    }
    const { objects } = await env.BUCKET.list({ prefix: team.teamId, include: ["httpMetadata"] });
    for (const { httpMetadata } of objects) {
      expect(httpMetadata?.contentType).not.toMatch(/html|svg|xml/);
      expect(httpMetadata?.contentDisposition).toMatch(/^attachment; /);
    }
  });
});

describe("The media type of a file", () => {
  const zip = "PK\u0003\u0004\u0014\u0000\u0000\u0000\u0000\u0000";
  test.each([
    ["HTML called song.mp3", "audio/mpeg", "song.mp3", "<!DOCTYPE html><script>alert(1)</script>", "text file"],
    ["SVG called photo.png", "image/png", "photo.png", '<svg xmlns="http://www.w3.org/2000/svg"/>', "text file"],
    ["an mp3 called page.html", "text/html", "page.html", sample("tone-vbr.mp3").bytes, "audio file", "audio/mpeg"],
    ["a video", "audio/mp4", "a.m4a", sample("silent.mp4").bytes, "video file", "video/mp4"],
    ["a PNG", "text/html", "a.html", sample("pixel.png").bytes, "image file", "image/png"],
    ["a PDF", "", "a.mp3", "%PDF-1.7\n%\u0081\n1 0 obj", "document file", "application/pdf"],
    ["a ZIP", "", "a.mp3", zip.padEnd(60, "\u0000"), "archive file", "application/zip"],
    ["noise", "", "a.mp3", new Uint8Array([1, 0, 2, 255, 254, 7, 0, 0]), "other file", "application/octet-stream"],
  ])(
    "is detected from the content of %s",
    async (_, type, name, bytes, fileType, stored = "text/plain; charset=utf-8") => {
      const team = await newTeam();
      const body = new FormData();
      body.append("file", new File([bytes], name, { type }));
      await team.call("POST", UPLOADS, { body });
      const [file] = await list(team);
      expect(file.fileType).toBe(fileType);
      expect((await metadata(team, file._id)).mimeType).toBe(stored.split(";")[0]);
      const { httpMetadata } = (await objectOf(team, file))!;
      expect(httpMetadata?.contentType).toBe(stored);
      expect(httpMetadata?.contentDisposition).toMatch(/^attachment;/);
    },
  );
});

describe("Listing files", () => {
  test("lists the documented fields of each file, newest first", async () => {
    const team = await newTeam();
    expect((await team.call("GET", UPLOADS)).body.data).toEqual([]);
    const ids = [await upload(team, "a.txt", "a"), await upload(team, "b.mp3", sample("tone-vbr.mp3").bytes)];
    const { body } = await team.call("GET", UPLOADS);
    expect(fieldsOf(body)).toEqual(["data", "message"]);
    for (const file of body.data) expect(fieldsOf(file)).toEqual(FIELDS);
    expect(body.data.map(({ _id }: { _id: string }) => _id)).toEqual(ids.sort().reverse());
    const [file] = body.data.filter(({ originalName }: { originalName: string }) => originalName === "b.mp3");
    expect(file).toMatchObject({ teamId: team.teamId, fileType: "audio file", status: "pending" });
    expect(file).toMatchObject({ size: sample("tone-vbr.mp3").bytes.length, durationSeconds: null });
    expect(file.path).toBe(`${env.S3_ENDPOINT}/${env.S3_BUCKET}/${team.teamId}/${file.filename}`);
  });
});

describe("The metadata of a file", () => {
  test("contain what processing detected in an audio file", async () => {
    const team = await newTeam(queueing);
    const { bytes, audio, title } = sample("tone-vbr.mp3");
    const id = await upload(team, "tone.mp3", bytes);
    const file = await processed(team, id);
    expect(fieldsOf(file)).toEqual(METADATA_FIELDS);
    expect(file).toMatchObject({ status: "completed", size: bytes.length, mimeType: "audio/mpeg", failure: null });
    expect([file.sha256, file.fileType]).toEqual([sha256(bytes), "audio file"]);
    expect(fieldsOf(file.audio)).toEqual(AUDIO_FIELDS);
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
    await env.DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
    expect((await metadata(team, id)).status).toBe(status);
    const { status: code, body } = await team.call("DELETE", `${UPLOADS}/${id}`);
    expect([code, fieldsOf(body), body.status]).toEqual([200, ["message", "status"], true]);
    const count = env.DB.prepare("select count(*) as files from files where team_id = ?").bind(team.teamId);
    expect(await count.first()).toEqual({ files: 0 });
    expect(await snapshot(team.teamId)).toMatchObject({ objects: [] });
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
  test("delete it once and count it once if twenty requests do it", async () => {
    const team = await newTeam();
    await team.call("POST", "/docs/v1/uploads", { body: form("kept.txt", "kept") });
    const { headers } = await team.call("POST", "/docs/v1/uploads", { body: form("raced.txt", "raced") });
    const path = headers.get("Location") ?? "";
    const counts = tally(await atOnce(20, () => team.call("DELETE", path)));
    expect(counts["200"]).toBeGreaterThanOrEqual(1);
    expect(Object.keys(counts).every((code) => ["200", "not_found"].includes(code))).toBe(true);
    expect(await usageOf(team)).toMatchObject({ files: 1, bytes: 4 });
    expect((await env.BUCKET.list({ prefix: team.teamId })).objects).toHaveLength(1);
  });

  test("leave nothing of a file that is reprocessed while it is deleted", async () => {
    const team = await newTeam();
    const { headers } = await team.call("POST", "/docs/v1/uploads", { body: form("raced.txt", "raced") });
    const path = headers.get("Location") ?? "";
    await env.DB.prepare("update files set status = 'completed' where team_id = ?").bind(team.teamId).run();
    await atOnce(20, (i) => (i === 10 ? team.call("DELETE", path) : team.call("POST", `${path}/reprocess`)));
    expect((await team.call("GET", path)).status).toBe(404);
    expect(await usageOf(team)).toMatchObject({ files: 0, bytes: 0 });
  });
});

describe("Reprocessing a file", () => {
  test.each(["completed", "failed"])("sets a %s file to pending, and processes it", async (status) => {
    const team = await newTeam(queueing);
    const id = await upload(team, "tone.wav", sample("tone.wav").bytes);
    const first = await processed(team, id);
    await env.DB.prepare("update files set status = ?, audio = null where id = ?").bind(status, id).run();
    const again = (worker: { call: typeof call }) =>
      worker.call("POST", `${UPLOADS}/${id}/reprocess`, { token: team.token });

    const { status: code, body } = await again({ call });
    expect([code, fieldsOf(body), body.status]).toEqual([200, ["message", "status"], true]);
    expect(await metadata(team, id)).toMatchObject({ status: "pending", audio: null, processedAt: null });
    await again(queueing);
    const second = await processed(team, id);
    expect(second.audio).toEqual(first.audio);
    expect(second.__v).toBeGreaterThan(first.__v);
  });

  test("is limited to ten times a minute per team", async () => {
    const answers = await withinOneMinute(async () => {
      const team = await newTeam();
      const id = await upload(team, "a.txt", "hello");
      return atOnce(11, () => team.call("POST", `${UPLOADS}/${id}/reprocess`));
    });
    expect(tally(answers)).toEqual({ 200: 10, rate_limited: 1 });
    const limited = answers.find(({ status }) => status === 429);
    expect(Number(limited?.headers.get("Retry-After"))).toBeGreaterThan(0);
    const other = await newTeam();
    const id = await upload(other, "a.txt", "hello");
    expect((await other.call("POST", `${UPLOADS}/${id}/reprocess`)).status).toBe(200);
  });

  test("leaves a file that is being processed unchanged", async () => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "hello");
    await env.DB.prepare("update files set status = 'processing' where id = ?").bind(id).run();
    const before = await snapshot(team.teamId);
    expect((await team.call("POST", `${UPLOADS}/${id}/reprocess`)).status).toBe(200);
    expect(await snapshot(team.teamId)).toEqual(before);
  });
});

test("the usage of a team counts its files, bytes and events, next to their limits", async () => {
  const team = await newTeam();
  const usage = async () => (await team.call("GET", "/docs/v1/usage")).body;
  const limits = {
    maxFiles: Number(env.MAX_TEAM_FILES),
    maxBytes: Number(env.MAX_TEAM_BYTES),
    maxEvents: Number(env.MAX_TEAM_EVENTS),
  };
  const stored = async () =>
    (await env.DB.prepare("select count(*) as n from events where team_id = ?").bind(team.teamId).first<number>("n")) ??
    0;
  expect(fieldsOf(await usage())).toEqual(["data", "message"]);
  expect((await usage()).data).toEqual({ files: 0, bytes: 0, events: 1, ...limits });
  const id = await upload(team, "a.txt", "hello");
  await upload(team, "b.txt", "world!");
  expect((await usage()).data).toEqual({ files: 2, bytes: 11, events: await stored(), ...limits });
  await team.call("DELETE", `${UPLOADS}/${id}`);
  expect((await usage()).data).toEqual({ files: 1, bytes: 6, events: await stored(), ...limits });
});
