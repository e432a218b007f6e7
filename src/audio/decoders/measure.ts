import { readAiff, readWav } from "../chunks.ts";
import type { Audio } from "../inspect.ts";
import { Budget, byte, MAX_WINDOW_BYTES, RangeSource, type ReadRange } from "../range-source.ts";
import { skipLeadingTags } from "../tags.ts";
import { type Decoder, openFlac, openMp3, openOpus, openVorbis, type TakeSound } from "./decoders.ts";
import { flacFrames, matroskaPackets, mp3Bytes, oggPackets, pcmSound } from "./packets.ts";
import { PeakMeter } from "./peaks.ts";

/* Measures the waveform of a file from its bytes. */

type Sound = Pick<Audio, "container" | "codec" | "durationSeconds" | "sampleRate" | "channels">;

/**
 * The formats, by container and codec, and the highest measured cost of a sample of a channel. Clients measure others: the
 * licenses of all small AAC decoders would apply to the whole service.
 */
const FORMATS = [
  { name: "mp3", pattern: /^MPEG MPEG [\d.]+ Layer [123]$/, work: 45, sampleBytes: 1 },
  { name: "flac", pattern: /^(FLAC|Ogg) FLAC$/, work: 60, sampleBytes: 4 },
  { name: "vorbis", pattern: /^Ogg Vorbis I$/, work: 50, sampleBytes: 1 },
  { name: "opus", pattern: /^(Ogg|EBML\/\w+) Opus$/i, work: 75, sampleBytes: 1 },
  { name: "pcm", pattern: /^(WAVE (PCM|IEEE_FLOAT|ALAW|MULAW)|AIFF PCM|AIFF-C .*)$/, work: 40, sampleBytes: 8 },
] as const;
type Format = (typeof FORMATS)[number];

/**
 * One unit of work is a nanosecond on a slow core, see `Budget`. A third of the CPU time of an invocation, so that no file
 * reaches the end of that time, which would end the Worker without an error: 7 hours of MP3 in stereo, 4 of Opus.
 */
const MAX_DECODING_WORK = 100e9;
/** The cost of a packet besides its samples. */
const PACKET_WORK = 2000;
/** The slowest search for sound in bytes that have none. */
const SILENT_BYTE_WORK = 250;
/** An invocation makes at most 10,000 requests to R2, of 1 MiB each. */
const MAX_BYTES = 2e9;
const MAX_READS = 2 * Math.ceil(MAX_BYTES / MAX_WINDOW_BYTES);
/** The largest speaker layout of any format. */
const MAX_CHANNELS = 8;
const OPUS_HERTZ = 48_000;
/** One peak for each pixel or two of the widest player. */
const MEASURED_PEAKS = 1000;
const MIN_PEAKS = 16;
/** If less of the duration can be decoded, its waveform would be wrong in every part. */
const MIN_DECODED_SHARE = 0.9;

/** @returns null if no waveform can be measured: the format has no decoder, or the sound is too long */
function formatOf(
  { container, codec, durationSeconds, sampleRate, channels }: Sound,
  sizeBytes: number,
): Format | null {
  const format = FORMATS.find(({ pattern }) => pattern.test(`${container} ${codec}`));
  if (!format || channels === null || channels > MAX_CHANNELS || sizeBytes > MAX_BYTES) return null;
  const rate = format.name === "opus" ? OPUS_HERTZ : (sampleRate ?? 0);
  return (durationSeconds ?? 0) * rate * channels * format.work > MAX_DECODING_WORK ? null : format;
}

export const isMeasurable = (audio: Sound, sizeBytes: number): boolean => formatOf(audio, sizeBytes) !== null;

/** Runs one step of a decoder, and charges it. @param bytes of the file that the step is for */
type RunStep = (bytes: Uint8Array | null, step: (take: TakeSound) => void) => void;

/** Decodes all of the sound. @returns its sample rate */
async function decode(source: RangeSource, { name }: Format, { container, sampleRate }: Sound, run: RunStep) {
  if (name === "pcm") {
    const reading = await (container === "WAVE" ? readWav : readAiff)(source);
    if (!reading.pcm) return 0;
    for await (const sound of pcmSound(source, reading.pcm, reading.channels)) run(null, (take) => take(sound));
    return reading.sampleRate;
  }
  const isOgg = container === "Ogg";
  const packets = isOgg
    ? oggPackets(source)
    : { mp3: mp3Bytes, flac: flacFrames, opus: matroskaPackets }[name as "mp3"](source);
  let decoder: Decoder | undefined;
  let index = 0;
  for await (const packet of packets) {
    const isHead = name === "opus" && index === 0;
    // Comments, which Vorbis counts as a header. The headers of FLAC in Ogg don't begin like a frame.
    const isSkipped = (name === "opus" && isOgg && index === 1) || (name === "flac" && byte(packet, 0) !== 0xff);
    index += 1;
    decoder ??= await {
      mp3: openMp3,
      vorbis: openVorbis,
      flac: () => openFlac(sampleRate ?? 0),
      opus: () => openOpus(packet),
    }[name]();
    const opened = decoder;
    run(packet, (take) => isHead || isSkipped || opened.decode(packet, take));
  }
  return decoder?.rate() ?? 0;
}

/**
 * @returns the peaks of up to two channels, from -1 to 1; null if the file has none that can be decoded within the limits
 * @throws whatever `read` throws, unchanged
 */
export async function measurePeaks(
  read: ReadRange,
  sizeBytes: number,
  audio: Sound,
  maxWork = MAX_DECODING_WORK,
): Promise<number[][] | null> {
  const format = formatOf(audio, sizeBytes);
  if (!format) return null;
  const limits = { maxReads: MAX_READS, maxBytes: 2 * MAX_BYTES };
  const source = new RangeSource(read, sizeBytes, new Budget(maxWork), limits);
  const channels = audio.channels ?? 1;
  const meter = new PeakMeter(channels);
  const run: RunStep = (bytes, step) => {
    const before = meter.samples;
    // The MP3 decoder gives a mono sound two channels.
    step((sound) => meter.add(sound.slice(0, channels)));
    const samples = (meter.samples - before) * channels;
    const silentBytes = Math.max(0, (bytes?.length ?? 0) - samples * format.sampleBytes);
    source.budget.charge(PACKET_WORK + samples * format.work + silentBytes * SILENT_BYTE_WORK);
  };
  try {
    await skipLeadingTags(source);
    const sampleRate = await decode(source, format, audio, run);
    const isIncomplete = meter.samples < (audio.durationSeconds ?? 0) * sampleRate * MIN_DECODED_SHARE;
    if (meter.samples === 0 || isIncomplete) return null;
    return meter.finish(Math.max(MIN_PEAKS, Math.min(MEASURED_PEAKS, meter.samples)));
  } catch {
    if (source.failure) throw source.failure.error;
    // Damaged bytes, too much work, or a decoder that met what it doesn't expect.
    return null;
  }
}
