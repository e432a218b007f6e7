import { useState } from "preact/hooks";
import { open, TaskDialog } from "../framework/dialog.tsx";
import { href } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useList } from "../framework/store.ts";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf } from "../parts/format.ts";
import { hasWords, Marked } from "../parts/words.tsx";
import { tagFiles } from "./file-changes.ts";
import type { FileRow } from "./file-rows.ts";

/** More choices than this are slower to scan than to type. */
const MAX_SUGGESTIONS = 30;
/** The pages of tags that are loaded, a request each. */
const MAX_TAG_PAGES = 10;

/** The tags of the team's files, or of the own files of a contributor, by name. */
export function useTags(): string[] {
  const { items = [] } = useList(["tags"], (signal) => client.value.files.tags({}, { signal }), {
    of: ["file"],
    pages: MAX_TAG_PAGES,
  });
  return items.map(({ tag }) => tag);
}

interface TagsProps {
  tags: string[];
  /** In a row of a list: shows the first ones, fewer of them if the list is narrow, and counts the others. */
  inRow?: boolean;
  /** Words to mark. */
  search?: string;
  tabIndex?: number;
}

/** How many tags a row has room for. Styles choose by the width of the list. */
const SHOWN_IN_ROW = { wide: 2, narrow: 1 };

/** The tags of a file. Each leads to all files with it. */
export const Tags = ({ tags, inRow = false, search = "", tabIndex = 0 }: TagsProps) => (
  <ul class="tags" aria-label="Tags">
    {tags.slice(0, inRow ? SHOWN_IN_ROW.wide : tags.length).map((tag, place) => (
      <li key={tag} data-width={inRow && place >= SHOWN_IN_ROW.narrow ? "wide" : undefined}>
        <a class="badge" href={href("/files", { tag })} title={tag} tabIndex={tabIndex}>
          <bdi>
            <Marked text={tag} search={search} />
          </bdi>
        </a>
      </li>
    ))}
    {inRow &&
      Object.entries(SHOWN_IN_ROW).map(
        ([width, count]) =>
          tags.length > count && (
            <li key={width} class="badge" data-width={width} title={tags.slice(count).join(", ")}>
              +{tags.length - count}
            </li>
          ),
      )}
  </ul>
);

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
