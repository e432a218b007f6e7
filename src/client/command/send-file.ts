import { isDeepStrictEqual } from "node:util";
import { type FileMetadata, type FileProperties, StowageError } from "../index.ts";
import { RESUMABLE_BYTES } from "../internal.ts";
import { pathOf } from "./command.ts";
import type { Context } from "./context.ts";
import { Failure, isForbidden } from "./failures.ts";
import type { Entry, Journal } from "./journal.ts";
import { digestOf, type LocalFile, nameOf, openFile, storedPathOf } from "./local-files.ts";
import type { Progress } from "./progress.ts";
import type { Stored } from "./syncing.ts";

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
  /** For a sync, the files that the service had at its start. */
  stored: Stored | undefined;
}

/** Returns the path that the service gives to a file. */
export const placeIn = ({ folder }: FileProperties, file: Pick<LocalFile, "path" | "folder">): string =>
  storedPathOf([folder, file.folder].filter(Boolean).join("/"), file.path);

/** The properties of a file; undefined if there are none. */
export function propertiesOf(properties: FileProperties, file: LocalFile): FileProperties | undefined {
  const folder = file.original?.folder ?? [properties.folder, file.folder].filter(Boolean).join("/");
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
export const isAltered = ({ failure }: Pick<FileMetadata, "failure">) =>
  failure?.code === "bytes_altered" || failure?.code === "bytes_missing";

/** For a sync, an upload must be the newest at its path. One that the list lacks has finished since. */
function isInPlace({ stored, properties }: Run, file: LocalFile, found: FileMetadata): boolean {
  if (!stored) return true;
  const path = placeIn(properties, file);
  const [newest, ...older] = stored.get(path) ?? [];
  if (newest?._id === found._id) return true;
  return pathOf(found).normalize("NFC") === path && !older.some(({ _id }) => _id === found._id);
}

/** Returns an upload that has finished and is still stored; undefined if the file must be sent. */
async function findStored(run: Run, file: LocalFile, { id, sha256 }: Entry): Promise<Sent | undefined> {
  if (id === undefined) return undefined;
  const sent = { id, sha256: sha256 ?? null, isSkipped: true, notApplied: [] };
  try {
    const stored = await run.context.stowage.files.get(id, { signal: run.signal });
    const isGood = !isAltered(stored) && (stored.sha256 === null || stored.sha256 === sent.sha256);
    return isGood && isInPlace(run, file, stored)
      ? { ...sent, notApplied: findNotApplied(run, file, stored) }
      : undefined;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    if (isForbidden(error)) return sent;
    throw error;
  }
}

/** Returns the file that the service has at the path of a local file, if their contents are the same. */
export async function findSame(run: Run, file: LocalFile): Promise<Sent | undefined> {
  const [stored] = run.stored?.get(placeIn(run.properties, file)) ?? [];
  if (stored?.size !== file.size) return undefined;
  const { _id: id, status } = stored;
  const known = run.journal.find(file);
  const isKnown = known.id === id && status !== "failed";
  const hasOptions = Object.keys(run.properties).some((name) => name !== "folder");
  if (isKnown && !hasOptions) return { id, sha256: known.sha256 ?? null, isSkipped: true, notApplied: [] };
  const sha256 = known.sha256 ?? (await digestOf(file.path, run.signal));
  const same = await findStored(run, file, { id, sha256 });
  if (same && !isKnown) run.journal.save(file, { id, sha256 });
  return same;
}

/** Sends a file, unless an earlier or parallel run has sent it. Resumes what an earlier run has started. */
export async function sendFile(run: Run, file: LocalFile): Promise<Sent> {
  if (file.size === 0) throw new Failure("failed", `${file.label} is empty (0 bytes).`, { subject: file.label });
  const { context, journal } = run;
  if (file.size < RESUMABLE_BYTES) return sendOnce(run, file);
  await journal.claim(file, run.signal, (pid) =>
    context.notify(`${file.label}: waiting for another upload of this file (process ${pid}).`),
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
  if (stored) return stored;
  // The digest of an unfinished upload is that of this version of the file.
  const { source, sha256 } = await openFile(file, signal, known.id === undefined ? known.sha256 : undefined);
  journal.refresh();
  // Another run has sent a small file in the meantime.
  if (journal.find(file).id !== known.id) return sendOnce(run, file);
  const touched = journal.findTouched(file);
  if (touched.sha256 === sha256) {
    const same = await findStored(run, file, touched);
    if (same) {
      journal.save(file, { id: same.id, sha256 });
      return same;
    }
  }
  const { uploadUrl } = known;
  const bar = progress.begin(file.label, file.size);
  let isDone = false;
  let isFirst = uploadUrl !== undefined;
  try {
    const { id } = await context.stowage.files.upload(source, {
      name: file.original?.name ?? nameOf(file.path),
      properties: propertiesOf(run.properties, file),
      sha256,
      store: journal.storeOf(file, sha256),
      storeKey: file.path,
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
