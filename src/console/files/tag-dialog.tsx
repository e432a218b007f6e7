import { useState } from "preact/hooks";
import { open, TaskDialog } from "../framework/dialog.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf } from "../parts/format.ts";
import { hasWords, Marked } from "../parts/words.tsx";
import { tagFiles } from "./file-changes.ts";
import type { FileRow } from "./file-rows.ts";
import { useTags } from "./tags.tsx";

/** More choices than this are slower to scan than to type. */
const MAX_SUGGESTIONS = 30;

type Tagged = Pick<FileRow, "_id" | "name" | "folder" | "tags">;

export const editTags = (files: Tagged[]): Promise<void> =>
  open((close) => <TagDialog files={files} onClose={() => close()} />);

/** Adds and removes tags of files. Tags that only some of the files have stay as they are unless their box is clicked. */
function TagDialog({ files, onClose }: { files: Tagged[]; onClose: () => void }) {
  const own = new Set(files.flatMap(({ tags }) => tags));
  const others = useTags().filter((tag) => !own.has(tag));
  const [changes, setChanges] = useState<ReadonlyMap<string, boolean>>(new Map());
  const [text, setText] = useState("");
  /** The text that may become a tag: it follows the last comma. */
  const typing = text.replace(/.*,/s, "");
  const isMatch = (tag: string) => hasWords(tag, typing);
  // All stay in the list, so that the dialog keeps its height while the user types.
  const choices = [...own, ...others.filter(isMatch), ...others.filter((tag) => !isMatch(tag))];
  const shown = choices.filter((tag, place) => place < MAX_SUGGESTIONS || own.has(tag) || changes.has(tag));
  const countWith = (tag: string) => files.filter(({ tags }) => tags.includes(tag)).length;
  const choose = (tag: string, isChosen: boolean) => {
    setChanges(new Map([...changes, [tag, isChosen]]));
    // The user has found the tag, and does not want another one of the typed letters.
    if (isChosen && typing.trim() && isMatch(tag)) setText(text.slice(0, -typing.length));
  };
  const save = async (form: HTMLFormElement) => {
    const typed = textOf(form, "tags")
      .split(",")
      .map((tag) => tag.trim())
      .filter(Boolean);
    const chosen = (isAdded: boolean) => [...changes].filter(([, value]) => value === isAdded).map(([tag]) => tag);
    await tagFiles(files, [...new Set([...chosen(true), ...typed])], chosen(false));
    onClose();
  };
  return (
    <TaskDialog
      title={files.length === 1 ? `Tags of “${files[0]?.name}”` : `Tags of ${countOf(files.length, "file")}`}
      action="Save"
      onRun={save}
      onClose={onClose}
    >
      <TextField
        label="New tags"
        name="tags"
        spellcheck={false}
        hint="Separate tags with commas."
        value={text}
        onInput={({ currentTarget: { value } }) => setText(value)}
      />
      {shown.length > 0 && (
        <fieldset class="choices tag-choices">
          <legend>Tags</legend>
          {shown.map((tag) => {
            const isChecked = changes.get(tag) ?? countWith(tag) === files.length;
            return (
              <label key={tag}>
                <input
                  type="checkbox"
                  checked={isChecked}
                  indeterminate={!changes.has(tag) && !isChecked && countWith(tag) > 0}
                  onChange={({ currentTarget }) => choose(tag, currentTarget.checked)}
                />{" "}
                <bdi>
                  <Marked text={tag} search={typing} />
                </bdi>
              </label>
            );
          })}
        </fieldset>
      )}
      {shown.length < choices.length && <p class="quiet">Type to find the other tags.</p>}
    </TaskDialog>
  );
}
