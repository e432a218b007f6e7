import { randomBytes } from "node:crypto";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { facts } from "../audio/facts.ts";
import { Server, type TestTeam } from "../support/server.ts";

let server: Server;
let team: TestTeam;
beforeAll(async () => {
  server = await Server.start();
  team = await server.newTeam();
});
afterAll(() => server?.remove());

const sample = (file: string) => readFileSync(join(import.meta.dirname, "../audio", file));
const bytesOf = async (answer: Response) => Buffer.from(await answer.arrayBuffer());

/** The name that a client saves a download under (RFC 6266: `filename*` before `filename`). */
function savedName(answer: Response): string {
  const header = answer.headers.get("Content-Disposition") ?? "";
  expect(header).toMatch(/^attachment; filename="[\x20-\x7e]*"; filename\*=UTF-8''[\w.~%!#$&+^`|-]*$/);
  return decodeURIComponent(header.replace(/.*filename\*=UTF-8''/, ""));
}

describe("a file's whole life over HTTP", () => {
  test.each(facts)("$file is uploaded, processed, described and opened with equal bytes", async (fact) => {
    const bytes = sample(fact.file);
    const id = await team.upload(fact.file, bytes);
    const found = await team.processed(id);
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
    // Bytes are served as what their first 4 KiB look like; that this one has no picture is found later.
    const served = fact.uploadedAs ?? fact.mimeType;
    expect(opened.headers.get("Content-Type")).toBe(served);
    expect(savedName(opened)).toBe(fact.file);
    expect(bytes.equals(await bytesOf(opened))).toBe(true);
  });

  test("20 MB of random bytes come back identical", async () => {
    const bytes = randomBytes(20_000_000);
    const id = await team.upload("noise.bin", bytes);
    expect(await team.processed(id)).toMatchObject({ status: "completed", fileType: "other file", audio: null });
    const opened = await fetch(await team.sign(id));
    expect(bytes.equals(await bytesOf(opened))).toBe(true);
  });
});

describe("a signed address", () => {
  let id: string;
  const bytes = sample("tone-vbr.mp3");
  beforeAll(async () => {
    id = await team.upload("signed.mp3", bytes);
  });

  test.each([
    ["the first bytes", "bytes=0-99", [0, 100]],
    ["a middle", "bytes=1000-1999", [1000, 2000]],
    ["an open end", "bytes=9000-", [9000, bytes.length]],
    ["the last bytes", "bytes=-17", [bytes.length - 17, bytes.length]],
  ])("opens by Range: %s", async (_, range, [from, to]) => {
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
  ])("with a changed %s is refused", async (_, change) => {
    const url = new URL(await team.sign(id));
    change(url);
    const opened = await fetch(url);
    expect(opened.status).toBe(403);
    expect(await opened.text()).not.toContain("ID3");
  });

  test("without a signature is refused", async () => {
    const { data } = await team.read(`/docs/v1/uploads/${id}/metadata`);
    // R2's answer to a request without any credential.
    expect((await fetch(data.path)).status).toBe(400);
  });

  test("is refused once it has expired", async () => {
    const url = await team.sign(id, 1);
    const refused = await vi.waitUntil(
      async () => {
        const opened = await fetch(url);
        return opened.status === 403 && opened.text();
      },
      { timeout: 10_000, interval: 100 },
    );
    expect(refused).toMatch(/expired/i);
  });

  test("opens nothing once the file is deleted", async () => {
    const doomed = await team.upload("doomed.mp3", bytes);
    const url = await team.sign(doomed);
    expect((await fetch(url)).status).toBe(200);
    expect((await team.fetch(`/docs/v1/uploads/${doomed}`, { method: "DELETE" })).status).toBe(200);
    expect((await fetch(url)).status).toBe(404);
    expect((await team.fetch(`/docs/v1/uploads/${doomed}`)).status).toBe(404);
  });
});

describe("a file's name survives upload, list and download", () => {
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
  ])("%s", async (_, sent, kept = sent) => {
    const own = await server.newTeam();
    const id = await own.upload(sent, sample("tone.opus"));
    const { data } = await own.read("/docs/v1/uploads");
    expect(data).toMatchObject([{ _id: id, originalName: kept, filename: `${id}-${kept}` }]);
    expect(decodeURIComponent(new URL(data[0].path).pathname).endsWith(`/${own.teamId}/${id}-${kept}`)).toBe(true);
    const opened = await fetch(await own.sign(id));
    expect(opened.status).toBe(200);
    expect(savedName(opened)).toBe(kept);
  });
});

/** Another digit at the end: still well formed. */
function flip(url: URL, parameter: string): void {
  const value = url.searchParams.get(parameter) ?? "";
  const at = parameter === "X-Amz-Date" ? value.length - 2 : value.length - 1;
  const digit = value[at] === "1" ? "2" : "1";
  url.searchParams.set(parameter, value.slice(0, at) + digit + value.slice(at + 1));
}
