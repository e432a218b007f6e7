import { type Column, type Placeholder, sql } from "drizzle-orm";

/** The acceptable versions of a record, from `If-Match`. Undefined accepts any. */
export type ExpectedVersions = number[] | undefined;

/** All versions as one parameter, because D1 allows only 100 in a query. */
export const versionsParameter = (versions: ExpectedVersions): string | null =>
  versions ? `,${versions.join()},` : null;

/** @param versions a `versionsParameter` */
export const hasExpectedVersion = (version: Column, versions: Placeholder) =>
  sql`(${versions} is null or instr(${versions}, ',' || ${version} || ',') > 0)`;
