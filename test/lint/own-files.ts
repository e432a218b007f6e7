import { eq } from "drizzle-orm";
import type { TeamActor } from "../../src/access/authorization.ts";
import { filesOf } from "../../src/access/own-files.ts";
import { files, teamOfFile } from "../../src/files/files.schema.ts";
import { isFile } from "../../src/files/names.ts";

/** A query of files for a caller compiles only with the caller's files. `tsc` checks that each line marked below is an error. */
export const queriesOf = (caller: TeamActor, id: string) => [
  // @ts-expect-error: the type of the table lacks the column.
  eq(files.teamId, caller.teamId),
  // @ts-expect-error: no text has the type of the column.
  eq(teamOfFile, caller.teamId),
  // @ts-expect-error: `ownerId` is missing.
  isFile({ teamId: caller.teamId, id }),
  // @ts-expect-error: `ownerId` is missing.
  filesOf({ teamId: caller.teamId }),
  filesOf(caller),
  isFile({ ...caller, id }),
];
