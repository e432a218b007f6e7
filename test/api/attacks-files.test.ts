import { env } from "cloudflare:workers";
import { beforeAll, describe, expect, test } from "vitest";
import { sample } from "../audio/samples.ts";
import { newTeam, startWorker, type Team, withoutJobs } from "../support/harness.ts";
import { bytesOf, fileForm, sendForm } from "../support/raw-form.ts";

/* What is tried with a file: its name and its bytes. */

const worker = startWorker(withoutJobs);

let team: Team;

beforeAll(async () => {
  team = await newTeam(worker);
});

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

/** Uploads, and answers what came of it in the API and in R2. */
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
  test.each<[string, string]>([
    ["../../../etc/passwd", "passwd"],
    ["..\\..\\windows\\system.ini", "system.ini"],
    ["/etc/shadow", "shadow"],
    ["C:\\dir\\a.mp3", "a.mp3"],
    ["a/../../b.mp3", "b.mp3"],
    ["..", "unnamed"],
    [".", "unnamed"],
    ["...", "unnamed"],
    ["", "unnamed"],
    ["dir/", "unnamed"],
    ["   ", "unnamed"],
    ["%2e%2e%2fa.mp3", "%2e%2e%2fa.mp3"],
    ["..%252fa.mp3", "..%252fa.mp3"],
    ["../%0D%0A/../", "unnamed"],
    ["a.mp3?x=y#z", "a.mp3?x=y#z"],
    ["a.mp3;type=text/html", "html"],
    [".htaccess", ".htaccess"],
    ["CON", "CON"],
    ["a.mp3::$DATA", "a.mp3::$DATA"],
    ["__proto__", "__proto__"],
    ["a\u202e3pm.exe", "a3pm.exe"],
    ["<script>alert(1)</script>.mp3", "script>.mp3"],
    ["$(reboot).mp3", "$(reboot).mp3"],
    ["+ !'()*&=@:,.mp3", "+ !'()*&=@:,.mp3"],
  ])("A file sent as %j is stored as %j.", async (sent, kept) => {
    const stored = await store(fileForm("x", `filename="${sent}"`));
    expect(stored.name).toBe(kept);
    const { pathname } = new URL(stored.path);
    expect(pathname.split("/")).toHaveLength(4);
    expect(decodeURIComponent(pathname.split("/").at(-1) ?? "")).toBe(stored.filename);
    expect(pathname).toMatch(/^[A-Za-z0-9\-._~%/]+$/);
  });

  test.each<[string, string, string]>([
    ["filename*", "filename*=UTF-8''..%2F..%2Fa.mp3", "a.mp3"],
    ["filename* in Latin-1", "filename*=ISO-8859-1''..%5C%E9.mp3", "é.mp3"],
    ["filename* with NUL", "filename*=UTF-8''a.mp3%00.html", "a.mp3.html"],
    ["both, one of them harmless", "filename=\"a.mp3\"; filename*=UTF-8''..%2Fb.mp3", "b.mp3"],
  ])("A file name sent by %s does not lead out of the team's folder.", async (_, parameters, kept) => {
    expect((await store(fileForm("x", parameters))).name).toBe(kept);
  });

  test.each([
    ["300 letters", `${"x".repeat(300)}.mp3`],
    ["300 letters of three bytes", `${"早".repeat(300)}.mp3`],
    ["300 emoji of 25 bytes", `${"👨‍👩‍👧‍👦".repeat(300)}.mp3`],
    ["an extension of 300 letters", `a.${"x".repeat(300)}`],
    ["dots only between letters", "a.".repeat(200)],
    ["one letter under 2,000 marks, with extension", `a${"\u0301".repeat(2000)}.mp3`],
    ["one letter under 2,000 marks", `a${"\u0301".repeat(2000)}`],
  ])("A file name is never too long for R2, nor empty, when it is sent as %s.", async (_, sent) => {
    const { name, key } = await store(fileForm("x", `filename="${sent}"`));
    expect(Buffer.byteLength(name)).toBeLessThanOrEqual(200);
    expect(Buffer.byteLength(key)).toBeLessThanOrEqual(1024);
    expect(name.replace(/\.mp3$/, "")).not.toBe("");
  });
});

describe("The header with a file's name", () => {
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
  ])("A file name with %s does not inject a header.", async (_, parameters) => {
    const { disposition, name } = await store(fileForm("x", parameters));
    // One quoted ASCII string without escapes, one RFC 5987 value, nothing else.
    expect(disposition).toMatch(
      /^attachment; filename="[\x20-\x21\x23-\x24\x26-\x5b\x5d-\x7e]*"; filename\*=UTF-8''[A-Za-z0-9!~_.\-%]*$/,
    );
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
    ["HTML behind zero bytes", bytesOf(new Uint8Array(300), HTML), "application/octet-stream"],
  ])("%s, sent as audio, is stored as what can't run.", async (_, content, type) => {
    const stored = await store(fileForm(content, 'filename="song.mp3"', "audio/mpeg"));
    expect(stored.contentType).toMatch(type);
    expect(stored.fileType).not.toBe("audio file");
    expect(stored.disposition).toMatch(/^attachment; /);
  });

  test.each<[string, string | Uint8Array, RegExp]>([
    ["a GIF that is a script", `GIF89a/*${"\0".repeat(20)}*/=1;alert(1)`, /^(image\/gif|application\/octet-stream)$/],
    ["a PDF that is a page", bytesOf("%PDF-1.4\n", HTML, new Uint8Array(9)), /^application\/(pdf|octet-stream)$/],
    ["an MP3 with a page in its tag", bytesOf("ID3\u0004\0\0\0\0\0\u007f", HTML, new Uint8Array(200)), /^audio\/mpeg$/],
    ["an MP3 with a page behind it", bytesOf(sample("tone-cbr.mp3").bytes, HTML), /^audio\/mpeg$/],
    ["a WAV with a page behind it", bytesOf(sample("tone.wav").bytes, HTML), /^audio\/wav$/],
    [
      "a page with an MP3 behind it",
      bytesOf(HTML, sample("tone-cbr.mp3").bytes),
      /^(text\/plain; charset=utf-8|application\/octet-stream)$/,
    ],
    [
      "a ZIP with a program in front",
      bytesOf("MZ", new Uint8Array(60), "PK\u0003\u0004", new Uint8Array(60)),
      /^application\/octet-stream$/,
    ],
    ["a RIFF of an unknown form", bytesOf("RIFF\x24\0\0\0HTML", HTML), /^application\/octet-stream$|^text\/plain/],
  ])("%s is served as nothing that runs.", async (_, content, type) => {
    const stored = await store(fileForm(content, 'filename="song.html"', "text/html"));
    expect(stored.contentType).toMatch(type);
    expect(stored.contentType).not.toMatch(stored.contentType === "application/pdf" ? /html/ : ACTIVE);
    expect(stored.disposition).toMatch(/^attachment; /);
  });

  test("The media type that a client declares changes nothing.", async () => {
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
