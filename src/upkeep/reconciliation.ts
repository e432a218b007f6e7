import { and, type SQL, sql } from "drizzle-orm";
import { unionAll } from "drizzle-orm/sqlite-core";
import { databaseOf, inEveryDatabase } from "../access/databases.ts";
import type { Deps } from "../deps.ts";
import { allBeside, besideIn, besideKey } from "../files/beside.ts";
import { removedKey } from "../files/deletion.ts";
import { files, teamOfFile } from "../files/files.schema.ts";
import { fileKey, type Named, objectKey } from "../files/names.ts";
import { isTrashed, removed, teamOfRemoved } from "../files/removed.schema.ts";
import { read } from "../platform/db.ts";
import { DAY } from "../platform/system.ts";
import { uploads } from "../uploads/uploads.schema.ts";

/*
 * Compares the bucket with the databases, for the operator. They differ only after a database was restored to an earlier
 * moment, or bytes were deleted by hand. Both are read in the same order: a key begins with the ids of team and file.
 */

/** Objects of a page, and rows of each database. R2 lists at most 1,000. */
const PAGE_OBJECTS = 500;
/** Younger bytes may belong to a request that is not done. */
const MIN_AGE_MILLISECONDS = DAY;
/** The keys of a file's bytes, the objects beside them, and chunks. */
const OBJECT_KEY = /^(([0-9a-f]{24})\/[0-9a-f]{24})[-./]/;
/** Such a key is that of an object beside the bytes. */
const BESIDE_KEY = /^[0-9a-f]{24}\/[0-9a-f]{24}\//;
/** Sorts after all keys of a file that begin with the preceding text. */
const AFTER_FILE = "0";
/** Sorts after all keys. */
const AFTER_ALL = "g";

interface Reconciled {
  /** Bytes without a row. */
  objects: { key: string; sizeBytes: number; storedAt: number; isRemoved: boolean }[];
  /** Rows without bytes, each with the missing key. */
  files: { id: string; teamId: string; key: string }[];
  /** The key after which the next page begins. Null on the last page. */
  next: string | null;
}

/** Team and file of a key. Any other text is a bound that sorts like it. */
const fileOf = (key: string): string => OBJECT_KEY.exec(key)?.[1] ?? key;
const positionOf = ({ teamId, id }: Pick<Named, "teamId" | "id">): string => `${teamId}/${id}`;

/** The rows from one file to another, in the order of their keys. */
function rowsBetween({ db }: Deps, first: string, last: string) {
  const [team, lastTeam] = [first, last].map((text) => text.split("/")[0] ?? "");
  const [id, lastId] = [first, last].map((text) => text.split("/")[1] ?? "");
  const isBetween = (key: SQL) => and(sql`${key} >= (${team}, ${id})`, sql`${key} <= (${lastTeam}, ${lastId})`);
  // An upload, and a file that is being erased, may have bytes or none.
  return unionAll(
    db
      .select({
        id: files.id,
        teamId: sql<string>`${teamOfFile}`.as("team_id"),
        originalName: files.originalName,
        beside: allBeside(teamOfFile, files.id).as("beside"),
        isKept: sql<0 | 1>`1`.as("isKept"),
      })
      .from(files)
      .where(isBetween(fileKey)),
    db
      .select({
        id: removed.id,
        teamId: sql<string>`${teamOfRemoved}`.as("team_id"),
        originalName: removed.originalName,
        beside: allBeside(teamOfRemoved, removed.id).as("beside"),
        isKept: sql<0 | 1>`${isTrashed}`.as("isKept"),
      })
      .from(removed)
      .where(isBetween(removedKey)),
    db
      .select({
        id: sql<string>`${uploads.fileId}`.as("id"),
        teamId: sql<string>`${uploads.teamId}`.as("team_id"),
        originalName: uploads.originalName,
        beside: sql<string>`'[]'`.as("beside"),
        isKept: sql<0 | 1>`0`.as("isKept"),
      })
      .from(uploads)
      .where(isBetween(sql`(${uploads.teamId}, ${uploads.fileId})`)),
  )
    .orderBy(sql`team_id`, sql`id`)
    .limit(PAGE_OBJECTS);
}

/** Compares a page. With `isRemoving`, removes bytes without a row that are old enough. */
export async function reconcile(deps: Deps, after: string, isRemoving: boolean): Promise<Reconciled> {
  // Listed first, because a row is inserted before its bytes.
  const { objects, isTruncated } = await deps.bytes.list(after, PAGE_OBJECTS);
  const lastKey = (isTruncated && objects.at(-1)?.key) || AFTER_ALL;
  // A file may have keys on both sides of `after`.
  const found = await inEveryDatabase(deps, (one) => read(one, rowsBetween(one, fileOf(after), fileOf(lastKey))));
  // A database with more rows ends the page early.
  const ends = found.flatMap((rows) => (rows.length === PAGE_OBJECTS ? rows.slice(-1).map(positionOf) : []));
  const last = [fileOf(lastKey), ...ends].sort()[0] ?? AFTER_ALL;
  const next = ends.length > 0 && ends.includes(last) ? last + AFTER_FILE : lastKey;
  const rows = found.flat().filter((row) => positionOf(row) <= last);
  const known = new Set(rows.map(positionOf));
  const besides = rows.flatMap((row) =>
    besideIn(row.beside).map((object) => ({ row, key: besideKey(row, object), isCurrent: object.state === "current" })),
  );
  const knownBeside = new Set(besides.map(({ key }) => key));
  const isKnown = (key: string) => (BESIDE_KEY.test(key) ? knownBeside.has(key) : known.has(fileOf(key)));
  const orphans = objects.filter(({ key }) => fileOf(key) <= last && !isKnown(key));
  const expected = [
    ...rows.map((row) => ({ row, key: objectKey(row) })),
    ...besides.filter(({ isCurrent }) => isCurrent),
  ];
  const keys = new Set(objects.map(({ key }) => key));
  const absent = expected.filter(({ row, key }) => row.isKept === 1 && !keys.has(key));
  // Nobody knows the rows of a database that is not bound.
  const isRemovable = ({ key, storedAt }: (typeof objects)[number]) => {
    const team = OBJECT_KEY.exec(key)?.[2];
    const isOld = storedAt <= deps.system.now() - MIN_AGE_MILLISECONDS;
    return isRemoving && isOld && team !== undefined && deps.databases.has(databaseOf(team));
  };
  const removed = new Set(orphans.filter(isRemovable).map(({ key }) => key));
  await deps.bytes.remove([...removed]);
  // Bytes may have arrived since the list, or precede the page.
  const missing = await Promise.all(
    absent.map(async ({ row: { id, teamId }, key }) => ((await deps.bytes.head(key)) ? [] : [{ id, teamId, key }])),
  );
  return {
    objects: orphans.map((object) => ({ ...object, isRemoved: removed.has(object.key) })),
    files: missing.flat(),
    next: next === AFTER_ALL ? null : next,
  };
}
