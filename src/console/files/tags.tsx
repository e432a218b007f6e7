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
