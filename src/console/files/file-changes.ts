import { MAX_BATCH_FILES } from "../../client/files.ts";
import type { BatchResult, StoredFile, Stowage } from "../../client/index.ts";
import { perform } from "../framework/action.tsx";
import { announce } from "../framework/announce.tsx";
import { href, lastUrl, navigate, path } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { whilePaused } from "../framework/store.ts";
import { countOf } from "../parts/format.ts";
import { pathOf } from "./file-rows.ts";
import { forgetSignedUrl } from "./signed-url.ts";

/* Changes of many files. Each announces its result, and all but an erasure and a restoration can be undone. */

/** Browsers may ask before a page saves several files. More than this is a task for the API. */
const MAX_DOWNLOADS = 20;

type Change = Parameters<Stowage["files"]["batch"]>[0];
/** An action with its parameters: `Omit` of each member of the union, because `Omit` of the union loses the parameters. */
type Action = Change extends infer C ? (C extends unknown ? Omit<C, "ids"> : never) : never;
/** A file before the change, to which undoing returns it. */
type Original = Pick<StoredFile, "_id" | "folder" | "tags">;

type OnDone = (ids: string[]) => unknown;

/**
 * Applies an action to files, in as many requests as needed, and calls `onDone` with the changed ids of each.
 * @returns the ids of the files that couldn't be changed
 */
async function changeFiles(action: Action, ids: string[], onDone: OnDone = () => {}): Promise<string[]> {
  const failed: string[] = [];
  for (let first = 0; first < ids.length; first += MAX_BATCH_FILES) {
    const batch = { ...action, ids: ids.slice(first, first + MAX_BATCH_FILES) } as Change;
    const results = await client.value.files.batch(batch);
    // A file that is gone is as good as deleted.
    const isDone = ({ ok, code }: BatchResult) => ok || (action.action === "delete" && code === "not_found");
    failed.push(...results.filter((result) => !isDone(result)).map(({ _id }) => _id));
    const done = results.filter(isDone).map(({ _id }) => _id);
    if (done.length > 0) onDone(done);
  }
  return failed;
}

/** Announces a change with a button that undoes it. */
export const announceChange = (text: string, undo: () => Promise<unknown>): void =>
  announce(text, {
    label: "Undo",
    run: () =>
      void perform({
        run: async () => {
          await undo();
          announce("Change undone");
        },
      }),
  });

const idsOf = (files: Pick<StoredFile, "_id">[]) => files.map(({ _id }) => _id);
const notChanged = ({ length }: string[]) => (length > 0 ? `. ${countOf(length, "file")} couldn't be changed.` : "");

/** Moves files. What was moved before a failure can be undone, too. */
export async function moveFiles(files: Original[], folder: string): Promise<void> {
  const moved = files.filter((file) => file.folder !== folder);
  const originOf = new Map(moved.map((file) => [file._id, file.folder]));
  const origins = new Map<string, string[]>();
  let count = 0;
  let failed: string[] = [];
  try {
    failed = await changeFiles({ action: "move", folder }, idsOf(moved), (ids) => {
      count += ids.length;
      for (const id of ids) {
        const origin = originOf.get(id) ?? "";
        origins.set(origin, [...(origins.get(origin) ?? []), id]);
      }
    });
  } finally {
    const text = `Moved ${countOf(count, "file")} ${folder ? `to ${folder}` : "out of all folders"}`;
    const undo = async () => {
      for (const [origin, ids] of origins) await changeFiles({ action: "move", folder: origin }, ids);
    };
    if (count > 0) announceChange(text + notChanged(failed), undo);
    else if (failed.length > 0) announce(`Couldn't move ${countOf(failed.length, "file")}`);
  }
}

/** Adds and removes tags. Undo restores the tags of each file, also of those that were changed before a failure. */
export async function tagFiles(files: Original[], added: string[], removed: string[]): Promise<void> {
  const changes = [
    ...added.map((tag) => ({ tag, action: "tag", opposite: "untag" }) as const),
    ...removed.map((tag) => ({ tag, action: "untag", opposite: "tag" }) as const),
  ].map((change) => ({
    ...change,
    files: files.filter(({ tags }) => tags.includes(change.tag) === (change.action === "untag")),
    done: [] as string[],
  }));
  // A file may change, or fail, with several tags.
  const changed = new Set<string>();
  const failed = new Set<string>();
  try {
    for (const { action, tag, files, done } of changes) {
      const kept = await changeFiles({ action, tags: [tag] }, idsOf(files), (ids) => {
        done.push(...ids);
        for (const id of ids) changed.add(id);
      });
      for (const id of kept) failed.add(id);
    }
  } finally {
    const text = `Updated the tags of ${countOf(changed.size, "file")}${notChanged([...failed])}`;
    const undo = async () => {
      for (const { opposite, tag, done } of changes) await changeFiles({ action: opposite, tags: [tag] }, done);
    };
    if (changed.size > 0) announceChange(text, undo);
    else if (failed.size > 0) announce(`Couldn't change the tags of ${countOf(failed.size, "file")}`);
  }
}

/**
 * Deletes files, or erases those in the trash, and leaves the page of one. Files that are already gone count as deleted.
 * @returns the ids of the held ones, which stay
 */
export const deleteFiles = (
  ids: string[],
  { permanent = false, onDone = (_: string[]): unknown => undefined } = {},
): Promise<string[]> =>
  whilePaused(ids, () =>
    changeFiles({ action: "delete", permanent }, ids, (done) => {
      onDone(done);
      forgetSignedUrl(done);
      if (!done.some((id) => path.peek() === `/files/${id}`)) return;
      navigate(lastUrl("/files"), { isGone: true });
    }),
  );

/** The result of a deletion: "Deleted 2 files. 1 held file can't be deleted". */
export function describeDeletion(text: string, deleted: number, held: number): string {
  const refusal = `${countOf(held, "held file")} can't be deleted`;
  return held === 0 ? text : deleted === 0 ? refusal : `${text}. ${refusal}`;
}

/** Moves files to the trash. What was moved before a failure can be undone, too. */
export async function trashFiles(files: Pick<StoredFile, "_id">[]): Promise<void> {
  const trashed: string[] = [];
  let held: string[] = [];
  try {
    held = await deleteFiles(idsOf(files), { onDone: (done) => trashed.push(...done) });
  } finally {
    const { length } = trashed;
    const text = describeDeletion(`Moved ${countOf(length, "file")} to the trash`, length, held.length);
    if (length > 0) announceChange(text, () => changeFiles({ action: "restore" }, trashed));
    else if (held.length > 0) announce(text);
  }
}

/** The page of a file, or the list that has several: their folder, or the one above it that they share. */
function placeOf(files: Pick<StoredFile, "_id" | "folder">[]): string {
  const [first, ...others] = files;
  if (first && others.length === 0) return href(`/files/${first._id}`);
  const isShared = ({ path }: { path: string }) => others.every(({ folder }) => `${folder}/`.startsWith(`${path}/`));
  return href("/files", { folder: pathOf(first?.folder ?? "").findLast(isShared)?.path });
}

/** Restores files from the trash, and leads to their place. */
export async function restoreFiles(files: Pick<StoredFile, "_id" | "folder">[]): Promise<void> {
  const failed = await changeFiles({ action: "restore" }, idsOf(files));
  const restored = files.filter(({ _id }) => !failed.includes(_id));
  const text = `Restored ${countOf(restored.length, "file")}${notChanged(failed)}`;
  announce(text, restored.length > 0 ? { label: "Show", run: () => navigate(placeOf(restored)) } : undefined);
}

/** Saves files on the reader's device, one after the other. */
export async function downloadFiles(files: Pick<StoredFile, "_id">[]): Promise<void> {
  if (files.length > MAX_DOWNLOADS) return announce(`Select at most ${MAX_DOWNLOADS} files to download them at once.`);
  // Their downloads have begun by now.
  for (const frame of document.querySelectorAll("[data-download]")) frame.remove();
  for (const { _id } of files) {
    // The file is sent as an attachment with its name. Each has a frame: in the window itself, the navigation to one would
    // cancel that to another, and a running upload would ask whether to leave the page.
    const frame = document.createElement("iframe");
    frame.hidden = true;
    frame.src = await client.value.files.createSignedUrl(_id);
    frame.dataset.download = "";
    document.body.append(frame);
  }
}
