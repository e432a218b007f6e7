import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { besideKey, parseObject } from "../files/beside.ts";
import { MAX_SHOWN_PEAK } from "../files/files.ts";
import type { FileKey } from "../files/names.ts";
import { type Channels, readWaveform, shownPeaks } from "../waveforms/waveforms.ts";
import { findLinked } from "./links.ts";
import { drawWaveform } from "./picture.ts";

/** The properties of its file that the page of a link shows. */
export interface SharedFile {
  /** The name of the link, or of the file. */
  name: string;
  /** The download name. */
  fileName: string;
  /** The part that the page opens with. Null: from the start, to the end. */
  startSeconds: number | null;
  endSeconds: number | null;
  sizeBytes: number;
  mimeType: string;
  durationSeconds: number | null;
  /** From its audio tags. */
  title: string | null;
  artist: string | null;
  teamName: string;
  /** When the link expires, in milliseconds since the epoch. Null: never. */
  expiresAt: number | null;
  waveform: Channels | null;
  hasTranscript: boolean;
}

async function waveformOf(deps: Deps, file: FileKey & { waveform: string | null }): Promise<Channels | null> {
  const object = parseObject(file.waveform);
  return object && readWaveform(deps, { key: besideKey(file, { kind: "waveform", version: object.version }) });
}

/** @throws as `findLinked` */
export async function describeLink(deps: Deps, token: string): Promise<SharedFile> {
  const { name, fileName, link, file, teamName } = await findLinked(deps, token);
  const { sizeBytes, mimeType, durationSeconds, title, artist } = file;
  const { startSeconds, endSeconds, expiresAt } = link;
  const facts = { mimeType, durationSeconds, title, artist, teamName, startSeconds, endSeconds, expiresAt };
  return {
    name,
    fileName,
    sizeBytes,
    ...facts,
    waveform: await waveformOf(deps, file),
    hasTranscript: file.transcript !== null,
  };
}

/** The waveform of a link's file as a PNG. @throws as `findLinked`, also if the file has no waveform */
export async function drawLinked(deps: Deps, token: string): Promise<Uint8Array<ArrayBuffer>> {
  const { file } = await findLinked(deps, token);
  const channels = await waveformOf(deps, file);
  if (!channels) throw new AppError("not_found");
  return drawWaveform(shownPeaks(channels), MAX_SHOWN_PEAK);
}
