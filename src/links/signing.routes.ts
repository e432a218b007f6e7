import * as z from "zod";
import { fileRecord, filesTag } from "../files/files.routes.ts";
import { readOperation } from "../http/operation.ts";
import { linkUrl } from "./links.routes.ts";
import { signFile } from "./signing.ts";

const SIGNED_SECONDS = 3600;
const MAX_SIGNED_SECONDS = 604_800; // S3's limit

const sign = readOperation(
  "files:download",
  {
    route: "GET /docs/v1/uploads/{id}",
    tag: filesTag,
    summary: "Get a signed download URL",
    sample: "const signedUrl = await stowage.files.createSignedUrl(id, { expiresIn: 600 });",
    description: "Anyone with the URL can GET the file, with or without Range. Works in any status.",
    query: () =>
      z.object({
        expiresIn: z
          .string()
          .regex(/^\d{1,9}$/, `Must be 1 to ${MAX_SIGNED_SECONDS} seconds.`)
          .transform(Number)
          .refine((value) => value >= 1 && value <= MAX_SIGNED_SECONDS, `Must be 1 to ${MAX_SIGNED_SECONDS} seconds.`)
          .optional()
          .meta({
            type: "integer",
            minimum: 1,
            maximum: MAX_SIGNED_SECONDS,
            default: SIGNED_SECONDS,
            description: "Seconds until the URL expires.",
          }),
      }),
    success: {
      description: "The signed URL.",
      schema: () => z.strictObject({ status: z.literal(true), message: z.string(), signedUrl: z.url() }),
      example: {
        status: true,
        message: "Signed URL created. It expires in 3600 seconds.",
        signedUrl: `${fileRecord.example.path}?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Expires=3600&X-Amz-Signature=9f1c`,
      },
    },
  },
  async ({ c, deps, credential, id, query: { expiresIn = SIGNED_SECONDS } }) => {
    const signed = await signFile(deps, credential, id, expiresIn);
    const signedUrl = typeof signed === "string" ? signed : linkUrl(c, signed);
    return { status: true as const, message: `Signed URL created. It expires in ${expiresIn} seconds.`, signedUrl };
  },
);

export const operations = {
  signFile: sign,
};
