import * as z from "zod";
import { setRetention as setTeamRetention } from "../domain/accounts/teams.ts";
import { deleteFile } from "../domain/files/deletion.ts";
import { holdFile, MAX_REASON_LENGTH, releaseFile } from "../domain/files/holds.ts";
import { listTrash, restoreFile, type TrashedFile } from "../domain/files/trash.ts";
import { fileRecord, holdSchema, renderHold } from "./files.ts";
import { listOperation, writeOperation } from "./operation.ts";
import { describeRecord, fieldOf } from "./record.ts";
import { retentionDays } from "./teams.ts";
import { iso, pageQuery, pageRequest, text, timestamp } from "./validation.ts";

/* The trash of deleted files, the retention that deletes a team's files after some days, and the holds that forbid it. */

const field = fieldOf<TrashedFile>();

const trashRecord = describeRecord({
  id: "TrashedFile",
  fields: {
    ...fileRecord.fields,
    trashedAt: field(timestamp, "2026-11-21T08:00:00.000Z", (file) => iso(file.trashedAt)),
    eraseAfter: field(
      timestamp.meta({ description: "When the service erases the file, within minutes. A held file stays." }),
      "2026-12-21T08:00:00.000Z",
      (file) => iso(file.eraseAfter),
    ),
    hold: field(
      holdSchema.nullable().meta({ description: "Why the file can't be erased. Null if it can." }),
      null,
      (file) => file.hold && renderHold(file.hold),
    ),
  },
});

export const list = listOperation(
  "files:delete",
  {
    tag: "Trash",
    summary: "List the trash",
    description: "The deleted files that can be restored, with the properties that they had. The latest uploads first.",
    query: pageQuery("trash"),
    success: {
      description: "A page of files.",
      noun: "Files",
      schema: trashRecord.schema,
      example: trashRecord.example,
    },
  },
  ({ deps, credential, query }) => listTrash(deps, credential, pageRequest(query)),
  trashRecord.render,
);

export const restore = writeOperation(
  "files:delete",
  {
    tag: "Trash",
    summary: "Restore a file",
    description:
      "The file is as it was, without `deleteAfter`. Its links and signed URLs stay revoked. If it was being processed, it will be processed again.",
    success: {
      description: "The file.",
      message: "File restored.",
      schema: fileRecord.schema,
      example: fileRecord.example,
    },
    errorCodes: ["not_in_trash"],
  },
  async ({ deps, actor, id }) => fileRecord.render(await restoreFile(deps, actor, id)),
);

export const erase = writeOperation(
  "files:delete",
  {
    tag: "Trash",
    summary: "Erase a file in the trash",
    description: "Deletes the bytes. Irreversible. A contributor can't.",
    success: { description: "The file was erased.", message: "File erased." },
    errorCodes: ["not_in_trash", "file_held"],
  },
  ({ deps, actor, id }) => deleteFile(deps, actor, id, { onlyTrashed: true }),
);

export const setRetention = writeOperation(
  "files:delete",
  {
    tag: "Trash",
    summary: "Set the retention of a team",
    description:
      "From now on, the service deletes each file of the team this many days after its upload: it moves to the trash, if there is one. Applies to all files, also to those that were restored. Held files stay. Needs a secret key or an admin that sees all files of the team.",
    body: z.strictObject({ days: retentionDays }),
    bodyExample: { days: 365 },
    success: {
      description: "The retention.",
      message: "Retention set.",
      schema: z.strictObject({ days: retentionDays }),
      example: { days: 365 },
    },
    errorCodes: ["forbidden", "conflict"],
  },
  async ({ deps, actor, body }) => ({ days: (await setTeamRetention(deps, actor, body.days)).retentionDays }),
);

export const hold = writeOperation(
  "files:delete",
  {
    tag: "Trash",
    summary: "Hold a file",
    description:
      "Until the hold is released, the file can't be deleted or erased, by a request, by retention, or with its team; its `deleteAfter` can't be changed. Everything else can, such as its name and folder. A file in the trash can be held, too: it stays there. Holding it again replaces the reason. A contributor can't hold files.",
    body: z.strictObject({ reason: text(1, MAX_REASON_LENGTH) }),
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

export const release = writeOperation(
  "files:delete",
  {
    tag: "Trash",
    summary: "Release a file",
    description: "Needs a secret key or an admin that sees all files of the team. Can be repeated.",
    success: { description: "The file can be deleted.", message: "Hold released." },
    errorCodes: ["forbidden"],
  },
  ({ deps, actor, id }) => releaseFile(deps, actor, id),
);
