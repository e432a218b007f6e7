import { isVisitor } from "../access/actor.ts";
import type { Credential, TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { fetchObject } from "../files/beside.ts";
import { writeObject } from "../files/beside-writes.ts";
import { isUploadedBy, MAX_SHOWN_PEAK, SHOWN_PEAKS } from "../files/files.ts";
import type { FileOf } from "../files/names.ts";

const KIND = "waveform";

/** Each channel has the same number of peaks, from -1 to 1. */
export type Channels = number[][];

/** A peak is stored as a signed byte. -1, 0, and 1 keep their exact values. */
const FULL_SCALE = 127;
/** Enough to distinguish all bytes. */
const DECIMALS = 3;
/** Far above the 4,001 bytes of the largest waveform that the API accepts. */
const MAX_OBJECT_BYTES = 64 * 1024;

/** The object has one byte for the number of channels, then the peaks of each channel. */
const pack = (channels: Channels): Uint8Array =>
  Uint8Array.from([channels.length, ...channels.flat().map((peak) => Math.round(peak * FULL_SCALE))]);

function unpack([channelCount = 1, ...bytes]: Uint8Array): Channels {
  const peaks = Array.from(Int8Array.from(bytes), (byte) => Number((byte / FULL_SCALE).toFixed(DECIMALS)));
  const length = peaks.length / channelCount;
  return Array.from({ length: channelCount }, (_, i) => peaks.slice(i * length, (i + 1) * length));
}

/**
 * The mean peak of each part of the file, in its louder channel: the loudest one would be the same in each part of a long
 * recording of speech. A short waveform repeats its peaks.
 */
export function shownPeaks(channels: Channels): Buffer {
  const length = channels[0]?.length ?? 0;
  const levelOf = (part: number) => {
    const start = Math.floor((part * length) / SHOWN_PEAKS);
    const end = Math.max(start + 1, Math.floor(((part + 1) * length) / SHOWN_PEAKS));
    const meanOf = (peaks: number[]) =>
      peaks.slice(start, end).reduce((sum, peak) => sum + Math.abs(peak), 0) / (end - start);
    return Math.max(...channels.map(meanOf));
  };
  return Buffer.from(Array.from({ length: SHOWN_PEAKS }, (_, part) => Math.round(levelOf(part) * MAX_SHOWN_PEAK)));
}

/** @throws `not_found`, also if the file has no waveform */
export async function fetchWaveform(deps: Deps, credential: Credential<"files:read">, id: string): Promise<Channels> {
  const channels = await readWaveform(deps, await fetchObject(deps, credential, id, KIND));
  if (!channels) throw new AppError("not_found");
  return channels;
}

/** Reads a waveform; null if its object is missing. */
export async function readWaveform(deps: Deps, { key }: { key: string }): Promise<Channels | null> {
  const bytes = await deps.bytes.read(key, 0, MAX_OBJECT_BYTES);
  return bytes && unpack(bytes);
}

const objectOf = (channels: Channels) =>
  ({ kind: KIND, bytes: pack(channels), preview: shownPeaks(channels) }) as const;

/**
 * Sets the waveform of a file. A visitor sets the first one of a file that it uploaded.
 * @returns the stored waveform
 * @throws `not_found`; `forbidden` if a visitor's file has a waveform
 */
export async function setWaveform(deps: Deps, actor: TeamActor, id: string, channels: Channels): Promise<Channels> {
  const isOfVisitor = isVisitor(actor);
  const object = { ...objectOf(channels), isProvisional: isOfVisitor };
  const written = await writeObject(deps, { ...actor, id }, object, {
    actor,
    replaces: isOfVisitor ? "none" : "all",
    isOfCaller: isOfVisitor ? isUploadedBy(actor) : undefined,
  });
  if (written === "not_found") throw new AppError("not_found");
  if (written === "kept") {
    throw new AppError("forbidden", { message: "The file has a waveform. Only its team can replace it." });
  }
  return unpack(object.bytes);
}

/** Never replaces a waveform that the team has set. @returns whether it is stored */
export async function setMeasuredWaveform(deps: Deps, file: FileOf, channels: Channels): Promise<boolean> {
  const object = { ...objectOf(channels), isProvisional: true };
  const options = { actor: null, replaces: "provisional" } as const;
  return typeof (await writeObject(deps, file, object, options)) === "number";
}
