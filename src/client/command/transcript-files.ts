import { readFile, rm, writeFile } from "node:fs/promises";
import { extname, resolve } from "node:path";
import type { FileMetadata } from "../index.ts";
import type { Context } from "./context.ts";
import { failureAbout } from "./failures.ts";
import type { LocalFile } from "./local-files.ts";
import { alreadyExists, moveInPlace } from "./places.ts";

/* Transcripts beside recordings on this machine: `a.vtt` is that of `a.mp3` in the same folder. */

export const TRANSCRIPTS = ["--transcripts", "also the transcripts: a.vtt beside a.mp3"] as const;

const EXTENSION = ".vtt";
/** Extensions of recordings. The service detects the type by the content, but only after the upload. */
const RECORDING = /\.(3gp|aac|aiff?|amr|caf|flac|m4[abv]|mk[av]|mov|mp[234]|og[agv]|opus|wav|web[am]|wma)$/i;

const isTranscript = (path: string) => extname(path).toLowerCase() === EXTENSION;
const stemOf = (path: string) => path.slice(0, path.length - extname(path).length);
/** Where the transcript of a file is on this machine. */
export const transcriptPathOf = (path: string): string => stemOf(path) + EXTENSION;

/**
 * Separates transcripts from the other files. A transcript without a recording is a file as any other.
 * @returns the other files, and the transcripts by the paths of their recordings
 */
export function pairTranscripts(found: LocalFile[]): { files: LocalFile[]; transcripts: Map<string, LocalFile> } {
  const byStem = new Map(found.filter(({ path }) => isTranscript(path)).map((file) => [stemOf(file.path), file]));
  const transcripts = new Map<string, LocalFile>();
  for (const { path } of found) {
    const transcript = RECORDING.test(path) ? byStem.get(stemOf(path)) : undefined;
    if (transcript) transcripts.set(path, transcript);
  }
  const paired = new Set(transcripts.values());
  return { files: found.filter((file) => !paired.has(file)), transcripts };
}

/** Sets the transcript of a file that is stored, unless it is the same. It keeps its language. */
export async function sendTranscript(
  context: Context,
  id: string,
  { path, label }: LocalFile,
  signal: AbortSignal,
  isPlanned = false,
): Promise<void> {
  const { files } = context.stowage;
  const text = await readFile(path, "utf8").catch(failureAbout(label));
  const about = failureAbout(label);
  const { transcript } = await files.get(id, { signal }).catch(about);
  const isSame = transcript !== null && (await files.getTranscript(id, { signal }).catch(about)) === text;
  if (!isSame && !isPlanned)
    await files.setTranscript(id, text, { language: transcript?.language ?? undefined }, { signal }).catch(about);
  const word = isSame ? "already sent" : isPlanned ? "would set the transcript" : "transcript set";
  const row = { path: label, id, transcript: true, skipped: isSame, ...(isPlanned && { upload: !isSame }) };
  context.above(() => context.results.print(row, [id, label, word]));
}

/** Writes the transcript of a file beside it, if it has one. Replaces another one only if `isForced`. */
export async function writeTranscript(
  context: Context,
  file: FileMetadata,
  name: string,
  { isForced, isPlanned }: { isForced: boolean; isPlanned: boolean },
): Promise<void> {
  const { io, stowage, call, results } = context;
  const text = file.transcript && (await stowage.files.getTranscript(file._id, call));
  if (text === null) return;
  const path = resolve(io.cwd, name);
  const present = await readFile(path, "utf8").catch((error: NodeJS.ErrnoException) => {
    if (error.code !== "ENOENT") throw error;
  });
  const isSame = present === text;
  if (present !== undefined && !isSame && !isForced) throw alreadyExists(name);
  if (!isSame && !isPlanned) {
    const draft = `${path}.${file._id}.part`;
    try {
      await rm(draft, { force: true });
      await writeFile(draft, text, { flag: "wx" });
      await moveInPlace(draft, path, name, isForced);
    } catch (error) {
      await rm(draft, { force: true });
      throw error;
    }
  }
  const row = { id: file._id, path: name, transcript: true, skipped: isSame, ...(isPlanned && { download: !isSame }) };
  const remark = isSame ? ["already there"] : isPlanned ? ["would download"] : [];
  context.above(() => results.print(row, [name, ...remark]));
}
