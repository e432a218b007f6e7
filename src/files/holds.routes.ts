import * as z from "zod";
import { writeOperation } from "../http/operation.ts";
import { text } from "../http/validation.ts";
import { filesTag, holdSchema, renderHold } from "./files.routes.ts";
import { holdFile, MAX_REASON_LENGTH, releaseFile } from "./holds.ts";

const hold = writeOperation(
  "files:delete",
  {
    route: "PUT /docs/v1/uploads/{id}/hold",
    tag: filesTag,
    summary: "Hold a file",
    sample: 'await stowage.files.hold(id, "A claim about the interview");',
    description:
      "Until the hold is released, the file can't be deleted or erased, by a request, by retention, or with its team; " +
      "its `deleteAfter` can't be changed. Everything else can, such as its name and folder. " +
      "A file in the trash can be held, too: it stays there. Holding it again replaces the reason. " +
      "A contributor can't hold files.",
    body: () => z.strictObject({ reason: text(1, MAX_REASON_LENGTH) }),
    bodyExample: { reason: "Legal case 2026-17" },
    success: {
      description: "The hold.",
      message: "File held.",
      schema: holdSchema,
      example: {
        reason: "Legal case 2026-17",
        createdAt: "2026-11-20T09:33:00.000Z",
        createdBy: { keyId: "0193477be8a01f9c3ad5e7b2", userId: null },
      },
    },
  },
  async ({ deps, actor, id, body }) => renderHold(await holdFile(deps, actor, id, body.reason)),
);

const release = writeOperation(
  "files:delete",
  {
    route: "DELETE /docs/v1/uploads/{id}/hold",
    tag: filesTag,
    summary: "Release a file",
    sample: "await stowage.files.release(id);",
    description: "Needs a secret key or an admin that sees all files of the team. Can be repeated.",
    success: { description: "The file can be deleted.", message: "Hold released." },
    errors: ["forbidden"],
  },
  ({ deps, actor, id }) => releaseFile(deps, actor, id),
);

export const operations = { holdFile: hold, releaseFile: release };
