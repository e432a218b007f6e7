import { randomUUID } from "node:crypto";
import { basename, relative } from "node:path";
import { type Stowage, StowageError } from "../stowage.ts";
import { Failure } from "./failures.ts";
import type { Journal } from "./journal.ts";
import { type LocalFile, openFile } from "./local-files.ts";
import type { Progress } from "./progress.ts";
import { isAltered, isForbidden, type Verifier } from "./verifier.ts";

export interface Sent {
  id: string;
  sha256: string | null;
  isSkipped: boolean;
}

/** What a run of uploads has in common. */
export interface Run {
  stowage: Stowage;
  journal: Journal;
  progress: Progress;
  verifier: Verifier;
  signal: AbortSignal;
}

const isNotFound = (error: unknown) => error instanceof StowageError && error.code === "not_found";

/** What the service has of an upload that has ended; undefined where it has to be sent again. */
async function earlier({ stowage, journal, signal }: Run, file: LocalFile): Promise<Sent | undefined> {
  const { id, sha256 = null } = journal.find(file);
  if (id === undefined) return undefined;
  const sent = { id, sha256, isSkipped: true };
  try {
    const stored = await stowage.files.get(id, { signal });
    const isGood = !isAltered(stored) && (stored.sha256 === null || stored.sha256 === sha256);
    return isGood ? sent : undefined;
  } catch (error) {
    if (isNotFound(error)) return undefined;
    if (isForbidden(error)) return sent;
    throw error;
  }
}

/** Sends a file, from where an earlier run left it, unless that has sent it. */
export async function sendFile(run: Run, file: LocalFile): Promise<Sent> {
  const { stowage, journal, progress, signal } = run;
  if (file.size === 0) throw new Failure("failed", `${file.path}: the file is empty, and can't be uploaded.`);
  journal.refresh();
  const known = journal.find(file).id;
  const done = await earlier(run, file);
  if (done) {
    progress.skip(file.size);
    return done;
  }
  const { blob, digest } = await openFile(file);
  journal.refresh();
  // Another run has sent it meanwhile.
  if (journal.find(file).id !== known) return sendFile(run, file);
  if (journal.find(file).address === undefined) {
    journal.note(file, { idempotencyKey: journal.find(file).idempotencyKey ?? randomUUID() });
  }
  // As it is noted: another run may have been the first, and the two then store one file.
  const { address, idempotencyKey } = journal.find(file);
  const bar = progress.begin(relative(process.cwd(), file.path), file.size);
  let isDone = false;
  let isFirst = address !== undefined;
  const onProgress = (sentBytes: number) => {
    if (isFirst) bar.resumeAt(sentBytes);
    else bar.advance(sentBytes);
    isFirst = false;
  };
  try {
    const sending = stowage.files.upload(blob, {
      name: basename(file.path),
      ...(idempotencyKey !== undefined && { idempotencyKey }),
      resumeFrom: address,
      onResumable: (address) => journal.note(file, { address }),
      onProgress,
      signal,
    });
    const [{ id }, sha256] = await Promise.all([sending, digest(signal)]);
    journal.note(file, { id, sha256 });
    isDone = true;
    return { id, sha256, isSkipped: false };
  } finally {
    bar.end(isDone);
  }
}

/** Compares what the service stored with what was read here. @throws `altered` */
export async function checkSent({ verifier }: Run, file: LocalFile, { id, sha256 }: Sent): Promise<void> {
  const stored = await verifier.digestOf(id);
  if (stored === null || stored === sha256) return;
  throw new Failure("altered", `${file.path}: what is stored as ${id} has another SHA-256.`);
}
