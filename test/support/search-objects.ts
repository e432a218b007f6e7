import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { createSearchIndexes } from "../../src/search/indexes.ts";
import { RESTART_MILLISECONDS, TeamIndex } from "../../src/search/team-index.ts";
import type { Invariant } from "./capability-invariant.ts";
import { DB } from "./databases.ts";
import { inObject, isEmptyObject, type ObjectClass } from "./objects.ts";

/* The indexes of teams, and what always holds of them. */

export const SEARCH_OBJECTS: ObjectClass = {
  binding: "SEARCH",
  namespace: env.SEARCH,
  open: (deps, state) => new TeamIndex(deps, state),
  calls: ["wake", "search", "status", "rebuild"],
  reads: ["search", "status"],
  wakes: "wake",
  connect: (deps, namespace) => ({ ...deps, searchIndexes: createSearchIndexes(namespace, deps.system) }),
  alarmFailed(deps, name, cause) {
    deps.log("error", "search_indexing_failed", { teamId: name, cause });
    return RESTART_MILLISECONDS;
  },
};

/** Runs work in the object of a team. */
export const inIndex = <T>(teamId: string, work: (state: DurableObjectState) => Promise<T> | T): Promise<T> =>
  inObject(SEARCH_OBJECTS, teamId, work);

export const isEmptyIndex = (teamId: string): Promise<boolean> => isEmptyObject(SEARCH_OBJECTS, teamId);

interface Transcript {
  fileId: string;
  version: string;
}

/** The transcripts that the index of a team has, and its state. Null if its object stores nothing. */
export async function storedIndex(teamId: string) {
  if (await isEmptyIndex(teamId)) return null;
  return inIndex(teamId, ({ storage: { sql } }) => {
    const query = "select distinct file_id as fileId, version from parts order by file_id";
    const [state] = sql.exec<{ json: string }>("select json from state").toArray();
    const transcripts = sql.exec(query).toArray() as unknown as Transcript[];
    return { transcripts, state: JSON.parse(state?.json ?? "null") };
  });
}

/** An index that is complete has the present transcripts, and an object of a deleted team stores nothing. */
export const searchInvariant: Invariant = {
  queries: [
    `select o.file_id as fileId, o.version from file_objects o join files f on f.team_id = o.team_id and f.id = o.file_id
     where o.team_id = ? and o.kind = 'transcript' and o.state = 'current' order by o.file_id`,
  ],

  expectSound() {},

  async expectFinished(teamId, [present = []]) {
    const index = await storedIndex(teamId);
    // A wake was lost before the index had a row in `followers`. The first search builds it.
    if (index !== null) expect(index.transcripts, "the transcripts of the index").toEqual(present);
  },

  async isFinished(teamIds) {
    for (const teamId of teamIds) {
      const index = await storedIndex(teamId);
      if (index === null) continue;
      const last = await DB.prepare("select max(seq) as seq from events where team_id = ?").bind(teamId).first("seq");
      if (index.state.building !== null || index.state.cursor < (last as number)) return false;
    }
    return true;
  },

  async expectSettled(teamId, objects) {
    const team = await DB.prepare("select id from teams where id = ?").bind(teamId).first();
    for (const { objectClass, name, at } of objects) {
      if (objectClass !== SEARCH_OBJECTS || name !== teamId) continue;
      const isUsed = !(await isEmptyIndex(teamId));
      if (!team) expect(isUsed, "the index of a deleted team stores something").toBe(false);
      else if (isUsed) expect(at, "the alarm of an index").not.toBeNull();
    }
  },
};
