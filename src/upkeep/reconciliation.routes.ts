import * as z from "zod";
import { teamsTag } from "../accounts/teams.routes.ts";
import { writeOperation } from "../http/operation.ts";
import { id, iso, text, timestamp } from "../http/validation.ts";
import { reconcile as reconcilePage } from "./reconciliation.ts";

/** R2's limit for a key. */
const MAX_KEY_LENGTH = 1024;

const reconcile = writeOperation(
  "operator",
  {
    route: "POST /auth/v1/reconciliation",
    tag: teamsTag,
    summary: "Compare rows and bytes",
    description:
      "For use after a database was restored to an earlier moment. Compares a page of the bucket with the databases: `npm run reconcile` follows `next` until it is null. Bytes without a row can be removed once they are a day old.",
    body: () =>
      z.strictObject({
        after: text(1, MAX_KEY_LENGTH).optional().meta({ description: "`next` of the previous page." }),
        remove: z.boolean().optional().meta({ description: "Removes the bytes without a row that are a day old." }),
      }),
    isBodyOptional: true,
    bodyExample: { after: "0193477be89f4d2e6b8a0000/0193477c0a5e2b7f4d1c8e90-interview.mp3", remove: false },
    success: {
      description: "The differences of the page.",
      message: ({ objects, files }) => `Bytes without a row: ${objects.length}. Rows without bytes: ${files.length}.`,
      schema: () =>
        z.strictObject({
          objects: z
            .array(z.strictObject({ key: z.string(), size: z.int(), storedAt: timestamp(), isRemoved: z.boolean() }))
            .meta({ description: "Bytes without a row." }),
          files: z
            .array(z.strictObject({ _id: id(), teamId: id(), key: z.string() }))
            .meta({ description: "Rows without bytes." }),
          next: z.string().nullable().meta({ description: "Where the next page begins. Null: this was the last." }),
        }),
      example: {
        objects: [
          {
            key: "0193477be89f4d2e6b8a0000/0193477c0a5e2b7f4d1c8e90-interview.mp3",
            size: 482_113,
            storedAt: "2026-11-20T09:33:00.000Z",
            isRemoved: false,
          },
        ],
        files: [],
        next: null,
      },
    },
  },
  async ({ deps, body: { after = "", remove = false } = {} }) => {
    const { objects, files, next } = await reconcilePage(deps, after, remove);
    return {
      objects: objects.map(({ key, sizeBytes, storedAt, isRemoved }) => ({
        key,
        size: sizeBytes,
        storedAt: iso(storedAt),
        isRemoved,
      })),
      files: files.map(({ id, teamId, key }) => ({ _id: id, teamId, key })),
      next,
    };
  },
);

export const operations = {
  reconcile,
};
