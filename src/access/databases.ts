import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { NO_DB } from "../platform/db.ts";
import { databaseOf } from "../platform/system.ts";
import type { Credential } from "./authorization.ts";

/*
 * A team is in one database, whose number is part of its tokens and of every id made for it. The code that reads a
 * token, or an id without a token, chooses `deps.db` here, and nothing below knows that there are several. A team's own ids
 * need no choice: those of another database are not found in that of its token.
 */

export { databaseOf };

/** The dependencies in the database with this number. Null if it isn't bound. */
export function inDatabase(deps: Deps, number: number): Deps | null {
  const db = deps.databases.get(number);
  return db ? { ...deps, db } : null;
}

/** The dependencies in the database of an id. @throws `not_found` if it isn't bound */
export function inDatabaseOf(deps: Deps, id: string): Deps {
  const chosen = inDatabase(deps, databaseOf(id));
  if (!chosen) throw new AppError("not_found");
  return chosen;
}

/** The dependencies in the database of the token; without one for the operator, who names a team or a record later. */
export const inDatabaseOfToken = (deps: Deps, { database }: Credential): Deps =>
  (database === null ? null : inDatabase(deps, database)) ?? { ...deps, db: NO_DB };

/** The dependencies in each database. */
export const inDatabases = (deps: Deps): Deps[] => [...deps.databases.values()].map((db) => ({ ...deps, db }));

/** Runs the work in every database at once. @throws the error of any of them, so that no result is silently short */
export const inEveryDatabase = <T>(deps: Deps, work: (deps: Deps) => Promise<T>): Promise<T[]> =>
  Promise.all(inDatabases(deps).map(work));
