import { zValidator } from "@hono/zod-validator";
import type { Context, MiddlewareHandler } from "hono";
import * as z from "zod";
import { AppError, type FieldError } from "../errors.ts";
import { lazy } from "../lazy.ts";
import { grouped } from "../numbers.ts";
import { BODY_BYTES } from "../platform/bodies.ts";
import { cursorPattern, MAX_NUMBERED_ROWS, type PageRequest } from "../platform/paging.ts";
import { withTimeout } from "../timeout.ts";
import type { AppEnv } from "./app-env.ts";
import { type BodyMemory, beginBody, encodingError, MAX_DRAINED_BYTES } from "./body-reader.ts";

/** Larger than any record, and small enough to parse JSON of any depth quickly. */
export const JSON_BODY_BYTES = 64 * 1024;

/** Keeps the response smaller than a body that has only unknown fields. */
const MAX_ERRORS = 100;

export type QuerySchema = z.ZodObject | undefined;
export type BodySchema = z.ZodType | undefined;
/** The output of a schema; undefined without one. */
export type Output<S> = S extends z.ZodType ? z.output<S> : undefined;

/** @param path of the value in errors. @throws `invalid_input` */
export function validate<S extends z.ZodType>(schema: S, value: unknown, path: string[] = []): z.output<S> {
  const { success, data, error } = schema.safeParse(value);
  if (success) return data;
  throw invalidInput(error.issues.flatMap((issue) => fieldErrors({ ...issue, path: [...path, ...issue.path] })));
}

const invalidInput = (errors: FieldError[]) => new AppError("invalid_input", { errors: errors.slice(0, MAX_ERRORS) });

/** Reports an unknown field under its own path. */
function fieldErrors(issue: z.core.$ZodIssue): FieldError[] {
  const path = issue.path.map(String);
  if (issue.code !== "unrecognized_keys") return [{ path: path.join("."), message: plainMessage(issue) }];
  return issue.keys.map((key) => ({ path: [...path, key].join("."), message: "Unknown field." }));
}

/** Replaces Zod's message for a wrong type, which is written for programmers. */
function plainMessage(issue: z.core.$ZodIssue): string {
  if (issue.code !== "invalid_type") return issue.message;
  return issue.message.endsWith("received undefined") ? "Required." : `Must be of type ${issue.expected}.`;
}

/**
 * Reads and validates the query. Unknown parameters are rejected, because a misspelled filter would silently return every
 * record. Without a schema, every parameter is unknown.
 * @throws `invalid_input`
 */
export function readQuery<S extends QuerySchema>(c: Context<AppEnv>, schema: S): Output<S> {
  const names = Object.keys(schema?.shape ?? {});
  const values = new Map<string, string | string[]>();
  const errors = new Map<string, FieldError>();
  const search = c.req.url.includes("?") ? new URL(c.req.url).search.slice(1) : "";
  for (const parameter of search.split("&").filter(Boolean)) {
    const [, rawName = "", rawValue = ""] = /^([^=]*)=?(.*)$/s.exec(parameter) ?? [];
    const path = decode(rawName) ?? rawName;
    const value = decode(rawValue);
    if (!names.includes(path)) errors.set(path, { path, message: "Unknown query parameter." });
    else if (value === undefined) errors.set(path, { path, message: "Must be percent-encoded UTF-8." });
    else values.set(path, values.has(path) ? [values.get(path) ?? "", value].flat() : value);
  }
  for (const [path, value] of values) {
    const issue = Array.isArray(value) && schema?.shape[path]?.safeParse(value).error?.issues[0];
    // The schema expects one value, not a list: its own message would be about a type that the client has not sent.
    if (issue && issue.path.length === 0 && issue.code.startsWith("invalid_")) {
      errors.set(path, { path, message: "Send this parameter once." });
    }
  }
  if (errors.size > 0) throw invalidInput([...errors.values()]);
  return (schema && validate(schema, Object.fromEntries(values))) as Output<S>;
}

function decode(text: string): string | undefined {
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return undefined;
  }
}

/**
 * Reads and validates the JSON body of a caller who is authorized. An optional body that is absent counts as `{}`.
 * @throws `unsupported_media_type`, `body_too_large`, `upload_timeout`, `malformed_json`, `invalid_input`
 */
export async function readBody<S extends BodySchema>(
  c: Context<AppEnv>,
  schema: S,
  { maxBodyBytes = JSON_BODY_BYTES, isBodyOptional = false }: { maxBodyBytes?: number; isBodyOptional?: boolean } = {},
): Promise<Output<S>> {
  if (!schema) return undefined as Output<S>;
  const isAbsent = c.req.raw.body === null || c.req.header("Content-Length") === "0";
  if (isAbsent && isBodyOptional) return validate(schema, {}) as Output<S>;
  const text = await readText(c, maxBodyBytes);
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new AppError("malformed_json");
  }
  return validate(schema, value) as Output<S>;
}

/**
 * The middleware of a route that needs no token: nothing stands before the validation of its query and body, so Hono's own
 * validator does it. Hono reads bodies without a limit, so it gets one that was read here.
 */
export function publicValidators(body: () => z.ZodType): MiddlewareHandler<AppEnv>[] {
  const validate = lazy(
    () =>
      zValidator("json", body(), (result) => {
        if (!result.success) throw invalidInput(result.error.issues.flatMap(fieldErrors));
      }) as MiddlewareHandler<AppEnv>,
  );
  return [
    async (c, next) => {
      readQuery(c, undefined);
      const { method, headers } = c.req.raw;
      c.req.raw = new Request(c.req.url, { method, headers, body: await readText(c, JSON_BODY_BYTES) });
      await next();
    },
    (c, next) => validate()(c, next),
  ];
}

/** @throws `unsupported_media_type`, `body_too_large`, `upload_timeout`, `malformed_json` if the body is not UTF-8, `unavailable` if the isolate receives too many bodies */
async function readText(c: Context<AppEnv>, maxBytes: number): Promise<string> {
  const type = c.req.header("Content-Type")?.split(";")[0]?.trim().toLowerCase();
  if (type !== "application/json") {
    throw new AppError("unsupported_media_type", { message: "Send the body with Content-Type: application/json." });
  }
  const memory = beginBody(c);
  const bytes = await withTimeout(
    c.get("deps").settings.uploadIdleMilliseconds,
    readLimited(c.req.raw.body, maxBytes, memory),
    () => new AppError("upload_timeout"),
  ).finally(() => {
    memory.budget.release(memory);
    memory.slot.release();
  });
  if (bytes.length === 0) throw new AppError("malformed_json", { message: "The body is empty. Send JSON." });
  const unsupported = encodingError(c);
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: false }).decode(bytes);
    if (unsupported) JSON.parse(text);
    return text;
  } catch {
    throw unsupported ?? new AppError("malformed_json");
  }
}

/**
 * Buffers at most `maxBytes`, whatever Content-Length says. What they exceed `BODY_BYTES` by counts against the memory budget, once
 * as many have arrived. Copies what it reads, because a chunk of one byte can be part of a buffer of 4 KiB.
 * @throws `unavailable` if the budget is used up
 */
async function readLimited(
  body: ReadableStream<Uint8Array> | null,
  maxBytes: number,
  memory: BodyMemory,
): Promise<Uint8Array> {
  let buffer = new Uint8Array();
  let size = 0;
  let isRefused = false;
  const keep = (chunk: Uint8Array, start: number) => {
    if (buffer.length < size) {
      isRefused ||= size > BODY_BYTES && !memory.budget.reserve(memory, maxBytes - BODY_BYTES, memory.isVisitor);
      if (isRefused) return;
      const grown = new Uint8Array(
        size > BODY_BYTES ? maxBytes : Math.min(Math.max(size, 2 * buffer.length), BODY_BYTES),
      );
      grown.set(buffer.subarray(0, start));
      buffer = grown;
    }
    buffer.set(chunk, start);
  };
  const reader = body?.getReader();
  const read = () =>
    reader?.read().catch((cause: unknown) => {
      throw new AppError("malformed_json", { message: "The body ended early. Send it again.", cause });
    });
  for (let next = await read(); next && !next.done; next = await read()) {
    const start = size;
    size += next.value.length;
    if (size <= maxBytes) keep(next.value, start);
    if (size > MAX_DRAINED_BYTES) break;
  }
  if (size > maxBytes) {
    throw new AppError("body_too_large", { message: `The JSON body can have at most ${maxBytes} bytes.` });
  }
  if (isRefused) throw new AppError("unavailable");
  return buffer.subarray(0, size);
}

// SQLite truncates text at NUL, and unpaired surrogates have no UTF-8 encoding.
const isStorable = (text: string) => text.isWellFormed() && !text.includes("\0");
/** Counts code points, like JSON Schema. */
const length = (text: string) => [...text].length;

// Patterns in the OpenAPI document use only syntax that regular expressions of every language share.
const NO_NUL = "^[^\\u0000]*$";
const CONTROL = "\\u0000-\\u001f\\u007f-\\u009f";
const SPACE = " \\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000\\ufeff";
const VISIBLE = `[^${CONTROL}${SPACE}]`;
/** The characters that `trim` removes. */
const WHITE = `[\\t-\\r${SPACE}]*`;

/** Text that is stored unchanged. Lengths are in code points. */
export function text(minLength: number, maxLength: number) {
  return z
    .string()
    .refine(isStorable, "Must not contain NUL or unpaired surrogates.")
    .refine(
      (value) => length(value) >= minLength && length(value) <= maxLength,
      `Must have ${minLength} to ${maxLength} characters.`,
    )
    .meta({ minLength, maxLength, pattern: NO_NUL });
}

const hasNoControls = (text: string) => !/\p{Cc}/u.test(text);

/** The body of an update: any of the fields, but not none. */
export const atLeastOneField = <S extends z.ZodObject>(schema: S) =>
  schema
    .partial()
    .refine((fields) => Object.keys(fields).length > 0, "Send at least one field to change.")
    .meta({ minProperties: 1 });

/** A prefix of a stored name. */
export function nameFilter(maxLength: number) {
  return z
    .string()
    .refine(isStorable, { message: "Must not contain NUL or unpaired surrogates.", abort: true })
    .refine(hasNoControls, "Must not contain control characters.")
    .refine((value) => length(value) >= 1 && length(value) <= maxLength, `Must have 1 to ${maxLength} characters.`)
    .meta({ minLength: 1, maxLength, pattern: `^[^${CONTROL}]*$` });
}

export const MAX_NAME_LENGTH = 100;
const NAME = `${VISIBLE}([^${CONTROL}]{0,${MAX_NAME_LENGTH - 2}}${VISIBLE})?`;

/** A name on one line. It is trimmed. */
export function name(minLength: 0 | 1) {
  const limits = `${minLength} to ${MAX_NAME_LENGTH} characters`;
  return z
    .string()
    .trim()
    .refine(isStorable, { message: "Must not contain NUL or unpaired surrogates.", abort: true })
    .refine(hasNoControls, "Must not contain control characters.")
    .refine((value) => length(value) >= minLength && length(value) <= MAX_NAME_LENGTH, `Must have ${limits}.`)
    .meta({
      description: `One line of ${limits}. Surrounding white space is removed.`,
      pattern: `^${WHITE}(${NAME})${minLength === 0 ? "?" : ""}${WHITE}$`,
    });
}

const FIRST_INSTANT = Date.parse("0000-01-01T00:00:00Z");
const LAST_INSTANT = Date.parse("9999-12-31T23:59:59.999Z");

/** An ISO 8601 date-time. Its offset must not lead beyond the years of four digits, which ISO 8601 does not cover. */
export const timestamp = lazy(() =>
  z.iso
    .datetime({ offset: true, abort: true, error: "Must be an ISO 8601 date-time with an offset or Z." })
    .refine(
      (text) => Date.parse(text) >= FIRST_INSTANT && Date.parse(text) <= LAST_INSTANT,
      "Must be in the years 0000 to 9999 of UTC.",
    ),
);

/** The same in milliseconds since the epoch. A fraction of a millisecond counts as half of one. */
export const instant = lazy(() =>
  timestamp().transform((text) => Date.parse(text) + (/\.\d{3}\d*[1-9]/.test(text) ? 0.5 : 0)),
);

/** Renders milliseconds since the epoch as an ISO 8601 date-time. */
export const iso = (milliseconds: number): string => new Date(milliseconds).toISOString();
export const isoOrNull = (milliseconds: number | null): string | null =>
  milliseconds === null ? null : iso(milliseconds);

export const id = lazy(() =>
  z
    .string()
    .regex(/^[0-9a-f]{24}$/, "Must be 24 lower-case hex characters.")
    .meta({ example: "0193477be8a01f9c3ad5e7b2" }),
);

const positiveInteger = ({ clampTo, ...meta }: { description: string; clampTo: number; maximum?: number }) =>
  z
    .string()
    .regex(/^\d+$/, "Must be a whole number from 1.")
    .transform(Number)
    .refine((value) => value >= 1, "Must be a whole number from 1.")
    .transform((value) => Math.min(value, clampTo))
    .optional()
    .meta({ type: "integer", minimum: 1, ...meta });

export const DEFAULT_LIMIT = 20;
export const MAX_LIMIT = 100;

const limitUpTo = (clampTo: number) =>
  positiveInteger({
    description: `Page size. Values above ${MAX_LIMIT} count as ${MAX_LIMIT}. Default ${DEFAULT_LIMIT}.`,
    clampTo,
  });
export const pageLimit = lazy(() => limitUpTo(MAX_LIMIT));
/** The limit of a list that may reject larger pages: each of them is `MAX_LIMIT + 1`. */
export const rejectableLimit = lazy(() => limitUpTo(MAX_LIMIT + 1));

/** @param list the list's name in cursors */
export const cursorOf = (list: string) =>
  z
    .string()
    .optional()
    .meta({ pattern: cursorPattern(list), description: "From the `Link` of the previous page. Opaque." });

/** The query parameters of a list. */
export const pageQuery = (list: string) =>
  z.object({
    limit: pageLimit(),
    page: positiveInteger({
      description: `Page number, counted from the cursor if there is one. Default 1. \`page\` × \`limit\` can be at most ${grouped(MAX_NUMBERED_ROWS)}. Beyond row ${MAX_LIMIT}, the request is heavy; follow \`Link\` instead.`,
      maximum: MAX_NUMBERED_ROWS,
      clampTo: MAX_NUMBERED_ROWS + 1,
    }),
    cursor: cursorOf(list),
  });

export const pageRequest = ({
  limit = DEFAULT_LIMIT,
  page = 1,
  cursor,
}: z.output<ReturnType<typeof pageQuery>>): PageRequest => ({
  limit: Math.min(limit, MAX_LIMIT),
  page,
  cursor,
});

/** Whether a numbered page ends beyond its list's first 100 rows, all of which D1 reads. */
export const isDeepPage = ({ limit = DEFAULT_LIMIT, page = 1 }: { limit?: number; page?: number }): boolean =>
  page * Math.min(limit, MAX_LIMIT) > MAX_LIMIT;

/** The header that `setNextLink` sets, for OpenAPI. */
export const nextLinkHeader = { Link: 'The next page, `rel="next"`. Absent on the last page.' };

/** Sets the `Link` to the next page (RFC 8288), with the same limit and filters. The last page (`cursor` null) has none. */
export function setNextLink(c: Context<AppEnv>, cursor: string | null): void {
  if (cursor === null) return;
  const url = new URL(c.req.url);
  url.searchParams.delete("page");
  url.searchParams.set("cursor", cursor);
  c.header("Link", `<${url}>; rel="next"`);
}
