import type { Deps } from "../deps.ts";
import { type Channels, readWaveform } from "../files/waveforms.ts";
import { findLinked } from "./links.ts";

/** The properties of its file that the page of a link shows. */
export interface SharedFile {
  name: string;
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

/** @throws as `findLinked` */
export async function describeLink(deps: Deps, token: string): Promise<SharedFile> {
  const { name, link, file, teamName } = await findLinked(deps, token);
  const { sizeBytes, mimeType, durationSeconds, title, artist } = file;
  const facts = { mimeType, durationSeconds, title, artist, teamName, expiresAt: link.expiresAt };
  return {
    name,
    sizeBytes,
    ...facts,
    waveform: await readWaveform(deps, file),
    hasTranscript: file.transcript !== null,
  };
}
