import { describe, expect, test, vi } from "vitest";
import { inspectFile } from "../../src/audio/inspect.ts";
import { detectMediaType, formatOf } from "../../src/audio/media-type.ts";
import { Budget, MAX_WORK, RangeSource, UnreadableAudio } from "../../src/audio/range-source.ts";
import { MEBIBYTE } from "../support/bytes.ts";
import { isExhaustive } from "../support/tiers.ts";
import {
  type Bytes,
  be32,
  box,
  concat,
  id3,
  indexOf,
  insertIntoBox,
  join,
  le32,
  noise,
  oggPage,
  oggPages,
  patched,
  picture,
  reader,
  repeat,
  riffChunk,
  text,
  wav,
} from "./build.ts";
import { sample, samples } from "./samples.ts";

/* Bulk in a file costs at most its tags. No content makes an inspection slow. */

const bytesOf = (file: string) => sample(file).bytes;

/** Returns the result, and how much was read for it. */
async function inspect(bytes: Bytes) {
  const { read, lengths, total } = reader(bytes);
  const { audio, ...rest } = await inspectFile(read, bytes.length);
  return { ...rest, audio: audio!, reads: lengths.length, bytesRead: total() };
}

const dataBox = (type: number, value: Bytes | string) => box("data", be32(type), be32(0), value);

/** A hostile file is described or rejected. Any other error would be a bug of the parser. */
const expectHandled = (outcome: unknown, file?: string) =>
  expect(outcome instanceof Error ? outcome.constructor : Object, file).toBeOneOf([UnreadableAudio, Object]);

describe("Artwork", () => {
  const cover = noise(5_000_000);

  test.each([
    ["before the title", 0],
    ["behind the title", 50],
  ])("artwork of 5 MB in an M4A, %s, is skipped", async (_, skip) => {
    const tone = bytesOf("mono.m4a");
    // Behind the first item, whose length it is, or before it.
    const first = new DataView(tone.buffer).getUint32(indexOf(tone, "ilst") + 4);
    const path = ["moov", "udta", "meta", "ilst"];
    const big = insertIntoBox(tone, path, skip === 0 ? 0 : first, box("covr", dataBox(14, cover)));
    const { audio, bytesRead } = await inspect(big);
    expect(audio).toMatchObject({ codec: "MPEG-4/AAC", channels: 1, tags: { title: "Übergröße·日本" } });
    expect(audio.durationSeconds).toBeCloseTo(2, 3);
    expect(bytesRead).toBeLessThan(MEBIBYTE);
  });

  const named = id3(["APIC", join("\0image/png\0\x03\0", cover)], ["TIT2", text("Lied")]);
  const tone = bytesOf("tone.wav");
  const fmt = riffChunk("fmt ", tone.slice(20, 36));
  const data = riffChunk("data", tone.slice(44));

  test.each([
    ["before", wav(riffChunk("id3 ", named), fmt, data)],
    ["behind", wav(fmt, data, riffChunk("id3 ", named))],
  ])("artwork of 5 MB in a WAV, %s the sound, is skipped", async (_, bytes) => {
    const { audio, bytesRead } = await inspect(bytes);
    expect(audio).toMatchObject({ durationSeconds: 1.5, tags: { title: "Lied" } });
    expect(bytesRead).toBeLessThan(MEBIBYTE);
  });

  test("artwork of 5 MB in an AIFF is skipped", async () => {
    const chunk = join("ID3 ", be32(named.length), named, new Uint8Array(named.length % 2));
    const aiff = bytesOf("tone.aiff");
    for (const bytes of [join(aiff, chunk), join(aiff.slice(0, 12), chunk, aiff.slice(12))]) {
      const { audio, bytesRead } = await inspect(bytes);
      expect(audio).toMatchObject({ durationSeconds: 1.5, tags: { title: "Lied" } });
      expect(bytesRead).toBeLessThan(MEBIBYTE);
    }
  });

  test("artwork of 5 MB in an MP3 is skipped", async () => {
    const { audio, bytesRead } = await inspect(join(named, bytesOf("tone-cbr.mp3")));
    expect(audio.durationSeconds).toBeCloseTo(2.04, 1);
    expect(audio.tags).toEqual({ title: "Lied" });
    expect(bytesRead).toBeLessThan(MEBIBYTE);
  });

  test("artwork in several blocks of a FLAC, up to 16 MB each, is skipped", async () => {
    const flac = bytesOf("tone.flac");
    const block = (body: Bytes) => join(Uint8Array.of(6), be32(body.length).subarray(1), body);
    const pictures = [cover, noise(16_000_000), ...Array<Bytes>(20).fill(noise(1000))].map(block);
    const { audio, bytesRead } = await inspect(join(flac.slice(0, 42), ...pictures, flac.slice(42)));
    expect(audio).toMatchObject({ durationSeconds: 1.5, tags: { title: "Übergröße" } });
    expect(bytesRead).toBeLessThan(MEBIBYTE);
  });

  test("artwork of 1 MB among the comments of an Opus is skipped", async () => {
    const [head, , ...sound] = oggPages(bytesOf("tone.opus"));
    const serial = new DataView(head!.slice().buffer).getUint32(14, true);
    const comment = (value: string) => join(le32(new TextEncoder().encode(value).length), value);
    const base64 = "A".repeat(1_000_000);
    const packet = join(
      "OpusTags",
      le32(1),
      "v",
      le32(2),
      comment(`METADATA_BLOCK_PICTURE=${base64}`),
      comment("TITLE=Lied"),
    );
    const pages: Bytes[] = [];
    for (let at = 0; at < packet.length; at += 65_025) {
      const part = packet.slice(at, at + 65_025);
      const page = oggPage(serial, at === 0 ? 0 : 1, 0, [part]);
      // A full page has 255 pieces of 255 bytes, and no shorter one that would end the packet.
      pages.push(
        part.length < 65_025 ? page : join(page.subarray(0, 26), Uint8Array.of(255), page.subarray(27, 282), part),
      );
    }
    const { audio } = await inspect(join(head!, ...pages, ...sound));
    expect(audio).toMatchObject({ durationSeconds: 1.5, tags: { title: "Lied" } });
  });
});

describe("The limit on tags", () => {
  test("counts text only, not chapters with pictures or the data of DJ programs", async () => {
    const chapters = Array.from({ length: 3 }, () => ["CHAP", join("c\0", new Uint8Array(16), id3(picture(40_000)))]);
    const dj = [
      ["GEOB", noise(80_000)],
      ["PRIV", noise(80_000)],
    ];
    const frames = [...chapters, ...dj, ["TIT2", text("Lied")]] as [string, Bytes][];
    const { audio } = await inspect(join(id3(...frames), bytesOf("tone-cbr.mp3")));
    expect(audio.tags).toEqual({ title: "Lied" });
  });

  test("admits a tag that is unsynchronized as a whole", async () => {
    const tag = id3(["TIT2", Uint8Array.of(1, 0xff, 0xfe, 0x4c, 0, 0x69, 0, 0x65, 0, 0x64, 0)]);
    const body = join(...[...tag.subarray(10)].map((b) => (b === 0xff ? Uint8Array.of(b, 0) : Uint8Array.of(b))));
    const head = join("ID3", Uint8Array.of(3, 0, 0x80, 0, 0, 0, body.length));
    const { audio } = await inspect(join(head, body, bytesOf("tone-cbr.mp3")));
    expect(audio.tags).toEqual({ title: "Lied" });
  });

  /** Makes a FLAC with these comments behind its STREAMINFO, and a stated number of comments. */
  function flacWith(comments: string[], stated = comments.length): Bytes {
    const flac = bytesOf("tone.flac");
    const frames = indexOf(flac, "\xff\xf8");
    const entries = comments.map((one) => join(le32(new TextEncoder().encode(one).length), one));
    const body = join(le32(0), le32(stated), ...entries);
    const info = patched(flac.slice(0, 42), 4, Uint8Array.of(0));
    return join(info, Uint8Array.of(0x84), be32(body.length).subarray(1), body, flac.slice(frames));
  }

  test("drops some of 1,500 comments of a FLAC, and nothing else", async () => {
    const comments = Array.from({ length: 1_500 }, (_, n) => `COMMENT=number ${n}`);
    const { audio } = await inspect(flacWith(["TITLE=Lied", ...comments]));
    expect(audio).toMatchObject({ durationSeconds: 1.5, tags: { title: "Lied" } });
  });

  test("ignores the claim of 30 million comments", async () => {
    const { audio } = await inspect(flacWith(["TITLE=Lied"], 30_000_000));
    expect(audio).toMatchObject({ durationSeconds: 1.5, tags: { title: "Lied" } });
  });

  test("drops some texts of an M4A, a WAV, and an ASF with a megabyte of them, and no facts", async () => {
    const items = Array.from({ length: 2_000 }, () => box("\xa9cmt", dataBox(1, "x".repeat(500))));
    const m4a = insertIntoBox(bytesOf("mono.m4a"), ["moov", "udta", "meta", "ilst"], 0, join(...items));
    expect((await inspect(m4a)).audio).toMatchObject({ durationSeconds: 2, codec: "MPEG-4/AAC" });
    const info = join("INFO", ...Array.from({ length: 2_000 }, () => riffChunk("ICMT", join("x".repeat(500)))));
    const list = join(bytesOf("tone.wav"), riffChunk("LIST", info));
    expect((await inspect(list)).audio).toMatchObject({ durationSeconds: 1.5, codec: "PCM" });
    const wma = bytesOf("tone.wma");
    const text16 = Uint8Array.from("x".repeat(1_000), (c) => c.charCodeAt(0));
    const name = Uint8Array.from("T\0i\0t\0l\0e\0\0\0", (c) => c.charCodeAt(0));
    const le16 = (value: number) => le32(value).subarray(0, 2);
    const one = join(le16(name.length), name, le16(0), le16(text16.length), text16);
    const guid = Uint8Array.from(Buffer.from("40a4d0d207e3d21197f000a0c95ea850", "hex"));
    const object = join(guid, le32(26 + 1_000 * one.length), le32(0), le16(1_000), repeat(one, 1_000));
    const headerBytes = new DataView(wma.buffer).getUint32(16, true);
    const grown = patched(wma, 16, le32(headerBytes + object.length));
    const asf = join(grown.slice(0, headerBytes), object, grown.slice(headerBytes));
    const { audio } = await inspect(asf);
    expect(audio.codec).toBe("Windows Media Audio V8");
    expect(audio.durationSeconds).toBeCloseTo(2.042, 2);
  });
});

describe("An inspection", () => {
  test("skips 5 MB of sample sizes of an M4A of seven hours", async () => {
    const stsz = box("stsz", be32(0), be32(0), be32(1_250_000), new Uint8Array(5_000_000));
    const tone = bytesOf("mono.m4a");
    const old = indexOf(tone, "stsz");
    const renamed = patched(tone, old, join("free"));
    const bytes = insertIntoBox(renamed, ["moov", "trak", "mdia", "minf", "stbl"], 0, stsz);
    const { audio, bytesRead } = await inspect(bytes);
    expect(audio).toMatchObject({ codec: "MPEG-4/AAC", channels: 1, durationSeconds: 2 });
    expect(bytesRead).toBeLessThan(MEBIBYTE);
  });

  test("finds the sound behind 50,000 first pages of an Ogg, if there is any", async () => {
    const [head, comments, ...sound] = oggPages(bytesOf("tone.opus"));
    const first = head!.subarray(28);
    const firsts = Array.from({ length: 50_000 }, (_, n) => oggPage(n + 1, 2, 0, [first]));
    await expect(inspect(concat(firsts))).rejects.toBeInstanceOf(UnreadableAudio);
    const { audio } = await inspect(concat([head!, comments!, ...firsts, ...sound]));
    expect(audio.durationSeconds).toBe(1.5);
  });

  test("measures the duration behind a tag with 1,000 frames of 70 KB", async () => {
    const tag = id3(...Array<[string, Bytes]>(1_000).fill(["PRIV", noise(70_000)]), ["TIT2", text("Lied")]);
    const { audio, reads } = await inspect(join(tag, bytesOf("tone-cbr.mp3")));
    expect(audio.durationSeconds).toBeCloseTo(78 * (1152 / 44_100), 3);
    expect(reads).toBeLessThanOrEqual(400);
  });

  test("excludes 3 MB of sync bytes behind an MP3", async () => {
    const { audio } = await inspect(join(bytesOf("tone-cbr.mp3"), new Uint8Array(3_000_000).fill(0xff)));
    expect(audio.durationSeconds).toBeCloseTo(78 * (1152 / 44_100), 3);
  });

  test("leaves the duration of an Ogg with a chain of 50,000 links null", async () => {
    const first = oggPages(bytesOf("tone.opus"))[0]!.subarray(28);
    const sound = Uint8Array.of(8, 0);
    const links = Array.from({ length: 50_000 }, (_, n) => [oggPage(n, 2, 0, [first]), oggPage(n, 0, 960, [sound])]);
    const { audio } = await inspect(concat(links.flat()));
    expect(audio).toMatchObject({ codec: "Opus", durationSeconds: null, bitrate: null });
  });

  test.each<[string, () => Bytes]>([
    ["an MP4 of 500,000 boxes", () => join(box("ftyp", "M4A ", be32(0)), box("moov", repeat(box("trak"), 500_000)))],
    [
      "an MP4 of 100,000 tracks",
      () => join(bytesOf("mono.m4a"), box("moov", repeat(box("trak", box("mdia")), 100_000))),
    ],
    ["an AIFF of 500,000 chunks", () => join("FORM", be32(0), "AIFF", repeat(join("ANNO", be32(2), "ab"), 500_000))],
    ["an ID3v2 tag of 50,000 frames", () => join(id3(...Array<[string, Bytes]>(50_000).fill(["TPE1", text("a")])))],
    [
      "a FLAC of 500,000 blocks",
      () => join(bytesOf("tone.flac").slice(0, 42), repeat(Uint8Array.of(1, 0, 0, 0), 500_000)),
    ],
    [
      "a WebM of 500,000 elements",
      () => join(bytesOf("tone.webm").slice(0, 52), repeat(Uint8Array.of(0xec, 0x80), 500_000)),
    ],
    ["an Ogg of 100,000 empty pages", () => join(bytesOf("tone.ogg"), repeat(oggPage(9, 0, 1, []), 100_000))],
    ["a WavPack of 100,000 marks", () => join(bytesOf("tone.wv"), repeat(join("wvpk"), 100_000))],
  ])("ends after a bounded number of reads of %s", async (_, make) => {
    const bytes = make();
    const size = bytes.length;
    const { read, lengths, total } = reader(bytes);
    const outcome = await inspectFile(read, size).catch((error: unknown) => error);
    expectHandled(outcome);
    expect(lengths.length).toBeLessThan(100);
    expect(total()).toBeLessThan(2 * size + MEBIBYTE);
  });

  test("takes at most 400 reads and 200 MB of a file of 5 GB, whatever its format", async () => {
    for (const { bytes, audio } of samples) {
      if (!audio) continue;
      let reads = 0;
      let total = 0;
      const read = async (offset: number, length: number) => {
        reads++;
        total += length;
        const answer = noise(Math.min(length, 4096), offset + 1);
        const filled = length > 4096 ? repeat(answer, Math.ceil(length / 4096)).subarray(0, length) : answer;
        if (offset < bytes.length) filled.set(bytes.subarray(offset, offset + length));
        return filled;
      };
      const outcome = await inspectFile(read, 5_000_000_000).catch((error: unknown) => error);
      expectHandled(outcome);
      expect(reads).toBeLessThanOrEqual(400);
      expect(total).toBeLessThan(200 * MEBIBYTE);
    }
  });

  test("rejects an impossible sample rate", async () => {
    const aiff = bytesOf("tone.aiff");
    const rate = indexOf(aiff, "COMM") + 16;
    await expect(inspect(patched(aiff, rate, Uint8Array.of(0x43, 0xde)))).rejects.toThrow(UnreadableAudio);
  });
});

describe("The media type of an Ogg", () => {
  const pages = oggPages(bytesOf("tone.ogg"));
  const beginning = (id: string) => oggPage(7, 2, 0, [Uint8Array.from(id, (c) => c.charCodeAt(0))]);

  test("is audio if it begins with a Skeleton stream", async () => {
    const { mediaType, audio } = await inspect(concat([beginning("fishead\0"), ...pages]));
    expect({ mediaType, seconds: audio.durationSeconds }).toEqual({ mediaType: "audio/ogg", seconds: 2 });
  });

  test("follows the streams behind a Skeleton stream, not the names in texts", async () => {
    const [first, ...rest] = pages;
    const skeleton = [beginning("fishead\0"), first!];
    const note = (text: string) => oggPage(7, 0, 0, [Uint8Array.from(text, (c) => c.charCodeAt(0))]);
    const named = concat([...skeleton, note("made by a2theora, not vorbis BBCD"), ...rest]);
    for (const text of [named, concat([...skeleton, ...rest])]) {
      expect((await detectMediaType(text)).mediaType).toBe("audio/ogg");
      expect(await inspect(text)).toMatchObject({ mediaType: "audio/ogg", fileType: "audio file" });
    }
    for (const picture of [beginning("\x80theora\x03\x02\x01"), beginning("BBCD\0")]) {
      const movie = concat([skeleton[0]!, picture, first!, ...rest]);
      expect((await detectMediaType(movie)).mediaType).toBe("video/ogg");
      expect(await inspect(movie)).toMatchObject({ mediaType: "video/ogg", fileType: "video file", audio: null });
    }
    const other = concat([skeleton[0]!, beginning("CELT    "), note("vorbis OpusHead")]);
    expect((await detectMediaType(other)).mediaType).toBe("application/ogg");
  });

  test("is video if it has pictures, in whatever order", async () => {
    const picture = beginning("\x80theora\x03\x02\x01");
    for (const bytes of [concat([picture, ...pages]), concat([pages[0]!, picture, ...pages.slice(1)])]) {
      expect(await inspect(bytes)).toMatchObject({ mediaType: "video/ogg", fileType: "video file", audio: null });
    }
  });
});

describe("The sound of an MP4", () => {
  const tone = bytesOf("mono.m4a");
  // Tag 5 of the ES descriptor, its length written in four bytes, then 5 bytes of AudioSpecificConfig.
  const config = indexOf(tone, "\x05\x80\x80\x80") + 5;
  const length = tone[config - 1]!;

  function withConfig(bits: string): Bytes {
    const padded = bits.replaceAll(" ", "").padEnd(length * 8, "0");
    const bytes = Array.from({ length }, (_, n) => Number.parseInt(padded.slice(n * 8, n * 8 + 8), 2));
    return patched(tone, config, Uint8Array.from(bytes));
  }

  test.each([
    ["plain AAC in mono", "00010 1000 0001 000", 16_000, 1],
    ["HE-AAC, explicitly signalled", "00101 1011 0001 0111 00010 000", 22_050, 1],
    ["HE-AAC v2, explicitly signalled", "11101 1011 0001 0111 00010 000", 22_050, 2],
    ["HE-AAC, signalled behind the plain set-up", "00010 1011 0001 000 01010110111 00101 1 0111", 22_050, 1],
    ["AAC of a rate that is written out", "00010 1111 000000000011111010000000 0011", 16_000, 3],
    ["5.1 AAC", "00010 0011 0110 000", 48_000, 6],
  ])("follows the decoder configuration: %s", async (_, bits, sampleRate, channels) => {
    expect((await inspect(withConfig(bits))).audio).toMatchObject({ sampleRate, channels, codec: "MPEG-4/AAC" });
  });

  test("stays audio with an additional track of still pictures", async () => {
    const entry = box("jpeg", new Uint8Array(70));
    const stbl = box("stbl", box("stsd", be32(0), be32(1), entry));
    const handler = box("hdlr", new Uint8Array(8), "vide", new Uint8Array(13));
    const trak = box("trak", box("mdia", handler, box("minf", stbl)));
    const { fileType, audio } = await inspect(insertIntoBox(tone, ["moov"], 0, trak));
    expect(fileType).toBe("audio file");
    expect(audio.channels).toBe(1);
  });
});

describe("The tag parser", () => {
  /** Returns how many bytes of a file reach the parser. */
  async function bytesForParser(bytes: Bytes) {
    const { mediaType } = await detectMediaType(bytes.subarray(0, 4096));
    const source = new RangeSource(reader(bytes).read, bytes.length);
    const reading = await formatOf(mediaType).read!(source);
    return (await reading!.readTags()).length;
  }

  test("gets at most 70 KB of texts", async () => {
    const items = Array.from({ length: 20_000 }, (_, n) =>
      box("\xa9ART", dataBox(1, `artist ${n} ${"x".repeat(n % 200)}`)),
    );
    const m4a = insertIntoBox(bytesOf("mono.m4a"), ["moov", "udta", "meta", "ilst"], 0, concat(items));
    const info = join("INFO", concat(items.map((_, n) => riffChunk("IART", join(`artist ${n}`)))));
    for (const bytes of [m4a, join(bytesOf("tone.wav"), riffChunk("LIST", info))]) {
      expect(await bytesForParser(bytes)).toBeLessThan(70_000);
    }
  });

  test("gets no sound of any format", async () => {
    for (const { bytes, audio } of samples) {
      if (audio) expect(await bytesForParser(bytes)).toBeLessThan(600);
    }
  });
});

describe("A lightly damaged file", () => {
  test("is read or rejected after few reads", async () => {
    for (const { bytes, file, audio } of samples) {
      if (!audio) continue;
      for (let seed = 1; seed <= (isExhaustive ? 40 : 10); seed++) {
        const junk = noise(48, seed * 7919 + file.length);
        const broken = bytes.slice();
        // Most of the structure is in the first kilobytes.
        const reach = seed % 3 === 0 ? broken.length : Math.min(broken.length, 2_000);
        for (let n = 0; n < 1 + (seed % 12); n++) {
          const at = ((junk[4 * n]! << 16) | (junk[4 * n + 1]! << 8) | junk[4 * n + 2]!) % reach;
          broken[at] = junk[4 * n + 3]!;
        }
        const { read, lengths } = reader(seed % 5 === 0 ? broken.subarray(0, junk[47]! * 30) : broken);
        const size = seed % 5 === 0 ? Math.min(broken.length, junk[47]! * 30) : broken.length;
        const outcome = await inspectFile(read, size).catch((error: unknown) => error);
        expectHandled(outcome, `${file}, seed ${seed}`);
        expect(lengths.length, `${file}, seed ${seed}`).toBeLessThan(20);
      }
    }
  });
});

describe("The work budget", () => {
  const size = MEBIBYTE;
  const padded = (...parts: (Bytes | string)[]) => {
    const front = join(...parts);
    return join(front, new Uint8Array(size - front.length).fill(1));
  };
  // Each tag claims to be unsynchronized and to extend over everything that follows.
  const claims = join("ID3", Uint8Array.of(3, 0, 0x80, 63, 127, 127, 127), new Uint8Array(10));
  const tone = bytesOf("fragmented.m4a");
  const movie = tone.slice(0, indexOf(tone, "moof") - 4);
  const nested = (name: string, count: number, from: number) =>
    concat(Array.from({ length: count }, (_, n) => join(be32(size - from - 8 * n), name)));
  const webm = bytesOf("tone.webm");
  const segment = indexOf(webm, "\x15\x49\xa9\x66");
  const infos = concat(
    Array.from({ length: 1_900 }, (_, n) => join("\x15\x49\xa9\x66\x20", be32(8 * (2_000 - n)).slice(1))),
  );
  const movieOf = (...boxes: Bytes[]) => join(box("ftyp", "M4A ", be32(0)), box("moov", ...boxes));
  const stts = box("stts", be32(0), be32(8_000), repeat(join(be32(1), be32(0)), 8_000));
  const config = join(Uint8Array.of(4, 20, 0x40), new Uint8Array(12), Uint8Array.of(5, 120), new Uint8Array(230));
  const entry = box("mp4a", new Uint8Array(28), repeat(box("esds", be32(0), config), 1_000));
  const codecs = join("\x40\x52\xd1\x86", new Uint8Array(12), le32(8_192 + 24), le32(0), new Uint8Array(8_192));
  const wma = bytesOf("tone.wma");
  /** Clusters without a time. Each occurrence of their id is tried as the last cluster. */
  const clusters = join(
    bytesOf("tone-live.webm"),
    repeat(join(Uint8Array.of(0x1f, 0x43, 0xb6, 0x75, 0xff), repeat(Uint8Array.of(0xec, 0x80), 8_000)), 64),
  );
  const lists = repeat(riffChunk("LIST", join("INFO", repeat(join("IART", le32(0)), 124))), 1_990);

  /** The outcome, the units charged, and how often other tasks could run in the meantime. */
  async function measure(bytes: Bytes) {
    const charge = vi.spyOn(Budget.prototype, "charge");
    let isDone = false;
    const otherTask = (async () => {
      let turns = 0;
      for (; !isDone; turns++) await new Promise((resolve) => setTimeout(resolve, 0));
      return turns;
    })();
    const outcome = await inspectFile(reader(bytes).read, bytes.length).catch((error: unknown) => error);
    isDone = true;
    const units = charge.mock.calls.reduce((sum, [one]) => sum + one, 0);
    charge.mockRestore();
    return { outcome, units, turns: await otherTask };
  }

  test.each([
    ["a WAV of 1,900 unsynchronized tags", padded(bytesOf("tone.wav"), repeat(riffChunk("id3 ", claims), 1_900))],
    ["an AIFF of 1,900 such tags", padded(bytesOf("tone.aiff"), repeat(join("ID3 ", be32(20), claims), 1_900))],
    [
      "an MP4 of nested fragments",
      padded(movie, nested("moof", 66, movie.length), nested("traf", 2_100, movie.length + 8 * 66)),
    ],
    ["a WebM of nested descriptions", padded(webm.slice(0, segment), infos, webm.slice(segment))],
    ["an MP4 of 200 time tables without ticks", movieOf(box("trak", repeat(stts, 200)))],
    ["an MP4 of 200 time tables outside of any track", movieOf(repeat(stts, 200))],
    ["an MP4 of 10,000 decoder configurations", movieOf(box("trak", repeat(box("stsd", be32(0), be32(1), entry), 10)))],
    ["an ASF of 200 codec lists", join(patched(wma, 16, le32(2e6)).slice(0, 30), repeat(codecs, 200), wma.slice(30))],
    ["a WAV of 30,000 character sets", join(bytesOf("tone.wav"), repeat(riffChunk("CSET", noise(64)), 30_000))],
  ])("is spent by at most a fifth on %s", async (_, bytes) => {
    const { outcome, units } = await measure(bytes);
    expectHandled(outcome);
    expect(units).toBeLessThan(MAX_WORK / 5);
  });

  test("ends the inspection of a file that exhausts it, and lets other tasks run until then", async () => {
    const { outcome, units, turns } = await measure(clusters);
    expect(outcome).toEqual(new UnreadableAudio("The file is too complex to inspect."));
    expect(units).toBeLessThan(MAX_WORK / 3);
    expect(turns).toBeGreaterThan(5);
  });

  test("keeps the facts of a file whose tags exhaust it", async () => {
    const { outcome } = await measure(join(bytesOf("tone.wav"), riffChunk("id3 ", id3(["TIT2", text("Lied")])), lists));
    expect(outcome).toMatchObject({ audio: { durationSeconds: 1.5, codec: "PCM", tags: {} } });
  });

  test("suffices for every byte of the largest headerless MP3, with the smallest frames", async () => {
    const frame = patched(new Uint8Array(24), 0, Uint8Array.of(0xff, 0xf3, 0x14, 0xc0));
    const window = repeat(frame, Math.ceil((MEBIBYTE + 24) / 24));
    const charge = vi.spyOn(Budget.prototype, "charge");
    const read = async (offset: number, length: number) => window.slice(offset % 24, (offset % 24) + length);
    const { audio } = await inspectFile(read, 100_000_008);
    const units = charge.mock.calls.reduce((sum, [one]) => sum + one, 0);
    charge.mockRestore();
    expect(audio!.durationSeconds! / ((100_000_008 / 24) * (576 / 24_000))).toBeCloseTo(1, 3);
    expect(units).toBeLessThan(MAX_WORK);
  });

  test("is spent on only the first of 400 time tables of a track", async () => {
    const rows = join(be32(0), be32(8_000), repeat(join(be32(1), be32(1)), 8_000));
    const path = ["moov", "trak", "mdia", "minf", "stbl"];
    const bytes = insertIntoBox(bytesOf("mono.m4a"), path, 1e9, repeat(box("stts", rows), 400));
    const { audio } = await inspect(bytes);
    expect(audio.durationSeconds).toBeCloseTo(2, 1);
  });
});
