import { type Column, inArray, type SQL, sql } from "drizzle-orm";

/** The versions that a caller accepts (If-Match). Undefined accepts any. */
export type ExpectedVersions = number[] | undefined;

/** Whether the version is one of these, which are one parameter, because D1 allows 100. */
export const isExpectedVersion = (version: Column, versions: number[]): SQL =>
  inArray(version, sql`(select value from json_each(${JSON.stringify(versions)}))`);
