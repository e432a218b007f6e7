import type { Context } from "hono";
import type { ExpectedVersions } from "../platform/versions.ts";

/* Versions of records: `ETag` in responses, and `If-Match` in requests (RFC 9110, section 13.1.1). */

export const versionHeaders = { ETag: "The record's version, quoted." };

export const ifMatch = {
  "If-Match": {
    description: "Acceptable versions (ETags), or `*`. If the record has none of them, the response is 412.",
    schema: { type: "string" },
  },
};

export const setEtag = (c: Context, { version }: { version: number }): void => c.header("ETag", `"${version}"`);

/** A weak tag names its version too, because proxies that compress weaken tags. `*` matches any version. */
export function expectedVersions(header: string | undefined): ExpectedVersions {
  if (header === undefined || header.trim() === "*") return undefined;
  return header.split(",").flatMap((tag) => {
    const version = /^(?:W\/)?"(\d{1,15})"$/.exec(tag.trim())?.[1];
    return version === undefined ? [] : [Number(version)];
  });
}
