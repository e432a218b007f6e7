import * as z from "zod";
import { isVisitor } from "../access/actor.ts";
import {
  createUploadToken,
  MAX_TOKEN_FILES,
  MAX_TOKEN_PROPERTIES_BYTES,
  MAX_TOKEN_SECONDS,
} from "../access/upload-tokens.ts";
import { uploadLimits } from "../accounts/keys.routes.ts";
import { asDeleter } from "../files/deletion.ts";
import { checkDeleteAfter, properties, propertiesExample } from "../files/properties.routes.ts";
import { writeOperation } from "../http/operation.ts";
import { id, iso, timestamp } from "../http/validation.ts";

export const uploadTokensTag = {
  name: "Upload tokens",
  description: "Tokens for visitors of your web page: a few files, for an hour. Your server creates them.",
};

const MAX_SUBJECT_CHARACTERS = 200;
/** 22 characters of base64url have 128 bits. */
const OWNER = /^[!-~]{22,200}$/;

const isShort = (value: object) => Buffer.byteLength(JSON.stringify(value)) <= MAX_TOKEN_PROPERTIES_BYTES;

const create = writeOperation(
  "files:upload",
  {
    route: "POST /docs/v1/uploadtokens",
    tag: uploadTokensTag,
    summary: "Create an upload token",
    sample:
      'const { token } = await stowage.files.createUploadToken({ maxFiles: 3, properties: { folder: "memos" } });',
    description:
      "For one form or one visitor: your server creates the token, and the page uploads with it. The token can upload, resume and cancel uploads, and get the status of its files. It stops working with the key or session that created it. Nothing is stored.",
    rejectsVisitors: true,
    body: () =>
      z.strictObject({
        expiresIn: z
          .int()
          .min(1)
          .max(MAX_TOKEN_SECONDS)
          .default(3600)
          .meta({ description: "Seconds. An upload that has begun may finish later." }),
        maxFiles: z.int().min(1).max(MAX_TOKEN_FILES).default(1).meta({
          description:
            "How many files the token can upload. Files that exist and uploads in progress count. An upload that fails or is canceled doesn't.",
        }),
        maxBytes: z.int().min(1).optional().meta({
          description: "How many bytes the token can upload in all, counted as `maxFiles` is. Default: no limit.",
        }),
        ...uploadLimits().shape,
        canDelete: z
          .boolean()
          .default(false)
          .meta({
            description:
              "Whether the token can delete what it uploaded, while nobody else has changed, linked, held or transcribed the file, as a program of the team may. The file then counts " +
              "no more, but the token can begin at most five times `maxFiles` uploads. Needs `files:delete`, and `files:erase` if there is no trash.",
          }),
        subject: z
          .string()
          .min(1)
          .max(MAX_SUBJECT_CHARACTERS)
          .optional()
          .meta({
            description:
              "Your name of the visitor, such as the ID of a session. `maxFiles` and `maxBytes` then hold across all tokens that this key " +
              "creates with the same subject, within a UTC day. It only counts, and gives no rights. It is never stored or logged, and can't be read back.",
          }),
        owner: z
          .string()
          .regex(OWNER, "Must have 22 to 200 characters of ASCII without spaces.")
          .optional()
          .meta({
            description:
              "At least 128 random bits that your server keeps for the visitor, as 22 to 200 characters of ASCII without spaces. Tokens with the same owner have the same rights: each may ask for the " +
              "status of the files of the others, and delete them if it has `canDelete`. Without it, only the token that uploaded a file may. Never stored or logged.",
          }),
        properties: properties()
          .refine(isShort, `Must have at most ${MAX_TOKEN_PROPERTIES_BYTES} bytes as JSON.`)
          .default({})
          .meta({
            description: `Set on each file. The visitor can neither set nor see them. At most ${MAX_TOKEN_PROPERTIES_BYTES / 1024} KiB as JSON.`,
          }),
      }),
    isBodyOptional: true,
    bodyExample: { maxFiles: 3, maxFileBytes: 50_000_000, properties: propertiesExample },
    success: {
      description: "The upload token.",
      message: "Upload token created.",
      schema: () =>
        z
          .strictObject({
            _id: id().meta({
              description: "The `uploadTokenId` of its files. All tokens with the same `owner` have the same.",
            }),
            token: z.string(),
            expiresAt: timestamp(),
            maxFiles: z.int().positive(),
          })
          .meta({ id: "UploadToken" }),
      example: {
        _id: "0193477d5a0c4e7f9b2d6c18",
        token: "stow_ut_5f0c9a3eY2hhbmdlIG1lIHBsZWFzZQ",
        expiresAt: "2026-11-20T10:30:00.000Z",
        maxFiles: 3,
      },
    },
  },
  async ({ deps, actor, credential, body: { expiresIn, properties, subject, owner, ...limits } }) => {
    // A visitor gets the error of any creation.
    if (limits.canDelete && !isVisitor(actor)) asDeleter(deps, actor);
    if (properties) checkDeleteAfter(deps, properties, "properties.deleteAfter");
    const input = { expiresInSeconds: expiresIn, limits, properties, subject, owner };
    const { id, token, expiresAt } = createUploadToken(deps, actor, credential, input);
    return { _id: id, token, expiresAt: iso(expiresAt), maxFiles: limits.maxFiles };
  },
);

export const operations = {
  createUploadToken: create,
};
