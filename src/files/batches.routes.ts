import * as z from "zod";
import { countFiles, FILES_PER_PLACE } from "../access/authorization.ts";
import { writeOperation } from "../http/operation.ts";
import { lazy } from "../lazy.ts";
import { changeFiles, MAX_BATCH_FILES } from "./batches.ts";
import { fileRecord, filesTag } from "./files.routes.ts";
import { folder, someTags } from "./properties.routes.ts";

const ids = lazy(() =>
  z
    .array(z.string())
    .min(1, "Must have at least one ID.")
    .max(MAX_BATCH_FILES, `Must have at most ${MAX_BATCH_FILES} IDs.`)
    .refine((all) => new Set(all).size === all.length, "Must not repeat an ID.")
    .meta({ uniqueItems: true }),
);

const ITEM_CODES = ["not_found", "too_many_tags", "file_held", "not_in_trash"] as const;

const batch = writeOperation(
  "files:write",
  {
    route: "POST /docs/v1/uploads/batch",
    tag: filesTag,
    summary: "Change many files",
    sample: 'const results = await stowage.files.batch({ action: "move", ids, folder: "podcast/2026" });',
    description:
      "Deletes, restores, tags, untags, moves or reprocesses files. A deletion or restoration also needs `files:delete`, and what erases files `files:erase`; " +
      "with `permanent`, a deletion erases the files, also those in the trash. " +
      `Repeating a batch changes nothing more. It takes a place of the heavy limit for each ${FILES_PER_PLACE} files.`,
    isHeavy: true,
    body: () =>
      z.discriminatedUnion("action", [
        z.strictObject({ action: z.enum(["restore", "reprocess"]), ids: ids() }),
        z.strictObject({ action: z.literal("delete"), ids: ids(), permanent: z.boolean().optional() }),
        z.strictObject({ action: z.enum(["tag", "untag"]), ids: ids(), tags: someTags() }),
        z.strictObject({ action: z.literal("move"), ids: ids(), folder: folder() }),
      ]),
    bodyExample: { action: "move", ids: [fileRecord.example._id], folder: "podcast/2026" },
    success: {
      description: "A result for each ID, in their order.",
      message: (results) => `Files changed: ${results.filter(({ ok }) => ok).length} of ${results.length}.`,
      schema: () =>
        z.array(
          z.strictObject({
            _id: z.string(),
            ok: z.boolean(),
            code: z.enum(ITEM_CODES).optional(),
            isTrashed: z.literal(true).optional().meta({ description: "A deletion moved the file to the trash." }),
          }),
        ),
      example: [{ _id: fileRecord.example._id, ok: true }],
    },
  },
  async ({ deps, actor, credential, body: { ids: given, ...action } }) => {
    await countFiles(deps, credential, given.length);
    const results = await changeFiles(deps, actor, given, action);
    return results.map(({ id, code, isTrashed }) => ({
      _id: id,
      ok: code === null,
      ...(code && { code }),
      ...(isTrashed && { isTrashed }),
    }));
  },
);

export const operations = {
  changeFiles: batch,
};
