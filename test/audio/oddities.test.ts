import { describe, expect, test } from "vitest";
import { inspectFile } from "../../src/audio/inspect.ts";
import { detectMediaType, HEAD_BYTES, possibleFileTypes } from "../../src/audio/media-type.ts";
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
  reader,
  repeat,
  riffChunk,
  text,
  wav,
} from "./build.ts";
import { sample } from "./samples.ts";

/* One odd number, frame, or packet decides nothing that the rest of the file contradicts. */

const bytesOf = (file: string) => sample(file).bytes;
const inspect = (bytes: Bytes) => inspectFile(reader(bytes).read, bytes.length);
const audioOf = async (bytes: Bytes) => (await inspect(bytes)).audio!;
const tagsOf = async (bytes: Bytes) => (await audioOf(bytes)).tags;
const gate = (bytes: Bytes) => detectMediaType(bytes.subarray(0, HEAD_BYTES));
const latin1 = (value: string) => Uint8Array.from(value, (c) => c.charCodeAt(0));
const be16 = (value: number) => be32(value).subarray(2);
const be64 = (value: number) => join(be32(Math.floor(value / 2 ** 32)), be32(value % 2 ** 32));
const le16 = (value: number) => le32(value).subarray(0, 2);

/** AC-3 in stereo at 48 kHz: 50 frames of 128 bytes and 1,536 samples. */
const ac3 = repeat(join(Uint8Array.of(0x0b, 0x77, 1, 2, 0, 0x40, 0x40), noise(121)), 50);
/** E-AC-3 in 5.1 at 48 kHz: 50 frames of 128 bytes and 1,536 samples. */
const eac3 = repeat(join(Uint8Array.of(0x0b, 0x77, 0, 63, 0x3f, 0x80, 0), new Uint8Array(121)), 50);
/** MPEG-1 Layer I with a checksum, whose first bytes are those of a text in UTF-16: 100 frames of 384 samples at 48 kHz. */
const layer1 = repeat(join(Uint8Array.of(0xff, 0xfe, 0x94, 0), new Uint8Array(284)), 100);

describe("Frames behind other bytes", () => {
  const ape = (() => {
    const item = join(le32(4), le32(0), "Title\0", "Lied");
    const frame = (flags: number) =>
      join("APETAGEX", le32(2000), le32(item.length + 32), le32(1), le32(flags), new Uint8Array(8));
    return join(frame(0xa0000000), item, frame(0x80000000));
  })();
  const inFront: [string, (bytes: Bytes) => Bytes][] = [
    ["nothing", () => new Uint8Array()],
    ["a zero", () => new Uint8Array(1)],
    ["300 bytes of noise", () => noise(300)],
    ["60,000 zeros", () => new Uint8Array(60_000)],
    ["the rest of a frame", (bytes) => bytes.slice(50, 120)],
    ["an APE tag", () => ape],
    ["an ID3 tag", () => id3(["TIT2", text("Lied")])],
  ];
  const sounds: [string, string, Bytes, number, object][] = [
    ["audio/mpeg", "MP3", bytesOf("tone-cbr.mp3"), 78 * (1152 / 44_100), { codec: "MPEG 1 Layer 3" }],
    ["audio/aac", "AAC", bytesOf("tone.aac"), 88 * (1024 / 44_100), { codec: "AAC" }],
    ["audio/ac3", "AC-3", ac3, 1.6, { codec: "AC-3", channels: 2, sampleRate: 48_000, bitrate: 32_000 }],
    ["audio/eac3", "E-AC-3", eac3, 1.6, { codec: "E-AC-3", channels: 6, sampleRate: 48_000 }],
    ["audio/mpeg", "Layer I with a checksum", layer1, 0.8, { codec: "MPEG 1 Layer 1" }],
  ];
  test.each(sounds.flatMap((sound) => inFront.map((front) => [sound[1], front[0], sound, front] as const)))(
    "are read as %s behind %s",
    async (_, __, [mediaType, ___, sound, seconds, facts], [____, front]) => {
      const bytes = join(front(sound), sound);
      expect(await gate(bytes)).toEqual({ mediaType, fileType: "audio file" });
      const { audio, ...type } = await inspect(bytes);
      expect(type).toEqual({ mediaType, fileType: "audio file" });
      expect(audio).toMatchObject(facts);
      expect(audio!.durationSeconds).toBeCloseTo(seconds, 1);
    },
  );

  test.each([
    ["AC-3", "audio/ac3", ac3],
    ["E-AC-3", "audio/eac3", eac3],
  ])("may be a single one, if it is the whole file: %s", async (_, mediaType, sound) => {
    const frame = sound.slice(0, 128);
    expect(await inspect(frame)).toMatchObject({ mediaType, audio: { durationSeconds: 0.032 } });
    for (const bytes of [join(frame, noise(1)), frame.subarray(0, 127)]) {
      expect(await inspect(bytes)).toMatchObject({ mediaType: "application/octet-stream" });
    }
  });

  test("decide the type, whatever a byte in front of them looks like", async () => {
    const { mediaType } = await inspect(
      join(Uint8Array.of(0xff, 0xf1, 0x50, 0x40), noise(50), bytesOf("tone-cbr.mp3")),
    );
    expect(mediaType).toBe("audio/mpeg");
  });

  test("keep the title of an APE tag in front of them", async () => {
    expect(await tagsOf(join(ape, bytesOf("tone-cbr.mp3")))).toEqual({ title: "Lied" });
  });

  test("are found in a tag that claims more than the file", async () => {
    const tag = patched(id3(["TIT2", text("Lied")]), 6, Uint8Array.of(0, 127, 127, 127));
    const { durationSeconds, tags } = await audioOf(join(tag, bytesOf("tone-cbr.mp3")));
    expect(durationSeconds).toBeCloseTo(2.04, 1);
    expect(tags).toEqual({ title: "Lied" });
  });

  test.each([
    ["noise", noise(60_000, 7)],
    [
      "a text in UTF-16",
      join(Uint8Array.of(0xff, 0xfe), concat([..."Täglich Brot. ".repeat(500)].map((c) => le16(c.charCodeAt(0))))),
    ],
    ["two bytes of AC-3 and noise", join(Uint8Array.of(0x0b, 0x77), noise(60_000))],
  ])("are not found in %s", async (_, bytes) => {
    expect((await gate(bytes)).fileType).toBe("other file");
    expect((await inspect(bytes)).fileType).toBe("other file");
  });
});

describe("The type of a file behind an ID3 tag", () => {
  const tag = id3(["TIT2", text("Lied")]);
  test.each<[string, Bytes]>([
    ["TTA", join("TTA1", noise(500))],
    ["AU", join(".snd", be32(24), be32(400), be32(3), be32(8000), be32(1), noise(400))],
    ["DTS", join(latin1("\x7f\xfe\x80\x01"), noise(500))],
    ["MIDI", join("MThd", be32(6), noise(500))],
    ["a picture", bytesOf("pixel.png")],
    ["a movie", bytesOf("silent.mp4")],
    ["WMA", bytesOf("tone.wma")],
    ["M4A", bytesOf("tone.m4a")],
    ["MP4 without pictures", bytesOf("tone-audio-only.mp4")],
    ["WebM", bytesOf("tone.webm")],
    ["AAC", bytesOf("tone.aac")],
  ])("is that of the same bytes without the tag: %s", async (_, bytes) => {
    const [bare, tagged] = [await inspect(bytes), await inspect(join(tag, bytes))];
    const typeOf = ({ mediaType, fileType, audio }: typeof bare) => [mediaType, fileType, audio?.durationSeconds];
    expect(typeOf(tagged)).toEqual(typeOf(bare));
    expect(await gate(join(tag, bytes))).toEqual(await gate(bytes));
  });
});

describe("A FLAC", () => {
  const tone = bytesOf("tone.flac");
  const starts: number[] = [];
  for (let at = indexOf(tone, "\xff\xf8"); at >= 0; at = indexOf(tone, "\xff\xf8", at + 1)) {
    if (tone[at + 4] === starts.length) starts.push(at);
  }
  /** Returns a checksum that ends the bytes it is of. */
  function checksum(bytes: Bytes, width: 8 | 16, polynomial: number): Bytes {
    let sum = 0;
    for (const b of bytes) {
      sum ^= b << (width - 8);
      for (let bit = 0; bit < 8; bit++) sum = sum & (1 << (width - 1)) ? (sum << 1) ^ polynomial : sum << 1;
      sum &= 2 ** width - 1;
    }
    return be32(sum).subarray(4 - width / 8);
  }
  /** The frames count samples, although their flag says that they count frames. */
  const counted = starts.map((start, n) => {
    const frame = tone.slice(start, starts[n + 1] ?? tone.length);
    // The last frame states its samples in two bytes.
    const isShort = frame[2]! >> 4 === 7;
    const rest = frame.subarray(5, isShort ? 7 : 5);
    const header = join(frame.subarray(0, 4), String.fromCodePoint(n * 4096), rest);
    const body = join(header, checksum(header, 8, 7), frame.subarray(6 + rest.length, frame.length - 2));
    return join(body, checksum(body, 16, 0x8005));
  });

  test("has the duration of its frames, whatever its flag and its block sizes say", async () => {
    expect(starts.length).toBe(6);
    const head = tone.slice(0, starts[0]);
    const withSizes = (least: number, most: number) => patched(head, 8, join(be16(least), be16(most)));
    expect(await audioOf(join(head, ...counted))).toMatchObject({ durationSeconds: 1.5 });
    expect(await audioOf(join(withSizes(16, 4096), ...counted))).toMatchObject({ durationSeconds: 1.5 });
    for (const [least, most] of [
      [4096, 16384],
      [16, 16],
      [0, 0],
      [16, 4096],
    ] as const) {
      const bytes = join(withSizes(least, most), tone.subarray(starts[0]));
      expect(await audioOf(bytes)).toMatchObject({ durationSeconds: 1.5 });
    }
  });

  test("has the rate and the channels of its frames", async () => {
    const bytes = patched(tone, 20, Uint8Array.of(tone[20]! ^ 0x0e));
    expect(await audioOf(bytes)).toMatchObject({ channels: 1, sampleRate: 16_000, durationSeconds: 1.5 });
  });

  test("may have another block in front of STREAMINFO", async () => {
    const bytes = join("fLaC", Uint8Array.of(1, 0, 0, 4, 0, 0, 0, 0), tone.subarray(4));
    expect(await audioOf(bytes)).toMatchObject({ durationSeconds: 1.5, tags: { title: "Übergröße" } });
  });

  test("keeps its tags behind a picture that is longer than its block states", async () => {
    const data = noise(1000);
    const picture = join(be32(3), be32(9), "image/png", be32(0), new Uint8Array(16), be32(data.length), data);
    const bytes = join(tone.slice(0, 42), Uint8Array.of(6, 0, 0, 100), picture, tone.slice(42));
    expect(await audioOf(bytes)).toMatchObject({ durationSeconds: 1.5, tags: { title: "Übergröße" } });
  });
});

describe("The duration of an Ogg", () => {
  test("is that of all packets, however long each of them is", async () => {
    const [head, comments] = oggPages(bytesOf("tone.opus"));
    const serial = new DataView(head!.slice().buffer).getUint32(14, true);
    const preSkip = new DataView(head!.slice().buffer).getUint16(28 + 10, true);
    // A packet of 2.5 ms, and nine of 60 ms: 26,040 samples at 48 kHz.
    const packets = [Uint8Array.of(0x80, 0), ...Array<Bytes>(9).fill(Uint8Array.of(0x18, 0))];
    const sound = [1, 2, 3].map((n) => oggPage(serial, 0, n * 26_040, packets));
    const { durationSeconds } = await audioOf(join(head!, comments!, ...sound));
    expect(durationSeconds).toBeCloseTo((3 * 26_040 - preSkip) / 48_000, 4);
  });

  test("is that of the frames of FLAC, whatever block size its header states", async () => {
    const flac = bytesOf("flac.oga");
    const sizes = indexOf(flac, "fLaC") + 8;
    const { durationSeconds } = await audioOf(patched(flac, sizes, new Uint8Array(4)));
    expect(durationSeconds).toBeCloseTo(2, 3);
  });
});

describe("The sound of an MP4", () => {
  const tone = bytesOf("mono.m4a");
  const pictures = (format: string, samples: number, id = 7) => {
    const stts = box("stts", be32(0), be32(1), be32(samples), be32(100));
    const stbl = box("stbl", box("stsd", be32(0), be32(1), box(format, new Uint8Array(70))), stts);
    const handler = box("hdlr", new Uint8Array(8), "vide", new Uint8Array(13));
    const header = box("tkhd", be32(0), be32(0), be32(0), be32(id), new Uint8Array(68));
    return box("trak", header, box("mdia", handler, box("minf", stbl)));
  };
  const typeOf = async (bytes: Bytes) => (await inspect(bytes)).fileType;

  test.each([
    ["jpeg", 1, "audio file"],
    ["jpeg", 2, "video file"],
    ["png ", 15, "video file"],
    ["mjpa", 15, "video file"],
    ["avc1", 15, "video file"],
  ])("with pictures in %s, %i of them, is in a file of the type %s", async (format, samples, fileType) => {
    expect(await typeOf(insertIntoBox(tone, ["moov"], 0, pictures(format, samples)))).toBe(fileType);
    expect(await typeOf(insertIntoBox(tone, ["moov"], 1e9, pictures(format, samples)))).toBe(fileType);
  });

  test.each(["jpeg", "png ", "avc1"])("may have chapters with pictures in %s", async (format) => {
    const chapters = insertIntoBox(tone, ["moov", "trak"], 0, box("tref", box("chap", be32(9), be32(7))));
    expect(await typeOf(insertIntoBox(chapters, ["moov"], 0, pictures(format, 12)))).toBe("audio file");
    expect(await typeOf(insertIntoBox(chapters, ["moov"], 0, pictures(format, 12, 8)))).toBe("video file");
  });

  const config = indexOf(tone, "\x05\x80\x80\x80") + 5;
  test.each([
    ["11111000010", "MP3 on MP4", false],
    ["11111000100", "MPEG-4/ALS", true],
    ["11111000101", "MPEG-4/SLS", true],
    ["11111001010", "MPEG-D/USAC", false],
    ["01000", "MPEG-4/CELP", false],
  ])("is named by its audio object type %s: %s", async (type, codec, lossless) => {
    const bits = `${type}10000001`.padEnd(40, "0");
    const bytes = Array.from({ length: 5 }, (_, n) => Number.parseInt(bits.slice(n * 8, n * 8 + 8), 2));
    const audio = await audioOf(patched(tone, config, Uint8Array.from(bytes)));
    expect(audio).toMatchObject({ codec, lossless, sampleRate: 16_000, channels: 1, durationSeconds: 2 });
  });

  /** A tone whose sample entry has another format, of two channels, and these boxes. */
  const entryOf = (format: string, rate: Bytes, ...inner: Bytes[]) => {
    const at = indexOf(tone, "stsd") + 12;
    const old = tone.slice(at, at + new DataView(tone.buffer).getUint32(at));
    const entry = box(
      format,
      new Uint8Array(7),
      Uint8Array.of(1),
      be32(0),
      be32(0),
      be32(0x20010),
      be32(0),
      rate,
      ...inner,
    );
    const free = box("free", new Uint8Array(old.length - entry.length - 8));
    const file = patched(tone, at, join(entry, free));
    return audioOf(file);
  };
  const khz48 = be32(48_000 * 65_536);

  const untagged = patched(tone, indexOf(tone, "udta"), join("free"));
  const named: [name: string, value: string][] = [
    ...([
      ["title", "Lied"],
      ["artist", "Ännchen"],
      ["album", "Garden"],
      ["genre", "Folk"],
    ] as [string, string][]),
    ...([
      ["comment", "So"],
      ["copyright", "Ann"],
      ["year", "2011"],
    ] as [string, string][]),
  ];
  const tags = {
    title: "Lied",
    artist: "Ännchen",
    album: "Garden",
    genre: "Folk",
    year: 2011,
    date: "2011",
    comment: "So",
    copyright: "Ann",
  };

  test.each(["", "com.apple.quicktime."])("has the texts of QuickTime, whose names begin with '%s'", async (prefix) => {
    const names = named.map(([name]) => join(be32(8 + prefix.length + name.length), "mdta", prefix, name));
    const keys = box("keys", be32(0), be32(names.length), ...names);
    const items = named.map(([, value], n) => {
      const item = box("item", box("data", be32(1), be32(0), value));
      return patched(item, 4, be32(n + 1));
    });
    const picture = patched(box("item", box("data", be32(13), be32(0), noise(20))), 4, be32(1));
    const beyond = patched(box("item", box("data", be32(1), be32(0), "none")), 4, be32(99));
    const handler = box("hdlr", be32(0), be32(0), "mdta", new Uint8Array(13));
    const meta = box("meta", handler, keys, box("ilst", picture, ...items, beyond));
    expect((await audioOf(insertIntoBox(untagged, ["moov"], 0, meta))).tags).toEqual(tags);
  });

  test("has the texts of 3GP, in UTF-8 and UTF-16", async () => {
    const asset = (name: string, value: Bytes | string) => box(name, be32(0), Uint8Array.of(0x15, 0xc7), value);
    const wide = concat([..."\ufeffÄnnchen\0"].map((c) => be16(c.charCodeAt(0))));
    const year = box("yrrc", be32(0), be16(2011));
    const texts = [
      ...[asset("titl", "Lied\0"), asset("perf", wide), asset("albm", "Garden\0\x03"), asset("gnre", "Folk\0"), year],
      ...[asset("dscp", "So\0"), asset("cprt", "Ann\0")],
    ];
    const file = insertIntoBox(untagged, ["moov"], 0, box("udta", ...texts));
    expect((await audioOf(file)).tags).toEqual(tags);
  });

  test.each([
    ["samr", "AMR", 8000],
    ["sawb", "AMR-WB", 16_000],
    ["sqcp", "QCELP", 8000],
  ])("in a codec for speech has one channel, whatever the entry %s states", async (format, codec, sampleRate) => {
    expect(await entryOf(format, be32(0))).toMatchObject({ codec, sampleRate, channels: 1 });
  });

  test.each([
    ["of up to eight channels", [0, 0x17, 0x80, 0x4f], 8],
    ["of up to six channels", [0, 7, 0x80, 0], 6],
    ["of two channels", [0, 0, 0x80, 0], 2],
  ])("in TrueHD has the channels of its largest presentation: %s", async (_, bytes, channels) => {
    const config = box("dmlp", Uint8Array.from(bytes), be32(0));
    const facts = { codec: "TrueHD", lossless: true, channels, sampleRate: 48_000 };
    expect(await entryOf("mlpa", be32(48_000), config)).toMatchObject(facts);
  });

  test.each([
    ["ac-4", "AC-4"],
    ["mhm1", "MPEG-H"],
    ["iamf", "IAMF"],
    ["dtsc", "DTS"],
    ["ima4", "IMA ADPCM"],
  ])("is named by the format of its entry: %s", async (format, codec) => {
    expect(await entryOf(format, khz48)).toMatchObject({ codec, sampleRate: 48_000 });
    const encrypted = await entryOf("enca", khz48, box("sinf", box("frma", format)));
    expect(encrypted).toMatchObject({ codec, sampleRate: 48_000 });
  });

  test.each([
    ["in front, and of low frequencies", "0001 0000 0000 01 000 0000 000 0 0000", 2],
    ["one and two in front", "0010 0000 0000 00 000 0000 000 0 0000 1 0001", 3],
    [
      "in front, at the sides, and behind, with mixdowns",
      "0010 0001 0001 01 000 0000 1 0000 0 1 000 0 0000 1 0001 1 0000 1 0001",
      8,
    ],
  ])("has the channels of a layout without a number: %s", async (_, layout, channels) => {
    // AAC-LC at 16 kHz, no layout, three flags, a tag, a profile, and a rate.
    const bits = `00010 1000 0000 000 0000 01 1000 ${layout}`.replaceAll(" ", "");
    const packed = Uint8Array.from(bits.match(/.{1,8}/g)!, (part) => Number.parseInt(part.padEnd(8, "0"), 2));
    const body = (content: Bytes) => join(Uint8Array.of(content.length), content);
    const decoder = join(Uint8Array.of(0x40, 0x15), new Uint8Array(11), Uint8Array.of(5), body(packed));
    const esds = box("esds", be32(0), Uint8Array.of(3), body(join(Uint8Array.of(0, 0, 0, 4), body(decoder))));
    const facts = { codec: "MPEG-4/AAC", channels, sampleRate: 16_000 };
    expect(await entryOf("mp4a", be32(16_000 * 65_536), esds)).toMatchObject(facts);
  });

  const fragmented: Bytes = bytesOf("fragmented.m4a");
  const times: number[] = [];
  for (let at = indexOf(fragmented, "tfdt"); at >= 0; at = indexOf(fragmented, "tfdt", at + 1)) times.push(at);
  const whole = 4.06;

  test("has the duration of all fragments, whatever they state about their time", async () => {
    expect(times.length).toBeGreaterThan(3);
    const without = (list: number[]) => list.reduce((file, at) => patched(file, at, join("free")), fragmented);
    // A version, flags, and a time of 4 or 8 bytes.
    const zeroed = times.reduce(
      (file, at) => patched(file, at + 8, new Uint8Array(fragmented[at + 4] ? 8 : 4)),
      fragmented,
    );
    for (const file of [fragmented, without(times), without(times.slice(1)), without(times.slice(-1)), zeroed]) {
      expect((await audioOf(file)).durationSeconds).toBeCloseTo(whole, 1);
    }
  });

  test("has the duration of the samples in the movie and in the fragments behind it", async () => {
    const fragments = fragmented.slice(indexOf(fragmented, "moof") - 4);
    const defaults = indexOf(fragmented, "mvex") - 4;
    const mvex = fragmented.slice(defaults, defaults + new DataView(fragmented.buffer).getUint32(defaults));
    const { durationSeconds } = await audioOf(join(insertIntoBox(tone, ["moov"], 0, mvex), fragments));
    expect(durationSeconds).toBeCloseTo(2 + whole, 1);
  });

  test.each([
    ["a preview", () => join(box("pnot", new Uint8Array(12)), box("PICT", noise(200)), bytesOf("audio-only.mov"))],
    ["free space", () => join(box("skip", new Uint8Array(100)), bytesOf("audio-only.mov"))],
    ["free space in front of a brand", () => join(box("skip", new Uint8Array(100)), tone)],
  ])("may begin behind %s", async (_, make) => {
    expect(possibleFileTypes((await gate(make())).mediaType)).toContain("audio file");
    const { mediaType, audio } = await inspect(make());
    expect(mediaType).toBe("audio/mp4");
    expect(audio!.durationSeconds).toBeCloseTo(2, 1);
  });
});

describe("The duration of WMA", () => {
  test("follows the times to play, not the times to send", async () => {
    const tone = bytesOf("tone.wma");
    const [headerBytes, packetBytes] = [new DataView(tone.buffer).getUint32(16, true), 3200];
    let early: Bytes = tone;
    // The sample has no error, and lengths of one byte, in front of these fields.
    for (let n = 0; n < 5; n++)
      early = patched(early, headerBytes + 50 + n * packetBytes + 6, join(le32(n * 10), le16(10)));
    expect((await audioOf(early)).durationSeconds).toBeCloseTo(2.042, 2);
    const properties = indexOf(tone, "\xa1\xdc\xab\x8c");
    const day = join(le32(86_400e7 % 2 ** 32), le32(Math.floor(86_400e7 / 2 ** 32)));
    expect((await audioOf(patched(tone, properties + 64, day))).durationSeconds).toBeLessThan(3);
  });
});

describe("The tags", () => {
  const mp3 = bytesOf("tone-cbr.mp3");
  const comment = (description: string, value: string): [string, Bytes] => [
    "COMM",
    join("\0eng", description, "\0", value),
  ];
  const utf16 = (value: string) => concat([...value].map((c) => le16(c.charCodeAt(0))));

  test("have the comments of people, not those of programs", async () => {
    const machines = ["iTunNORM", "iTunPGAP", "iTunSMPB", "iTunes_CDDB_IDs", "MusicMatch_Mood", "Songs-DB_Custom1"];
    const wide: [string, Bytes] = ["COMM", join("\x01eng", utf16("\ufeffiTunNORM\0"), utf16("\ufeff 00000157"))];
    const frames = [...machines.map((name) => comment(name, "0000")), wide, comment("", "In the garden")];
    expect(await tagsOf(join(id3(...frames), mp3))).toEqual({ comment: "In the garden" });
    const old = comment("ID3v1 Comment", "In the gar");
    expect(await tagsOf(join(id3(old, ...frames), mp3))).toEqual({ comment: "In the garden" });
    expect(await tagsOf(join(id3(old), mp3))).toEqual({ comment: "In the gar" });
    expect(await tagsOf(join(id3(comment("Mood", "calm")), mp3))).toEqual({ comment: "calm" });
  });

  test.each<[string, Bytes]>([
    ["a name of three letters", id3(["TP1\0", text("Ann")], ["TAL ", text("Garden")], ["TIT2", text("Lied")])],
    [
      "a name of no letters",
      id3(["\x01\x02\x03\x04", noise(20)], ["TPE1", text("Ann")], ["TALB", text("Garden")], ["TIT2", text("Lied")]),
    ],
    [
      "a comment of an odd number of bytes",
      id3(["TPE1", text("Ann")], ["COMM", join("\x01eng\xff", "a")], ["TALB", text("Garden")], ["TIT2", text("Lied")]),
    ],
    [
      "a comment of two bytes",
      id3(["COMM", new Uint8Array(2)], ["TPE1", text("Ann")], ["TALB", text("Garden")], ["TIT2", text("Lied")]),
    ],
  ])("survive a frame with %s", async (_, tag) => {
    expect(await tagsOf(join(tag, mp3))).toMatchObject({ artist: "Ann", album: "Garden", title: "Lied" });
  });

  test.each([3, 4])("survive a frame with a wrong length in version %i", async (version) => {
    const tag = id3(["TPE1", text("Ann")], ["PRIV", noise(300)], ["TALB", text("Garden")], ["TIT2", text("Lied")]);
    const at = indexOf(tag, "PRIV") + 4;
    const rest = { artist: "Ann", album: "Garden", title: "Lied" };
    for (const length of [0x7f000000, 0x0000ffff, 7]) {
      const bytes = patched(patched(tag, 3, Uint8Array.of(version)), at, be32(length));
      expect(await tagsOf(join(bytes, mp3))).toMatchObject(rest);
    }
    // In version 4, 300 is not written like this.
    expect(await tagsOf(join(patched(tag, 3, Uint8Array.of(version)), mp3))).toMatchObject(rest);
  });

  test("in UTF-8 are read as such if they claim to be Latin-1", async () => {
    const frames: [string, Bytes][] = [
      ["TIT2", join("\0", "Gänse")],
      ["TPE1", join(Uint8Array.of(0), latin1("G\xe4nse"))],
      comment("", "schön"),
    ];
    expect(await tagsOf(join(id3(...frames), mp3))).toEqual({ title: "Gänse", artist: "Gänse", comment: "schön" });
    const old = new Uint8Array(128);
    old.set(join("TAG", "Gänse"), 0);
    old.set(latin1("G\xe4nse"), 33);
    old.set(join("Grüße aus der Übergröße 日本 日本").subarray(0, 30), 63);
    old[127] = 17;
    expect(await tagsOf(join(mp3, old))).toMatchObject({ title: "Gänse", artist: "Gänse", genre: "Rock" });
    expect((await tagsOf(join(mp3, old))).album).toMatch(/^Grüße aus der Übergröße/);
    const sound = [
      riffChunk("fmt ", bytesOf("tone.wav").slice(20, 36)),
      riffChunk("data", bytesOf("tone.wav").slice(44)),
    ];
    const info = (title: Bytes) => riffChunk("LIST", join("INFO", riffChunk("INAM", title)));
    expect(await tagsOf(wav(...sound, info(join("Gänse\0"))))).toEqual({ title: "Gänse" });
    expect(await tagsOf(wav(...sound, info(latin1("G\xe4nse\0"))))).toEqual({ title: "Gänse" });
    const name = join("Gänse");
    const aiff = join(bytesOf("tone.aiff"), "NAME", be32(name.length), name);
    expect(await tagsOf(aiff)).toEqual({ title: "Gänse" });
  });

  const utf8 = (value: string) => join(Uint8Array.of(3), value);
  /** Frames by their names in version 2 and in the later ones. */
  const id3v2 = (version: number, ...frames: [short: string, long: string, body: Bytes][]) => {
    const body = concat(
      frames.flatMap(([short, long, data]) =>
        version === 2 ? [short, be32(data.length).subarray(1), data] : [long, be32(data.length), be16(0), data],
      ),
    );
    return join("ID3", Uint8Array.of(version, 0, 0, 0, 0, body.length >> 7, body.length & 127), body);
  };
  const apeOf = (...items: [name: string, value: string][]) => {
    const body = concat(items.flatMap(([name, value]) => [le32(join(value).length), le32(0), name, "\0", value]));
    const frame = (flags: number) =>
      join("APETAGEX", le32(2000), le32(body.length + 32), le32(items.length), le32(flags), new Uint8Array(8));
    return join(frame(0xa0000000), body, frame(0x80000000));
  };
  /** A FLAC of 24,000 samples with these comments. */
  const flacOf = (...comments: string[]) => {
    const flac = bytesOf("tone.flac");
    const texts = comments.map((comment) => join(le32(join(comment).length), comment));
    const block = join(le32(0), le32(texts.length), ...texts);
    return join(flac.slice(0, 42), Uint8Array.of(4), be32(block.length).subarray(1), block, flac.slice(42));
  };
  const id3v1 = (title: string, track: number) => {
    const tag = new Uint8Array(128);
    tag.set(join("TAG", title), 0);
    tag.set([0, track, 17], 125);
    return tag;
  };

  test.each([2, 3, 4])("keep the slash in a name in version %i of ID3", async (version) => {
    const names: [string, string, Bytes][] = [
      ["TP1", "TPE1", utf8("AC/DC")],
      ["TP2", "TPE2", utf8("Either/Or")],
      ["TCM", "TCOM", utf8("Young/Young/Scott")],
      ["TAL", "TALB", utf8("Bonfire/Live")],
      ["TRK", "TRCK", utf8("3/9")],
      ["TXX", "TXXX", utf8("Who\0One/Two")],
    ];
    expect(await tagsOf(join(id3v2(version, ...names), mp3))).toEqual({
      artist: "AC/DC",
      albumartist: "Either/Or",
      composer: "Young/Young/Scott",
      album: "Bonfire/Live",
      track: 3,
      tracks: 9,
    });
  });

  test("end at the first zero in older versions of ID3, except lists of people", async () => {
    const zeros: [string, string, Bytes][] = [
      ["TAL", "TALB", utf8("Garden\0 of old")],
      ["TYE", "TYER", join(Uint8Array.of(1), utf16("\ufeff2004\x001999"))],
      ["TP1", "TPE1", utf8("Ann\0Bob")],
    ];
    for (const version of [2, 3]) {
      expect(await tagsOf(join(id3v2(version, ...zeros), mp3))).toEqual({
        album: "Garden",
        year: 2004,
        artist: "Ann; Bob",
      });
    }
  });

  test.each<[string, Bytes]>([
    ["Vorbis comments", flacOf("ARTIST=Ann", "ARTIST=Bob", "ALBUMARTIST=Cy", "ALBUMARTIST=Di")],
    ["ID3", join(id3v2(4, ["", "TPE1", utf8("Ann\0Bob")], ["", "TPE2", utf8("Cy\0Di")]), mp3)],
    ["APE", join(mp3, apeOf(["Artist", "Ann\0Bob"], ["Album Artist", "Cy\0Di"]))],
  ])("have all artists of %s", async (_, file) => {
    expect(await tagsOf(file)).toMatchObject({ artist: "Ann; Bob", albumartist: "Cy; Di" });
  });

  test("have the name of an artist that is shown, not the artists behind it", async () => {
    const file = flacOf("ARTIST=Ann feat. Bob", "ARTISTS=Ann", "ARTISTS=Bob");
    expect(await tagsOf(file)).toEqual({ artist: "Ann feat. Bob" });
  });

  test.each<[string, Bytes]>([
    ["ID3v2.2", join(id3v2(2, ["TT2", "TIT2", utf8("Übergröße")], ["TRK", "TRCK", utf8("1")]), mp3)],
    ["ID3v2.3", join(id3v2(3, ["TT2", "TIT2", utf8("Übergröße")], ["TRK", "TRCK", utf8("1")]), mp3)],
    ["APE", join(mp3, apeOf(["Title", "Übergröße"], ["Track", "1"]))],
  ])("of ID3v1 count only if no other tag has them, such as %s", async (_, file) => {
    const old = id3v1("Überg", 7);
    expect(await tagsOf(join(mp3, old))).toMatchObject({ title: "Überg", track: 7, genre: "Rock" });
    expect(await tagsOf(join(file, old))).toMatchObject({ title: "Übergröße", track: 1, genre: "Rock" });
  });

  test("have a comment that is written as a text with that name", async () => {
    const named = (name: string, value: string): [string, string, Bytes] => ["TXX", "TXXX", utf8(`${name}\0${value}`)];
    for (const version of [2, 3, 4]) {
      const tag = id3v2(version, named("comment", "In the garden"), named("mood", "calm"));
      expect(await tagsOf(join(tag, mp3))).toEqual({ comment: "In the garden" });
    }
  });

  const element = (id: number[], ...parts: (Bytes | string)[]) =>
    join(Uint8Array.from(id), be32(0x10000000 + join(...parts).length), ...parts);
  const simple = (name: string, value: string) =>
    element([0x67, 0xc8], element([0x45, 0xa3], name), element([0x44, 0x87], value));
  const matroska = (...tags: Bytes[]) =>
    join(
      element([0x1a, 0x45, 0xdf, 0xa3], element([0x42, 0x82], "matroska")),
      Uint8Array.of(0x18, 0x53, 0x80, 0x67, 0xff),
      element(
        [0x16, 0x54, 0xae, 0x6b],
        element([0xae], element([0x83], Uint8Array.of(2)), element([0x86], "A_VORBIS")),
      ),
      element([0x12, 0x54, 0xc3, 0x67], ...tags.map((tag) => element([0x73, 0x73], tag))),
    );
  const level = (value: number) => element([0x63, 0xc0], element([0x68, 0xca], Uint8Array.of(value)));
  const all = {
    title: "Lied",
    artist: "Ann",
    album: "Garden",
    albumartist: "Cy",
    composer: "Di",
    genre: "Folk",
    year: 2011,
    date: "2011-02-03",
    bpm: 120,
    isrc: "GBAYE0601498",
    track: 3,
    tracks: 9,
    disk: 2,
    comment: "So",
    copyright: "Ann",
  };

  test("of Matroska are read without a level, and from the level of the album", async () => {
    const texts = [
      ...[simple("TITLE", "Lied"), simple("ARTIST", "Ann"), simple("ALBUM", "Garden"), simple("ALBUM_ARTIST", "Cy")],
      ...[simple("COMPOSER", "Di"), simple("GENRE", "Folk"), simple("DATE", "2011-02-03"), simple("TBPM", "120")],
      ...[simple("ISRC", "GBAYE0601498"), simple("PART_NUMBER", "3/9"), simple("DISC", "2/2")],
      ...[simple("COMMENT", "So"), simple("COPYRIGHT", "Ann")],
    ];
    expect(await tagsOf(matroska(concat(texts)))).toEqual(all);
    const album = [simple("TITLE", "Garden"), simple("ARTIST", "Cy"), simple("GENRE", "Folk")];
    const levels = matroska(
      concat([level(30), simple("TITLE", "Lied"), simple("ARTIST", "Ann")]),
      concat([level(50), ...album, simple("DATE_RELEASED", "2011-02-03"), simple("COPYRIGHT", "Ann")]),
    );
    const { title, artist, genre, date, year, copyright } = all;
    const both = { title, artist, album: all.album, albumartist: "Cy", genre, date, year, copyright };
    expect(await tagsOf(levels)).toEqual(both);
  });

  test("are read by the names that FFmpeg gives them, and those of older programs", async () => {
    expect(await tagsOf(flacOf("album_artist=Cy", "year=2011-02-03", "disc=2/2", "tbpm=120"))).toEqual({
      albumartist: "Cy",
      year: 2011,
      date: "2011-02-03",
      disk: 2,
      bpm: 120,
    });
    expect(await tagsOf(join(mp3, apeOf(["album_artist", "Cy"])))).toEqual({ albumartist: "Cy" });
    const sound = [
      riffChunk("fmt ", bytesOf("tone.wav").slice(20, 36)),
      riffChunk("data", bytesOf("tone.wav").slice(44)),
    ];
    const info = riffChunk("LIST", join("INFO", riffChunk("ICOP", join("Ann\0"))));
    expect(await tagsOf(wav(...sound, info))).toEqual({ copyright: "Ann" });
  });
});

describe("A container of sound and pictures", () => {
  const packet = (id: number) => {
    const head = Uint8Array.of(0x47, 0x41, 0, 0x10, 0, 0, 1, id);
    return join(head, new Uint8Array(188 - head.length).fill(0xff));
  };
  const tag = (type: number) => join(Uint8Array.of(type, 0, 0, 20), new Uint8Array(7), noise(20), be32(31));
  const flv = (...types: number[]) => join("FLV", Uint8Array.of(1, 5), be32(9), be32(0), ...types.map(tag));
  const stream = (type: string) => riffChunk("LIST", join("strl", riffChunk("strh", join(type, new Uint8Array(52)))));
  const avi = (...types: string[]) => {
    const body = join(
      "AVI ",
      riffChunk("LIST", join("hdrl", ...types.map(stream))),
      riffChunk("LIST", join("movi", noise(40))),
    );
    return join("RIFF", le32(body.length), body);
  };
  const media = (type: string) => {
    const body = join(new Uint8Array(30), "\x06stream", String.fromCharCode(type.length), type, be32(0));
    return join("MDPR", be32(10 + body.length), be16(0), body);
  };
  const rm = (...types: string[]) =>
    join(".RMF", be32(18), be16(0), be32(0), be32(2), ...types.map(media), "DATA", be32(18), be16(0), noise(8));
  const ps = (...ids: number[]) =>
    join(
      be32(0x1ba),
      Uint8Array.of(0x44),
      new Uint8Array(9),
      ...ids.map((id) => join(be32(0x100 + id), be16(20), noise(20))),
    );

  test.each<[string, Bytes, Bytes]>([
    ["MPEG transport stream", repeat(packet(0xc0), 20), join(repeat(packet(0xc0), 20), packet(0xe0))],
    ["MPEG program stream", ps(0xc0, 0xc0), ps(0xc0, 0xe0)],
    ["Flash Video", flv(18, 8, 8), flv(18, 8, 9)],
    ["AVI", avi("auds"), avi("auds", "vids")],
    ["RealMedia", rm("audio/x-pn-realaudio"), rm("audio/x-pn-realaudio", "video/x-pn-realvideo")],
  ])("is an audio file if it has only sound: %s", async (_, sound, movie) => {
    expect(possibleFileTypes((await gate(sound)).mediaType)).toEqual(["video file", "audio file"]);
    expect(await inspect(sound)).toMatchObject({ fileType: "audio file", audio: { durationSeconds: null } });
    expect(await inspect(movie)).toMatchObject({ fileType: "video file", audio: null });
  });
});

describe("The duration of a recording of a phone", () => {
  const chunk = (name: string, body: Bytes) => join(name, be64(body.length), body);
  const rate = new Uint8Array(new DataView(new ArrayBuffer(8)).buffer);
  new DataView(rate.buffer).setFloat64(0, 8000);
  const caf = (format: string, numbers: number[], ...chunks: Bytes[]) =>
    join("caff", Uint8Array.of(0, 1, 0, 0), chunk("desc", join(rate, format, ...numbers.map(be32))), ...chunks);
  const pcm = [0, 2, 1, 1, 16];

  test("in CAF is that of the samples that exist", async () => {
    const facts = { container: "CAF", codec: "PCM", sampleRate: 8000, channels: 1, lossless: true };
    const sound = join(be32(0), noise(32_000));
    expect(await audioOf(caf("lpcm", pcm, chunk("data", sound)))).toMatchObject({ ...facts, durationSeconds: 2 });
    const unfinished = caf("lpcm", pcm, join("data", new Uint8Array(8).fill(255), sound));
    expect(await audioOf(unfinished)).toMatchObject({ ...facts, durationSeconds: 2 });
    expect(await audioOf(unfinished.subarray(0, unfinished.length - 16_000))).toMatchObject({ durationSeconds: 1 });
  });

  test("in CAF is that of the packet table if packets differ in size", async () => {
    const table = chunk("pakt", join(be64(20), be64(16_000), be32(0), be32(0)));
    const sound = chunk("data", join(be32(0), noise(4000)));
    const facts = { codec: "MPEG-4/AAC", lossless: false, durationSeconds: 2 };
    expect(await audioOf(caf("aac ", [0, 0, 1024, 1, 0], table, sound))).toMatchObject(facts);
    expect((await audioOf(caf("aac ", [0, 0, 1024, 1, 0], sound))).durationSeconds).toBeNull();
  });

  test("in CAF comes with the texts of its information chunk", async () => {
    const pairs = ["title", "Lied", "artist", "Ännchen", "track number", "3/9", "comments", "So", "year", "2011"];
    const info = chunk("info", join(be32(5), ...pairs.map((part) => `${part}\0`)));
    const { tags, durationSeconds } = await audioOf(
      caf("lpcm", pcm, info, chunk("data", join(be32(0), noise(32_000)))),
    );
    expect(durationSeconds).toBe(2);
    expect(tags).toEqual({
      title: "Lied",
      artist: "Ännchen",
      track: 3,
      tracks: 9,
      comment: "So",
      year: 2011,
      date: "2011",
    });
    const many = chunk("info", join(be32(30_000), repeat(join("\0\0"), 30_000)));
    expect((await audioOf(caf("lpcm", pcm, many, chunk("data", join(be32(0), noise(32_000)))))).tags).toEqual({});
  });

  test("in AMR is that of its frames, also behind an odd byte and without the last one", async () => {
    const frame = (type: number, bytes: number) => join(Uint8Array.of((type << 3) | 4), new Uint8Array(bytes - 1));
    const [loud, silent] = [repeat(frame(7, 32), 50), repeat(frame(8, 6), 50)];
    const amr = join("#!AMR\n", loud, silent);
    expect(await audioOf(amr)).toMatchObject({ codec: "AMR", sampleRate: 8000, channels: 1, durationSeconds: 2 });
    expect((await audioOf(join("#!AMR\n", loud, Uint8Array.of(0xff), silent))).durationSeconds).toBeCloseTo(2, 5);
    expect((await audioOf(amr.subarray(0, amr.length - 1))).durationSeconds).toBeCloseTo(1.98, 5);
    const wide = join("#!AMR-WB\n", repeat(frame(8, 61), 50));
    expect(await audioOf(wide)).toMatchObject({ codec: "AMR-WB", sampleRate: 16_000, durationSeconds: 1 });
  });
});
