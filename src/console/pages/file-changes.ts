import type { StoredFile, Stowage } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { countOf } from "../parts/format.ts";
import { client, noteFailure } from "../session.ts";

/* Changes of many files, which can be undone as long as nothing was deleted. */

/** The API accepts as many files in a request. */
export const MAX_BATCH_FILES = 100;

type Change = Parameters<Stowage["files"]["batch"]>[0];
/** An action with its parameters. */
type Action = Change extends infer C ? (C extends unknown ? Omit<C, "ids"> : never) : never;
type Changed = Pick<StoredFile, "_id" | "folder" | "tags">;

/** Applies an action to files, in as many requests as needed. @returns the ids of the files that it could not change */
async function changeFiles(action: Action, ids: string[]): Promise<Set<string>> {
  const failed = new Set<string>();
  for (let first = 0; first < ids.length; first += MAX_BATCH_FILES) {
    const batch = { ...action, ids: ids.slice(first, first + MAX_BATCH_FILES) } as Change;
    for (const { _id, ok } of await client.value.files.batch(batch)) if (!ok) failed.add(_id);
  }
  return failed;
}

/** Announces a change with a button that undoes it. */
function announceChange(text: string, failed: number, undo: () => Promise<unknown>): void {
  const caller = client.peek();
  const undoAndAnnounce = () =>
    undo().then(
      () => announce("Change undone"),
      (error) => {
        noteFailure(error, caller);
        announce("Couldn't undo the change");
      },
    );
  announce(failed > 0 ? `${text}. ${countOf(failed, "file")} couldn't be changed.` : text, undoAndAnnounce);
}

const idsOf = (files: Changed[]) => files.map(({ _id }) => _id);

export async function moveFiles(files: Changed[], folder: string): Promise<void> {
  const moved = files.filter((file) => file.folder !== folder);
  const failed = await changeFiles({ action: "move", folder }, idsOf(moved));
  const origins = new Map<string, string[]>();
  for (const { _id, folder: origin } of moved)
    if (!failed.has(_id)) origins.set(origin, [...(origins.get(origin) ?? []), _id]);
  const text = `Moved ${countOf(moved.length - failed.size, "file")} ${folder ? `to ${folder}` : "out of all folders"}`;
  announceChange(text, failed.size, async () => {
    for (const [origin, ids] of origins) await changeFiles({ action: "move", folder: origin }, ids);
  });
}

/** Adds and removes tags. Undo restores the tags of each file. */
export async function tagFiles(files: Changed[], added: string[], removed: string[]): Promise<void> {
  const changes = [
    ...added.map((tag) => ({ tag, action: "tag", opposite: "untag" }) as const),
    ...removed.map((tag) => ({ tag, action: "untag", opposite: "tag" }) as const),
  ].map((change) => ({
    ...change,
    files: files.filter(({ tags }) => tags.includes(change.tag) === (change.action === "untag")),
  }));
  const failed = new Set<string>();
  for (const { action, tag, files } of changes)
    for (const id of await changeFiles({ action, tags: [tag] }, idsOf(files))) failed.add(id);
  announceChange(`Updated the tags of ${countOf(files.length - failed.size, "file")}`, failed.size, async () => {
    for (const { opposite, tag, files } of changes) {
      const ids = idsOf(files).filter((id) => !failed.has(id));
      await changeFiles({ action: opposite, tags: [tag] }, ids);
    }
  });
}

/** Deletes at most `MAX_BATCH_FILES` files. Those that are already deleted count as deleted, too. */
export async function deleteFiles(ids: string[]): Promise<void> {
  const [only] = ids;
  if (ids.length === 1 && only) await client.value.files.delete(only);
  else await changeFiles({ action: "delete" }, ids);
}
