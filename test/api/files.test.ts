import { env } from "cloudflare:workers";
import { createHash } from "node:crypto";
import { describe, expect, test } from "vitest";
import { sample } from "../audio/samples.ts";
import {
  call,
  fieldsOf,
  form,
  newTeam,
  processed,
  queueing,
  refused,
  snapshot,
  startWorker,
  type Team,
  upload,
  withoutJobs,
} from "../support/harness.ts";

const FIELDS = [
  "__v",
  "_id",
  "createdAt",
  "fileType",
  "filename",
  "originalName",
  "path",
  "status",
  "teamId",
  "updatedAt",
];
const METADATA_FIELDS = [...FIELDS, "audio", "failure", "mimeType", "processedAt", "sha256", "size"].sort();
const AUDIO_FIELDS = ["bitrate", "channels", "codec", "container", "durationSeconds", "lossless", "sampleRate", "tags"];
const UPLOADS = "/docs/v1/uploads";

const sha256 = (bytes: Uint8Array | string) => createHash("sha256").update(bytes).digest("hex");
const metadata = async (team: Team, id: string) => (await team.call("GET", `${UPLOADS}/${id}/metadata`)).body.data;
const list = async (team: Team) => (await team.call("GET", UPLOADS)).body.data;
const objectOf = (team: Team, { filename }: { filename: string }) => env.BUCKET.get(`${team.teamId}/${filename}`);

/** A team whose files stay `pending`: its Worker's queue takes messages and delivers none. */
const pendingTeam = () => newTeam(startWorker(withoutJobs));

/** One part with these header parameters as they are, and more parts behind it. */
function rawForm(parameters: string, bytes = "hello", more = "") {
  const body = `--b\r\nContent-Disposition: form-data; ${parameters}\r\n\r\n${bytes}\r\n${more}--b--\r\n`;
  return { body, headers: { "Content-Type": "multipart/form-data; boundary=b" } };
}
const textParts = (count: number, text = "x") =>
  Array.from({ length: count }, (_, i) => `--b\r\nContent-Disposition: form-data; name="t${i}"\r\n\r\n${text}\r\n`);

describe("uploading", () => {
  test("answers a message and no more; Location names the file", async () => {
    const team = await newTeam();
    const { status, headers, body } = await team.call("POST", UPLOADS, { body: form("tone.mp3", "hello") });
    expect([status, fieldsOf(body)]).toEqual([200, ["message"]]);
    expect(body.message).toMatch(/processed shortly/);
    expect(headers.get("Location")).toMatch(/^\/docs\/v1\/uploads\/[0-9a-f]{24}$/);
    expect((await list(team)).map(({ _id }: { _id: string }) => _id)).toEqual([headers.get("Location")?.slice(-24)]);
  });

  test.each(["limit=5", "limit=nonsense"])("accepts %s in the query, and ignores it", async (query) => {
    const team = await newTeam();
    const { status } = await team.call("POST", `${UPLOADS}?${query}`, { body: form("a.txt", "hello") });
    expect(status).toBe(200);
  });

  test("by a public key is possible, and nothing else is; the file belongs to the key's team", async () => {
    const team = await newTeam();
    const json = { name: "page", isPublic: true };
    const { key: token } = (await team.call("POST", "/auth/v1/apikeys", { json })).body.data;
    const { status, headers } = await call("POST", UPLOADS, { token, body: form("a.txt", "hello") });
    expect(status).toBe(200);
    const at = headers.get("Location") ?? "";
    expect((await call("GET", at, { token })).status).toBe(403);
    expect((await team.call("GET", at)).status).toBe(200);
  });

  test("stores a large file in parts, and every byte of it", async () => {
    const team = await newTeam(queueing);
    const bytes = Uint8Array.from({ length: 17 * 1024 * 1024 + 1 }, (_, i) => (i * i) % 251);
    const id = await upload(team, "large.bin", bytes);
    const found = await processed(team, id);
    expect(found).toMatchObject({ status: "completed", size: bytes.length, sha256: sha256(bytes) });
    const object = await objectOf(team, found);
    expect(object?.etag).toMatch(/-4$/);
    expect(sha256(new Uint8Array(await object!.arrayBuffer()))).toBe(sha256(bytes));
  });

  test("ignores up to ten text parts of 1 KiB", async () => {
    const team = await newTeam();
    const more = textParts(10, "x".repeat(1024)).join("");
    const options = rawForm('name="file"; filename="a.txt"', "hello", more);
    expect((await team.call("POST", UPLOADS, options)).status).toBe(200);
    for (const tooMuch of [textParts(11), textParts(1, "x".repeat(1025))]) {
      const refusal = rawForm('name="file"; filename="b.txt"', "hello", tooMuch.join(""));
      expect((await team.call("POST", UPLOADS, refusal)).body.code).toBe("malformed_multipart");
    }
    expect(await list(team)).toHaveLength(1);
  });
});

describe("the name of a file", () => {
  const letters = (count: number) => "é".repeat(count);
  test.each([
    ["Ünïcødé 录音 (1)+final's #3 100%.mp3", undefined],
    ["🎧 мелодия – نغمة.mp3", undefined],
    ["a=b;c&d,e$f!g*h~i`j^k[l]{m}.mp3", undefined],
    ["no extension", undefined],
    [".hidden", undefined],
    [`${"a".repeat(251)}.mp3`, `${"a".repeat(196)}.mp3`],
    [`${letters(125)}.mp3`, `${letters(98)}.mp3`],
    [`${"👩‍👩‍👧".repeat(14)}.mp3`, `${"👩‍👩‍👧".repeat(10)}.mp3`],
    ["/etc/../tmp/song.mp3", "song.mp3"],
    ["C:\\music\\song.mp3", "song.mp3"],
    ["a\u0000b\u0007\u001b[31m\u0085.mp3", "ab[31m.mp3"],
    ["song\u202e3pm.exe\u2066\u2069", "song3pm.exe"],
    ["..", "unnamed"],
    ["\u0001", "unnamed"],
    ["", "unnamed"],
  ])("sent as %j is kept, or cut to its safe part", async (sent, kept = sent) => {
    const team = await newTeam();
    const { status, headers, text } = await team.call("POST", UPLOADS, rawForm(`name="file"; filename="${sent}"`));
    expect(status, text).toBe(200);
    const file = await metadata(team, headers.get("Location")?.slice(-24) ?? "");
    expect([file.originalName, file.filename]).toEqual([kept, `${file._id}-${kept}`]);
    const path = new URL(file.path);
    expect(path.pathname.split("/").map(decodeURIComponent)).toEqual([
      ...["", env.S3_BUCKET, team.teamId],
      file.filename,
    ]);
    expect(file.path).toMatch(/^https:\/\/[^/]+\/[A-Za-z0-9._~%/-]+$/);
    const stored = await objectOf(team, file);
    expect(await stored?.text()).toBe("hello");
    const disposition = stored?.httpMetadata?.contentDisposition ?? "";
    expect(disposition).toMatch(/^attachment; filename="[ -~]*"; filename\*=UTF-8''[A-Za-z0-9._~!$&+^`|#%-]+$/);
    expect(decodeURIComponent(disposition.split("''")[1] ?? "")).toBe(kept);
  });

  test("can't put a header or a second parameter into Content-Disposition", async () => {
    const team = await newTeam();
    const name = "a%22; filename=%22evil.html%0D%0ASet-Cookie: x=1";
    const { headers } = await team.call("POST", UPLOADS, rawForm(`name="file"; filename="${name}"`));
    const file = await metadata(team, headers.get("Location")?.slice(-24) ?? "");
    expect(file.originalName).toBe('a"; filename="evil.htmlSet-Cookie: x=1');
    const disposition = (await objectOf(team, file))?.httpMetadata?.contentDisposition;
    expect(disposition).toMatch(/^attachment; filename="[^"\r\n]*"; filename\*=UTF-8''[^"\s;]+$/);
  });
});

describe("the type of a file", () => {
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
  ])("is told from the bytes: %s", async (_, type, name, bytes, fileType, stored = "text/plain; charset=utf-8") => {
    const team = await pendingTeam();
    const body = new FormData();
    body.append("file", new File([bytes], name, { type }));
    await team.call("POST", UPLOADS, { body });
    const [file] = await list(team);
    expect(file.fileType).toBe(fileType);
    expect((await metadata(team, file._id)).mimeType).toBe(stored.split(";")[0]);
    const { httpMetadata } = (await objectOf(team, file))!;
    expect(httpMetadata?.contentType).toBe(stored);
    expect(httpMetadata?.contentDisposition).toMatch(/^attachment;/);
  });
});

describe("listing files", () => {
  test("answers the ten documented fields of each, newest first, and no more", async () => {
    const team = await pendingTeam();
    expect((await team.call("GET", UPLOADS)).body.data).toEqual([]);
    const ids = [await upload(team, "a.txt", "a"), await upload(team, "b.mp3", sample("tone-vbr.mp3").bytes)];
    const { body } = await team.call("GET", UPLOADS);
    expect(fieldsOf(body)).toEqual(["data", "message"]);
    for (const file of body.data) expect(fieldsOf(file)).toEqual(FIELDS);
    expect(body.data.map(({ _id }: { _id: string }) => _id)).toEqual(ids.sort().reverse());
    const [file] = body.data.filter(({ originalName }: { originalName: string }) => originalName === "b.mp3");
    expect(file).toMatchObject({ teamId: team.teamId, fileType: "audio file", status: "pending" });
    expect(file.path).toBe(`${env.S3_ENDPOINT}/${env.S3_BUCKET}/${team.teamId}/${file.filename}`);
  });
});

describe("the signed address of a file", () => {
  const sign = (team: Team, id: string, query = "") => team.call("GET", `${UPLOADS}/${id}${query}`);

  test("is on the storage host, for the file's own path, for an hour; it is there before the file is processed", async () => {
    const team = await pendingTeam();
    const id = await upload(team, "my song.mp3", "hello");
    const { body } = await sign(team, id);
    expect(fieldsOf(body)).toEqual(["message", "signedUrl", "status"]);
    expect([body.status, typeof body.message]).toEqual([true, "string"]);
    const url = new URL(body.signedUrl);
    expect(url.origin + url.pathname).toBe(new URL((await metadata(team, id)).path).href);
    expect(url.host).toBe(new URL(env.S3_ENDPOINT).host);
    expect(url.searchParams.get("X-Amz-Expires")).toBe("3600");
    expect(url.searchParams.get("X-Amz-Signature")).toMatch(/^[0-9a-f]{64}$/);
  });

  test.each([1, 604_800])("lives for expiresIn=%d seconds", async (seconds) => {
    const team = await pendingTeam();
    const { body } = await sign(team, await upload(team, "a.txt", "hello"), `?expiresIn=${seconds}`);
    expect(new URL(body.signedUrl).searchParams.get("X-Amz-Expires")).toBe(`${seconds}`);
  });

  test.each(["0", "604801", "-1", "1.5", "1e3", "abc", "", "%201", "٣", "1&expiresIn=2", "99999999999999999999"])(
    "is refused for expiresIn=%s",
    async (value) => {
      const team = await pendingTeam();
      const id = await upload(team, "a.txt", "hello");
      await refused(team, 400, "invalid_input", () => sign(team, id, `?expiresIn=${value}`), ["expiresIn"]);
    },
  );
});

describe("the metadata of a file", () => {
  test("holds what processing found in an audio file", async () => {
    const team = await newTeam(queueing);
    const { bytes, audio, title } = sample("tone-vbr.mp3");
    const id = await upload(team, "tone.mp3", bytes);
    const found = await processed(team, id);
    expect(fieldsOf(found)).toEqual(METADATA_FIELDS);
    expect(found).toMatchObject({ status: "completed", size: bytes.length, mimeType: "audio/mpeg", failure: null });
    expect([found.sha256, found.fileType]).toEqual([sha256(bytes), "audio file"]);
    expect(fieldsOf(found.audio)).toEqual(AUDIO_FIELDS);
    expect(found.audio.durationSeconds).toBeCloseTo(audio?.durationSeconds ?? 0, 1);
    expect([found.audio.sampleRate, found.audio.tags.title]).toEqual([audio?.sampleRate, title]);
    expect(Date.parse(found.processedAt)).toBeGreaterThanOrEqual(Date.parse(found.createdAt));
    expect(found.__v).toBeGreaterThan(0);
  });

  test("of a file that is no audio has none, and the file is completed", async () => {
    const team = await newTeam(queueing);
    const found = await processed(team, await upload(team, "note.txt", "hello"));
    expect(found).toMatchObject({ status: "completed", audio: null, failure: null });
  });

  test("of what calls itself audio and can't be read says why it failed", async () => {
    const team = await newTeam(queueing);
    const found = await processed(team, await upload(team, "tone.flac", `fLaC${"\u0000\u0081".repeat(2000)}`));
    expect(found).toMatchObject({ status: "failed", audio: null, failure: { code: "audio_unreadable" } });
    expect(fieldsOf(found.failure)).toEqual(["code", "message"]);
  });
});

describe("deleting a file", () => {
  test.each(["pending", "processing", "completed", "failed"])(
    "works while it is %s: its bytes are gone",
    async (status) => {
      const team = await pendingTeam();
      const id = await upload(team, "a.txt", "hello");
      await env.DB.prepare("update files set status = ? where id = ?").bind(status, id).run();
      expect((await metadata(team, id)).status).toBe(status);
      const { status: code, body } = await team.call("DELETE", `${UPLOADS}/${id}`);
      expect([code, fieldsOf(body), body.status]).toEqual([200, ["message", "status"], true]);
      expect(await snapshot(team.teamId)).toMatchObject({ rows: [[{}], [], []], objects: [] });
      for (const [method, path] of [
        ["GET", ""],
        ["GET", "/metadata"],
        ["POST", "/reprocess"],
        ["DELETE", ""],
      ] as const) {
        expect((await team.call(method, `${UPLOADS}/${id}${path}`)).status).toBe(404);
      }
    },
  );

  test("twice at once answers each that it is gone", async () => {
    const team = await pendingTeam();
    const id = await upload(team, "a.txt", "hello");
    const answers = await Promise.all([1, 2].map(() => team.call("DELETE", `${UPLOADS}/${id}`)));
    for (const { status } of answers) expect([200, 404]).toContain(status);
    expect(await list(team)).toEqual([]);
  });
});

describe("processing a file again", () => {
  test.each(["completed", "failed"])("makes a %s file pending, and it is processed", async (status) => {
    const team = await newTeam(queueing);
    const id = await upload(team, "tone.wav", sample("tone.wav").bytes);
    const first = await processed(team, id);
    await env.DB.prepare("update files set status = ?, audio = null where id = ?").bind(status, id).run();
    const deaf = startWorker(withoutJobs);
    const again = (worker: { call: typeof call }) =>
      worker.call("POST", `${UPLOADS}/${id}/reprocess`, { token: team.token });

    const { status: code, body } = await again(deaf);
    expect([code, fieldsOf(body), body.status]).toEqual([200, ["message", "status"], true]);
    expect(await metadata(team, id)).toMatchObject({ status: "pending", audio: null, processedAt: null });
    await again(queueing);
    const second = await processed(team, id);
    expect(second.audio).toEqual(first.audio);
    expect(second.__v).toBeGreaterThan(first.__v);
  });

  test("leaves a file that is being processed as it is", async () => {
    const team = await pendingTeam();
    const id = await upload(team, "a.txt", "hello");
    await env.DB.prepare("update files set status = 'processing' where id = ?").bind(id).run();
    const before = await snapshot(team.teamId);
    expect((await team.call("POST", `${UPLOADS}/${id}/reprocess`)).status).toBe(200);
    expect(await snapshot(team.teamId)).toEqual(before);
  });
});

test("the usage of a team counts its files and their bytes, beside what it may keep", async () => {
  const team = await pendingTeam();
  const usage = async () => (await team.call("GET", "/docs/v1/usage")).body;
  const allowed = { maxFiles: Number(env.MAX_TEAM_FILES), maxBytes: Number(env.MAX_TEAM_BYTES) };
  expect(fieldsOf(await usage())).toEqual(["data", "message"]);
  expect((await usage()).data).toEqual({ files: 0, bytes: 0, ...allowed });
  const id = await upload(team, "a.txt", "hello");
  await upload(team, "b.txt", "world!");
  expect((await usage()).data).toEqual({ files: 2, bytes: 11, ...allowed });
  await team.call("DELETE", `${UPLOADS}/${id}`);
  expect((await usage()).data).toEqual({ files: 1, bytes: 6, ...allowed });
});
