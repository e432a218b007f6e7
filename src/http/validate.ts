import { zValidator } from "@hono/zod-validator";
import type { MiddlewareHandler } from "hono";
import * as z from "zod";
import { AppError, type FieldError } from "../errors.ts";
import type { AppEnv } from "./operation.ts";

/** Larger than any record; JSON of any depth is parsed quickly at this size. */
export const JSON_BODY_BYTES = 64 * 1024;

/** So many are told: the answer to a body of nothing but unknown fields must not be larger than the body. */
const MOST_ERRORS = 100;

/** Zod's findings as the error shape has them: an unknown field is named by its own path. */
function fieldErrors(error: z.core.$ZodError): FieldError[] {
  return error.issues.flatMap((issue) => {
    const path = issue.path.map(String);
    if (issue.code !== "unrecognized_keys") return [{ path: path.join("."), message: plainMessage(issue) }];
    return issue.keys.map((key) => ({ path: [...path, key].join("."), message: "Unknown field." }));
  });
}

/** Zod's own words for a wrong type are a programmer's. */
function plainMessage(issue: z.core.$ZodIssue): string {
  if (issue.code !== "invalid_type") return issue.message;
  return issue.message.endsWith("received undefined") ? "Required." : `Must be of type ${issue.expected}.`;
}

/** The one wrapper around zValidator. `before` runs ahead of a refusal: the caller may have to be proven first. */
export function validate(
  target: "query" | "json",
  schema: z.ZodType,
  before?: MiddlewareHandler<AppEnv>,
): MiddlewareHandler<AppEnv> {
  return zValidator(target, schema, async (result, c) => {
    if (result.success) return;
    await before?.(c, async () => {});
    throw new AppError("invalid_input", { errors: fieldErrors(result.error).slice(0, MOST_ERRORS) });
  }) as MiddlewareHandler<AppEnv>;
}

/** Of a body that is too large so much is still read: a client that is answered midway often sees a reset instead. */
const DRAINED_BYTES = 1024 * 1024;

/** Keeps a body up to the limit, whatever its Content-Length says. */
async function readLimited(body: ReadableStream<Uint8Array> | null): Promise<Uint8Array> {
  const chunks: Uint8Array[] = [];
  let size = 0;
  const reader = body?.getReader();
  for (let read = await reader?.read(); read && !read.done; read = await reader?.read()) {
    size += read.value.length;
    if (size <= JSON_BODY_BYTES) chunks.push(read.value);
    if (size > DRAINED_BYTES) break;
  }
  if (size > JSON_BODY_BYTES) {
    throw new AppError("body_too_large", { message: `A JSON body may have ${JSON_BODY_BYTES} bytes at most.` });
  }
  return Buffer.concat(chunks);
}

/** The work's result, or `upload_timeout` where it takes longer. */
async function inTime<T>(milliseconds: number, work: Promise<T>): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const timeout = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new AppError("upload_timeout")), milliseconds);
  });
  try {
    return await Promise.race([work, timeout]);
  } finally {
    clearTimeout(timer);
  }
}

/**
 * Stands before `validate("json")`: 415 for another type, 413 above the limit, `malformed_json` for what is not JSON in
 * UTF-8. Puts the text back in place of the stream, for Hono to parse.
 */
export const jsonBody: MiddlewareHandler<AppEnv> = async (c, next) => {
  const type = c.req.header("Content-Type")?.split(";")[0]?.trim().toLowerCase();
  if (type !== "application/json") {
    throw new AppError("unsupported_media_type", { message: "Send the body as application/json." });
  }
  const bytes = await inTime(c.var.deps.settings.uploadIdleMilliseconds, readLimited(c.req.raw.body));
  let text: string;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
    JSON.parse(text);
  } catch {
    throw new AppError("malformed_json", bytes.length === 0 ? { message: "The body is empty. Send JSON." } : {});
  }
  const headers = new Headers(c.req.raw.headers);
  headers.set("Content-Type", "application/json");
  c.req.raw = new Request(c.req.url, { method: c.req.method, headers, body: text });
  await next();
};

// SQLite cuts text at NUL, and no UTF-8 exists for a lone surrogate.
const isStorable = (text: string) => text.isWellFormed() && !text.includes("\0");
const length = (text: string) => [...text].length;

/** Text of so many characters (code points), stored as it is. */
export function text(least: number, most: number) {
  return z
    .string()
    .refine(isStorable, "Must not hold NUL or half a surrogate pair.")
    .refine((value) => length(value) >= least && length(value) <= most, `Must have ${least} to ${most} characters.`)
    .meta({ minLength: least, maxLength: most });
}

/** A name: trimmed, on one line. */
export function name(least: number) {
  return z
    .string()
    .trim()
    .refine(isStorable, { message: "Must not hold NUL or half a surrogate pair.", abort: true })
    .refine((value) => !/\p{Cc}/u.test(value), "Must not hold control characters.")
    .refine((value) => length(value) >= least && length(value) <= 100, `Must have ${least} to 100 characters.`)
    .meta({ minLength: least, maxLength: 100 });
}

/** An instant as the interface writes it. */
export const timestamp = z.iso.datetime({ offset: true, error: "Must be an ISO 8601 date-time with an offset or Z." });

/** The same from milliseconds since the epoch. */
export const iso = (milliseconds: number): string => new Date(milliseconds).toISOString();

export const id = z
  .string()
  .regex(/^[0-9a-f]{24}$/, "Must be 24 lower-case hex characters.")
  .meta({ example: "0193477be8a01f9c3ad5e7b2" });

const wholeNumber = (fallback: string, most: number) =>
  z
    .string()
    .regex(/^\d+$/, "Must be a whole number from 1.")
    .transform(Number)
    .refine((value) => value >= 1, "Must be a whole number from 1.")
    .transform((value) => Math.min(value, most))
    .optional()
    .meta({ type: "integer", minimum: 1, description: fallback });

const DEFAULT_LIMIT = 20;
const MOST_LIMIT = 100;
/** Beyond any list, and small enough for its offset to be a whole number. */
const MOST_PAGE = 1e12;

/** The parameters of every list. */
export const pageQuery = z
  .object({
    limit: wholeNumber("Items on a page. Above 100 is cut to 100; default 20.", MOST_LIMIT),
    page: wholeNumber("Page number from 1; default 1. The deeper, the slower: follow `Link` instead.", MOST_PAGE),
    cursor: z.string().max(100).optional().meta({ description: "From the `Link` of the page before." }),
  })
  .refine(({ page, cursor }) => page === undefined || cursor === undefined, {
    path: ["cursor"],
    message: "Give either page or cursor.",
  });

export const pageRequest = ({ limit = DEFAULT_LIMIT, page = 1, cursor }: z.output<typeof pageQuery>) => ({
  limit,
  page,
  cursor,
});
