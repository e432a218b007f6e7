import { readAiff, readWav } from "../chunks.ts";
import type { Audio } from "../inspect.ts";
import { Budget, MAX_WINDOW_BYTES, RangeSource, type ReadRange } from "../range-source.ts";
import { skipLeadingTags } from "../tags.ts";
import {
  type Decoder,
  MAX_INPUT_BYTES,
  openFlac,
  openMp3,
  openOpus,
  openVorbis,
  SAMPLE_WORK,
  type TakeSound,
} from "./decoders.ts";
import { mp4Packets } from "./mp4-packets.ts";
import { flacFrames, matroskaPackets, mpegFrames, oggPackets, pcmSound } from "./packets.ts";
import { PeakMeter } from "./peaks.ts";

/* Measures the waveform of a file from its bytes. */

type Sound = Pick<Audio, "container" | "codec" | "durationSeconds" | "sampleRate" | "channels">;

/**
 * The formats, by container and codec. Clients measure others: the licenses of all small AAC decoders would apply to the whole
 * service.
 */
const FORMATS = [
  { name: "mp3", pattern: /^MPEG MPEG [\d.]+ Layer [123]$/ },
  { name: "flac", pattern: /^(FLAC|Ogg) FLAC$/ },
  { name: "vorbis", pattern: /^Ogg Vorbis I$/ },
  { name: "opus", pattern: / Opus$/i },
  { name: "pcm", pattern: /^(WAVE (PCM|IEEE_FLOAT|ALAW|MULAW)|AIFF PCM|AIFF-C .*)$/ },
] as const;
type Format = (typeof FORMATS)[number];

/**
 * One unit of work is a nanosecond on a slow core, see `Budget`: 7 hours of MP3 in stereo, 4 of Opus. That is a third of the
 * CPU time of an invocation, whose end would end the Worker without an error. Each step is charged before it runs, so only a
 * file that costs three times its charge reaches that end. The worst files of the tests cost about as much as they are charged.
 */
const MAX_DECODING_WORK = 100e9;
/** The cost of a packet besides its samples. */
const PACKET_WORK = 4000;
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
  return (durationSeconds ?? 0) * rate * channels * SAMPLE_WORK[format.name] > MAX_DECODING_WORK ? null : format;
}

export const isMeasurable = (audio: Sound, sizeBytes: number): boolean => formatOf(audio, sizeBytes) !== null;

/**
 * Runs one step of a decoder. `atMost` is charged before, and afterwards what its samples cost beyond that: a packet may have
 * more of them than its header says.
 */
type RunStep = (atMost: number, step: (take: TakeSound) => void) => Promise<void>;

const openDecoder = { mp3: openMp3, flac: openFlac, vorbis: openVorbis, opus: openOpus };

function packetsOf(source: RangeSource, name: Exclude<Format["name"], "pcm">, { container }: Sound) {
  if (container === "Ogg") return oggPackets(source, MAX_INPUT_BYTES[name]);
  if (name === "opus") return container?.startsWith("EBML/") ? matroskaPackets(source) : mp4Packets(source);
  return name === "flac" ? flacFrames(source) : mpegFrames(source);
}

/** Decodes all of the sound. @returns its sample rate and gain */
async function decode(source: RangeSource, { name }: Format, sound: Sound, run: RunStep) {
  if (name === "pcm") {
    const reading = await (sound.container === "WAVE" ? readWav : readAiff)(source);
    if (!reading.pcm) return { rate: 0 };
    for await (const part of pcmSound(source, reading.pcm, reading.channels)) await run(0, (take) => take(part));
    return { rate: reading.sampleRate };
  }
  let decoder: Decoder | undefined;
  for await (const packet of packetsOf(source, name, sound)) {
    decoder ??= await openDecoder[name](packet, sound.sampleRate ?? 0);
    const opened = decoder;
    await run(opened.work(packet), (take) => opened.decode(packet, take));
  }
  return { rate: decoder?.rate() ?? 0, gain: decoder?.gain };
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
  const budget = new Budget(maxWork);
  const source = new RangeSource(read, sizeBytes, budget, limits);
  const channels = audio.channels ?? 1;
  const meter = new PeakMeter(channels);
  const run: RunStep = async (atMost, step) => {
    if (budget.isPauseDue) await budget.pause();
    budget.charge(PACKET_WORK + atMost);
    let samples = 0;
    step((sound) => {
      // The MP3 decoder gives a mono sound two channels.
      const kept = format.name === "mp3" ? sound.slice(0, channels) : sound;
      samples += kept.length * (kept[0]?.length ?? 0);
      meter.add(kept.slice(0, channels));
    });
    budget.charge(Math.max(0, samples * SAMPLE_WORK[format.name] - atMost));
  };
  try {
    await skipLeadingTags(source);
    const { rate, gain } = await decode(source, format, audio, run);
    const isIncomplete = meter.samples < (audio.durationSeconds ?? 0) * rate * MIN_DECODED_SHARE;
    if (meter.samples === 0 || isIncomplete) return null;
    return meter.finish(Math.max(MIN_PEAKS, Math.min(MEASURED_PEAKS, meter.samples)), gain);
  } catch {
    if (source.failure) throw source.failure.error;
    // Damaged bytes, too much work, or a decoder that met what it doesn't expect.
    return null;
  }
}
