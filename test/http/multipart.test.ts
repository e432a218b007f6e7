import { Busboy } from "@fastify/busboy";
import fc from "fast-check";
import { afterEach, describe, expect, it, vi } from "vitest";
import { AppError } from "../../src/errors.ts";
import { readMultipartFile } from "../../src/http/multipart.ts";
import { MemoryBudget } from "../../src/platform/part.ts";
import { isExhaustive } from "../support/tiers.ts";

const BOUNDARY = "----boundary7MA4YWxk";
const LONGEST = `'()+_,-./:=? ${"x".repeat(57)}`;
const TYPE = `multipart/form-data; boundary=${BOUNDARY}`;
const NEARLY = `\r\n--${BOUNDARY.slice(0, -1)}\r\n--\r\n\r`;
const NESTED = "--x\r\nContent-Type: text/plain\r\n\r\nwithin\r\n--x--\r\n";
const memory = () => ({ slot: { release: () => undefined }, budget: new MemoryBudget(), isVisitor: false });
const LIMITS = { maxFileBytes: 100_000, idleMilliseconds: 600_000, begin: memory };
const ALLOWED_BODY_BYTES = LIMITS.maxFileBytes + 64 * 1024;

type Bytes = Uint8Array<ArrayBuffer>;

const encode = (text: string): Bytes => new Uint8Array(new TextEncoder().encode(text));
const decode = (bytes: Uint8Array): string => new TextDecoder("utf-8", { fatal: false, ignoreBOM: true }).decode(bytes);

function concat(...chunks: (string | Uint8Array)[]): Bytes {
  const all = chunks.map((chunk) => (typeof chunk === "string" ? encode(chunk) : chunk));
  const whole = new Uint8Array(all.reduce((sum, chunk) => sum + chunk.length, 0));
  let offset = 0;
  for (const chunk of all) {
    whole.set(chunk, offset);
    offset += chunk.length;
  }
  return whole;
}

const part = (headers: string, content: string | Uint8Array = "content") =>
  concat(`--${BOUNDARY}\r\n${headers}\r\n\r\n`, content, "\r\n");
const form = (...parts: (string | Uint8Array)[]) => concat(...parts, `--${BOUNDARY}--\r\n`);
const file = (content: string | Uint8Array = "content", disposition = 'name="file"; filename="a.mp3"') =>
  part(`Content-Disposition: form-data; ${disposition}\r\nContent-Type: audio/mpeg`, content);
const text = (name: string, content = "value") => part(`Content-Disposition: form-data; name="${name}"`, content);

/** A body that counts the chunks read from it, and notes whether it was canceled. */
function streamOf(chunks: Iterable<Uint8Array>, end: "close" | "stall" | Error = "close") {
  const iterator = chunks[Symbol.iterator]();
  const seen = { chunks: 0, isCanceled: false };
  const stalled = Promise.withResolvers<void>();
  const body = new ReadableStream<Uint8Array>(
    {
      pull(controller) {
        const { done, value } = iterator.next();
        if (!done) {
          seen.chunks += 1;
          controller.enqueue(value);
        } else if (end === "close") controller.close();
        else if (end instanceof Error) controller.error(end);
        else {
          stalled.resolve();
          return new Promise(() => {});
        }
      },
      cancel() {
        seen.isCanceled = true;
      },
    },
    { highWaterMark: 0 },
  );
  return { body, seen, stalled: stalled.promise };
}

function* split(bytes: Uint8Array, size: number) {
  for (let start = 0; start < bytes.length; start += size) yield bytes.slice(start, start + size);
}

function* splitAt(bytes: Uint8Array, places: number[]) {
  let start = 0;
  for (const place of [...places.filter((place) => place < bytes.length).sort((a, b) => a - b), bytes.length]) {
    yield bytes.slice(start, place);
    start = place;
  }
}

const BYTE_BY_BYTE = "byte by byte";
/** Streams of the same bytes: as a request delivers them, and in chunks of awkward sizes (some of them empty). */
const DELIVERIES: [string, (bytes: Bytes) => ReadableStream<Uint8Array>][] = [
  ["at once, from a byte stream", (bytes) => new Response(bytes).body as ReadableStream<Uint8Array>],
  ["at once", (bytes) => streamOf([bytes]).body],
  [BYTE_BY_BYTE, (bytes) => streamOf(split(bytes, 1)).body],
  ["in chunks shorter than a boundary", (bytes) => streamOf(split(bytes, 7)).body],
  ["in chunks about as long as a boundary", (bytes) => streamOf(split(bytes, BOUNDARY.length + 3)).body],
  ["with empty chunks between", (bytes) => streamOf([...split(bytes, 11)].flatMap((b) => [new Uint8Array(), b])).body],
];

interface Taken {
  name: string;
  bytes: Uint8Array;
}

async function collect(name: string, bytes: AsyncIterable<Uint8Array>): Promise<Taken> {
  const chunks: Uint8Array[] = [];
  for await (const chunk of bytes) chunks.push(chunk.slice());
  return { name, bytes: concat(...chunks) };
}

const read = (body: ReadableStream<Uint8Array> | null, type = TYPE, limits = LIMITS) =>
  readMultipartFile(body, type, limits, collect);

const errorOf = async (result: Promise<unknown>): Promise<AppError> => {
  const error = await result.then(
    (value) => expect.fail(`accepted: ${JSON.stringify(value)}`),
    (thrown: unknown) => thrown,
  );
  expect(error).toBeInstanceOf(AppError);
  return error as AppError;
};

/** Stops the clock until a test advances it, so that the real duration of a read does not matter. */
const stopClock = () => vi.useFakeTimers({ toFake: ["setTimeout", "clearTimeout", "Date"] });
afterEach(() => void vi.useRealTimers());

/** Waits until everything has happened that needs no time to pass. */
async function settle(): Promise<void> {
  for (let turn = 0; turn < 20; turn++) await new Promise((resolve) => setImmediate(resolve));
}

/** Reads a body that stalls until it times out. @returns the error */
async function errorOfStalled({ body, stalled }: ReturnType<typeof streamOf>): Promise<AppError> {
  stopClock();
  const error = errorOf(read(body));
  await stalled;
  await vi.advanceTimersByTimeAsync(LIMITS.idleMilliseconds);
  return error;
}

const never = async () => expect.fail("take was called");

/** Returns the file as text, or the error code. */
const outcome = (result: Promise<Taken>) =>
  result.then(
    ({ name, bytes }) => ({ name, content: decode(bytes) }),
    (error: unknown) => (error instanceof AppError ? error.code : Promise.reject(error)),
  );

/** In `npm test`, a longer form is not read byte by byte: that takes most of the time, and shows what short forms show. */
const LONG_BYTES = 1000;

/** Reads a form from every kind of stream. A failure names the stream. */
async function expectEach(bytes: Bytes, expected: unknown, note = "") {
  for (const [delivery, deliver] of DELIVERIES) {
    if (delivery === BYTE_BY_BYTE && bytes.length > LONG_BYTES && !isExhaustive) continue;
    const actual = await outcome(read(deliver(bytes), TYPE, { ...LIMITS, maxFileBytes: 2000 }));
    expect.soft(actual, `${note} ${delivery}`).toEqual(expected);
  }
}

describe("A form", () => {
  it("is read from any stream", async () => {
    const forms: [string, Bytes, string][] = [
      ["one file", form(file("content")), "content"],
      ["text parts around the file", form(text("a"), file("content"), text("b")), "content"],
      ["fields called like members of every object", form(text("__proto__"), text("constructor"), file()), "content"],
      ["a text part without a name", form(part("Content-Disposition: form-data"), file()), "content"],
      ["an empty text part", form(text("a", ""), file()), "content"],
      ["ten text parts of 1 KiB", form(...Array(10).fill(text("a", "x".repeat(1024))), file()), "content"],
      ["a text part named file after the file", form(file(), text("file")), "content"],
      ["a preamble", concat("For clients that don't know multipart.\r\n", form(file())), "content"],
      ["an epilogue", concat(form(file()), `ignored\r\n--${BOUNDARY}\r\nnot even this`), "content"],
      ["no line break at the end", form(file()).slice(0, -2), "content"],
      [
        "white space after the boundary",
        encode(decode(form(file())).replace("\r\nContent", " \t\r\nContent")),
        "content",
      ],
      ["a folded header", form(file("content", 'name="file";\r\n filename="a.mp3"')), "content"],
      ["header names in upper case", form(part('CONTENT-DISPOSITION: Form-Data; NAME="file"; FILENAME=a')), "content"],
      ["content that resembles a boundary", form(file(NEARLY)), NEARLY],
      ["content that ends in line breaks", form(file("a\r\n\r\n\r")), "a\r\n\r\n\r"],
      ["a nested multipart as the file", form(file(NESTED)), NESTED],
      ["one byte", form(file("x")), "x"],
      ["a file as large as allowed", form(file("x".repeat(2000))), "x".repeat(2000)],
      [
        "a preamble with look-alikes",
        concat(`--${BOUNDARY.slice(1)}\r\nx--${BOUNDARY}\r\n--${BOUNDARY.slice(0, -1)}\r\n`, form(file())),
        "content",
      ],
      ["a boundary within a line", form(file(`x--${BOUNDARY}\r\n`)), `x--${BOUNDARY}\r\n`],
      [
        "a boundary after a bare line break",
        form(file(`x\n--${BOUNDARY}\r--${BOUNDARY}--`)),
        `x\n--${BOUNDARY}\r--${BOUNDARY}--`,
      ],
      ["text after the closing boundary", concat(form(file()).slice(0, -2), "x"), "content"],
      [
        "padding after every boundary",
        encode(decode(form(text("a"), file())).replaceAll(`${BOUNDARY}\r`, `${BOUNDARY}\t \r`)),
        "content",
      ],
    ];
    for (const [kind, bytes, content] of forms) {
      await expectEach(bytes, { name: expect.any(String), content }, kind);
    }
  });

  it.each<[string, string, [string, Bytes][]]>([
    [
      "if it is incomplete",
      "malformed_multipart",
      [
        ["an empty body", encode("")],
        ["text that is not multipart", encode('{"file": "a.mp3"}')],
        ["another boundary than announced", encode(decode(form(file())).replaceAll(BOUNDARY, "other"))],
        ["no closing boundary", file()],
        ["a closing boundary with one dash", form(file()).slice(0, -3)],
        ["an end within the headers", form(file()).slice(0, 60)],
        ["headers that never end", concat(`--${BOUNDARY}\r\n`, "X: y\r\n".repeat(5000))],
        ["zero bytes", new Uint8Array(10_000)],
      ],
    ],
    [
      "for its boundaries",
      "malformed_multipart",
      [
        ["a boundary within the headers", form(`--${BOUNDARY}\r\nContent-Disposition: form-data\r\n`)],
        ["line feeds only", encode(decode(form(file())).replaceAll("\r\n", "\n"))],
        ["two boundaries in sequence", form(`--${BOUNDARY}\r\n`, file())],
        ["text after the boundary", encode(decode(form(file())).replace("\r\nCon", "x\r\nCon"))],
        ["content with a line that begins with the boundary", form(file(`x\r\n--${BOUNDARY}X\r\ny`))],
        ["the same before the first part", concat(`--${BOUNDARY}X\r\n\r\n`, form(file()))],
        [
          "a boundary followed by one dash",
          encode(decode(form(text("a"), file())).replace(`${BOUNDARY}\r`, `${BOUNDARY}-\r`)),
        ],
        ["a boundary followed by a bare line feed", encode(decode(form(file())).replace(`${BOUNDARY}\r`, BOUNDARY))],
        [
          "a part of headers only, without the line break of its content",
          form(`--${BOUNDARY}\r\nContent-Disposition: form-data; name="a"\r\n\r\n`.slice(0, -2), "\r\n", file()),
        ],
        ["a boundary right after a boundary", form(`--${BOUNDARY}\r\n--${BOUNDARY}--\r\n`)],
      ],
    ],
    [
      "for its headers",
      "malformed_multipart",
      [
        ["a header without a colon", form(part('Content-Disposition form-data; name="file"'))],
        [
          "a broken header after a good one",
          form(part('Content-Disposition: form-data; name="file"; filename="a"\r\nbroken')),
        ],
        ["a header name of 60 KB", form(`--${BOUNDARY}\r\n${"x".repeat(60_000)}: y\r\n\r\n`)],
        ["a header that begins with a space", encode(decode(form(file())).replace("\r\n", "\r\n "))],
        ["a part without headers", form(part(""))],
        ["a part without Content-Disposition", form(part("Content-Type: audio/mpeg"), file())],
        ["an attachment", form(part('Content-Disposition: attachment; filename="a"'))],
        [
          "two Content-Dispositions",
          form(file("x", 'name="file"; filename="a"\r\nContent-Disposition: form-data; name="a"')),
        ],
        ["a bare line feed in a name", form(file("x", 'name="file"; filename="a\nX-Y: b"'))],
        ["a bare carriage return in a name", form(file("x", 'name="file"; filename="a\rb"'))],
      ],
    ],
    [
      "for its size without the file",
      "malformed_multipart",
      [
        ["a header block over 16 KiB", form(part(`X: ${"x".repeat(17_000)}`))],
        ["a file name over 16 KiB", form(file("x", `name="file"; filename="${"x".repeat(17_000)}"`))],
        ["eleven text parts", form(...Array(11).fill(text("a")), file())],
        ["a text part over 1 KiB", form(text("a", "x".repeat(1025)), file())],
        ["a nested multipart as a field", form(text("files", `--x\r\n\r\n${"y".repeat(1100)}--x--`))],
      ],
    ],
    [
      "for a missing file",
      "file_missing",
      [
        ["no part at all", form()],
        ["near boundaries only", form("\r\n--".repeat(2000), "\r\n")],
        ["60 KB of dashes only", form("-".repeat(60_000), "\r\n")],
        ["text parts only", form(text("a"), text("b"))],
        ["a part `file` without a file name", form(text("file", "x".repeat(2000)))],
        ["a file under another name", form(file("x", 'name="audio"; filename="a"'))],
        ["a file under no name", form(file("x", 'filename="a"'))],
        ["a file in `file[]`", form(file("x", 'name="file[]"; filename="a"'))],
        [
          "a small file of no stated type under another name",
          form(part('Content-Disposition: form-data; name="audio"; filename="a"')),
        ],
        [
          "a large file of no stated type under another name",
          form(part('Content-Disposition: form-data; name="audio"; filename="a"', "x".repeat(2000)), file()),
        ],
        ["the form of a browser without a chosen file", form(file("", 'name="file"; filename=""'))],
      ],
    ],
    ["for an empty file", "file_empty", [["an empty file", form(file(""))]]],
    [
      "for a second file",
      "too_many_files",
      [
        ["two files", form(file(), file())],
        ["a hundred files", form(...Array(100).fill(file()))],
        ["a second file under another name", form(file(), file("x", 'name="b"; filename=""'))],
        [
          "a large second file of no stated type under another name",
          form(file(), part('Content-Disposition: form-data; name="b"; filename="b"', "x".repeat(2000))),
        ],
      ],
    ],
    ["for the size of the file", "file_too_large", [["a file one byte too large", form(file("x".repeat(2001)))]]],
  ])("is rejected %s", async (_, code, forms) => {
    for (const [kind, bytes] of forms) await expectEach(bytes, code, kind);
  });

  it("contains the name of its file", async () => {
    const names: [string, string, string][] = [
      ["any script", 'filename="Früh 早 🎧.mp3"', "Früh 早 🎧.mp3"],
      ["no quotes", "filename=voilà", "voilà"],
      ["quotes as forms encode them", 'filename="a%22b.mp3"', 'a"b.mp3'],
      ["line breaks as forms encode them", 'filename="a%0D%0aX-Y: z.mp3"', "a\r\nX-Y: z.mp3"],
      ["other percent signs", 'filename="100% %41 %2F.mp3"', "100% %41 %2F.mp3"],
      ["escaped quotes", 'filename="a\\"b.mp3"', 'a"b.mp3'],
      ["escaped backslashes", 'filename="a\\\\b.mp3"', "a\\b.mp3"],
      ["a Windows path", 'filename="C:\\dir\\new\\a.mp3"', "C:\\dir\\new\\a.mp3"],
      ["a backslash at the end", 'filename="a\\"', "a\\"],
      ["a path", 'filename="../etc/a.mp3"', "../etc/a.mp3"],
      ["semicolons and equals signs", 'filename="a; name=b; filename=c"', "a; name=b; filename=c"],
      ["an empty name with content", 'filename=""', ""],
      ["filename* only", "filename*=UTF-8''na%C3%AFve%20%2241%22.mp3", 'naïve "41".mp3'],
      ["filename* before filename", "filename*=utf-8'en'%E6%97%A9.mp3; filename=\"_.mp3\"", "早.mp3"],
      ["filename* after filename", "filename=\"_.mp3\"; filename*=UTF-8''%E6%97%A9.mp3", "早.mp3"],
      ["filename* in Latin-1", "filename*=ISO-8859-1''%E9t%E9.mp3", "été.mp3"],
      ["a malformed filename*", 'filename*=plain.mp3; filename="a.mp3"', "a.mp3"],
      ["bytes that aren't UTF-8 in filename*", "filename*=UTF-8''%FF.mp3", "\uFFFD.mp3"],
      ["a name of an object's member", 'filename="__proto__"; __proto__="x"', "__proto__"],
    ];
    for (const [kind, parameter, name] of names) {
      await expectEach(form(file("content", `name="file"; ${parameter}`)), { name, content: "content" }, kind);
    }
  });
});

describe("The Content-Type of a form", () => {
  it.each([
    ["in quotes", `multipart/form-data; boundary="${BOUNDARY}"`, BOUNDARY],
    ["among other parameters", `multipart/form-data; charset=utf-8; boundary=${BOUNDARY} ; x="y"`, BOUNDARY],
    ["in upper case", `Multipart/Form-Data; BOUNDARY=${BOUNDARY}`, BOUNDARY],
    ["of 70 characters with colons and spaces", `multipart/form-data; boundary="${LONGEST}"`, LONGEST],
  ])("can contain a boundary %s", async (_, type, boundary) => {
    const body = encode(decode(form(file())).replaceAll(BOUNDARY, boundary));
    expect(decode((await read(streamOf([body]).body, type)).bytes)).toBe("content");
  });

  it.each([
    ["no boundary", "multipart/form-data"],
    ["an empty boundary", "multipart/form-data; boundary="],
    ["an empty boundary in quotes", 'multipart/form-data; boundary=""'],
    ["a boundary of 71 characters", `multipart/form-data; boundary=${"x".repeat(71)}`],
  ])("is rejected with %s", async (_, type) => {
    const { body, seen } = streamOf([form(file())]);
    expect((await errorOf(read(body, type))).code).toBe("malformed_multipart");
    expect(seen).toEqual({ chunks: 1, isCanceled: false });
    expect(body.locked).toBe(false);
  });
});

describe("The limits of a form", () => {
  it("apply to a file while it arrives, and are named in the error", async () => {
    const chunks = [file(new Uint8Array(60_000)).slice(0, -2), new Uint8Array(60_000)];
    const error = await errorOfStalled(streamOf(chunks, "stall"));
    expect(error.code).toBe("file_too_large");
    expect(error.message).toContain("100000 bytes");
  });

  it.each<[string, (padding: Uint8Array) => Bytes]>([
    ["before the first boundary", (padding) => concat(padding, "\r\n", form(file()))],
    ["after the last boundary", (padding) => concat(form(file()), padding)],
  ])("include bytes %s", async (_, pad) => {
    const spare = ALLOWED_BODY_BYTES - pad(new Uint8Array()).length;
    const exact = pad(new Uint8Array(spare));
    expect(decode((await read(streamOf(split(exact, 4096)).body)).bytes)).toBe("content");
    const over = pad(new Uint8Array(spare + 1));
    expect((await errorOf(read(streamOf(split(over, 4096)).body))).code).toBe("body_too_large");
  });

  it("allow headers of exactly 16 KiB", async () => {
    const disposition = 'Content-Disposition: form-data; name="file"; filename="a"';
    const filler = 16 * 1024 - `\r\n${disposition}\r\nX: \r\n\r\n`.length;
    const padded = (bytes: number) => form(part(`${disposition}\r\nX: ${"x".repeat(bytes)}`));
    expect(decode((await read(streamOf(split(padded(filler), 100)).body)).bytes)).toBe("content");
    expect((await errorOf(read(streamOf(split(padded(filler + 1), 100)).body))).code).toBe("malformed_multipart");
  });

  it.each([1, 1000, 1_000_000])("reject endless headers early, in chunks of %i bytes", async (size) => {
    // If these 18,000 bytes are not rejected, the body times out.
    const endless = concat(`--${BOUNDARY}\r\nX: `, "x".repeat(18_000)).slice(0, 18_000);
    const error = await errorOfStalled(streamOf(split(endless, size), "stall"));
    expect(error.code).toBe("malformed_multipart");
    expect(error.message).toContain("16384 bytes");
  });

  it("reject a hundred parts, and are named in the error", async () => {
    const error = await errorOf(read(streamOf([form(...Array(100).fill(text("a")), file())]).body));
    expect(error.code).toBe("malformed_multipart");
    expect(error.message).toContain("10 text parts");
  });
});

describe("The callback", () => {
  it.each<[string, Bytes, string]>([
    ["is empty", form(file("")), "file_empty"],
    ["is missing", form(text("a")), "file_missing"],
    [
      "ends before its first byte",
      form(file()).slice(0, decode(form(file())).indexOf("content")),
      "malformed_multipart",
    ],
  ])("is not called if the file %s", async (_, bytes, code) => {
    const result = readMultipartFile(streamOf(split(bytes, 1)).body, TYPE, LIMITS, never);
    expect((await errorOf(result)).code).toBe(code);
  });

  it("pulls the body, of which nothing is read in advance", async () => {
    const { body, seen } = streamOf(split(form(file(new Uint8Array(50_000))), 1000));
    await readMultipartFile(body, TYPE, LIMITS, async (_, bytes) => {
      let taken = 0;
      for await (const chunk of bytes) {
        taken += chunk.length;
        expect(seen.chunks).toBeLessThanOrEqual(Math.ceil(taken / 1000) + 1);
      }
    });
  });

  it("sees the end of the bytes only after the end of the form", async () => {
    const { body, seen } = streamOf(split(form(file(), text("a")), 10));
    const chunks = Math.ceil(form(file(), text("a")).length / 10);
    await readMultipartFile(body, TYPE, LIMITS, async (name, bytes) => {
      await collect(name, bytes);
      expect(seen.chunks).toBe(chunks);
    });
  });

  it.each<[string, Bytes, "close" | Error, string]>([
    ["a second file", form(file(), file()), "close", "too_many_files"],
    ["a missing end", file(), "close", "malformed_multipart"],
    ["a disconnected client", file(), new Error("gone"), "malformed_multipart"],
    ["too large a file", form(file(new Uint8Array(100_001))), "close", "file_too_large"],
  ])("gets the error of %s, which is thrown once it has settled", async (_, bytes, end, code) => {
    const events: unknown[] = [];
    const release = Promise.withResolvers<void>();
    const hasError = Promise.withResolvers<void>();
    const result = readMultipartFile(streamOf(split(bytes, 10), end).body, TYPE, LIMITS, async (name, taken) => {
      await collect(name, taken).catch((error: unknown) => events.push(error));
      hasError.resolve();
      await release.promise;
      events.push("settled");
    }).finally(() => events.push("rejected"));
    const error = errorOf(result);
    await hasError.promise;
    release.resolve();
    expect((await error).code).toBe(code);
    expect(events).toEqual([await error, "settled", "rejected"]);
  });

  it("cannot replace the error of the form by its own", async () => {
    const result = readMultipartFile(streamOf(split(file(), 10)).body, TYPE, LIMITS, (name, bytes) =>
      collect(name, bytes).catch(() => Promise.reject(new Error("aborted"))),
    );
    expect((await errorOf(result)).code).toBe("malformed_multipart");
  });

  it("can stop early, and the rest of the form is still checked", async () => {
    const takeOne = async (_: string, chunks: AsyncIterable<Uint8Array>) => {
      for await (const _chunk of chunks) break;
    };
    for (const [bytes, code] of [
      [form(file("x".repeat(1000)), file()), "too_many_files"],
      [file("x".repeat(1000)), "malformed_multipart"],
    ] as const) {
      for (const take of [takeOne, async () => {}]) {
        const read = readMultipartFile(streamOf(split(bytes, 10)).body, TYPE, LIMITS, take);
        expect((await errorOf(read)).code).toBe(code);
      }
    }
  });

  it.each([
    ["immediately", () => Promise.reject(new Error("disk full"))],
    [
      "midway",
      async (_: string, bytes: AsyncIterable<Uint8Array>) => {
        for await (const _chunk of bytes) throw new Error("disk full");
      },
    ],
    [
      "with an unfinished read",
      async (_: string, bytes: AsyncIterable<Uint8Array>) => {
        void bytes[Symbol.asyncIterator]().next();
        throw new Error("disk full");
      },
    ],
  ])("throws its own error %s, once the body is drained", async (_, take) => {
    const chunks = [...split(form(file("x".repeat(1000))), 100)];
    const { body, seen } = streamOf(chunks);
    await expect(readMultipartFile(body, TYPE, LIMITS, take)).rejects.toThrow("disk full");
    expect(seen).toEqual({ chunks: chunks.length, isCanceled: false });
    expect(body.locked).toBe(false);
  });
});

describe("A rejected body", () => {
  const REST = 50;
  const rest = Array<Uint8Array>(REST).fill(new Uint8Array(100));

  it.each<[string, Bytes, string]>([
    ["broken headers", part("broken"), "malformed_multipart"],
    ["another file's name", file("x", 'name="b"; filename="b"'), "file_missing"],
    ["an empty file", concat(file(""), `--${BOUNDARY}`), "file_empty"],
    ["a second file", concat(file(), file()), "too_many_files"],
    ["too large a file", file(new Uint8Array(LIMITS.maxFileBytes + 1)), "file_too_large"],
    ["too large a body", concat(form(file()), new Uint8Array(ALLOWED_BODY_BYTES)), "body_too_large"],
  ])("is first read completely if it has %s", async (_, bytes, code) => {
    const { body, seen } = streamOf([bytes, ...rest]);
    expect((await errorOf(read(body))).code).toBe(code);
    expect(seen).toEqual({ chunks: 1 + REST, isCanceled: false });
    expect(body.locked).toBe(false);
    const { readable, writable } = new IdentityTransformStream();
    const error = errorOf(read(readable));
    const writer = writable.getWriter();
    for (const chunk of [bytes, ...rest]) await writer.write(chunk);
    await writer.close();
    expect((await error).code).toBe(code);
  });

  it("is drained after the callback has settled, and before the error is thrown", async () => {
    const { body, seen } = streamOf([file(), file(), ...rest]);
    const result = readMultipartFile(body, TYPE, LIMITS, async (name, bytes) => {
      await collect(name, bytes).catch(() => {});
      await settle();
      expect(seen.chunks).toBe(2);
      throw new Error("cleaned up");
    });
    expect((await errorOf(result)).code).toBe("too_many_files");
    expect(seen.chunks).toBe(2 + REST);
  });

  it("is drained up to the size limit of a body", async () => {
    const chunk = new Uint8Array(10_000);
    const { body, seen } = streamOf([part("broken"), ...Array<Uint8Array>(100).fill(chunk)]);
    expect((await errorOf(read(body))).code).toBe("malformed_multipart");
    expect(seen).toEqual({ chunks: 1 + Math.ceil(ALLOWED_BODY_BYTES / chunk.length), isCanceled: false });
    expect(body.locked).toBe(false);
  });

  it.each<[string, "stall" | Error]>([
    ["stalls", "stall"],
    ["ends with an error", new Error("gone")],
  ])("keeps its error if the rest %s", async (_, end) => {
    const stream = streamOf([part("broken"), ...rest], end);
    const { body, seen } = stream;
    const error = await (end === "stall" ? errorOfStalled(stream) : errorOf(read(body)));
    expect(error.message).toContain("broken header");
    expect(seen).toEqual({ chunks: 1 + REST, isCanceled: false });
  });

  it("is not read after a timeout", async () => {
    let reads = 0;
    const isPulled = Promise.withResolvers<void>();
    const late = Promise.withResolvers<void>();
    const body = new ReadableStream<Uint8Array>(
      {
        async pull(controller) {
          reads += 1;
          isPulled.resolve();
          await late.promise;
          controller.enqueue(file());
        },
      },
      { highWaterMark: 0 },
    );
    stopClock();
    const error = errorOf(read(body));
    await isPulled.promise;
    await vi.advanceTimersByTimeAsync(LIMITS.idleMilliseconds);
    expect((await error).code).toBe("upload_timeout");
    late.resolve();
    await settle();
    expect(reads).toBe(1);
  });
});

describe("An interrupted body", () => {
  it("is rejected with the stream's error as the cause", async () => {
    const gone = new Error("gone");
    const error = await errorOf(read(streamOf([file()], gone).body));
    expect(error.code).toBe("malformed_multipart");
    expect(error.cause).toBe(gone);
  });

  it.each<[string, Uint8Array[]]>([
    ["before the first byte", []],
    ["within the file", [file().slice(0, -4)]],
    ["after the closing boundary", [form(file())]],
  ])("times out if it stalls %s", async (_, chunks) => {
    const stream = streamOf(chunks, "stall");
    expect((await errorOfStalled(stream)).code).toBe("upload_timeout");
    expect(stream.seen.isCanceled).toBe(false);
  });

  it("is rejected if it is a byte stream, whose reads workerd cannot cancel", async () => {
    const stalled = new IdentityTransformStream();
    stopClock();
    const timeout = errorOf(read(stalled.readable));
    await settle();
    await vi.advanceTimersByTimeAsync(LIMITS.idleMilliseconds);
    expect((await timeout).code).toBe("upload_timeout");
    vi.useRealTimers();
    const broken = new IdentityTransformStream();
    const error = errorOf(read(broken.readable));
    const writer = broken.writable.getWriter();
    await writer.write(file());
    await writer.abort(new Error("gone"));
    expect((await error).code).toBe("malformed_multipart");
  });

  it("times out if it trickles, although no single pause is too long", async () => {
    const bytes = form(file(new Uint8Array(1000)));
    let at = 0;
    stopClock();
    const body = new ReadableStream<Uint8Array>({
      pull(controller) {
        // Far less than the allowed pause between two bytes, and far more than a byte takes at 8 KiB a second.
        vi.advanceTimersByTime(2);
        if (at === bytes.length) controller.close();
        else controller.enqueue(bytes.slice(at, ++at));
      },
    });
    const error = await errorOf(read(body, TYPE, { ...LIMITS, idleMilliseconds: 100 }));
    expect(error.code).toBe("upload_timeout");
    expect(at).toBeLessThan(bytes.length);
  });

  it("does not time out while the callback is slow", async () => {
    const { body } = streamOf(split(form(file()), 100));
    stopClock();
    const taken = await readMultipartFile(body, TYPE, LIMITS, async (name, bytes) => {
      await vi.advanceTimersByTimeAsync(10 * LIMITS.idleMilliseconds);
      return collect(name, bytes);
    });
    expect(decode(taken.bytes)).toBe("content");
  });
});

describe("A form of arbitrary bytes", () => {
  const fragments = [BOUNDARY, `\r\n--${BOUNDARY.slice(0, -1)}`, "\r\n--", "\r\n", "\r", "--", "-", "\r\n----boundary"];
  const content = fc
    .array(fc.oneof(fc.uint8Array({ maxLength: 40 }), fc.constantFrom(...fragments).map(encode)), { minLength: 1 })
    .map((chunks) => concat(...chunks))
    .filter((bytes) => bytes.length > 0 && !decode(concat("\r\n", bytes, "\r\n")).includes(`\r\n--${BOUNDARY}`));
  const places = fc.array(fc.nat(1000), { maxLength: 30 });

  it("returns a file name of any characters, encoded as forms do", async () => {
    const name = fc
      .string({ unit: "binary", maxLength: 60 })
      .filter((s) => s.isWellFormed() && !/\\|%(22|0D|0A)/i.test(s));
    await fc.assert(
      fc.asyncProperty(name, places, async (sent, at) => {
        const encoded = sent.replaceAll('"', "%22").replaceAll("\r", "%0D").replaceAll("\n", "%0A");
        const whole = form(file("content", `name="file"; filename="${encoded}"`));
        expect((await read(streamOf(splitAt(whole, at)).body)).name).toBe(sent);
      }),
      { numRuns: 200 },
    );
  });

  const readWithBusboy = (bytes: Bytes) =>
    new Promise<Taken>((resolve, reject) => {
      const busboy = new Busboy({ headers: { "content-type": TYPE }, preservePath: true });
      busboy.on("file", (_field, stream, name) => resolve(collect(name, stream)));
      busboy.on("error", reject);
      busboy.on("finish", () => reject(new Error("Busboy found no file.")));
      busboy.end(Buffer.from(bytes));
    });

  it("is read as Busboy reads it", async () => {
    // Excludes the errors of Busboy: padding, backslashes in names, and percent signs that forms do not encode.
    const name = fc.string({ unit: "binary", maxLength: 40 }).filter((s) => s.isWellFormed() && !/[%"\\\r\n]/.test(s));
    const texts = fc.array(fc.tuple(name, fc.string({ maxLength: 40 })), { maxLength: 5 });
    const around = fc.constantFrom("", "for no one\r\n", `--${BOUNDARY.slice(0, -1)}\r\n`);
    await fc.assert(
      fc.asyncProperty(texts, name, content, texts, around, places, async (before, sent, bytes, after, more, at) => {
        const parts = [
          ...before.map(([name, value]) => text(name, value)),
          file(bytes, `name="file"; filename="${sent}"`),
          ...after.map(([name, value]) => text(name, value)),
        ];
        const whole = concat(more, form(...parts), more);
        const taken = await read(streamOf(splitAt(whole, at)).body);
        expect(taken).toEqual({ name: sent, bytes });
        expect(taken).toEqual(await readWithBusboy(whole));
      }),
      { numRuns: 200 },
    );
  });

  it("is rejected if it ends early anywhere", async () => {
    const whole = form(text("a"), file("content\r\n--"), text("b"));
    for (let length = 0; length < whole.length - 2; length += 1) {
      const error = await errorOf(read(streamOf(split(whole.slice(0, length), 16)).body));
      expect(error.code).toBe("malformed_multipart");
    }
  });

  it("has the same result however it is split, and never hangs", async () => {
    const tokens = [
      `--${BOUNDARY}`,
      `\r\n--${BOUNDARY}`,
      `\r\n--${BOUNDARY}--`,
      "\r\n",
      "\r\n\r\n",
      ":",
      ";",
      '"',
      "\\",
      "Content-Disposition: form-data",
      '; name="file"',
      '; filename="a"',
      "; filename*=UTF-8''%",
    ];
    const garbage = fc.array(fc.oneof(fc.uint8Array({ maxLength: 20 }), fc.constantFrom(...tokens).map(encode)));
    await fc.assert(
      fc.asyncProperty(garbage, places, async (chunks, at) => {
        const whole = concat(...chunks);
        const readSplit = (sizes: number[]) => outcome(read(streamOf(splitAt(whole, sizes)).body));
        expect(await readSplit(at)).toEqual(await readSplit([]));
      }),
      { numRuns: 500 },
    );
  });

  it("is read or rejected if its headers are made to slow a parser down", async () => {
    for (const value of ["\\", '\\"', '"', ";", " ", ';a="', "%", "'"]) {
      const filler = value.repeat(16_000 / value.length);
      for (const around of [`filename="${filler}`, `filename="${filler}"`, `filename*=${filler}`, filler]) {
        const headers = form(...Array(3).fill(text("a")), file("x", `name="file"; ${around}`));
        await read(streamOf([headers]).body).catch((error: unknown) => expect(error).toBeInstanceOf(AppError));
      }
    }
  });
});

describe("the part `properties`", () => {
  const properties = text("properties", '{"name":"a"}');
  const propertiesOf = (bytes: Bytes, size: number) => {
    let first: string | undefined;
    return readMultipartFile(streamOf(split(bytes, size)).body, TYPE, LIMITS, async (_, chunks, form) => {
      first = form.properties;
      for await (const _ of chunks);
      return [first, form.properties];
    });
  };

  it("is known at the first byte of the file if it precedes it, and once the bytes have ended if it follows", async () => {
    for (const size of [1, 7, 1000]) {
      const sent = '{"name":"a"}';
      expect(await propertiesOf(form(properties, file()), size)).toEqual([sent, sent]);
      const late = await propertiesOf(form(file(), properties), size);
      expect(late.at(-1)).toBe(sent);
      if (size === 1) expect(late[0], "not before").toBeUndefined();
      expect(await propertiesOf(form(file()), size)).toEqual([undefined, undefined]);
    }
  });

  it("and other fields are read like any other if the client sends them as Blobs", async () => {
    const sent = '{"name":"a"}';
    const blob = (disposition: string, type: string, content: string = sent) =>
      part(`Content-Disposition: form-data; ${disposition}${type && `\r\nContent-Type: ${type}`}`, content);
    for (const type of [
      "application/json",
      "application/json; charset=utf-8",
      "application/octet-stream",
      "text/plain",
      "",
    ]) {
      const given = blob('name="properties"; filename="blob"', type);
      for (const note of [blob('name="note"; filename="note"', type), blob("filename*=UTF-8''n", type), text("note")]) {
        for (const parts of [
          [given, note, file()],
          [note, given, file()],
          [note, file(), given],
          [file(), given, note],
        ]) {
          expect((await propertiesOf(form(...parts), 7)).at(-1)).toBe(sent);
        }
      }
    }
    const twice = form(blob('name="properties"; filename="a"', ""), text("properties", sent), file());
    await expect(propertiesOf(twice, 1000)).rejects.toMatchObject({ code: "invalid_input" });
  });
});
