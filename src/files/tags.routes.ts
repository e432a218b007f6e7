import * as z from "zod";
import { listOperation } from "../http/operation.ts";
import { cursorOf, MAX_LIMIT, nameFilter, pageLimit } from "../http/validation.ts";
import { filesTag } from "./files.routes.ts";
import { MAX_TAG_LENGTH } from "./properties.ts";
import { listTags } from "./tags.ts";

const list = listOperation(
  "files:read",
  {
    route: "GET /docs/v1/tags",
    tag: filesTag,
    summary: "List tags",
    sample: 'for await (const { tag } of stowage.files.tags({ prefix: "inter" })) console.log(tag);',
    description:
      "The tags of files, in the order of names. A contributor gets those of the own files. A tag exists as long as a file outside the trash has it.",
    query: () =>
      z.object({
        limit: pageLimit().meta({ description: `Page size. Default and maximum ${MAX_LIMIT}.` }),
        cursor: cursorOf("tags"),
        prefix: nameFilter(MAX_TAG_LENGTH)
          .optional()
          .meta({ description: "A prefix of the tag, in any case and without accents." }),
      }),
    success: {
      description: "A page of tags.",
      noun: "Tags",
      schema: () => z.strictObject({ tag: z.string() }).meta({ id: "Tag" }),
      example: { tag: "interview" },
    },
  },
  ({ deps, credential, query: { prefix = "", limit = MAX_LIMIT, cursor } }) =>
    listTags(deps, credential, { prefix }, { limit, cursor }),
  (tag) => ({ tag }),
);

export const operations = {
  listTags: list,
};
