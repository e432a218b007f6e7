import { describe, expect, test } from "vitest";
import { inspectFile } from "../../src/audio/inspect.ts";
import { detectMediaType, servedContentType } from "../../src/audio/media-type.ts";
import { UnreadableAudio } from "../../src/audio/range-source.ts";
import { type Bytes, id3, indexOf, join, noise, reader, repeat } from "./build.ts";
import { sample, samples } from "./samples.ts";

async function process(bytes: Bytes) {
  return inspectFile(reader(bytes).read, bytes.length);
}

describe("Samples of every format", () => {
  test.each(samples)("give the same facts for $file as its own tools", async (one) => {
    const { mediaType, fileType, audio } = await process(one.bytes);
    expect({ mediaType, fileType }).toEqual({ mediaType: one.mimeType, fileType: one.fileType });
    if (!one.audio) return expect(audio).toBeNull();
    const { durationSeconds, ...rest } = one.audio;
    expect(audio).toMatchObject(rest);
    expect(Math.abs(audio!.durationSeconds! - durationSeconds)).toBeLessThan(0.1);
    expect(audio!.bitrate).toBeGreaterThan(8_000);
    expect(audio!.tags.title).toBe(one.title);
  });

  test("include the tags of an MP3", async () => {
    const { audio } = await process(sample("tone-vbr.mp3").bytes);
    expect(audio!.tags).toMatchObject({ artist: "Stowage", album: "Samples", genre: "Test", year: 2024, track: 3 });
  });
});

describe("The detection of a media type", () => {
  test.each([
    ["plain", "hello wörld\r\n\tnext\f"],
    ["html", "<!doctype html><script>alert(1)</script>"],
    ["svg", "<svg xmlns='http://www.w3.org/2000/svg'/>"],
    ["xml", "<?xml version='1.0'?><svg/>"],
    ["json", '{"a":1}'],
    ["csv", "a,b\n1,2\n"],
    ["words that are magic elsewhere", "solid advice: BM, ID, MZ"],
  ])("finds text in %s", async (_, text) => {
    expect(await detectMediaType(join(text))).toEqual({ mediaType: "text/plain", fileType: "text file" });
  });

  test("finds text if the head ends within a character", async () => {
    expect((await detectMediaType(join("x", "日".repeat(2000)).subarray(0, 4096))).fileType).toBe("text file");
  });

  test.each([
    ["%PDF-1.7\n", "application/pdf", "document file"],
    ["{\\rtf1 hello}", "application/rtf", "document file"],
    ["PK\x03\x04\x14\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\0\0\0\x01\0\0\0ab", "application/zip", "archive file"],
    ["7z\u00bc\u00af\x27\x1c\0\x04", "application/x-7z-compressed", "archive file"],
    ["BZh91AY&SY\0\0", "application/x-bzip2", "archive file"],
    ["\0\x01\x02\x03", "application/octet-stream", "other file"],
    ["caf\u00e9 au lait", "application/octet-stream", "other file"],
    ["", "application/octet-stream", "other file"],
  ])("finds in the bytes %j the type %s", async (text, mimeType, fileType) => {
    expect(await detectMediaType(Uint8Array.from(text, (c) => c.charCodeAt(0)))).toEqual({
      mediaType: mimeType,
      fileType,
    });
  });

  test("finds audio in the head of a WebM without pictures", async () => {
    expect(await detectMediaType(sample("tone-live.webm").bytes.subarray(0, 4096))).toEqual({
      mediaType: "audio/webm",
      fileType: "audio file",
    });
  });
});

describe("The content type that a file is served with", () => {
  test.each(["text/html", "image/svg+xml", "application/xml", "text/javascript", "application/x-msdownload", "", "x"])(
    "is opaque bytes for %j",
    (mimeType) => expect(servedContentType(mimeType)).toBe("application/octet-stream"),
  );

  test("is the media type if that is harmless, and states the charset of text", () => {
    for (const { mimeType } of samples) expect(servedContentType(mimeType)).toBe(mimeType);
    expect(servedContentType("text/plain")).toBe("text/plain; charset=utf-8");
  });
});

describe("Range reads", () => {
  test("take less than 200 KB of a WAV of 100 MB", async () => {
    const dataBytes = 100_000_000 - 44;
    const header = sample("tone.wav").bytes.slice(0, 44);
    const view = new DataView(header.buffer);
    view.setUint32(4, dataBytes + 36, true);
    view.setUint32(40, dataBytes, true);
    let total = 0;
    const read = async (offset: number, length: number) => {
      total += length;
      const bytes = new Uint8Array(length);
      if (offset < 44) bytes.set(header.subarray(offset, offset + length));
      return bytes;
    };
    const { audio } = await inspectFile(read, 100_000_000);
    expect(audio!.durationSeconds).toBeCloseTo(dataBytes / 32_000, 3);
    expect(total).toBeLessThan(200_000);
  });

  test("walk a headerless MP3 in windows of at most 1 MiB", async () => {
    const bytes = repeat(sample("tone-cbr.mp3").bytes, 400);
    const { read, lengths } = reader(bytes);
    const { audio } = await inspectFile(read, bytes.length);
    expect(audio!.durationSeconds).toBeCloseTo(400 * 78 * (1152 / 44100), 1);
    expect(Math.max(...lengths)).toBeLessThanOrEqual(1024 * 1024);
    expect(lengths.length).toBeLessThan(20);
  });

  test("find the end of a long Ogg in its tail", async () => {
    const ogg = sample("tone.ogg").bytes;
    // The same last page, a megabyte later. The bytes in between are not read.
    const last = new TextDecoder("latin1").decode(ogg).lastIndexOf("OggS");
    const long = join(ogg.subarray(0, last), new Uint8Array(1_000_000), ogg.subarray(last));
    const { read, lengths } = reader(long);
    const { audio } = await inspectFile(read, long.length);
    expect(audio!.durationSeconds).toBeCloseTo(2, 1);
    expect(lengths.reduce((a, b) => a + b)).toBeLessThan(300_000);
  });

  test("pass on every failure unchanged", async () => {
    const failure = new Error("R2 is away");
    for (const { bytes, file } of samples.filter(({ fileType }) => fileType !== "image file")) {
      const { read, lengths } = reader(bytes);
      await inspectFile(read, bytes.length);
      for (let failing = 0; failing < lengths.length; failing++) {
        let call = 0;
        const flaky = async (offset: number, length: number) => {
          if (call++ === failing) throw failure;
          return bytes.slice(offset, offset + length);
        };
        await expect(inspectFile(flaky, bytes.length), `${file}, read ${failing}`).rejects.toBe(failure);
      }
    }
  });

  test("treat a short read as a failure, not as bad audio", async () => {
    const { bytes } = sample("tone.wav");
    const short = async (offset: number, length: number) => bytes.slice(offset, offset + length - 1);
    const result = inspectFile(short, bytes.length);
    await expect(result).rejects.toThrow(/short read/);
    await expect(result).rejects.not.toBeInstanceOf(UnreadableAudio);
  });
});

describe("An unusual recording", () => {
  test("may be a WebM with clusters of unknown size, as browsers record it", async () => {
    const { bytes } = sample("tone-live.webm");
    const parts: Bytes[] = [];
    let from = 0;
    for (let at = indexOf(bytes, "\x1fC\xb6u"); at >= 0; at = indexOf(bytes, "\x1fC\xb6u", from)) {
      const sizeBytes = Math.clz32(bytes[at + 4]!) - 23;
      parts.push(bytes.subarray(from, at + 4), Uint8Array.of(1, 255, 255, 255, 255, 255, 255, 255));
      from = at + 4 + sizeBytes;
    }
    expect(parts.length).toBeGreaterThan(2);
    const { mediaType, audio } = await process(join(...parts, bytes.subarray(from)));
    expect(mediaType).toBe("audio/webm");
    expect(audio!.durationSeconds).toBeCloseTo(2.02, 1);
  });

  test("may be an MP3 with padding behind its tag", async () => {
    const bytes = join(id3(["TIT2", join("\0Song")]), new Uint8Array(9000), sample("tone-cbr.mp3").bytes);
    const { mediaType, audio } = await process(bytes);
    expect(mediaType).toBe("audio/mpeg");
    expect(audio!.durationSeconds).toBeCloseTo(2.04, 1);
  });

  test("may be a FLAC behind a long ID3 tag", async () => {
    const bytes = join(id3(["TIT2", new Uint8Array(6000)]), sample("tone.flac").bytes);
    const { mediaType, audio } = await process(bytes);
    expect(mediaType).toBe("audio/flac");
    expect(audio!.durationSeconds).toBe(1.5);
  });

  test.each(["tone-vbr.mp3", "tone-cbr.mp3", "tone.wav", "tone.ogg", "tone-live.webm", "tone.aac", "tone.aiff"])(
    "may be %s without its last quarter",
    async (file) => {
      const { bytes } = sample(file);
      const { audio } = await process(bytes.subarray(0, (bytes.length * 3) / 4));
      expect(audio!.durationSeconds).toBeGreaterThan(0.75);
    },
  );

  test("a recording of an unsupported format is audio without facts", async () => {
    const { fileType, audio } = await process(join("MThd", noise(100)));
    expect(fileType).toBe("audio file");
    expect(audio).toMatchObject({ codec: null, durationSeconds: null, tags: {} });
  });

  test("has tags of at most 2 KiB that can be stored", async () => {
    const long = (id: string): [string, Bytes] => [id, join(Uint8Array.of(3), `a\0b\u0007${"日😀".repeat(1_000)}`)];
    const frames = ["TIT2", "TPE1", "TALB", "TPE2", "TCOM", "TCON", "TCOP", "TSRC"].map(long);
    const { audio } = await process(join(id3(...frames), sample("tone-cbr.mp3").bytes));
    const json = JSON.stringify(audio!.tags);
    expect(Object.keys(audio!.tags).length).toBeGreaterThan(1);
    expect(new TextEncoder().encode(json).length).toBeLessThanOrEqual(2048);
    expect(json.isWellFormed()).toBe(true);
    expect(json).not.toMatch(/\\u00|\\ud/i);
  });

  test("a recording behind a tag of 500 KB of text is read without tags", async () => {
    const values = Array.from({ length: 60_000 }, (_, n) => `artist ${n}`).join("\0");
    const frames: [string, Bytes][] = [["TPE1", join(Uint8Array.of(3), values)]];
    const { audio } = await process(join(id3(...frames), sample("tone-cbr.mp3").bytes));
    expect(audio).toMatchObject({ codec: "MPEG 1 Layer 3", tags: {} });
    expect(audio!.durationSeconds).toBeCloseTo(2.04, 1);
  });

  test("stays a video if it is a damaged one", async () => {
    const { bytes } = sample("silent.mp4");
    const { fileType, audio } = await process(join(bytes.subarray(0, 60), noise(5000)));
    expect(fileType).toBe("video file");
    expect(audio).toBeNull();
  });
});

describe("A file that only claims to be audio", () => {
  const cut = (file: string, length: number) => sample(file).bytes.subarray(0, length);
  const flacFrames = () => indexOf(sample("tone.flac").bytes, "\xff\xf8");
  test.each<[string, () => Bytes]>([
    ["fLaC and noise", () => join("fLaC", noise(20_000))],
    ["a FLAC header and noise", () => join(sample("tone.flac").bytes.subarray(0, flacFrames()), noise(20_000))],
    ["only a FLAC header", () => sample("tone.flac").bytes.subarray(0, flacFrames())],
    ["half a WAV header", () => cut("tone.wav", 30)],
    ["a WAV header without samples", () => cut("tone.wav", 44)],
    ["RIFF, WAVE and noise", () => join(cut("tone.wav", 12), noise(20_000))],
    ["an MP3 header and noise", () => join(cut("tone-cbr.mp3", 4), noise(400_000))],
    ["an ID3 tag and nothing", () => id3(["TIT2", join("\0Song")])],
    ["an ID3 tag and noise", () => join(id3(["TIT2", new Uint8Array(5000)]), noise(400_000))],
    ["an ADTS header and noise", () => join(cut("tone.aac", 4), noise(60_000))],
    ["AIFF and noise", () => join(cut("tone.aiff", 12), noise(20_000))],
    ["an Ogg page and noise", () => join(cut("tone.ogg", 40), noise(20_000))],
    ["Ogg headers alone", () => cut("tone.opus", indexOf(sample("tone.opus").bytes, "OggS", 100))],
    ["an M4A without its index", () => cut("tone.m4a", 5000)],
    ["WebM without tracks", () => join(cut("tone.webm", 40), "A_OPUS", noise(20_000))],
  ])("is rejected as unreadable: %s", async (_, make) => {
    const bytes = make();
    expect((await detectMediaType(bytes.subarray(0, 4096))).fileType).toBe("audio file");
    await expect(process(bytes)).rejects.toBeInstanceOf(UnreadableAudio);
  });

  test("is rejected if it consists of tiny chunks", async () => {
    const chunks = new Uint8Array(8_000_000);
    for (let at = 0; at < chunks.length; at += 8) chunks.set([0x4a, 0x55, 0x4e, 0x4b], at);
    await expect(process(join("RIFF", Uint8Array.of(255, 255, 255, 127), "WAVE", chunks))).rejects.toBeInstanceOf(
      UnreadableAudio,
    );
  });
});
