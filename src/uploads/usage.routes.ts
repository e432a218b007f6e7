import * as z from "zod";
import { filesTag } from "../files/files.routes.ts";
import { readOperation } from "../http/operation.ts";
import { grouped } from "../numbers.ts";
import { fetchUsage, MAX_COUNTED_FILES } from "./quota.ts";

/** The part of the usage that the trash takes. */
export const trashUsage = () => ({
  trashFiles: z.int().nonnegative().meta({ description: "The part of `files` that is in the trash." }),
  trashBytes: z.int().nonnegative().meta({ description: "The part of `bytes` that is in the trash." }),
});

const get = readOperation(
  "files:read",
  {
    route: "GET /docs/v1/usage",
    tag: filesTag,
    summary: "Get the team's usage",
    sample: "const { bytes, maxBytes } = await stowage.usage();",
    description:
      "The team's files, bytes and events, and their limits. An upload in progress counts with its Content-Length. " +
      "`events` are those of files and links: the oldest above `maxEvents` are deleted within minutes. " +
      "A contributor gets what their own files take, without uploads in progress and events: " +
      `of the newest ${grouped(MAX_COUNTED_FILES)} files, and of as many in the trash.`,
    isHeavy: true,
    success: {
      description: "The usage.",
      message: "Usage of the team.",
      schema: () =>
        z.strictObject({
          files: z.int().nonnegative(),
          bytes: z.int().nonnegative(),
          ...trashUsage(),
          maxFiles: z.int().nonnegative(),
          maxBytes: z.int().nonnegative(),
          events: z.int().nonnegative(),
          maxEvents: z.int().positive(),
        }),
      example: {
        files: 12,
        bytes: 60_104_321,
        trashFiles: 1,
        trashBytes: 482_113,
        maxFiles: 100_000,
        maxBytes: 50_000_000_000,
        events: 4210,
        maxEvents: 200_000,
      },
    },
  },
  async ({ deps, credential }) => fetchUsage(deps, credential),
);

export const operations = {
  getUsage: get,
};
