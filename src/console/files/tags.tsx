import { signal } from "@preact/signals";
import { useState } from "preact/hooks";
import { open, TaskDialog } from "../parts/dialog.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { countOf } from "../parts/format.ts";
import { Marked } from "../parts/words.tsx";
import { href } from "../router.ts";
import { tagFiles } from "./file-changes.ts";
import type { FileRow } from "./file-rows.ts";

/** More choices than this are slower to scan than to type. */
const MAX_SUGGESTIONS = 30;
/** Tags of the files that this tab has shown, which the API does not list. */
const knownTags = signal<ReadonlySet<string>>(new Set());

export function rememberTags(files: Pick<FileRow, "tags">[]): void {
  const found = files.flatMap(({ tags }) => tags).filter((tag) => !knownTags.peek().has(tag));
  if (found.length > 0) knownTags.value = new Set([...found, ...knownTags.peek()]);
}

/** The tags that this tab has seen, with the one of the URL, by name. */
export const tagChoices = (chosen: string): Record<string, string> =>
  Object.fromEntries(
    [...new Set([chosen, ...knownTags.value])]
      .filter(Boolean)
      .sort()
      .map((tag) => [tag, tag]),
  );

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
  const [choices] = useState(() => [...own, ...[...knownTags.peek()].filter((tag) => !own.has(tag))]);
  const [changes, setChanges] = useState<ReadonlyMap<string, boolean>>(new Map());
  const countWith = (tag: string) => files.filter(({ tags }) => tags.includes(tag)).length;
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
      {choices.length > 0 && (
        <fieldset class="choices">
          <legend>Tags</legend>
          {choices.slice(0, Math.max(MAX_SUGGESTIONS, own.size)).map((tag) => {
            const isChecked = changes.get(tag) ?? countWith(tag) === files.length;
            return (
              <label key={tag}>
                <input
                  type="checkbox"
                  checked={isChecked}
                  indeterminate={!changes.has(tag) && !isChecked && countWith(tag) > 0}
                  onChange={({ currentTarget }) => setChanges(new Map([...changes, [tag, currentTarget.checked]]))}
                />{" "}
                <bdi>{tag}</bdi>
              </label>
            );
          })}
        </fieldset>
      )}
      <TextField label="New tags" name="tags" spellcheck={false} hint="Separate tags with commas." />
    </TaskDialog>
  );
}
