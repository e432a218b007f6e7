import { latin1, UnreadableAudio } from "../range-source.ts";
import { Instance } from "./instance.ts";

/* The decoders: from bytes of one format to samples. Each is loaded by the first file that needs it. */

/** Takes the samples of each channel, before the decoder continues. */
export type TakeSound = (sound: Float32Array[]) => void;

export interface Decoder {
  /** The sample rate of what it has decoded. */
  rate(): number;
  /** Decodes the next packet, or of MP3 the next bytes. Without sound in it, it takes none. */
  decode(bytes: Uint8Array, take: TakeSound): void;
}

/** The most bytes that a decoder takes at once. */
export const MAX_INPUT_BYTES = { mp3: 16 * 1024, flac: 1024 * 1024, vorbis: 128 * 1024, opus: 64 * 1024 };
/** The longest sound of an Opus packet: 120 ms. */
const OPUS_SAMPLES = 5760;
const OPUS_HERTZ = 48_000;
/** Samples of a channel for one call: sixteen frames, and the rest of a file. */
const MP3_SAMPLES = 16 * 2889;
/** Results of mpg123 that aren't errors. */
const MP3 = { needsMore: -10, newFormat: -11 };
/** Errors in a row without a sample, after which no sound will come. */
const MAX_MP3_ERRORS = 100;
const VORBIS_ERRORS = 256;

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

/** @param sampleRate that of the stream: a frame need not state it */
export async function openFlac(sampleRate: number): Promise<Decoder> {
  const flac = new Instance("flac", (await import("./flac.wasm")).default);
  const places = Array.from({ length: 8 }, () => flac.allocate(4)) as Parameters<typeof flac.call.create_decoder>;
  const [channels, , , decoded, output] = places as [number, number, number, number, number];
  const handle = flac.call.create_decoder(...places);
  return {
    rate: () => sampleRate,
    decode(bytes, take) {
      if (!fits(bytes, "flac")) return;
      const input = flac.allocate(bytes.length);
      flac.write(input, bytes);
      flac.write(decoded, new Uint8Array(4));
      // It frees the input.
      flac.call.decode_frame(handle, input, bytes.length);
      const [sound, length] = [flac.word(output), flac.word(decoded)];
      if (length > 0) {
        take(Array.from({ length: flac.word(channels) }, (_, i) => flac.floats(sound + i * length * 4, length)));
      }
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
  return {
    rate: () => vorbis.word(rate),
    decode(bytes, take) {
      if (!fits(bytes, "vorbis")) return;
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

/** @param head the identification header (RFC 7845, 5.1) */
export async function openOpus(head: Uint8Array): Promise<Decoder> {
  if (latin1(head, 0, 8) !== "OpusHead") throw new UnreadableAudio("The file has no Opus header.");
  const [channels = 0, low = 0, high = 0] = head.subarray(9);
  const isMapped = head[18] !== 0;
  // Two streams at most have no mapping. Of the others, only the layouts of speakers are known.
  const [streams = 1, coupled = channels - 1, ...mapping] = isMapped ? head.subarray(19, 21 + channels) : [];
  const isKnown = isMapped ? head[18] === 1 && channels <= 8 && mapping.length === channels : channels <= 2;
  if (!isKnown || channels === 0) throw new UnreadableAudio("The channels of the file are unknown.");
  const opus = new Instance("opus", (await import("./opus.wasm")).default);
  const [input, output] = [opus.allocate(MAX_INPUT_BYTES.opus), opus.allocate(OPUS_SAMPLES * channels * 4)];
  const map = opus.allocate(channels);
  opus.write(map, Uint8Array.from(isMapped ? mapping : [0, 1].slice(0, channels)));
  const skipped = low + 256 * high;
  const handle = opus.call.opus_frame_decoder_create(OPUS_HERTZ, channels, streams, coupled, map, skipped, 0);
  return {
    rate: () => OPUS_HERTZ,
    decode(bytes, take) {
      // The decoder would invent the sound of an empty packet.
      if (!fits(bytes, "opus") || bytes.length === 0) return;
      opus.write(input, bytes);
      const length = opus.call.opus_frame_decode_float_deinterleaved(handle, input, bytes.length, output);
      if (length <= 0) return;
      take(Array.from({ length: channels }, (_, channel) => opus.floats(output + channel * length * 4, length)));
    },
  };
}
