import type { StoredFile, Stowage } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { messageOf } from "../parts/failure.tsx";
import { countOf } from "../parts/format.ts";
import { client, noteFailure } from "../session.ts";

/* Changes of many files, which can be undone as long as nothing was deleted. */

/** The API accepts as many files in a request. */
export const MAX_BATCH_FILES = 100;
/** Browsers may ask before a page saves several files. More than this is a task for the API. */
export const MAX_DOWNLOADS = 20;

type Change = Parameters<Stowage["files"]["batch"]>[0];
/** An action with its parameters. */
type Action = Change extends infer C ? (C extends unknown ? Omit<C, "ids"> : never) : never;
type Changed = Pick<StoredFile, "_id" | "folder" | "tags">;

/**
 * Applies an action to files, in as many requests as needed, and calls `onDone` with the changed ids of each.
 * @returns the number of files that couldn't be changed
 */
async function changeFiles(action: Action, ids: string[], onDone: (ids: string[]) => void = () => {}): Promise<number> {
  let failed = 0;
  for (let first = 0; first < ids.length; first += MAX_BATCH_FILES) {
    const batch = { ...action, ids: ids.slice(first, first + MAX_BATCH_FILES) } as Change;
    const results = await client.value.files.batch(batch);
    const done = results.filter(({ ok }) => ok).map(({ _id }) => _id);
    failed += results.length - done.length;
    onDone(done);
  }
  return failed;
}

/** Announces a change with a button that undoes it. */
function announceChange(text: string, undo: () => Promise<unknown>): void {
  const caller = client.peek();
  const undoAndAnnounce = () =>
    undo().then(
      () => announce("Change undone"),
      (error) => {
        noteFailure(error, caller);
        announce(`Couldn't undo the change: ${messageOf(error)}`);
      },
    );
  announce(text, undoAndAnnounce);
}

const idsOf = (files: Changed[]) => files.map(({ _id }) => _id);
const notChanged = (failed: number) => (failed > 0 ? `. ${countOf(failed, "file")} couldn't be changed.` : "");

/** Moves files. What was moved before a failure can be undone, too. */
export async function moveFiles(files: Changed[], folder: string): Promise<void> {
  const moved = files.filter((file) => file.folder !== folder);
  const originOf = new Map(moved.map((file) => [file._id, file.folder]));
  const origins = new Map<string, string[]>();
  let [count, failed] = [0, 0];
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
    else if (failed > 0) announce(`Couldn't move ${countOf(failed, "file")}`);
  }
}

/** Adds and removes tags. Undo restores the tags of each file. */
export async function tagFiles(files: Changed[], added: string[], removed: string[]): Promise<void> {
  const changes = [
    ...added.map((tag) => ({ tag, action: "tag", opposite: "untag" }) as const),
    ...removed.map((tag) => ({ tag, action: "untag", opposite: "tag" }) as const),
  ].map((change) => ({
    ...change,
    files: files.filter(({ tags }) => tags.includes(change.tag) === (change.action === "untag")),
    done: [] as string[],
  }));
  let failed = 0;
  for (const { action, tag, files, done } of changes)
    failed = Math.max(failed, await changeFiles({ action, tags: [tag] }, idsOf(files), (ids) => done.push(...ids)));
  announceChange(`Updated the tags of ${countOf(files.length - failed, "file")}${notChanged(failed)}`, async () => {
    for (const { opposite, tag, done } of changes) await changeFiles({ action: opposite, tags: [tag] }, done);
  });
}

/** Deletes at most `MAX_BATCH_FILES` files. Those that are already deleted count as deleted, too. */
export async function deleteFiles(ids: string[]): Promise<void> {
  const [only] = ids;
  if (ids.length === 1 && only) await client.value.files.delete(only);
  else await changeFiles({ action: "delete" }, ids);
}

/** Saves files on the reader's device, one after the other. */
export async function downloadFiles(files: Pick<StoredFile, "_id" | "name">[]): Promise<void> {
  for (const { _id, name } of files.slice(0, MAX_DOWNLOADS)) {
    const link = document.createElement("a");
    link.href = await client.value.files.createSignedUrl(_id);
    // The file is stored as an attachment with its name. The attribute keeps this page open if it is not.
    link.download = name;
    link.click();
  }
}
