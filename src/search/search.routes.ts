import * as z from "zod";
import { teamsTag } from "../accounts/teams.routes.ts";
import { fileRecord, filesTag } from "../files/files.routes.ts";
import { folder } from "../files/properties.routes.ts";
import { readOperation, writeOperation } from "../http/operation.ts";
import { cursorOf, DEFAULT_LIMIT, id, nameFilter, nextLinkHeader, pageLimit, setNextLink } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { MAX_TERMS, termsOf } from "../words.ts";
import { rebuildIndex } from "./rebuilding.ts";
import { MATCHES_OF_FILE, MAX_MATCHES, searchTranscripts } from "./search.ts";

/** Several sentences. */
const MAX_SEARCH_LENGTH = 500;

const seconds = lazy(() => z.number().nonnegative());

const turn = lazy(() =>
  z
    .strictObject({
      speaker: z.string().nullable().meta({ description: "Null if the transcript names no one." }),
      text: z.string().meta({ description: "What the speaker says. `…` stands for the rest of a long sentence." }),
      marks: z
        .array(z.array(z.int().nonnegative()).length(2))
        .meta({ description: "The ranges of `text` that are words of the search, in UTF-16 code units." }),
    })
    .meta({ id: "TranscriptTurn" }),
);

const match = lazy(() =>
  z
    .strictObject({
      startSeconds: seconds(),
      endSeconds: seconds(),
      turns: z.array(turn()).min(1).meta({
        description: "The sentences in which the words stand, with one item until another speaker follows.",
      }),
    })
    .meta({ id: "TranscriptMatch" }),
);

const found = lazy(() =>
  z
    .strictObject({
      file: fileRecord.schema(),
      language: z.string().nullable().meta({ description: "The language of the transcript, as it was set." }),
      matchCount: z
        .int()
        .nonnegative()
        .meta({ description: "The places in the transcript. At most 100, except with `file`." }),
      matches: z.array(match()).meta({
        description: `Up to ${MATCHES_OF_FILE} of them, the best ones, in their order. With \`file\`, up to ${MAX_MATCHES}.`,
      }),
    })
    .meta({ id: "FoundTranscript" }),
);

const search = readOperation(
  "files:read",
  {
    route: "GET /docs/v1/transcripts",
    tag: filesTag,
    summary: "Search transcripts",
    sample:
      'for await (const { file, matches } of stowage.files.searchTranscripts("night shift")) console.log(file.name, matches);',
    description:
      "Finds the files in whose transcripts all words are said, in any order, in any case and without accents. " +
      'Words in quotes, such as `"night shift"`, must stand side by side. The last word may be the beginning of a longer one. ' +
      "Transcripts in which the words stand close together, within 30 s, come first, and a match is such a place. " +
      "In Chinese, Japanese, Korean, Thai, Lao, Khmer and Burmese, a word is found wherever its characters stand. " +
      "A transcript is found within seconds after it was set. Once it is replaced or deleted, or its file is, nothing of it is shown.",
    query: () =>
      z.object({
        search: nameFilter(MAX_SEARCH_LENGTH)
          .refine((text) => termsOf(text).length <= MAX_TERMS, `Must have at most ${MAX_TERMS} words.`)
          .optional()
          .meta({ description: "Words in any language. Without a word, nothing is found." }),
        file: id().optional().meta({ description: "All matches in this file." }),
        folder: folder().optional().meta({ description: "Files in this folder. Empty: files outside all folders." }),
        under: folder().optional().meta({ description: "Files in this folder and the folders below it." }),
        uploadedBy: id().optional().meta({ description: "The ID of a user, for the files that the user uploaded." }),
        limit: pageLimit(),
        cursor: cursorOf("transcripts"),
      }),
    isHeavy: true,
    success: {
      description: "A page of files, best first.",
      schema: () =>
        z.strictObject({
          message: z.string(),
          data: z.array(found()),
          isComplete: z.boolean().meta({
            description: "False if transcripts may be missing: the index is being built, or is full.",
          }),
          isFull: z.boolean().meta({
            description: "The team has more transcripts than the index holds. It has those of the newest files.",
          }),
        }),
      example: {
        message: "Files: 1.",
        data: [
          {
            file: fileRecord.example,
            language: "en",
            matchCount: 1,
            matches: [
              {
                startSeconds: 2.5,
                endSeconds: 6,
                turns: [
                  {
                    speaker: "Ada",
                    text: "The lock opens at half past four.",
                    marks: [
                      [4, 8],
                      [9, 14],
                    ],
                  },
                ],
              },
            ],
          },
        ],
        isComplete: true,
        isFull: false,
      },
      headers: nextLinkHeader,
    },
    errors: [],
  },
  async ({ c, deps, credential, query: { search = "", limit = DEFAULT_LIMIT, cursor, ...filters } }) => {
    const query = { search, ...filters };
    const { items, next, isComplete, isFull } = await searchTranscripts(deps, credential, query, { limit, cursor });
    setNextLink(c, next);
    const data = items.map(({ file, ...rest }) => ({ file: fileRecord.render(file), ...rest }));
    return { message: `Files: ${data.length}.`, data, isComplete, isFull };
  },
);

const rebuild = writeOperation(
  "operator",
  {
    route: "POST /auth/v1/teams/{id}/search/rebuild",
    tag: teamsTag,
    summary: "Rebuild the search of a team",
    sample: "await stowage.teams.rebuildSearch(id);",
    description:
      "Deletes the index of what is said in the team's transcripts, and builds it again in the background. Until then, searches have `isComplete: false`, and find what it has so far.",
    success: { description: "The index is deleted.", message: "The search of the team is being rebuilt." },
  },
  async ({ deps, id }) => {
    await rebuildIndex(deps, id);
  },
);

export const operations = { searchTranscripts: search, rebuildSearch: rebuild };
