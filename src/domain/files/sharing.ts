import type { Deps } from "../../deps.ts";
import { findLinked } from "./links.ts";
import { type Channels, readWaveform } from "./waveforms.ts";

/** The properties of its file that the page of a link shows. */
export interface SharedFile {
  name: string;
  sizeBytes: number;
  mimeType: string;
  durationSeconds: number | null;
  waveform: Channels | null;
}

/** @throws as `findLinked` */
export async function describeLink(deps: Deps, token: string): Promise<SharedFile> {
  const { name, file } = await findLinked(deps, token);
  const { sizeBytes, mimeType, durationSeconds } = file;
  return { name, sizeBytes: sizeBytes ?? 0, mimeType, durationSeconds, waveform: await readWaveform(deps, file) };
}
