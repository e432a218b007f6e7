import { createHash } from "node:crypto";
import { and, eq, lt, notExists, or, sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { NoMemory, type StoredBytes } from "../platform/byte-store.ts";
import { insertWhere, retrying, runBatch, type Slot, statement } from "../platform/db.ts";
import { MAX_OVERHEAD_BYTES, readMultipartFile } from "../platform/multipart.ts";
import { files, teamUsage } from "../platform/schema.ts";
import { newId } from "../platform/system.ts";
import type { TeamActor } from "./actor.ts";
import { detectMediaType, type FileType, type MediaType, servedContentType } from "./audio/media-type.ts";
import {
  announce,
  DELETING_MILLISECONDS,
  objectKey,
  PENDING_MILLISECONDS,
  RECEIVING_MILLISECONDS,
  removeRows,
} from "./files.ts";

/*
 * The upload protocol. Two stores are written, D1 and R2, and no transaction spans them; so the order carries it:
 *
 *   1. intent   the row, as `receiving`: hidden, with its id, R2 key, quota and idempotency key
 *   2. bytes    stream to R2; SHA-256, size and type are taken on the way
 *   3. commit   one update to `pending`: the point of no return, from here on the upload has happened
 *   4. message  if it can't be sent, recovery sends it
 *
 * The row comes before the bytes, so no object is ever without a row and nobody has to search the bucket. Whatever
 * fails before the commit is undone at once: the row is hidden for good, then the bytes go, then the row. What the
 * undoing can't reach (the Worker died, D1 is away) recovery does after 24 hours. A commit whose answer was lost is
 * asked again: it says whether it holds, not whether it was the one to do it.
 *
 * A row under `deleting` at the commit was deleted while its bytes arrived; it is undone like any other failure.
 */

/** Names on the way in are at most 200 bytes of UTF-8: with two ids before them, far below R2's 1,024 for a key. */
const NAME_BYTES = 200;
const IDEMPOTENCY_MILLISECONDS = 24 * 60 * 60 * 1000;
/** A first upload that is still not there by then is given up for the one that repeats it: its Worker may have died. */
const TAKEOVER_MILLISECONDS = 10 * 60 * 1000;
/** How often, once a second, a repeated upload looks whether the first has ended. */
const REPLAY_LOOKS = 10;

export interface Upload {
  body: ReadableStream<Uint8Array> | null;
  contentType: string;
  /** As the client states it; null where it does not. */
  contentLength: number | null;
  idempotencyKey?: string | undefined;
}

/** The base name, whatever its script, without control and text-direction characters, cut to 200 bytes, extension kept. */
export function cleanName(name: string): string {
  const base = name.slice(Math.max(name.lastIndexOf("/"), name.lastIndexOf("\\")) + 1);
  const clean = base.replace(/[\p{Cc}\u061c\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]/gu, "").trim();
  const kept = Buffer.byteLength(clean) <= NAME_BYTES ? clean : shorten(clean);
  return kept === "" || /^\.+$/.test(kept) ? "unnamed" : kept;
}

/** Cuts a name between characters as people see them. */
function shorten(name: string): string {
  const dot = name.lastIndexOf(".");
  const extension = dot > 0 && Buffer.byteLength(name.slice(dot)) <= 32 ? name.slice(dot) : "";
  let room = NAME_BYTES - Buffer.byteLength(extension);
  let stem = "";
  for (const { segment } of new Intl.Segmenter().segment(name.slice(0, name.length - extension.length))) {
    room -= Buffer.byteLength(segment);
    if (room < 0) break;
    stem += segment;
  }
  // A first character that alone is too long (letters take any number of marks) goes without its marks.
  if (stem === "") stem = [...name][0] ?? "";
  return stem + extension;
}

/**
 * Takes one upload from its first byte to its message.
 *
 * @returns the id of the file; that of the first answer where the idempotency key was used before for the same bytes
 * @throws what `readMultipartFile` throws, `file_too_large`, `quota_exceeded`, `idempotency_conflict`, `unavailable`,
 *   and `not_found` where the file was deleted before its last byte came
 */
export async function receiveFile(deps: Deps, actor: TeamActor, upload: Upload): Promise<{ id: string }> {
  const { maxUploadBytes } = deps.settings;
  if ((upload.contentLength ?? 0) > maxUploadBytes + MAX_OVERHEAD_BYTES) {
    throw new AppError("file_too_large", { message: `A file may have ${maxUploadBytes} bytes at most.` });
  }
  const received = receive(deps, actor, upload);
  // A client that goes away must not take the undoing with it.
  deps.after(received.catch(() => undefined));
  return received;
}

async function receive(deps: Deps, actor: TeamActor, upload: Upload): Promise<{ id: string }> {
  const { settings, system } = deps;
  const { contentLength } = upload;
  const limits = { maxFileBytes: settings.maxUploadBytes, idleMilliseconds: settings.uploadIdleMilliseconds };
  const reservedBytes = Math.min(contentLength ?? settings.maxUploadBytes, settings.maxUploadBytes);
  // The form around the file counts too, and seldom takes so much.
  const leastBytes = contentLength === null ? null : contentLength - MAX_OVERHEAD_BYTES;
  // The bytes end only where the whole form was right, so all of the protocol has its place in the reader's callback.
  return readMultipartFile(upload.body, upload.contentType, limits, async (name, bytes) => {
    const intent: Intent = { id: newId(system), teamId: actor.teamId, originalName: cleanName(name) };
    let isOurs = true;
    try {
      const outcome = await recordIntent(deps, intent, reservedBytes, upload.idempotencyKey);
      isOurs = outcome === "recorded";
      if (outcome === "no room") throw new AppError("quota_exceeded");
      if (outcome !== "recorded") return await settleReplay(deps, outcome, await hashOf(bytes));
      const [stored, format] = await storeBytes(deps, intent, bytes, leastBytes);
      await commit(deps, intent, stored, format);
    } catch (error) {
      if (isOurs) await undo(deps, intent, error);
      throw error;
    }
    await announce(deps, intent.id);
    return { id: intent.id };
  });
}

async function storeBytes(
  deps: Deps,
  intent: Intent,
  bytes: AsyncIterable<Uint8Array>,
  leastBytes: number | null,
): Promise<[StoredBytes, MediaType]> {
  let format: MediaType | undefined;
  const stored = await deps.bytes.put(objectKey(intent), bytes, leastBytes, async (head) => {
    format = await detectMediaType(head);
    return { contentType: servedContentType(format.mediaType), contentDisposition: attachment(intent.originalName) };
  });
  return [stored, format ?? (await detectMediaType(new Uint8Array()))];
}

interface Intent {
  id: string;
  teamId: string;
  originalName: string;
}
interface Earlier {
  id: string;
}

/** RFC 6266: a name in ASCII for old clients, and the real one in UTF-8. Never inline: no file is a page of ours. */
function attachment(name: string): string {
  const plain = name.replace(/[^\x20-\x7e]|["\\%]/g, "_");
  const encoded = encodeURIComponent(name).replace(/['()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
  return `attachment; filename="${plain}"; filename*=UTF-8''${encoded}`;
}

type IntentValues = Intent & {
  reservedBytes: number;
  idempotencyKey: string | null;
  dueAt: number;
  now: number;
  maxTeamFiles: number;
  maxTeamBytes: number;
};

/** The same statement decides whether there is room, and reserves it: a race overdraws nothing. */
const insertIntent = statement((db, slot: Slot<IntentValues>) => {
  const row = {
    id: slot("id"),
    teamId: slot("teamId"),
    originalName: slot("originalName"),
    status: "receiving" as const,
    reservedBytes: slot("reservedBytes"),
    idempotencyKey: slot("idempotencyKey"),
    dueAt: slot("dueAt"),
    createdAt: slot("now"),
    updatedAt: slot("now"),
  };
  const full = db
    .select({ one: sql`1` })
    .from(teamUsage)
    .where(
      and(
        eq(teamUsage.teamId, slot("teamId")),
        or(
          sql`${teamUsage.files} + 1 > ${slot("maxTeamFiles")}`,
          sql`${teamUsage.bytes} + ${slot("reservedBytes")} > ${slot("maxTeamBytes")}`,
        ),
      ),
    );
  return insertWhere(db, files, row, sql`${slot("reservedBytes")} <= ${slot("maxTeamBytes")} and ${notExists(full)}`);
});

const stateOf = statement((db, slot: Slot<{ id: string }>) =>
  db
    .select({ status: files.status, sha256: files.sha256 })
    .from(files)
    .where(eq(files.id, slot("id"))),
);

type RepeatValues = {
  teamId: string;
  idempotencyKey: string;
  /** Uploads from before then have lost their key. */
  expired: number;
  /** And so have those from before then that are still not there. */
  abandoned: number;
};
const hasSameKey = (slot: Slot<RepeatValues>) =>
  and(eq(files.teamId, slot("teamId")), eq(files.idempotencyKey, slot("idempotencyKey")));

const freeOldKey = statement((db, slot: Slot<RepeatValues>) =>
  db
    .update(files)
    .set({ idempotencyKey: null, status: sql`case status when 'receiving' then 'deleting' else status end` })
    .where(
      and(
        hasSameKey(slot),
        or(
          lt(files.createdAt, slot("expired")),
          and(eq(files.status, "receiving"), lt(files.createdAt, slot("abandoned"))),
        ),
      ),
    ),
);

const withSameKey = statement((db, slot: Slot<RepeatValues>) =>
  db.select({ id: files.id }).from(files).where(hasSameKey(slot)),
);

/** Inserts the row, if the team has room for it. Where the idempotency key is taken, the answer is the earlier upload. */
async function recordIntent(
  deps: Deps,
  intent: Intent,
  reservedBytes: number,
  idempotencyKey: string | undefined,
): Promise<"recorded" | "no room" | Earlier> {
  const { maxTeamFiles, maxTeamBytes } = deps.settings;
  const now = deps.system.now();
  const insert = insertIntent({
    ...intent,
    reservedBytes,
    idempotencyKey: idempotencyKey ?? null,
    dueAt: now + RECEIVING_MILLISECONDS,
    now,
    maxTeamFiles,
    maxTeamBytes,
  });
  if (idempotencyKey === undefined) {
    const [, own] = await runBatch(deps, [insert, stateOf(intent)]);
    return own.length > 0 ? "recorded" : "no room";
  }
  const repeat: RepeatValues = {
    teamId: intent.teamId,
    idempotencyKey,
    expired: now - IDEMPOTENCY_MILLISECONDS,
    abandoned: now - TAKEOVER_MILLISECONDS,
  };
  const [, , own, [earlier]] = await runBatch(deps, [freeOldKey(repeat), insert, stateOf(intent), withSameKey(repeat)]);
  return own.length > 0 ? "recorded" : (earlier ?? "no room");
}

/** A repeated upload is read to its end, to tell whether it is the same, and stored nowhere. */
async function hashOf(bytes: AsyncIterable<Uint8Array>): Promise<string> {
  const digest = createHash("sha256");
  for await (const chunk of bytes) digest.update(chunk);
  return digest.digest("hex");
}

/** Waits a little for the first upload to end, if both came at once, and gives its answer. */
async function settleReplay(deps: Deps, { id }: Earlier, sha256: string): Promise<{ id: string }> {
  for (let looks = 0; ; looks++) {
    const [[row]] = await runBatch(deps, [stateOf({ id })]);
    if (!row || row.status === "deleting") throw new AppError("unavailable", { retryAfterSeconds: 1 });
    if (row.status !== "receiving") {
      if (row.sha256 !== sha256) throw new AppError("idempotency_conflict");
      return { id };
    }
    if (looks === REPLAY_LOOKS) {
      const message = "The first upload with this Idempotency-Key is still under way.";
      throw new AppError("idempotency_conflict", { message, retryAfterSeconds: 10 });
    }
    await deps.system.sleep(1000);
  }
}

type CommitValues = StoredBytes & { id: string; mimeType: string; fileType: FileType; dueAt: number; now: number };

const commitIntent = statement((db, slot: Slot<CommitValues>) => {
  // `set` takes SQL, but no placeholder.
  const given = (name: keyof CommitValues) => sql`${slot(name)}`;
  return db
    .update(files)
    .set({
      status: "pending",
      sizeBytes: given("sizeBytes"),
      sha256: given("sha256"),
      etag: given("etag"),
      mimeType: given("mimeType"),
      fileType: given("fileType"),
      reservedBytes: given("sizeBytes"),
      dueAt: given("dueAt"),
      updatedAt: given("now"),
      version: sql`${files.version} + 1`,
    })
    .where(and(eq(files.id, slot("id")), eq(files.status, "receiving")));
});

/** The point of no return. Asks in the same batch whether it holds, so it may be repeated when an answer was lost. */
async function commit(
  deps: Deps,
  { id }: Intent,
  stored: StoredBytes,
  { mediaType, fileType }: MediaType,
): Promise<void> {
  const now = deps.system.now();
  const dueAt = now + PENDING_MILLISECONDS;
  const committed = commitIntent({ id, ...stored, mimeType: mediaType, fileType, dueAt, now });
  const [, [row]] = await runBatch(deps, [committed, stateOf({ id })]);
  if (!row || row.status === "receiving" || row.status === "deleting") {
    throw new AppError("not_found", { message: "The file was deleted before its upload ended." });
  }
}

/**
 * Hides the row first: after a commit whose answer was lost the file may be listed, and must not be without bytes.
 * Where a store failed, a write may still be under way in it; the row then stays, for recovery to clear away both again.
 */
async function undo(deps: Deps, intent: Intent, failure: unknown): Promise<void> {
  const { db, system } = deps;
  const hasStoreFailed =
    failure instanceof AppError && failure.code === "unavailable" && !(failure instanceof NoMemory);
  try {
    await retrying(system, () =>
      db
        .update(files)
        .set({ status: "deleting", idempotencyKey: null, dueAt: system.now() + DELETING_MILLISECONDS })
        .where(eq(files.id, intent.id)),
    );
    await deps.bytes.remove([objectKey(intent)]);
    if (!hasStoreFailed) await removeRows(deps, [intent.id]);
  } catch (cause) {
    deps.log("warn", "upload left to recovery", { fileId: intent.id, teamId: intent.teamId, cause });
  }
}
