import { href } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useList } from "../framework/store.ts";
import { Marked } from "../parts/words.tsx";

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
  /** In a row of a list: shows the first ones, and counts the others. */
  inRow?: boolean;
  /** Words to mark. */
  search?: string;
  tabIndex?: number;
}

/** The most tags that a row shows. */
const SHOWN_IN_ROW = 2;

/** The tags of a file. Each leads to all files with it. */
export const Tags = ({ tags, inRow = false, search = "", tabIndex = 0 }: TagsProps) => (
  <ul class="tags" aria-label="Tags">
    {tags.slice(0, inRow ? SHOWN_IN_ROW : tags.length).map((tag) => (
      <li key={tag}>
        <a class="badge" href={href("/files", { tag })} title={tag} tabIndex={tabIndex}>
          <bdi>
            <Marked text={tag} search={search} />
          </bdi>
        </a>
      </li>
    ))}
    {inRow && tags.length > SHOWN_IN_ROW && (
      <li class="badge" title={tags.slice(SHOWN_IN_ROW).join(", ")}>
        +{tags.length - SHOWN_IN_ROW}
      </li>
    )}
  </ul>
);
