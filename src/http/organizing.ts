import * as z from "zod";
import { requireScopes } from "../domain/accounts/write-authorization.ts";
import { FILE_TYPES } from "../domain/audio/media-type.ts";
import { changeFiles, MAX_BATCH_FILES, REPROCESSED_FILES_PER_CALL } from "../domain/files/batches.ts";
import { LISTED_STATES } from "../domain/files/files.ts";
import { listFolders } from "../domain/files/folders.ts";
import { FILE_ORDERS } from "../domain/files/list-indexes.ts";
import { listFiles, MAX_FILTERED_NUMBERED_ROWS, SEARCHED_NAMES } from "../domain/files/lists.ts";
import { updateFile } from "../domain/files/properties.ts";
import { SCANNED_ROWS } from "../domain/paging.ts";
import { countExpensiveCall, countRequests, countSearch } from "./authentication.ts";
import { exampleFile, fileSchema, renderFile } from "./files.ts";
import { listOperation, writeOperation } from "./operation.ts";
import { folder, properties, propertiesExample, reference, someTags, tag } from "./properties.ts";
import {
  atLeastOneField,
  cursorOf,
  instant,
  MAX_LIMIT,
  nameFilter,
  pageLimit,
  pageQuery,
  pageRequest,
} from "./validation.ts";
import { expectedVersions, ifMatch, setEtag, versionHeaders } from "./versions.ts";

/* Finding files by their properties, and changing these, also of many files at once. */

/** A list that examines files for several filters costs as much as the pages that have these files. */
const SCAN_REQUESTS = Math.ceil(SCANNED_ROWS / MAX_LIMIT);
/** Names have at most 200 bytes. */
const MAX_NAME_FILTER = 200;

export const list = listOperation(
  "files:read",
  {
    tag: "Files",
    summary: "List files",
    description: `Newest first, or by name if \`name\` or \`search\` is given without \`sort\`. With \`folder\`, \`under\`, \`tag\`, \`reference\` or \`search\`, \`page\` × \`limit\` can be at most ${MAX_FILTERED_NUMBERED_ROWS.toLocaleString("en")}. With several filters, a page may be short or empty and still have a \`Link\`, and can count as ${SCAN_REQUESTS} requests. A search may also return such a page: it examines up to ${SEARCHED_NAMES.toLocaleString("en")} names per request.`,
    query: pageQuery("files").extend({
      status: z.enum(LISTED_STATES).optional(),
      fileType: z.enum(FILE_TYPES).optional(),
      name: nameFilter(MAX_NAME_FILTER).optional().meta({ description: "A prefix of the name, in any case." }),
      createdAfter: instant.optional(),
      createdBefore: instant.optional(),
      folder: folder.optional().meta({ description: "Files in this folder. Empty: files outside all folders." }),
      under: folder.optional().meta({ description: "Files in this folder and the folders below it." }),
      tag: tag.optional(),
      reference: reference.optional(),
      search: nameFilter(MAX_NAME_FILTER).optional().meta({ description: "A part of the name, in any case." }),
      sort: z.enum(FILE_ORDERS).optional(),
    }),
    success: { description: "A page of files.", noun: "Files", schema: fileSchema, example: exampleFile },
  },
  async ({ c, deps, credential, query }) => {
    if (query.search !== undefined) await countSearch(c, credential);
    // The request itself is already counted.
    return listFiles(deps, credential, query, pageRequest(query), () =>
      countRequests(c, credential, SCAN_REQUESTS - 1),
    );
  },
  renderFile,
);

export const folders = listOperation(
  "files:read",
  {
    tag: "Files",
    summary: "List folders",
    description:
      "The folders directly below a folder, by name. A folder exists as long as a file is in it or below it.",
    query: z.object({
      limit: pageLimit.meta({ description: `Page size. Default and maximum ${MAX_LIMIT}.` }),
      cursor: cursorOf("folders"),
      under: folder.optional().meta({ description: "Default: the top-level folders." }),
    }),
    success: {
      description: "A page of folders, as full paths.",
      noun: "Folders",
      schema: z.string(),
      example: "podcast/2026",
    },
  },
  ({ deps, credential, query: { under = "", limit = MAX_LIMIT, cursor } }) =>
    listFolders(deps, credential, under, { limit, cursor }),
  (folder) => folder,
);

export const update = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Update a file",
    description: "Changes only the given fields, in any status. The bytes and the signed URLs stay as they are.",
    body: atLeastOneField(properties),
    bodyExample: propertiesExample,
    requestHeaders: ifMatch,
    success: {
      description: "The updated file.",
      message: "File updated.",
      schema: fileSchema,
      example: exampleFile,
      headers: versionHeaders,
    },
    errorCodes: ["version_mismatch"],
  },
  async ({ c, deps, actor, id, body }) => {
    const file = await updateFile(deps, actor, id, body, expectedVersions(c.req.header("If-Match")));
    setEtag(c, file);
    return renderFile(file);
  },
);

const ids = z
  .array(z.string())
  .min(1, "Must have at least one ID.")
  .max(MAX_BATCH_FILES, `Must have at most ${MAX_BATCH_FILES} IDs.`)
  .refine((all) => new Set(all).size === all.length, "Must not repeat an ID.")
  .meta({ uniqueItems: true });

const ITEM_CODES = ["not_found", "too_many_tags"] as const;

export const batch = writeOperation(
  "files:write",
  {
    tag: "Files",
    summary: "Change many files",
    description: `Deletes, tags, untags, moves or reprocesses files. A deletion also needs \`files:delete\`. Repeating a batch changes nothing more. Each ID counts as a request, and each ${REPROCESSED_FILES_PER_CALL} files to reprocess as a call that reprocesses a file.`,
    body: z.discriminatedUnion("action", [
      z.strictObject({ action: z.enum(["delete", "reprocess"]), ids }),
      z.strictObject({ action: z.enum(["tag", "untag"]), ids, tags: someTags }),
      z.strictObject({ action: z.literal("move"), ids, folder }),
    ]),
    bodyExample: { action: "move", ids: [exampleFile._id], folder: "podcast/2026" },
    success: {
      description: "A result for each ID, in their order.",
      message: (results) => `Files changed: ${results.filter(({ ok }) => ok).length} of ${results.length}.`,
      schema: z.array(z.strictObject({ _id: z.string(), ok: z.boolean(), code: z.enum(ITEM_CODES).optional() })),
      example: [{ _id: exampleFile._id, ok: true }],
    },
  },
  async ({ c, deps, actor, credential, body: { ids: given, ...action } }) => {
    if (action.action === "delete") requireScopes(deps, credential, ["files:delete"]);
    // The request itself is already counted.
    await countRequests(c, credential, given.length - 1);
    if (action.action === "reprocess") {
      await countExpensiveCall(c, "reprocess", actor, Math.ceil(given.length / REPROCESSED_FILES_PER_CALL));
    }
    const results = await changeFiles(deps, actor, given, action);
    return results.map(({ id, code }) => ({ _id: id, ok: code === null, ...(code && { code }) }));
  },
);
