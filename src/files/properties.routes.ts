import * as z from "zod";
import type { TeamActor } from "../access/authorization.ts";
import type { Deps } from "../deps.ts";
import { invalidField } from "../errors.ts";
import { MAX_PROPERTIES_BYTES } from "../http/multipart.ts";
import { instant, validate } from "../http/validation.ts";
import { lazy } from "../lazy.ts";
import { cleanName, isSafeText, MAX_FOLDER_BYTES } from "./names.ts";
import {
  type FileProperties,
  MAX_METADATA_BYTES,
  MAX_METADATA_DEPTH,
  MAX_METADATA_PATCH_BYTES,
  MAX_METADATA_PATCH_NAMES,
  MAX_REFERENCE_LENGTH,
  MAX_TAG_LENGTH,
  MAX_TAGS,
  MAX_TAGS_BYTES,
} from "./properties.ts";

/* The rules for properties of files: in a PATCH, in a batch, at the upload, and in the filters of lists. */

// The rules below as patterns for the OpenAPI document. They have no lookahead, which some languages lack.
const UNSAFE = "\\u0000-\\u001f\\u007f-\\u009f\\u061c\\u200e\\u200f\\u2028-\\u202e\\u2066-\\u2069";
const SPACE = " \\u00a0\\u1680\\u2000-\\u200a\\u202f\\u205f\\u3000\\ufeff";
/** At least one safe character. */
const LINE = `^[^${UNSAFE}]+$`;
/** Has no slash, neither begins nor ends with white space, and does not consist only of dots. */
const FILE_NAME = (() => {
  const [any, end] = [`[^${UNSAFE}/\\\\]`, `[^${UNSAFE}/\\\\${SPACE}]`];
  const [noDot, firstNoDot] = [`[^${UNSAFE}/\\\\.]`, `[^${UNSAFE}/\\\\${SPACE}.]`];
  return `^(${firstNoDot}(${any}*${end})?|\\.+(${firstNoDot}|${noDot}${any}*${end}))$`;
})();
/** Names between slashes that are neither empty nor `.` nor `..`. */
const FOLDER = (() => {
  const name = `(\\.?[^${UNSAFE}/.][^${UNSAFE}/]*|\\.\\.[^${UNSAFE}/]+)`;
  return `^(${name}(/${name})*)?$`;
})();

/** Text on one line, in NFC: the same text in two encodings is one folder or tag. */
const line = lazy(() =>
  z
    .string()
    .refine(isSafeText, { message: "Must not contain control or text-direction characters.", abort: true })
    .transform((text) => text.normalize("NFC")),
);

const lineOf = (maxLength: number) =>
  line()
    .refine((text) => text !== "" && [...text].length <= maxLength, `Must have 1 to ${maxLength} characters.`)
    .meta({ minLength: 1, maxLength, pattern: LINE });

const fileName = lazy(() =>
  line()
    .refine(
      (text) => cleanName(text) === text,
      "Must be a file name of 1 to 200 bytes, without slashes and surrounding white space.",
    )
    .meta({
      minLength: 1,
      maxLength: 200,
      pattern: FILE_NAME,
      description: "The display and download name, at most 200 bytes. Default: `originalName`.",
    }),
);

const isFolder = (path: string) =>
  path === "" ||
  (Buffer.byteLength(path) <= MAX_FOLDER_BYTES && path.split("/").every((name) => !/^\.{0,2}$/.test(name)));

export const folder = lazy(() =>
  line()
    .refine(
      isFolder,
      `Must be a path such as \`a/b\`: at most ${MAX_FOLDER_BYTES} bytes, without empty, \`.\` and \`..\` names.`,
    )
    .meta({
      maxLength: MAX_FOLDER_BYTES,
      pattern: FOLDER,
      description: "A path such as `a/b`. Empty: outside all folders.",
    }),
);

export const tag = lazy(() => lineOf(MAX_TAG_LENGTH));
const unique = (tags: string[]) => [...new Set(tags)];
const areShort = (tags: string[]) => Buffer.byteLength(JSON.stringify(tags)) <= MAX_TAGS_BYTES;
export const tags = lazy(() =>
  z
    .array(tag())
    .max(MAX_TAGS, `Must have at most ${MAX_TAGS} tags.`)
    .refine(areShort, `Must have at most ${MAX_TAGS_BYTES} bytes as JSON.`)
    .transform(unique),
);
export const someTags = lazy(() =>
  z.array(tag()).min(1, "Must have at least one tag.").max(MAX_TAGS).transform(unique),
);

export const reference = lazy(() => lineOf(MAX_REFERENCE_LENGTH));

/**
 * Whether the value can be stored: SQLite truncates text at NUL, unpaired surrogates have no UTF-8 encoding, and a number
 * such as 1e400 is parsed as infinity, which JSON can't express.
 */
function isStorable(value: unknown, objects: number, arrays: number): boolean {
  if (typeof value === "number") return Number.isFinite(value);
  if (typeof value === "string") return value.isWellFormed() && !value.includes("\0");
  if (typeof value !== "object" || value === null) return true;
  if (Array.isArray(value)) return arrays > 0 && value.every((item) => isStorable(item, objects, arrays - 1));
  const parts = Object.entries(value).flat();
  return objects > 0 && parts.every((part) => isStorable(part, objects - 1, arrays));
}

const namesIn = (value: unknown): number =>
  typeof value === "object" && value !== null
    ? Object.values(value).reduce(
        (count, part) => count + namesIn(part),
        Array.isArray(value) ? 0 : Object.keys(value).length,
      )
    : 0;

const isObject = (value: unknown) => typeof value === "object" && value !== null && !Array.isArray(value);

const metadata = lazy(() =>
  z
    .unknown()
    .refine(isObject, { message: "Must be an object.", abort: true })
    .refine((value) => isStorable(value, MAX_METADATA_DEPTH, MAX_METADATA_DEPTH), {
      message: `Must nest objects and arrays at most ${MAX_METADATA_DEPTH} deep, without NUL, unpaired surrogates, and numbers above 1.8e308.`,
      abort: true,
    })
    .refine(
      (value) => Buffer.byteLength(JSON.stringify(value)) <= MAX_METADATA_PATCH_BYTES,
      `Must have at most ${MAX_METADATA_PATCH_BYTES} bytes as JSON.`,
    )
    .refine(
      (value) => namesIn(value) <= MAX_METADATA_PATCH_NAMES,
      `Must have at most ${MAX_METADATA_PATCH_NAMES} fields, counting nested ones.`,
    )
    .transform((value) => value as object)
    .meta({
      type: "object",
      description: `Your own fields. Merged with the present ones (RFC 7396): null removes a field. At most ${MAX_METADATA_BYTES / 1024} KiB as JSON after merging. One request can send ${MAX_METADATA_PATCH_BYTES / 1024} KiB and ${MAX_METADATA_PATCH_NAMES} fields.`,
    }),
);

export const properties = lazy(() =>
  z
    .strictObject({
      name: fileName(),
      folder: folder(),
      reference: reference().nullable().meta({ description: "Your own ID of the file. Null removes it." }),
      tags: tags(),
      metadata: metadata(),
      deleteAfter: instant().nullable().meta({
        description:
          "When the service deletes the file, within minutes. Null: never. Must be in the future. The team's retention may delete it earlier.",
      }),
    })
    .partial(),
);

export const propertiesExample = {
  name: "Interview with Ada.mp3",
  folder: "podcast/2026",
  reference: "episode-12",
  tags: ["interview"],
  metadata: { season: 2 },
};

const problem = (message: string) => invalidField("properties", message);

/** Anyone who sees a web page can use its public key, and the database is shared by all teams. */
const MAX_VISITOR_PROPERTIES_BYTES = 1024;

/** A time in the past would delete the file at once, and go before the files of others. @throws `invalid_input` */
export function checkDeleteAfter({ system }: Deps, { deleteAfter }: FileProperties, path = "deleteAfter"): void {
  if (deleteAfter != null && deleteAfter <= system.now()) throw invalidField(path, "Must be in the future.");
}

/** Parses the properties of an upload. @throws `invalid_input` that names the field, such as `properties.folder` */
export function parseProperties(
  deps: Deps,
  text: string | undefined,
  { kind, uploadToken }: Pick<TeamActor, "kind" | "uploadToken">,
): FileProperties {
  if (uploadToken) {
    if (text !== undefined) throw problem("Can't be sent with an upload token, which sets them.");
    return uploadToken.properties;
  }
  if (text === undefined) return {};
  const isPublicKey = kind === "public";
  const maxBytes = isPublicKey ? MAX_VISITOR_PROPERTIES_BYTES : MAX_PROPERTIES_BYTES;
  if (Buffer.byteLength(text) > maxBytes) {
    throw problem(`Must have at most ${maxBytes} bytes${isPublicKey ? " with a public key" : ""}.`);
  }
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw problem("Must be a JSON object.");
  }
  const parsed = validate(properties(), value, ["properties"]);
  checkDeleteAfter(deps, parsed, "properties.deleteAfter");
  return parsed;
}
