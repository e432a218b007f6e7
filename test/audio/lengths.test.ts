import { describe, expect, test } from "vitest";
import { inspectFile } from "../../src/audio/inspect.ts";
import {
  type Bytes,
  be32,
  changePage,
  id3,
  indexOf,
  join,
  le32,
  noise,
  oggPages,
  patched,
  reader,
  repeat,
  riffChunk,
  text,
  wav,
} from "./build.ts";
import { sample } from "./samples.ts";

/* The duration is that of the sound that exists, whatever a header claims. */

async function audioOf(bytes: Bytes) {
  const { audio } = await inspectFile(reader(bytes).read, bytes.length);
  return audio!;
}

async function secondsOf(bytes: Bytes) {
  return (await audioOf(bytes)).durationSeconds;
}

const bytesOf = (file: string) => sample(file).bytes;
const cut = (bytes: Bytes, part: number) => bytes.subarray(0, Math.floor(bytes.length * part));

describe("The duration of MPEG audio and ADTS", () => {
  test("ignores a Xing header that describes a longer file", async () => {
    const whole = bytesOf("tone-vbr.mp3");
    // Players drop, of 78 frames, 1,656 samples of padding.
    expect(await secondsOf(whole)).toBeCloseTo((78 * 1152 - 1656) / 44100, 3);
    const half = await secondsOf(cut(whole, 0.5));
    expect(half).toBeGreaterThan(0.8);
    expect(half).toBeLessThan(1.25);
  });

  test("covers two concatenated MP3s", async () => {
    const one = bytesOf("tone-vbr.mp3");
    expect(await secondsOf(join(one, one))).toBeCloseTo(2 * 78 * (1152 / 44100), 1);
  });

  test("ignores a Xing header that claims a thousand times the frames", async () => {
    const whole = bytesOf("tone-vbr.mp3");
    const at = indexOf(whole, "Xing") < 0 ? indexOf(whole, "Info") : indexOf(whole, "Xing");
    expect(await secondsOf(patched(whole, at + 8, be32(78_000)))).toBeCloseTo(2.04, 1);
  });

  test("excludes a truncated last frame", async () => {
    const whole = bytesOf("tone-vbr-headerless.mp3");
    expect(await secondsOf(whole.subarray(0, whole.length - 10))).toBeCloseTo(77 * (1152 / 44100), 3);
  });

  test("excludes the frame that holds a Xing header", async () => {
    const whole = bytesOf("tone-vbr.mp3");
    // The header states nothing.
    expect(await secondsOf(patched(whole, indexOf(whole, "Xing") + 4, be32(0)))).toBeCloseTo(78 * (1152 / 44100), 3);
  });

  test("excludes APEv2 and ID3v1 tags", async () => {
    const cover = join(le32(4000), le32(2), "Cover\0", noise(4000));
    const item = join(le32(4), le32(0), "Title\0", "Lied", cover);
    const ape = join(item, "APETAGEX", le32(2000), le32(item.length + 32), le32(2), le32(0), new Uint8Array(8));
    const id3v1 = join("TAG", "Old title", new Uint8Array(128 - 12));
    const { durationSeconds, tags } = await audioOf(join(bytesOf("tone-cbr.mp3"), ape, id3v1));
    expect(durationSeconds).toBeCloseTo(78 * (1152 / 44100), 3);
    expect(tags).toEqual({ title: "Lied", genre: "Blues" });
  });

  test("covers the remaining frames of a truncated AAC stream", async () => {
    expect(await secondsOf(cut(bytesOf("tone.aac"), 0.5))).toBeCloseTo(1.02, 1);
  });

  test("is estimated from the first 128 MiB of a headerless MP3 of 5 GB, in 150 reads", async () => {
    const unit = bytesOf("tone-cbr.mp3");
    const sizeBytes = 5_000_000_000;
    let reads = 0;
    let total = 0;
    const endless = async (offset: number, length: number) => {
      reads++;
      total += length;
      const bytes = new Uint8Array(length);
      for (let at = -(offset % unit.length); at < length; at += unit.length) {
        bytes.set(at < 0 ? unit.subarray(-at, -at + length) : unit.subarray(0, length - at), Math.max(at, 0));
      }
      return bytes;
    };
    const { audio } = await inspectFile(endless, sizeBytes);
    expect(audio!.durationSeconds! / ((sizeBytes / unit.length) * 78 * (1152 / 44100))).toBeCloseTo(1, 3);
    expect(reads).toBeLessThan(150);
    expect(total).toBeLessThan(140 * 1024 * 1024);
  });
});

describe("The duration of a WAV", () => {
  const tone = bytesOf("tone.wav");
  const format = tone.slice(20, 36);
  const sound = tone.slice(44);

  test("is that of the samples if a crashed recorder left all lengths 0", async () => {
    expect(await secondsOf(patched(patched(tone, 4, le32(0)), 40, le32(0)))).toBe(1.5);
  });

  test("is that of the samples if the data chunk claims more", async () => {
    expect(await secondsOf(patched(tone, 40, le32(0x7fffffff)))).toBe(1.5);
    expect(await secondsOf(patched(tone, 40, le32(0xffffffff)))).toBe(1.5);
  });

  test("is the stated one if the samples of a codec can't be counted, in proportion to the sound that exists", async () => {
    // The ADPCM of Yamaha, which states 16,000 bytes per second for 4,000.
    const yamaha = join(patched(format, 0, Uint8Array.of(0x20, 0)), Uint8Array.of(0, 0));
    const rate = patched(patched(yamaha, 4, le32(8000)), 8, le32(16_000));
    const file = (...chunks: Uint8Array[]) => wav(riffChunk("fmt ", rate), ...chunks, riffChunk("data", noise(8000)));
    const stated = file(riffChunk("fact", le32(16_000)));
    expect(await secondsOf(stated)).toBe(2);
    expect(await secondsOf(stated.subarray(0, stated.length - 4000))).toBe(1);
    for (const none of [file(), file(riffChunk("fact", le32(0)))]) expect(await secondsOf(none)).toBe(0.5);
  });

  test.each([
    ["fewer than 50 bits", 1],
    ["more than 10 billion bits", 100_000_000],
  ])("is unknown, as is its bitrate, if a second of it would have %s", async (_, sampleRate) => {
    // A block of 1 or 1,000 bytes for each sample.
    const blockBytes = sampleRate === 1 ? 1 : 1000;
    const bytes = patched(patched(tone, 24, le32(sampleRate)), 32, le32(blockBytes).slice(0, 2));
    const facts = { codec: "PCM", channels: 1, sampleRate };
    expect(await audioOf(bytes)).toMatchObject({ ...facts, durationSeconds: null, bitrate: null });
  });

  test("excludes what follows the data chunk", async () => {
    expect(await secondsOf(join(tone, riffChunk("LIST", noise(20_000))))).toBe(1.5);
  });

  test.each(["RF64", "BW64"])("of %s uses the 64-bit length", async (name) => {
    const ds64 = riffChunk("ds64", join(le32(0), le32(0), le32(sound.length), le32(0), new Uint8Array(12)));
    const title = riffChunk("LIST", join("INFO", riffChunk("INAM", join("Lied\0"))));
    const chunks = join(ds64, riffChunk("fmt ", format), "data", le32(0xffffffff), sound, title);
    const bytes = join(name, le32(0xffffffff), "WAVE", chunks);
    const { mediaType, fileType, audio } = await inspectFile(reader(bytes).read, bytes.length);
    expect({ mediaType, fileType }).toEqual({ mediaType: "audio/wav", fileType: "audio file" });
    expect(audio).toMatchObject({ durationSeconds: 1.5, codec: "PCM", tags: { title: "Lied" } });
  });

  test("follows the sub-format of WAVE_FORMAT_EXTENSIBLE, like the codec", async () => {
    const guid = Uint8Array.of(1, 0, 0, 0, 0, 0, 16, 0, 128, 0, 0, 170, 0, 56, 155, 113);
    const extensible = join(
      Uint8Array.of(0xfe, 0xff),
      format.subarray(2),
      Uint8Array.of(22, 0, 16, 0, 4, 0, 0, 0),
      guid,
    );
    const audio = await audioOf(wav(riffChunk("fmt ", extensible), riffChunk("data", sound)));
    expect(audio).toMatchObject({ codec: "PCM", durationSeconds: 1.5, lossless: true, sampleRate: 16_000 });
  });

  test("is that of the frames of an MP3 in a WAV", async () => {
    const mp3 = join(Uint8Array.of(0x55, 0), format.subarray(2));
    const audio = await audioOf(wav(riffChunk("fmt ", mp3), riffChunk("data", bytesOf("tone-cbr.mp3"))));
    expect(audio).toMatchObject({ codec: "MPEGLAYER3", lossless: false });
    expect(audio.durationSeconds).toBeCloseTo(78 * (1152 / 44100), 3);
  });
});

describe("The duration of an AIFF", () => {
  const tone = bytesOf("tone.aiff");
  const ssnd = indexOf(tone, "SSND");
  const frames = indexOf(tone, "COMM") + 10;

  test("is that of the samples, whatever the lengths claim", async () => {
    expect(await secondsOf(patched(tone, ssnd + 4, be32(0x7fffffff)))).toBe(1.5);
    expect(await secondsOf(patched(tone, frames, be32(0x7fffffff)))).toBe(1.5);
    expect(await secondsOf(patched(patched(tone, frames, be32(0)), ssnd + 4, be32(0)))).toBe(1.5);
    expect(await secondsOf(tone.subarray(0, ssnd + 16 + 16_000))).toBe(0.5);
  });
});

describe("The duration of a FLAC", () => {
  const tone = bytesOf("tone.flac");
  // The low 32 bits of the total, behind 4 bytes of magic, 4 of header and 14 of sizes and rates.
  const withTotal = (total: number) => patched(tone, 22, be32(total));

  test("is that of the frames if STREAMINFO states none, too many, or too few", async () => {
    for (const total of [0, 24_000_000, 16]) expect(await secondsOf(withTotal(total))).toBe(1.5);
  });

  test("covers the complete frames of a truncated file", async () => {
    const seconds = await secondsOf(cut(tone, 0.6));
    expect((seconds! * 16_000) % 4096).toBe(0);
    expect(seconds).toBeGreaterThan(0.5);
    expect(seconds).toBeLessThan(1.2);
  });
});

describe("The duration of an Ogg", () => {
  const shift = (file: string, ahead: number) => {
    const pages = oggPages(bytesOf(file));
    const first = pages.findIndex((page) => new DataView(page.slice().buffer).getUint32(6, true) > 0);
    return join(...pages.map((page, n) => (n < first ? page : changePage(page, { ahead }))));
  };

  test.each([
    ["tone.ogg", 44_100, 2],
    ["tone.opus", 48_000, 1.5],
    ["flac.oga", 8_000, 2],
    ["tone.spx", 16_000, 2],
  ])("starts at the capture if that began in the middle of a stream: %s", async (file, rate, seconds) => {
    expect(await secondsOf(shift(file, 36_000 * rate))).toBeCloseTo(seconds, 1);
  });

  test("covers every link of a chain", async () => {
    const links = [1, 2, 3].map((serial) => oggPages(bytesOf("tone.ogg")).map((page) => changePage(page, { serial })));
    expect(await secondsOf(join(...links.flat()))).toBeCloseTo(6, 2);
    expect(await secondsOf(join(bytesOf("tone.opus"), bytesOf("tone.ogg")))).toBeCloseTo(3.5, 2);
  });

  test("covers two links with the same serial number", async () => {
    expect(await secondsOf(repeat(bytesOf("tone.ogg"), 2))).toBeCloseTo(4, 2);
  });

  test("ignores a last page that claims hours", async () => {
    const pages = oggPages(bytesOf("tone.opus"));
    const last = changePage(pages.pop()!, { ahead: 36_000 * 48_000 });
    expect(await secondsOf(join(...pages, last))).toBeLessThan(2);
  });

  test("is read from the head and the tail of an Ogg of more than 16 MiB", async () => {
    const pages = oggPages(bytesOf("tone.opus"));
    const sound = pages.slice(2);
    const link = 72_000;
    const many = Array.from({ length: 2_000 }, (_, n) => sound.map((page) => changePage(page, { ahead: n * link })));
    const bytes = join(...pages.slice(0, 2), ...many.flat(), new Uint8Array(0));
    const { read, lengths, total } = reader(bytes);
    const { audio } = await inspectFile(read, bytes.length);
    expect(audio!.durationSeconds! / (2_000 * 1.5)).toBeCloseTo(1, 2);
    expect(lengths.length).toBeLessThan(30);
    expect(total()).toBeLessThan(20 * 1024 * 1024);
  });
});

describe("The duration of an MP4", () => {
  const tone = bytesOf("tone.m4a");
  const at = (name: string) => indexOf(tone, name);

  test("follows the edit list, not the length of the media", async () => {
    expect(await secondsOf(tone)).toBeCloseTo(2, 4);
    // Without its edit list, the encoder's start is heard as well.
    expect(await secondsOf(patched(tone, at("edts"), join("free")))).toBeCloseTo(2 + 1024 / 44_100, 4);
  });

  test("ignores the movie header and the media header", async () => {
    const day = be32(86_400_000);
    expect(await secondsOf(patched(patched(tone, at("mvhd") + 20, day), at("mdhd") + 20, day))).toBeCloseTo(2, 4);
  });

  test("is proportional to the media data that exists", async () => {
    const mdat = at("mdat");
    const index = tone.slice(at("moov") - 4);
    const ftyp = tone.slice(0, at("free") - 4);
    const soundBytes = new DataView(tone.slice().buffer).getUint32(mdat - 4) - 8;
    const fast = join(ftyp, index, tone.slice(mdat - 4, mdat + 4 + soundBytes / 2));
    expect(await secondsOf(fast)).toBeCloseTo(1, 3);
  });

  test("takes four reads of 1,446 fragments and starts at the first one", async () => {
    const file = bytesOf("fragmented.m4a");
    const first = indexOf(file, "moof") - 4;
    const unit = file.slice(first, indexOf(file, "moof", first + 8) - 4);
    const tfdt = indexOf(unit, "tfdt") + 8;
    const isLong = unit[tfdt - 4] === 1;
    const ticks = 16_384;
    const at = (n: number) => patched(unit, tfdt + (isLong ? 4 : 0), be32(1_000_000 + n * ticks));
    const bytes = join(file.slice(0, first), ...Array.from({ length: 1_446 }, (_, n) => at(n)));
    const { read, lengths } = reader(bytes);
    const { audio } = await inspectFile(read, bytes.length);
    expect(audio!.durationSeconds).toBeCloseTo((1_446 * ticks) / 16_000, 0);
    expect(lengths.length).toBeLessThanOrEqual(4);
  });

  test("ends with the last sample of a truncated fragmented file", async () => {
    const file = bytesOf("fragmented.m4a");
    const second = indexOf(file, "moof", indexOf(file, "moof") + 8);
    const third = indexOf(file, "moof", second + 8);
    const half = await secondsOf(file.subarray(0, (second + third) / 2));
    const [one, two] = [await secondsOf(file.subarray(0, second - 4)), await secondsOf(file.subarray(0, third - 4))];
    expect(half! - one!).toBeGreaterThan(0.3);
    expect(two! - half!).toBeGreaterThan(0.3);
  });
});

describe("The duration of a Matroska", () => {
  const tone = bytesOf("tone.webm");
  const duration = indexOf(tone, "\x44\x89\x88") + 3;

  test("is that of the blocks if the header differs", async () => {
    const claim = new DataView(new ArrayBuffer(8));
    for (const ticks of [86_400_000, 5]) {
      claim.setFloat64(0, ticks);
      expect(await secondsOf(patched(tone, duration, new Uint8Array(claim.buffer)))).toBeCloseTo(2.01, 1);
    }
  });

  test("covers the remaining blocks of a truncated file", async () => {
    expect(await secondsOf(cut(tone, 0.5))).toBeLessThan(1.3);
  });
});

describe("The duration of rarer formats", () => {
  test("covers the complete blocks of WavPack, whatever the first one states", async () => {
    const tone = bytesOf("tone.wv");
    expect(await secondsOf(patched(tone, 12, le32(0x7fffffff)))).toBe(2);
    expect(await secondsOf(patched(tone, 12, le32(0xffffffff)))).toBe(2);
    expect(await secondsOf(cut(tone, 0.6))).toBe(1);
  });

  test("covers the packets of ASF that exist", async () => {
    const tone = bytesOf("tone.wma");
    const half = await secondsOf(cut(tone, 0.6));
    expect(half).toBeGreaterThan(0.5);
    expect(half).toBeLessThan(1.5);
    const properties = indexOf(tone, "\xa1\xdc\xab\x8c");
    const live = patched(patched(tone, properties + 64, new Uint8Array(8)), properties + 88, Uint8Array.of(1));
    expect(await secondsOf(live)).toBeCloseTo(2.04, 0);
  });

  /** Monkey's Audio of 100,000 samples at 44,100 Hz, of which no frame is one. */
  function ape(soundBytes: number): Bytes {
    const descriptor = join("MAC ", le32(3990), le32(52), le32(24), le32(4), le32(0), le32(10_000), new Uint8Array(24));
    const header = join(Uint8Array.of(208, 7, 0, 0), le32(73_728), le32(26_272), le32(2), Uint8Array.of(16, 0, 2, 0));
    return join(descriptor, header, le32(44_100), new Uint8Array(4), noise(soundBytes));
  }

  test("is proportional to the sound of Monkey's Audio that exists", async () => {
    expect(await secondsOf(ape(10_000))).toBeCloseTo(100_000 / 44_100, 4);
    expect(await secondsOf(ape(5_000))).toBeCloseTo(50_000 / 44_100, 4);
  });

  test("is the stated one of Monkey's Audio before version 3.98", async () => {
    const facts = join(Uint8Array.of(0, 0, 2, 0), le32(44_100), le32(0), le32(0), le32(2), le32(26_272));
    const old = join("MAC ", Uint8Array.of(3900 & 255, 3900 >> 8, 208, 7), facts, noise(5_000));
    expect(await audioOf(old)).toMatchObject({ durationSeconds: 100_000 / 44_100, channels: 2, sampleRate: 44_100 });
  });

  /** DSF of one second at 2.8224 MHz in one channel. */
  function dsf(soundBytes: number, tag: Bytes = new Uint8Array()): Bytes {
    const long = (value: number) => join(le32(value), le32(0));
    const tagAt = tag.length > 0 ? 92 + soundBytes : 0;
    const dsd = join("DSD ", long(28), long(92 + soundBytes + tag.length), long(tagAt));
    const facts = join(
      le32(1),
      le32(0),
      le32(1),
      le32(1),
      le32(2_822_400),
      le32(1),
      long(2_822_400),
      le32(4096),
      le32(0),
    );
    return join(dsd, "fmt ", long(52), facts, "data", long(12 + 352_800), noise(soundBytes), tag);
  }

  test("covers the samples of DSF that exist, in front of the tag", async () => {
    const { durationSeconds, tags } = await audioOf(dsf(352_800, id3(["TIT2", text("Lied")])));
    expect({ durationSeconds, tags }).toEqual({ durationSeconds: 1, tags: { title: "Lied" } });
    expect(await secondsOf(dsf(176_400))).toBe(0.5);
  });

  test("is null if the header of Musepack claims more than the bytes can contain", async () => {
    const tone = bytesOf("tone.mpc");
    expect(await secondsOf(tone)).toBeCloseTo(2, 3);
    // The samples, in groups of seven bits, are the first thing behind the checksum and the version.
    expect(await secondsOf(patched(tone, 12, Uint8Array.of(0xff, 0xff, 0xff)))).toBeNull();
  });
});
