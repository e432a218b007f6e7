import { frameAt } from "../frames.ts";
import { byte, latin1, UnreadableAudio } from "../range-source.ts";
import { flacHeader } from "../xiph.ts";
import { Instance } from "./instance.ts";
import { MAX_OPUS_SAMPLES, readOpusPacket } from "./opus-packet.ts";
import { readVorbisSetup } from "./vorbis-setup.ts";

/* The decoders: from bytes of one format to samples. Each is loaded by the first file that needs it. */

/** Takes the samples of each channel, before the decoder continues. */
export type TakeSound = (sound: Float32Array[]) => void;

export interface Decoder {
  /** The sample rate of what it has decoded. */
  rate(): number;
  /** The number by which the file asks players to multiply its samples. */
  gain?: number;
  /**
   * The largest work of decoding a packet, by its headers, in units of `Budget`. Call it once for each, before decoding it.
   */
  work(bytes: Uint8Array): number;
  /** Decodes the next packet, or of MP3 the next frames. Without sound in it, it takes none. */
  decode(bytes: Uint8Array, take: TakeSound): void;
}

/** The most bytes that a decoder takes at once. */
export const MAX_INPUT_BYTES = { mp3: 8 * 1024, flac: 1024 * 1024, vorbis: 128 * 1024, opus: 64 * 1024 };
/**
 * The highest measured work for a sample of a channel, in ordinary files and in the worst that the tests build. Besides, Opus
 * and Vorbis have work that does not grow with the samples.
 */
export const SAMPLE_WORK = { mp3: 45, flac: 60, vorbis: 50, opus: 75, pcm: 40 };
const OPUS_HERTZ = 48_000;
/** The work for each sample, frame and channel of Opus, and for each byte. */
const OPUS_SAMPLE_WORK = 65;
const OPUS_FRAME_WORK = 6000;
const OPUS_BYTE_WORK = 30;
/** The work to conceal a lost frame behind one that isn't, or to change between two configurations, in a channel. */
const OPUS_TRANSITION_WORK = 100_000;
/** By channels, the streams of a mapping, and how many of them have two channels (RFC 7845, 5.1.1). */
const OPUS_STREAMS = [
  [1, 0],
  [1, 1],
  [2, 1],
  [2, 2],
  [3, 2],
  [4, 2],
  [4, 3],
  [5, 3],
] as const;
const HEADER_GAIN_UNITS_PER_DECIBEL = 256;
/** Samples of a channel for one call: sixteen frames, and the rest of a file. */
const MP3_SAMPLES = 16 * 2889;
/** Results of mpg123 that aren't errors. */
const MP3 = { needsMore: -10, newFormat: -11 };
/** Errors in a row without a sample, after which no sound will come. */
const MAX_MP3_ERRORS = 100;
const VORBIS_ERRORS = 256;
/** The start of a stream and its STREAMINFO. */
const FLAC_INFO_BYTES = 42;
const MAX_FLAC_HEADER_BYTES = 16;
/** The first packet of FLAC in Ogg has a mark and a header in front of the start of the stream. */
const OGG_FLAC = { mark: 0x7f, headBytes: 9 };
/** The work for each byte of a FLAC frame: its checksum, and the longest codes. */
const FLAC_BYTE_WORK = 30;
/** The widths of samples that the FLAC decoder converts. */
const FLAC_CONVERTED_BITS = [8, 16, 24, 32];
/** Where libFLAC keeps the samples of each channel: its private data is the second field of a decoder. */
const LIBFLAC = { privateAt: 4, outputAt: 48 };

const fits = (bytes: Uint8Array, format: keyof typeof MAX_INPUT_BYTES) => bytes.length <= MAX_INPUT_BYTES[format];

/** MPEG audio. Both channels of a mono sound are the same. */
export async function openMp3(): Promise<Decoder> {
  const mp3 = new Instance("mp3", (await import("./mp3.wasm")).default);
  const [input, output] = [mp3.allocate(MAX_INPUT_BYTES.mp3), mp3.allocate(MP3_SAMPLES * 2 * 4)];
  const [decoder, decoded, rate, error] = [0, 0, 0, 0].map(() => mp3.allocate(4)) as [number, number, number, number];
  if (mp3.call.mpeg_frame_decoder_create(decoder, 1) !== 0) throw new Error("The decoder did not start.");
  const handle = mp3.word(decoder);
  let [errors, sampleRate] = [0, 0];
  return {
    rate: () => sampleRate,
    work(bytes) {
      let samples = 0;
      for (let at = 0, frame = frameAt(bytes, 0); frame; frame = frameAt(bytes, at)) {
        samples += Math.round(frame.seconds * frame.sampleRate) * frame.channels;
        at += frame.bytes;
      }
      return samples * SAMPLE_WORK.mp3;
    },
    decode(bytes, take) {
      mp3.write(input, bytes);
      if (mp3.call.mpeg_decoder_feed(handle, input, bytes.length) === MP3.needsMore) return;
      for (let result = 0; result !== MP3.needsMore; ) {
        mp3.write(decoded, new Uint8Array(4));
        result = mp3.call.mpeg_decoder_read(handle, output, MP3_SAMPLES * 2, decoded, rate, error);
        const length = mp3.word(decoded);
        if (length > 0) {
          sampleRate = mp3.word(rate);
          take([mp3.floats(output, length), mp3.floats(output + length * 4, length)]);
        }
        errors = length > 0 || result === MP3.needsMore || result === MP3.newFormat ? 0 : errors + 1;
        if (errors > MAX_MP3_ERRORS) throw new UnreadableAudio("The file has no readable frames.");
      }
    },
  };
}

/**
 * @param head STREAMINFO behind the start of a stream, or the first packet in Ogg: a frame need not state its width
 * @param sampleRate that of the sound: neither need state it
 */
export async function openFlac(head: Uint8Array, sampleRate: number): Promise<Decoder> {
  const start = byte(head, 0) === OGG_FLAC.mark ? OGG_FLAC.headBytes : 0;
  const info = head.slice(start, start + FLAC_INFO_BYTES);
  // No other block follows.
  info[4] = 0x80;
  const flac = new Instance("flac", (await import("./flac.wasm")).default);
  const places = Array.from({ length: 8 }, () => flac.allocate(4)) as Parameters<typeof flac.call.create_decoder>;
  const [channels, , width, decoded, output, , error] = places as [
    number,
    number,
    number,
    number,
    number,
    number,
    number,
  ];
  const handle = flac.call.create_decoder(...places);
  const feed = (bytes: Uint8Array) => {
    const input = flac.allocate(bytes.length);
    flac.write(input, bytes);
    flac.write(decoded, new Uint8Array(4));
    // It frees the input.
    flac.call.decode_frame(handle, input, bytes.length);
  };
  /** The samples of other widths, which the decoder divides by zero. */
  const convert = (channel: number, length: number) => {
    const own = flac.word(flac.word(handle) + LIBFLAC.privateAt);
    const samples = flac.words(flac.word(own + LIBFLAC.outputAt + channel * 4), length);
    return Float32Array.from(samples, (sample) => sample / 2 ** (flac.word(width) - 1));
  };
  let isInformed = false;
  return {
    rate: () => sampleRate,
    work(bytes) {
      const header = flacHeader(bytes.subarray(0, MAX_FLAC_HEADER_BYTES));
      const samples = header ? header.samples * header.channels : 0;
      return samples * SAMPLE_WORK.flac + bytes.length * FLAC_BYTE_WORK;
    },
    decode(bytes, take) {
      // Headers in Ogg.
      if (!fits(bytes, "flac") || byte(bytes, 0) !== 0xff) return;
      if (!isInformed && info.length === FLAC_INFO_BYTES) feed(info);
      feed(bytes);
      // An error makes it forget the stream.
      isInformed = flac.word(error) === 0;
      const [sound, length] = [flac.word(output), flac.word(decoded)];
      if (length === 0) return;
      const isConverted = FLAC_CONVERTED_BITS.includes(flac.word(width));
      const samplesOf = (i: number) => (isConverted ? flac.floats(sound + i * length * 4, length) : convert(i, length));
      take(Array.from({ length: flac.word(channels) }, (_, i) => samplesOf(i)));
      flac.call.free(sound);
    },
  };
}

/** Gets the packets of the stream from its start: a header, comments, and a setup before the sound. */
export async function openVorbis(): Promise<Decoder> {
  const vorbis = new Instance("vorbis", (await import("./vorbis.wasm")).default);
  const input = vorbis.allocate(MAX_INPUT_BYTES.vorbis);
  const places = Array.from({ length: 5 }, () => vorbis.allocate(4)) as [number, number, number, number, number];
  const [inputLength, output, channels, rate, decoded] = places;
  const errors = [vorbis.allocate(VORBIS_ERRORS * 4), vorbis.allocate(4)] as const;
  const handle = vorbis.call.create_decoder(input, ...places, ...errors, VORBIS_ERRORS);
  const lengthOf = ({ length }: Uint8Array) => new Uint8Array(Uint32Array.of(length).buffer);
  let headers = 0;
  let head: Uint8Array = new Uint8Array();
  let packetWork = (_: Uint8Array) => 0;
  return {
    rate: () => vorbis.word(rate),
    work(bytes) {
      if (headers === 0) head = bytes;
      if (headers !== 2) return packetWork(bytes);
      const blockSamples = [byte(head, 28) & 15, byte(head, 28) >> 4].map((power) => 2 ** power);
      const setup = readVorbisSetup(bytes, byte(head, 11), blockSamples as [number, number]);
      packetWork = setup.packetWork;
      return setup.work;
    },
    decode(bytes, take) {
      // The decoder would repeat the sound before an empty packet.
      if (headers >= 3 && bytes.length === 0) return;
      vorbis.write(input, bytes);
      vorbis.write(inputLength, lengthOf(bytes));
      if (headers < 3) {
        headers += 1;
        // The decoder makes empty comments itself.
        if (headers !== 2) vorbis.call.send_setup(handle, headers === 1 ? 1 : 0);
        if (headers === 3) vorbis.call.init_dsp(handle);
        return;
      }
      vorbis.call.decode_packets(handle);
      vorbis.write(errors[1], new Uint8Array(4));
      const [sound, length] = [vorbis.word(output), vorbis.word(decoded)];
      if (length === 0) return;
      const samplesOf = (channel: number) => vorbis.floats(vorbis.word(sound + channel * 4), length);
      take(Array.from({ length: vorbis.word(channels) }, (_, channel) => samplesOf(channel)));
    },
  };
}

const isOpusHeader = (packet: Uint8Array) => /^Opus(Head|Tags)$/.test(latin1(packet, 0, 8));

/** @param head the identification header (RFC 7845, 5.1) */
export async function openOpus(head: Uint8Array): Promise<Decoder> {
  if (latin1(head, 0, 8) !== "OpusHead") throw new UnreadableAudio("The file has no Opus header.");
  const [channels = 0, low = 0, high = 0] = head.subarray(9);
  const isMapped = head[18] !== 0;
  const [streams, coupled] = OPUS_STREAMS[channels - 1] ?? [0, 0];
  const [statedStreams = 1, statedCoupled = channels - 1, ...mapping] = isMapped
    ? head.subarray(19, 21 + channels)
    : [];
  // Two channels at most have no mapping. Of the others, only the layouts of speakers are known.
  const isKnown = isMapped ? head[18] === 1 && mapping.length === channels : channels === 1 || channels === 2;
  if (!isKnown || streams === 0 || statedStreams !== streams || statedCoupled !== coupled) {
    throw new UnreadableAudio("The channels of the file are unknown.");
  }
  const opus = new Instance("opus", (await import("./opus.wasm")).default);
  const [input, output] = [opus.allocate(MAX_INPUT_BYTES.opus), opus.allocate(MAX_OPUS_SAMPLES * channels * 4)];
  const map = opus.allocate(channels);
  opus.write(map, Uint8Array.from(isMapped ? mapping : [0, 1].slice(0, channels)));
  const skipped = low + 256 * high;
  const handle = opus.call.opus_frame_decoder_create(OPUS_HERTZ, channels, streams, coupled, map, skipped, 0);
  /** The previous frame of each stream: its configuration, negative if it was lost. */
  const previous = Array<number>(streams).fill(0);
  const gain = new DataView(Uint8Array.of(byte(head, 16), byte(head, 17)).buffer).getInt16(0, true);
  return {
    rate: () => OPUS_HERTZ,
    gain: 10 ** (gain / HEADER_GAIN_UNITS_PER_DECIBEL / 20),
    work(bytes) {
      if (isOpusHeader(bytes)) return 0;
      let work = bytes.length * OPUS_BYTE_WORK;
      for (const [stream, { configuration, isStereo, frameSamples, lengths }] of (
        readOpusPacket(bytes, streams) ?? []
      ).entries()) {
        let transitions = 0;
        for (const length of lengths) {
          const kind = length < 2 ? -1 : 2 * configuration + (isStereo ? 1 : 0);
          if (kind !== previous[stream]) transitions += 1;
          previous[stream] = kind;
        }
        const frameWork = OPUS_FRAME_WORK + frameSamples * OPUS_SAMPLE_WORK;
        work +=
          (stream < coupled || isStereo ? 2 : 1) * (lengths.length * frameWork + transitions * OPUS_TRANSITION_WORK);
      }
      return work;
    },
    decode(bytes, take) {
      // The decoder would invent the sound of an empty packet.
      if (!fits(bytes, "opus") || bytes.length === 0 || isOpusHeader(bytes)) return;
      opus.write(input, bytes);
      const length = opus.call.opus_frame_decode_float_deinterleaved(handle, input, bytes.length, output);
      if (length <= 0) return;
      take(Array.from({ length: channels }, (_, channel) => opus.floats(output + channel * length * 4, length)));
    },
  };
}
