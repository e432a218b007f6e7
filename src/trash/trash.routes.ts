import * as z from "zod";
import { retentionDays } from "../accounts/teams.routes.ts";
import { setRetention as setTeamRetention } from "../accounts/teams.ts";
import { asDeleter, deleteFile, notInTrash } from "../files/deletion.ts";
import { fileRecord, holdSchema, renderHold } from "../files/files.routes.ts";
import { fileHeld } from "../files/holds.ts";
import { restoreFile } from "../files/restoring.ts";
import { listOperation, writeOperation } from "../http/operation.ts";
import { describeRecord, fieldOf } from "../http/record.ts";
import { iso, pageQuery, pageRequest, timestamp } from "../http/validation.ts";
import { listTrash, type TrashedFile } from "./trash.ts";

/* The trash of deleted files, and the retention that deletes a team's files after some days. */

export const trashTag = {
  name: "Trash",
  description: "Restore or erase deleted files, and delete files in time.",
};

const field = fieldOf<TrashedFile>();

const trashRecord = describeRecord({
  id: "TrashedFile",
  fields: {
    ...fileRecord.fields,
    trashedAt: field(timestamp, "2026-11-21T08:00:00.000Z", (file) => iso(file.trashedAt)),
    eraseAfter: field(
      () => timestamp().meta({ description: "When the service erases the file, within minutes. A held file stays." }),
      "2026-12-21T08:00:00.000Z",
      (file) => iso(file.eraseAfter),
    ),
    hold: field(
      () => holdSchema().nullable().meta({ description: "Why the file can't be erased. Null if it can." }),
      null,
      (file) => file.hold && renderHold(file.hold),
    ),
  },
});

const list = listOperation(
  "files:delete",
  {
    route: "GET /docs/v1/trash",
    tag: trashTag,
    summary: "List the trash",
    sample: "for await (const file of stowage.trash.list()) console.log(file.name, file.trashedAt);",
    description: "The deleted files that can be restored, with the properties that they had. The latest uploads first.",
    query: () => pageQuery("trash"),
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

const restore = writeOperation(
  "files:delete",
  {
    route: "POST /docs/v1/trash/{id}/restore",
    tag: trashTag,
    summary: "Restore a file",
    sample: "const file = await stowage.trash.restore(id);",
    description:
      "The file is as it was, without `deleteAfter`. Its links work again, unless they were revoked or have expired. Its signed URLs don't. If it was being processed, it will be processed again.",
    success: {
      description: "The file.",
      message: "File restored.",
      schema: fileRecord.schema,
      example: fileRecord.example,
    },
    errors: [notInTrash],
  },
  async ({ deps, actor, id }) => fileRecord.render(await restoreFile(deps, actor, id)),
);

const erase = writeOperation(
  "files:erase",
  {
    route: "DELETE /docs/v1/trash/{id}",
    tag: trashTag,
    summary: "Erase a file in the trash",
    sample: "await stowage.trash.delete(id);",
    description: "Deletes the bytes. Irreversible.",
    success: { description: "The file was erased.", message: "File erased." },
    errors: [notInTrash, fileHeld],
  },
  ({ deps, actor, id }) => deleteFile(deps, actor, id, { onlyTrashed: true }),
);

const setRetention = writeOperation(
  "files:delete",
  {
    route: "PUT /docs/v1/retention",
    tag: trashTag,
    summary: "Set the retention of a team",
    sample: "await stowage.trash.setRetention(365);",
    description:
      "From now on, the service deletes each file of the team this many days after its upload: it moves to the trash, if there is one. Applies to all files, also to those that were restored. Held files stay. Needs a secret key or an admin that sees all files of the team, and `files:erase` if there is no trash.",
    body: () => z.strictObject({ days: retentionDays() }),
    bodyExample: { days: 365 },
    success: {
      description: "The retention.",
      message: "Retention set.",
      schema: () => z.strictObject({ days: retentionDays() }),
      example: { days: 365 },
    },
    errors: ["forbidden", "conflict"],
  },
  async ({ deps, actor, body: { days } }) => {
    const caller = days === null ? actor : asDeleter(deps, actor);
    return { days: (await setTeamRetention(deps, caller, days)).retentionDays };
  },
);

export const operations = {
  listTrash: list,
  restoreFile: restore,
  eraseFile: erase,
  setRetention,
};
