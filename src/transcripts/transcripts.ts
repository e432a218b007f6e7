import type { Credential, TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { type BesideObject, fetchObject } from "../files/beside.ts";
import { deleteObject, writeObject } from "../files/beside-writes.ts";
import type { ReadTranscript } from "./reading.ts";

/* A transcript is a WebVTT text beside the bytes of its file. It counts against the quota of the team. */

export const KIND = "transcript";

/** An hour of speech has about 100 KB. */
export const MAX_TRANSCRIPT_BYTES = 2 * 1024 * 1024;

/** Streams the text; null if there is no object. */
export const openText = (deps: Deps, key: string): Promise<ReadableStream<Uint8Array> | null> =>
  deps.bytes.open(key, 0, MAX_TRANSCRIPT_BYTES);

/** @throws `not_found`, also if the file has no transcript */
export async function fetchTranscript(deps: Deps, credential: Credential<"files:read">, id: string) {
  const { key, language } = await fetchObject(deps, credential, id, KIND);
  const text = await openText(deps, key);
  if (!text) throw new AppError("not_found");
  return { language, text };
}

/**
 * Stores a transcript in place of the one before.
 * @throws `not_found`, `quota_exceeded`
 */
export async function setTranscript(
  deps: Deps,
  actor: TeamActor,
  id: string,
  { bytes, cues, skippedCues, language }: ReadTranscript & { language: string | null },
): Promise<Omit<BesideObject, "version">> {
  const reservedBytes = bytes.length;
  const object = { kind: KIND, bytes, reservedBytes, language, cues, skippedCues } as const;
  const updatedAt = await writeObject(deps, { ...actor, id }, object, { actor, replaces: "all" });
  if (typeof updatedAt !== "number") throw new AppError("not_found");
  return { language, reservedBytes, cues, skippedCues, updatedAt };
}

/** @throws `not_found`, also if there is none */
export const deleteTranscript = (deps: Deps, actor: TeamActor, id: string): Promise<void> =>
  deleteObject(deps, actor, id, KIND);
