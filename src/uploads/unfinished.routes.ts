import * as z from "zod";
import { listOperation } from "../http/operation.ts";
import { id, iso, pageQuery, pageRequest, timestamp } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { resumableTag } from "./resumable.routes.ts";
import { listUnfinished, type UnfinishedUpload } from "./unfinished.ts";

const unfinishedSchema = lazy(() =>
  z
    .strictObject({
      _id: id().meta({ description: "The id of the file that the upload creates." }),
      name: z.string(),
      size: z.int().positive().meta({ description: "Bytes of the file. They count against the storage quota." }),
      offset: z.int().nonnegative().meta({ description: "Bytes stored so far." }),
      kind: z
        .enum(["resumable", "form"])
        .meta({ description: "Of a form upload, `size` is an upper bound, and `offset` stays 0 until it ends." }),
      status: z.enum(["receiving", "canceled"]).meta({
        description:
          "A canceled upload counts until its requests have ended, which they do within seconds, and its bytes are deleted.",
      }),
      keyId: id().meta({ description: "The API key that created the upload." }),
      createdAt: timestamp(),
      expiresAt: timestamp().meta({
        description: "When the service ends the upload, or removes a canceled one, unless that has happened before.",
      }),
    })
    .meta({ id: "UnfinishedUpload" }),
);

function render({ id, name, sizeBytes, offsetBytes, isResumable, isCanceled, keyId, ...at }: UnfinishedUpload) {
  const kind = isResumable ? ("resumable" as const) : ("form" as const);
  const status = isCanceled ? ("canceled" as const) : ("receiving" as const);
  const times = { createdAt: iso(at.createdAt), expiresAt: iso(at.expiresAt) };
  return { _id: id, name, size: sizeBytes, offset: offsetBytes, kind, status, keyId, ...times };
}

const example: z.input<ReturnType<typeof unfinishedSchema>> = {
  _id: "0193477c0a5e2b7f4d1c8e90",
  name: "interview.wav",
  size: 635_040_044,
  offset: 167_772_160,
  kind: "resumable",
  status: "receiving",
  keyId: "0193477be8a01f9c3ad5e7b2",
  createdAt: "2026-11-20T09:33:00.000Z",
  expiresAt: "2026-11-21T09:41:12.000Z",
};

const list = listOperation(
  "files:read",
  {
    route: "GET /docs/v1/uploads/resumable",
    tag: resumableTag,
    summary: "List unfinished uploads",
    sample: "for await (const upload of stowage.unfinishedUploads.list()) console.log(upload.offset, upload.size);",
    description:
      "Every upload that counts in the usage and is not a file yet, also form uploads, and canceled ones until their bytes are gone. " +
      "Newest first. Cancel an upload with `DELETE /docs/v1/uploads/{id}?unfinished=true`.",
    query: () => pageQuery("unfinished"),
    success: {
      description: "A page of unfinished uploads.",
      noun: "Unfinished uploads",
      schema: unfinishedSchema,
      example,
    },
  },
  ({ deps, credential, query }) => listUnfinished(deps, credential, pageRequest(query)),
  render,
);

export const operations = {
  listUnfinishedUploads: list,
};
