import { randomUUID } from "node:crypto";
import { basename, relative } from "node:path";
import { isDeepStrictEqual } from "node:util";
import { type FileMetadata, type FileProperties, RESUMABLE_BYTES, StowageError } from "../stowage.ts";
import type { Context } from "./context.ts";
import { Failure } from "./failures.ts";
import type { Entry, Journal } from "./journal.ts";
import { type LocalFile, openFile } from "./local-files.ts";
import type { Progress } from "./progress.ts";

export interface Sent {
  id: string;
  sha256: string | null;
  isSkipped: boolean;
  /** The options that the stored file doesn't have, because an earlier run sent or started it. */
  notApplied: string[];
}

/** The state that all uploads of one command share. */
export interface Run {
  context: Context;
  journal: Journal;
  progress: Progress;
  /** The properties of every file. Files of folders are below its `folder`. */
  properties: FileProperties;
  signal: AbortSignal;
}

/** The properties of a file; undefined if there are none. */
export function propertiesOf(properties: FileProperties, file: LocalFile): FileProperties | undefined {
  const folder = [properties.folder, file.folder].filter(Boolean).join("/");
  const given = { ...properties, ...(folder !== "" && { folder }) };
  return Object.keys(given).length === 0 ? undefined : given;
}

/** Returns the given options that differ from a stored file. The service composes characters. */
function findNotApplied({ properties }: Run, file: LocalFile, stored: FileMetadata): string[] {
  const composed = (text = "") => text.normalize("NFC");
  const { folder } = propertiesOf(properties, file) ?? {};
  const { tags = [], reference, metadata } = properties;
  const isApplied = {
    "--folder": properties.folder === undefined || composed(folder) === composed(stored.folder),
    "--tag": tags.every((tag) => stored.tags.includes(composed(tag))),
    "--reference": reference === undefined || reference === stored.reference,
    "--metadata": metadata === undefined || isDeepStrictEqual(metadata, stored.metadata),
  };
  return Object.entries(isApplied).flatMap(([option, isSet]) => (isSet ? [] : [option]));
}

const isNotFound = (error: unknown) => error instanceof StowageError && error.code === "not_found";
export const isForbidden = (error: unknown) =>
  error instanceof StowageError && (error.code === "forbidden" || error.code === "insufficient_scope");
export const isAltered = ({ failure }: Pick<FileMetadata, "failure">) =>
  failure?.code === "bytes_altered" || failure?.code === "bytes_missing";

/** Returns an upload that has finished and is still stored; undefined if the file must be sent. */
async function findStored(run: Run, file: LocalFile, { id, sha256 }: Entry): Promise<Sent | undefined> {
  if (id === undefined) return undefined;
  const sent = { id, sha256: sha256 ?? null, isSkipped: true, notApplied: [] };
  try {
    const stored = await run.context.stowage.files.get(id, { signal: run.signal });
    const isGood = !isAltered(stored) && (stored.sha256 === null || stored.sha256 === sent.sha256);
    return isGood ? { ...sent, notApplied: findNotApplied(run, file, stored) } : undefined;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    if (isForbidden(error)) return sent;
    throw error;
  }
}

/** The service takes a backslash for a path of Windows; elsewhere a name may contain one. */
const nameOf = (path: string) => basename(path).replaceAll("\\", "_");

/** Sends a file, unless an earlier or parallel run has sent it. Resumes what an earlier run has started. */
export async function sendFile(run: Run, file: LocalFile): Promise<Sent> {
  if (file.size === 0) throw new Failure("failed", `${file.path} is empty (0 bytes).`);
  if (file.size < RESUMABLE_BYTES) return sendOnce(run, file);
  const { context, journal } = run;
  await journal.claim(file, run.signal, (pid) =>
    context.notify(`${file.path}: waiting for another upload of this file (process ${pid}).`),
  );
  try {
    return await sendOnce(run, file);
  } finally {
    journal.unclaim(file);
  }
}

async function sendOnce(run: Run, file: LocalFile): Promise<Sent> {
  const { context, journal, progress, signal } = run;
  const known = journal.find(file);
  const stored = await findStored(run, file, known);
  if (stored) {
    progress.skip(file.size);
    return stored;
  }
  // The digest of an unfinished upload is that of this version of the file.
  const { blob, sha256 } = await openFile(file, signal, known.id === undefined ? known.sha256 : undefined);
  journal.refresh();
  // Another run has sent a small file in the meantime.
  if (journal.find(file).id !== known.id) return sendOnce(run, file);
  const touched = journal.findTouched(file);
  if (touched.sha256 === sha256) {
    const same = await findStored(run, file, touched);
    if (same) {
      journal.save(file, { id: same.id, sha256 });
      progress.skip(file.size);
      return same;
    }
  }
  const { idempotencyKey, uploadUrl } = prepare(journal, file, sha256);
  const bar = progress.begin(relative(context.io.cwd, file.path), file.size);
  let isDone = false;
  let isFirst = uploadUrl !== undefined;
  try {
    const { id } = await context.stowage.files.upload(blob, {
      name: nameOf(file.path),
      properties: propertiesOf(run.properties, file),
      ...(idempotencyKey !== undefined && { idempotencyKey }),
      sha256,
      resumeUrl: uploadUrl,
      onResumeUrl: (url) => journal.save(file, { uploadUrl: url, sha256 }),
      onProgress: (sentBytes) => {
        if (isFirst) bar.resumeAt(sentBytes);
        else bar.advance(sentBytes);
        isFirst = false;
      },
      signal,
    });
    journal.save(file, { id, sha256 });
    isDone = true;
    // A resumed upload keeps the options that it was created with.
    const mayDiffer = uploadUrl !== undefined && Object.keys(run.properties).length > 0;
    const resumed = mayDiffer ? await findStored(run, file, { id, sha256 }) : undefined;
    return { id, sha256, isSkipped: false, notApplied: resumed?.notApplied ?? [] };
  } finally {
    bar.end(isDone);
  }
}

/** Returns what to resume. For a form upload, saves an idempotency key first; another run's key may win. */
function prepare(journal: Journal, file: LocalFile, sha256: string): Entry {
  const { uploadUrl, idempotencyKey } = journal.find(file);
  if (file.size >= RESUMABLE_BYTES) return uploadUrl === undefined ? {} : { uploadUrl };
  journal.save(file, { idempotencyKey: idempotencyKey ?? randomUUID(), sha256 });
  const saved = journal.find(file).idempotencyKey;
  return saved === undefined ? {} : { idempotencyKey: saved };
}
