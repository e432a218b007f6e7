import fc from "fast-check";
import { parseBuffer } from "music-metadata";
import { describe, expect, test } from "vitest";
import { inspectFile } from "../../src/audio/inspect.ts";
import { addBytes, compose, createIndex, readRest, type StreamIndex } from "../../src/client/seekable.ts";
import { type Bytes, be32, box, indexOf, join, noise, patched, reader } from "../audio/build.ts";
import {
  element,
  type Mp4Options,
  mp4,
  mp4Fragments,
  recorded,
  type WebmOptions,
  webm,
  webmClusters,
} from "../audio/recorded/recorded.ts";
import { isExhaustive } from "../support/tiers.ts";

fc.configureGlobal({ seed: Number(process.env.STOWAGE_SEED ?? 1), numRuns: isExhaustive ? 500 : 50 });

/** The most that a composed head takes. */
const MAX_HEAD_BYTES = 64 * 1024;

const indexOfParts = (parts: Iterable<Bytes>): StreamIndex => {
  const index = createIndex();
  for (const part of parts) addBytes(index, part);
  return index;
};

/** Returns the composed file; undefined if the stream stays as it is. */
const composed = (stream: Bytes, index = indexOfParts([stream])): Bytes | undefined => {
  const pieces = compose(index);
  return pieces && join(...pieces.map((piece) => (piece instanceof Uint8Array ? piece : stream.slice(...piece))));
};

const secondsOf = async (file: Bytes) =>
  (await inspectFile(reader(file).read, file.length)).audio?.durationSeconds ?? Number.NaN;

/** Splits bytes at these places. */
const split = (bytes: Bytes, places: number[]): Bytes[] => {
  const ends = [...new Set(places.map((place) => place % (bytes.length + 1)))].sort((a, b) => a - b);
  return [...ends, bytes.length].map((end, at) => bytes.slice(ends[at - 1] ?? 0, end));
};

interface Part {
  name: string;
  start: number;
  data: Bytes;
  end: number;
}

/** The EBML elements in these bytes. One of unknown size ends with them. */
function elementsOf(bytes: Bytes): Part[] {
  const parts: Part[] = [];
  for (let at = 0; at < bytes.length; at = parts.at(-1)!.end) {
    const idBytes = Math.clz32(bytes[at]!) - 23;
    const sizeBytes = Math.clz32(bytes[at + idBytes]!) - 23;
    const size = Array.from(bytes.slice(at + idBytes, at + idBytes + sizeBytes));
    const isUnknown = size.every((byte, n) => byte === (n === 0 ? 0x1ff >> sizeBytes : 255));
    const value = size.reduce((sum, byte, n) => sum * 256 + (n === 0 ? byte & (0xff >> sizeBytes) : byte), 0);
    const name = Buffer.from(bytes.slice(at, at + idBytes)).toString("hex");
    const data = at + idBytes + sizeBytes;
    const end = isUnknown ? bytes.length : data + value;
    parts.push({ name, start: at, data: bytes.slice(data, end), end });
  }
  return parts;
}

const number = (bytes: Bytes) => bytes.reduce((sum, byte) => sum * 256 + byte, 0);
const float = (bytes: Bytes) => new DataView(bytes.buffer, bytes.byteOffset).getFloat64(0);
const one = (parts: Part[], name: string): Part => {
  const found = parts.filter((part) => part.name === name);
  expect(found, name).toHaveLength(1);
  return found[0]!;
};

/** Checks the head of a WebM. @returns its duration, and its cues as places in the file and times, in seconds */
function webmHead(file: Bytes) {
  const [ebml, segment, ...others] = elementsOf(file);
  expect([ebml?.name, segment?.name, others]).toEqual(["1a45dfa3", "18538067", []]);
  // Its size is known, and right.
  expect(segment!.end).toBe(file.length);
  expect(number(file.slice(segment!.start + 4, segment!.start + 12))).toBe(2 ** 56 + segment!.data.length);
  const dataStart = file.length - segment!.data.length;
  const head = elementsOf(segment!.data.slice(0, indexOf(segment!.data, "\x1f\x43\xb6\x75")));
  const names = head.map(({ name }) => name);
  expect(names).toEqual(["114d9b74", "1549a966", "1654ae6b", "1c53bb6b"]);
  for (const seek of elementsOf(head[0]!.data)) {
    const [id, position] = elementsOf(seek.data);
    const target = head.find(({ name }) => name === Buffer.from(id!.data).toString("hex"));
    expect(number(position!.data)).toBe(target!.start);
  }
  const info = elementsOf(head[1]!.data);
  const ticks = number(one(info, "2ad7b1").data) / 1e9;
  const trackNumber = one(elementsOf(elementsOf(head[2]!.data)[0]!.data), "d7").data;
  const cues = elementsOf(head[3]!.data).map((point) => {
    const [time, positions] = elementsOf(point.data);
    const [track, position] = elementsOf(positions!.data);
    expect(track!.data).toEqual(trackNumber);
    return { place: dataStart + number(position!.data), seconds: number(time!.data) * ticks };
  });
  for (const { place, seconds } of cues) {
    const [cluster] = elementsOf(file.slice(place));
    expect(cluster!.name).toBe("1f43b675");
    // The first element is its time, of up to 13 bytes. A size that reaches further is that of a block.
    const { data } = cluster!;
    const [timestamp] = elementsOf(data.slice(0, data[1] === 1 ? 13 : 2 + (data[1]! & 15)));
    expect([timestamp!.name, number(timestamp!.data) * ticks]).toEqual(["e7", seconds]);
  }
  return { seconds: float(one(info, "4489").data) * ticks, cues, headBytes: cues[0]!.place };
}

function boxesOf(bytes: Bytes): Part[] {
  const parts: Part[] = [];
  for (let at = 0; at < bytes.length; at = parts.at(-1)!.end) {
    const end = at + number(bytes.slice(at, at + 4));
    expect(end).toBeGreaterThanOrEqual(at + 8);
    expect(end).toBeLessThanOrEqual(bytes.length);
    const name = String.fromCharCode(...bytes.slice(at + 4, at + 8));
    parts.push({ name, start: at, data: bytes.slice(at + 8, end), end });
  }
  return parts;
}

/** Checks the head of an MP4. @returns its durations, and its index as places in the file and times, in seconds */
function mp4Head(file: Bytes) {
  const top = boxesOf(file);
  const [ftyp, moov, sidx] = top;
  expect([ftyp?.name, moov?.name, sidx?.name]).toEqual(["ftyp", "moov", "sidx"]);
  const movie = boxesOf(moov!.data);
  const track = boxesOf(one(movie, "trak").data);
  const media = boxesOf(one(track, "mdia").data);
  const field = (data: Bytes, narrow: number, wide: number) =>
    data[0] === 1 ? number(data.slice(wide, wide + 8)) : number(data.slice(narrow, narrow + 4));
  const scaleOf = (data: Bytes) => number(data.slice(data[0] === 1 ? 20 : 12).slice(0, 4));
  const [mvhd, tkhd, mdhd] = [one(movie, "mvhd").data, one(track, "tkhd").data, one(media, "mdhd").data];
  const [mehd, trex] = boxesOf(one(movie, "mvex").data);
  expect([mehd?.name, trex?.name]).toEqual(["mehd", "trex"]);
  const { data } = sidx!;
  const scale = number(data.slice(8, 12));
  expect(number(data.slice(4, 8))).toBe(number(tkhd.slice(tkhd[0] === 1 ? 20 : 12).slice(0, 4)));
  let place = sidx!.end;
  let ticks = number(data.slice(12, 20));
  const cues: { place: number; seconds: number }[] = [];
  for (let row = 32; row < data.length; row += 12) {
    cues.push({ place, seconds: ticks / scale });
    // Only a box may begin there.
    expect(top.some(({ start }) => start === place)).toBe(true);
    place += number(data.slice(row, row + 4));
    ticks += number(data.slice(row + 4, row + 8));
    expect(number(data.slice(row + 8, row + 12))).toBe(0x90000000);
  }
  expect(number(data.slice(30, 32))).toBe(cues.length);
  // The references cover the file.
  expect(place).toBe(file.length);
  return {
    seconds: number(mehd!.data.slice(4, 12)) / scaleOf(mvhd),
    durations: [
      field(mvhd, 16, 24) / scaleOf(mvhd),
      field(tkhd, 20, 28) / scaleOf(mvhd),
      field(mdhd, 16, 24) / scaleOf(mdhd),
    ],
    endSeconds: ticks / scale,
    cues,
    headBytes: sidx!.end,
  };
}

const chromeWebm = recorded("chrome.webm");
const chromeMp4 = recorded("chrome.m4a");

describe("A recording of Chrome", () => {
  test("as WebM has its duration, and cues that point to its clusters, and all its sound", async () => {
    // 99 blocks of 60 ms.
    const file = composed(chromeWebm)!;
    const { seconds, cues, headBytes } = webmHead(file);
    expect(seconds).toBe(6);
    expect(cues.map((cue) => Math.round(cue.seconds * 1000))).toEqual([0, 1020, 2040, 3060, 4080, 5100]);
    // Only the sizes of clusters differ, which are unknown in the stream.
    const expected = chromeWebm.slice(146);
    for (const [at, { place }] of cues.entries()) {
      expect(elementsOf(file.slice(place, cues[at + 1]?.place))).toHaveLength(1);
      expected.set(file.slice(place + 4, place + 12), place - headBytes + 4);
    }
    expect(file.slice(headBytes)).toEqual(expected);
    expect(await secondsOf(file)).toBe(6);
    expect((await parseBuffer(file, "audio/webm")).format.duration).toBe(6);
    // music-metadata can't read the stream.
    await expect(parseBuffer(chromeWebm, "audio/webm")).rejects.toThrow();
  });

  test("as MP4 has its duration, and an index that points to its fragments, and all its sound", async () => {
    const file = composed(chromeMp4)!;
    const { seconds, durations, endSeconds, cues, headBytes } = mp4Head(file);
    expect(seconds).toBeCloseTo(5.961, 3);
    for (const duration of [...durations, endSeconds, await secondsOf(file)]) expect(duration).toBeCloseTo(seconds, 2);
    expect(cues.map((cue) => cue.seconds.toFixed(2))).toEqual(["0.00", "1.08", "2.10", "3.12", "4.14", "5.16"]);
    expect(file.slice(headBytes)).toEqual(chromeMp4.slice(641));
    expect((await parseBuffer(file, "audio/mp4")).format.duration).toBeCloseTo(seconds, 2);
  });
});

describe("A recording of Firefox", () => {
  test("as WebM has its duration in place of 0, and cues that point to its clusters", async () => {
    const stream = recorded("firefox.webm");
    const file = composed(stream)!;
    const { seconds, cues } = webmHead(file);
    // The end of its last block of 20 ms.
    expect(seconds).toBeCloseTo(4.446, 3);
    expect(cues.map((cue) => Math.round(cue.seconds * 1000))).toEqual([6, 1006, 2006, 3006, 4006]);
    expect(await secondsOf(file)).toBeCloseTo(4.446, 2);
    expect((await parseBuffer(file, "audio/webm")).format.duration).toBeCloseTo(seconds, 3);
  });

  test("as Ogg stays as it is, because its pages have their times", async () => {
    const stream = recorded("firefox.ogg");
    expect(compose(indexOfParts([stream]))).toBeUndefined();
    expect(await secondsOf(stream)).toBeCloseTo(5.317, 3);
  });
});

describe("A recording as other browsers make it", () => {
  const webms: [string, Partial<WebmOptions>][] = [
    ["clusters of known size", { isSized: true }],
    ["blocks in groups", { hasGroups: true, isSized: true }],
    ["clusters of 30 s", { clusterSeconds: 30 }],
    ["clusters of a tenth of a second", { clusterSeconds: 0.12 }],
  ];
  test.each(webms)("is seekable as WebM with %s", async (_, options) => {
    const stream = webm({ seconds: 60, ...options });
    const file = composed(stream)!;
    const { seconds, cues } = webmHead(file);
    expect(seconds).toBe(60);
    expect(await secondsOf(file)).toBe(60);
    const distance = Math.max(1, options.clusterSeconds ?? 10);
    expect(cues.length).toBeGreaterThanOrEqual(Math.floor(60 / (distance + 0.2)));
    for (const [at, cue] of cues.entries()) expect(cue.seconds - (cues[at - 1]?.seconds ?? -1)).toBeGreaterThan(0.99);
  });

  const mp4s: [string, Partial<Mp4Options>][] = [
    ["durations of samples in the movie", {}],
    ["durations of samples in the fragments", { durations: "tfhd" }],
    ["durations of samples in tables", { durations: "trun" }],
    ["wide times", { version: 1 }],
    ["fragments without times", { hasTimes: false }],
    ["fragments that follow other boxes", { before: join(box("styp", "msdh"), box("free", noise(40))) }],
    ["fragments of a second", { fragmentSeconds: 1 }],
  ];
  test.each(mp4s)("is seekable as MP4 with %s", async (_, options) => {
    const stream = mp4({ seconds: 60, ...options });
    const file = composed(stream)!;
    const { seconds, durations, cues } = mp4Head(file);
    const exact = 2813 * (1024 / 48_000);
    for (const one of [seconds, ...durations]) expect(one).toBeCloseTo(exact, 2);
    expect(await secondsOf(file)).toBeCloseTo(exact, 5);
    // music-metadata ignores durations in the movie.
    if (["tfhd", "trun"].includes(options.durations ?? ""))
      expect((await parseBuffer(file, "audio/mp4")).format.duration).toBeCloseTo(exact, 2);
    expect(cues.length).toBeGreaterThanOrEqual(6);
    for (const { place } of cues) {
      const name = String.fromCharCode(...file.slice(place + 4, place + 8));
      expect(name).toBe(options.before ? "styp" : "moof");
    }
  });

  test("leaves out of an MP4's duration what its edit list skips", async () => {
    const file = composed(mp4({ seconds: 60, skipped: 2112 }))!;
    const exact = (2813 * 1024 - 2112) / 48_000;
    expect(mp4Head(file).seconds).toBeCloseTo(exact, 2);
    expect(await secondsOf(file)).toBeCloseTo(exact, 5);
  });

  test("loses the index of the recorder, which would be wrong in the composed file", () => {
    const cues = element("1c53bb6b", noise(40));
    expect(composed(join(webm({ seconds: 21 }), cues))).toEqual(composed(webm({ seconds: 21 })));
    const mfra = box("mfra", noise(40));
    expect(composed(join(mp4({ seconds: 21 }), mfra))).toEqual(composed(mp4({ seconds: 21 })));
  });

  test.each([true, false])("keeps the tags that follow its sound, in clusters of known size: %s", (isSized) => {
    const tags = element("1254c367", noise(40));
    const stream = join(webm({ seconds: 21, isSized }), tags);
    const file = composed(stream)!;
    const { seconds, headBytes } = webmHead(file);
    expect(seconds).toBe(21);
    expect(file.slice(headBytes)).toEqual(stream.slice(146));
  });

  test("is as long as its last block, whatever the silence before that", () => {
    const block = element("a3", join(Uint8Array.of(0x81, 0, 0, 0x80), noise(40)));
    const late = element("1f43b675", join(element("e7", be32(26_000)), block));
    expect(webmHead(composed(join(webm({ seconds: 21, isSized: true }), late))!).seconds).toBeCloseTo(26.06, 5);
  });

  test("replaces a duration that the recorder wrote before it knew it", () => {
    const stream = webm({ seconds: 21 });
    const at = indexOf(stream, "\x15\x49\xa9\x66");
    const info = elementsOf(stream.slice(at, at + 30))[0]!;
    const wrong = element("1549a966", join(info.data, element("4489", new Uint8Array(8))));
    expect(webmHead(composed(join(stream.slice(0, at), wrong, stream.slice(at + info.end)))!).seconds).toBe(21);
    const movie = mp4({ seconds: 21 });
    const mvex = indexOf(movie, "mvex") + 4;
    const mehd = box("mehd", be32(0), be32(0));
    const longer = (name: string) => {
      const start = indexOf(movie, name) - 4;
      return [start, be32(number(movie.slice(start, start + 4)) + mehd.length)] as const;
    };
    const lengthened = patched(patched(movie, ...longer("moov")), ...longer("mvex"));
    const file = composed(join(lengthened.slice(0, mvex), mehd, lengthened.slice(mvex)))!;
    expect(mp4Head(file).seconds).toBeCloseTo(21, 1);
  });
});

/** Streams in all formats, which are short because the properties below read them often. */
const STREAMS: [string, Bytes, (file: Bytes) => { seconds: number; headBytes: number }][] = [
  ["WebM of Chrome", chromeWebm, webmHead],
  ["WebM with clusters of known size", webm({ seconds: 12, clusterSeconds: 3, isSized: true }), webmHead],
  ["WebM with blocks in groups", webm({ seconds: 12, clusterSeconds: 3, hasGroups: true }), webmHead],
  ["WebM of Firefox", recorded("firefox.webm"), webmHead],
  ["MP4 of Chrome", chromeMp4, mp4Head],
  ["MP4 with boxes between fragments", mp4({ seconds: 12, fragmentSeconds: 2, before: box("styp", "msdh") }), mp4Head],
];

describe.each(STREAMS)("%s", (_, stream, headOf) => {
  test("gives the same file however it is split, and whenever its index is saved and read again", () => {
    const expected = compose(indexOfParts([stream]));
    expect(expected).toBeDefined();
    const property = fc.property(fc.array(fc.nat(), { maxLength: 20 }), (places) => {
      let index = createIndex();
      for (const part of split(stream, places)) {
        index = structuredClone(index);
        addBytes(index, part);
      }
      expect(compose(index)).toEqual(expected);
    });
    fc.assert(property);
    expect(compose(indexOfParts(split(stream.slice(0, 9000), [...Array(9000).keys()])))).toEqual(
      compose(indexOfParts([stream.slice(0, 9000)])),
    );
  });

  test("torn anywhere, keeps each complete block or fragment, and says how long they are", async () => {
    const whole = composed(stream)!;
    const { seconds } = headOf(whole);
    const soundStart = stream === chromeMp4 ? 641 : indexOf(stream, "\x1f\x43\xb6\x75");
    let longest = 0;
    const property = fc.asyncProperty(fc.nat(stream.length), async (size) => {
      const torn = stream.slice(0, size);
      const file = composed(torn);
      if (!file) {
        longest = Math.max(longest, size);
        return;
      }
      const head = headOf(file);
      expect(head.seconds).toBeLessThanOrEqual(seconds);
      // The service measures the sound itself. Of one block, it can't.
      const measured = await secondsOf(file);
      expect(Math.abs(measured - head.seconds)).toBeLessThan(0.13);
      // At most the torn block or fragment is gone.
      const lost = torn.length - soundStart - (file.length - head.headBytes);
      expect(lost).toBeLessThan(headOf === mp4Head ? 20_000 : 700);
    });
    await fc.assert(property);
    // It needs no more than the first blocks, or the first fragment.
    expect(longest).toBeLessThan(stream.length / 4);
  });

  test("with any byte changed never makes the composer fail, and composes only what is there", () => {
    const property = fc.property(fc.nat(stream.length - 1), fc.nat(255), fc.nat(600), (at, byte, near) => {
      for (const place of [at, near]) {
        const pieces = compose(indexOfParts([patched(stream, place, Uint8Array.of(byte))])) ?? [];
        for (const piece of pieces) {
          if (piece instanceof Uint8Array) expect(piece.length).toBeLessThan(MAX_HEAD_BYTES);
          else expect([piece[0] >= 0, piece[1] <= stream.length, piece[0] <= piece[1]]).toEqual([true, true, true]);
        }
      }
    });
    fc.assert(property);
  });
});

describe("A torn WebM", () => {
  test.each([
    ["of unknown size", false],
    ["of known size", true],
  ])("in a cluster %s ends with its last complete block", async (_, isSized) => {
    const stream = webm({ seconds: 21, isSized });
    // In the middle of the last block of 60 ms.
    const file = composed(stream.slice(0, stream.length - 200))!;
    expect(webmHead(file).seconds).toBeCloseTo(20.94, 1);
    expect(await secondsOf(file)).toBeCloseTo(20.94, 1);
    expect(Buffer.from(file.slice(-300)).equals(Buffer.from(composed(stream)!.slice(-300)))).toBe(false);
    const last = file.slice(webmHead(file).cues.at(-1)!.place);
    expect(elementsOf(last).map(({ end }) => end)).toEqual([last.length]);
    expect(number(last.slice(4, 12))).toBe(2 ** 56 + last.length - 12);
  });
});

describe("A stream stays as it is", () => {
  const sized = webm({ seconds: 21, isSized: true });
  const secondCluster = indexOf(sized, "\x1f\x43\xb6\x75", indexOf(sized, "\x1f\x43\xb6\x75") + 1);
  const fragments = [...mp4Fragments({ seconds: 21 })];
  test.each<[string, Bytes]>([
    ["of Ogg", join("OggS", noise(1000))],
    ["of no format", noise(1000)],
    ["without bytes", new Uint8Array()],
    ["of WebM without a complete block", webm({ seconds: 1 }).slice(0, 200)],
    ["of WebM with one block, whose length nothing says", webm({ seconds: 0.06 })],
    ["of WebM with sound after cues", join(sized, element("1c53bb6b", noise(9)), sized.slice(secondCluster))],
    ["of two WebMs in a row", join(sized, sized)],
    ["of WebM with a gap", join(sized.slice(0, secondCluster - 700), sized.slice(secondCluster - 300))],
    ["of MP4 without a complete fragment", mp4({ seconds: 21 }).slice(0, 9000)],
    ["of MP4 that states where samples are in the file", mp4({ seconds: 21, headerFlags: 1 })],
    ["of MP4 with samples outside of fragments", join(fragments[0]!, box("mdat", noise(9)), ...fragments.slice(1))],
    ["of MP4 with fragments after their index", join(fragments[0]!, box("mfra", noise(9)), ...fragments.slice(1))],
    ["of MP4 with a size of 0", join(...fragments, be32(0), "mdat")],
    ["of MP4 without a movie", join(...fragments.slice(1))],
    ["of MP4 with a large head", join(box("ftyp", noise(17_000)), ...fragments)],
    ["of WebM with a large head", join(sized.slice(0, 48), element("1254c367", noise(17_000)), sized.slice(48))],
  ])("%s", (_, stream) => {
    expect(compose(indexOfParts([stream]))).toBeUndefined();
  });
});

describe("A recording of four hours", () => {
  const SECONDS = 4 * 3600;
  const streams: [string, () => Iterable<Bytes>, number][] = [
    ["WebM", () => webmClusters({ seconds: SECONDS, packetBytes: 8 }), 1400],
    [
      "WebM with a cluster each second",
      () => webmClusters({ seconds: SECONDS, packetBytes: 8, clusterSeconds: 1 }),
      1440,
    ],
    ["MP4", () => mp4Fragments({ seconds: SECONDS, sampleBytes: 1 }), 1400],
    [
      "MP4 with a fragment each second",
      () => mp4Fragments({ seconds: SECONDS, sampleBytes: 1, fragmentSeconds: 1 }),
      1440,
    ],
  ];
  test.each(streams)("as %s has its duration and a bounded index and head", async (_, parts, count) => {
    const index = createIndex();
    let bytes = 0;
    let largest = 0;
    for (const part of parts()) {
      addBytes(index, part);
      bytes += part.length;
      largest = Math.max(largest, index.rest.length);
    }
    expect(index.readBytes).toBe(bytes);
    expect(largest).toBeLessThan(100);
    expect(JSON.stringify({ ...index, head: [] }).length).toBeLessThan(50_000);
    expect(index.cuePlaces.length).toBeGreaterThanOrEqual(count);
    expect(index.cuePlaces.length).toBeLessThanOrEqual(2048);
    const [head, ...others] = compose(index)!;
    expect((head as Bytes).length).toBeLessThan(48_000);
    expect(others.length).toBeLessThanOrEqual(2 * 2048 + 1);
    expect((others.at(-1) as number[])[1]).toBe(bytes);
    const stated = index.format === "webm" ? SECONDS * 1000 : 675_000 * 1024;
    expect(index.format === "webm" ? index.lastTicks + index.blockTicks : index.endTicks).toBe(stated);
  });

  test("is read once in slices, also from the middle on", async () => {
    const stream = webm({ seconds: 900 });
    const blob = new Blob([stream]);
    const reads: number[] = [];
    const watched = Object.assign(blob, {
      slice: (start: number, end: number) => {
        reads.push(start, end);
        return Blob.prototype.slice.call(blob, start, end);
      },
    });
    const index = createIndex();
    addBytes(index, stream.slice(0, 5_000_000));
    await readRest(index, watched);
    expect(compose(index)).toEqual(compose(indexOfParts([stream])));
    expect(reads).toEqual([5_000_000, 6_048_576, 6_048_576, 7_097_152, 7_097_152, 8_145_728]);
  });
});

test("a stream with too many places lists every second one, of the same ones however it is split", () => {
  const parts = [...webmClusters({ seconds: 2200, packetBytes: 1, clusterSeconds: 1.02 })];
  const index = indexOfParts(parts);
  expect(index.cuePlaces.length).toBeGreaterThan(1024);
  expect(index.cuePlaces.length).toBeLessThanOrEqual(2048);
  expect(index.cueTicks.slice(0, 3)).toEqual([0, 2040, 4080]);
  const file = composed(join(...parts), index)!;
  expect(webmHead(file).cues).toHaveLength(index.cuePlaces.length);
  expect(composed(join(...parts))).toEqual(file);
});
