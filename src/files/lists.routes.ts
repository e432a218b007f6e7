import * as z from "zod";
import { FILE_TYPES } from "../audio/media-type.ts";
import { invalidField } from "../errors.ts";
import { foldedWords } from "../folding.ts";
import { listOperation } from "../http/operation.ts";
import {
  DEFAULT_LIMIT,
  id,
  instant,
  MAX_LIMIT,
  nameFilter,
  pageQuery,
  pageRequest,
  rejectableLimit,
} from "../http/validation.ts";
import { grouped } from "../numbers.ts";
import { filesTag, listedFileRecord } from "./files.routes.ts";
import { FILE_STATES } from "./files.ts";
import { examinesFiles, FILE_ORDERS, listFiles, MAX_SEARCHED_WORDS, SEARCHED_NAMES } from "./lists.ts";
import { folder, reference, tag } from "./properties.routes.ts";

/** Names have at most 200 bytes. */
const MAX_NAME_FILTER = 200;

/** For generated clients: in Kotlin, no value of an enum can be called `name`. */
const ORDER_NAMES: Record<(typeof FILE_ORDERS)[number], string> = {
  "-createdAt": "newestFirst",
  createdAt: "oldestFirst",
  name: "nameAscending",
  "-name": "nameDescending",
};

const list = listOperation(
  "files:read",
  {
    route: "GET /docs/v1/uploads",
    tag: filesTag,
    summary: "List files",
    sample: 'for await (const file of stowage.files.list({ folder: "podcast/2026" })) console.log(file.name);',
    description:
      "Lists or searches the files of a folder, or of the team: newest first, or by name if `name` or `search` is given without `sort`.\n\n" +
      "With several filters, a page may be short or empty and still have a `Link`, and the request is heavy. " +
      "For a contributor, one filter other than `folder` and `name` is enough. " +
      "So is a search, which may also return such a page; " +
      `it examines up to ${grouped(SEARCHED_NAMES)} files per request.`,
    query: () =>
      pageQuery("files").extend({
        limit: rejectableLimit(),
        status: z.enum(FILE_STATES).optional(),
        fileType: z.enum(FILE_TYPES).optional(),
        name: nameFilter(MAX_NAME_FILTER)
          .optional()
          .meta({ description: "A prefix of the name, in any case and without accents." }),
        createdAfter: instant().optional(),
        createdBefore: instant().optional(),
        folder: folder().optional().meta({ description: "Files in this folder. Empty: files outside all folders." }),
        under: folder().optional().meta({ description: "Files in this folder and the folders below it." }),
        tag: tag().optional(),
        reference: reference().optional(),
        uploadedBy: id().optional().meta({
          description: "The ID of a user, for the files that the user uploaded.",
        }),
        hasTranscript: z
          .enum(["true", "false"])
          .transform((value) => value === "true")
          .optional()
          .meta({ description: "Files with a transcript, or without one. `false` only together with another filter." }),
        search: nameFilter(MAX_NAME_FILTER)
          .refine((text) => {
            const count = foldedWords(text).length;
            return count >= 1 && count <= MAX_SEARCHED_WORDS;
          }, `Must have 1 to ${MAX_SEARCHED_WORDS} words.`)
          .optional()
          .meta({
            description:
              `Up to ${MAX_SEARCHED_WORDS} words, in any order and case, and without accents: \`cafe\` finds \`Café\`. ` +
              "Finds the files that have every word, or a part of a longer one, in their name, title, artist, reference, folder or tags. " +
              "Searches the first 200 bytes of each, and whole folders.",
          }),
        sort: z
          .enum(FILE_ORDERS)
          .optional()
          .meta({
            description: "`-`: descending.",
            "x-enum-varnames": FILE_ORDERS.map((order) => ORDER_NAMES[order]),
          }),
        include: z
          .literal("metadata")
          .optional()
          .meta({
            description: `Each file has all of its metadata. With a \`limit\` above ${DEFAULT_LIMIT}, the request is heavy, and above ${MAX_LIMIT} it is invalid.`,
          }),
      }),
    isHeavy: (query, isContributor) =>
      query.search !== undefined ||
      (query.include !== undefined && (query.limit ?? 0) > DEFAULT_LIMIT) ||
      examinesFiles(query, isContributor),
    success: {
      description: "A page of files.",
      noun: "Files",
      schema: listedFileRecord.schema,
      example: listedFileRecord.example,
    },
  },
  ({ deps, credential, query: { limit, page, cursor, ...query } }) => {
    if (query.include !== undefined && (limit ?? 0) > MAX_LIMIT) {
      throw invalidField("limit", `Must be at most ${MAX_LIMIT} with \`include\`.`);
    }
    return listFiles(deps, credential, query, pageRequest({ limit, page, cursor }));
  },
  listedFileRecord.render,
);

export const operations = {
  listFiles: list,
};
