import { expect } from "vitest";
import { invariants, withResults } from "./capabilities.ts";
import { DB } from "./databases.ts";
import { hasEnded, isHidden, type Row } from "./queries.ts";

/* Invariants of a team's event log: each change has exactly one event, in the order of the changes. */

/**
 * The events that can follow in each state of a file, and the state after them. A held file is not deleted, and stays in the
 * trash if it is there. In the trash, nothing else changes it.
 */
const LIFE: Record<string, Record<string, string>> = (() => {
  const changes = (state: string) => ({ updated: state, reprocessed: state, completed: state, failed: state });
  return {
    unknown: { uploaded: "listed" },
    listed: { ...changes("listed"), held: "held", trashed: "trashed", deleted: "deleted" },
    held: { ...changes("held"), held: "held", released: "listed" },
    trashed: { restored: "listed", held: "held in the trash", deleted: "deleted" },
    "held in the trash": { restored: "held", held: "held in the trash", released: "trashed" },
    deleted: {},
  };
})();

/** The state of a file after its events. Undefined if an event can't follow those before it. */
const stateAfter = (life: string): string | undefined =>
  life
    .trim()
    .split(" ")
    .reduce<string | undefined>((state, event) => LIFE[state ?? ""]?.[event], "unknown");

type Counts = Record<string, number>;

type Subject = { id: string; version: number };

/** The queries of `expectOneEventPerChange`. A caller can add them to its own batch, because each round trip takes time. */
export const eventLogQueries = (teamId: string): D1PreparedStatement[] =>
  [
    // The deletion of a user also records the revocation of the user's keys.
    `select subject_id, type, count(*) as count from (
       select subject_id, type from events where team_id = ?1
       union all
       select value, 'apikey.revoked' from events, json_each(data, '$.revokedKeyIds') where team_id = ?1
       union all
       select data ->> 'newKeyId', 'apikey.created' from events where team_id = ?1 and type = 'apikey.rotated'
     ) group by 1, 2`,
    "select id, version from users where team_id = ?",
    "select id, 0 as version from api_keys where team_id = ? and kind <> 'session' and length(token_hash) = 64",
    `select subject_id as id, group_concat(substr(type, 6) || ' ', '' order by seq) as life
     from events where team_id = ? and type like 'file.%' group by 1`,
    ...invariants.flatMap(({ queries }) => queries),
  ].map((sql) => DB.prepare(sql).bind(teamId));

/** Counts the events of each subject by type. */
function countsOf(rows: unknown[]): Map<string, Counts> {
  const counts = new Map<string, Counts>();
  for (const { subject_id: id, type, count } of rows as { subject_id: string; type: string; count: number }[]) {
    counts.set(id, { ...counts.get(id), [type]: count });
  }
  return counts;
}

/** Asserts that the results of `eventLogQueries` contain one event per change. `files` are the team's rows. */
export function expectOneEventPerChange(
  files: Row[],
  [counted = [], users, keys, lives, ...ofCapabilities]: unknown[][],
): void {
  for (const { id, life } of lives as { id: string; life: string }[])
    expect(stateAfter(life), `the state of ${id} after ${life}`).toBeDefined();
  const countsById = countsOf(counted);
  const deletedIds = new Set(countsById.keys());
  const of = (id: string, ...types: string[]) => {
    deletedIds.delete(id);
    return types.map((type) => countsById.get(id)?.[type] ?? 0);
  };
  for (const file of files) {
    const [uploaded, deleted] = of(file.id, "file.uploaded", "file.deleted");
    const [completed = 0, failed = 0, reprocessed = 0] = of(
      file.id,
      "file.completed",
      "file.failed",
      "file.reprocessed",
    );
    // A file in the trash was not deleted yet.
    if (isHidden(file) && file.trashed_at === null)
      expect(deleted, `a hidden file (${file.status}) has both events or none`).toBe(uploaded);
    else {
      expect([uploaded, deleted], `a file that is ${file.status}`).toEqual([1, 0]);
      // A file in the trash keeps its status, and one that was being processed will be processed again.
      const known = file.file ? { ...file, status: JSON.parse(file.file).status } : file;
      expect(completed + failed, `results of a file that is ${file.status}`).toBe(
        reprocessed + Number(hasEnded(known)),
      );
      const [trashed = 0, restored = 0] = of(file.id, "file.trashed", "file.restored");
      expect(trashed - restored, "moves to the trash").toBe(file.trashed_at === null ? 0 : 1);
    }
  }
  for (const user of users as Subject[]) {
    const counts = of(user.id, "user.created", "user.updated", "user.deleted");
    expect(counts, "a user").toEqual([1, user.version, 0]);
  }
  for (const key of keys as Subject[]) {
    expect(of(key.id, "apikey.created", "apikey.revoked"), "a key").toEqual([1, 0]);
  }
  for (const { invariant, results } of withResults(ofCapabilities)) {
    invariant.expectSound(results, (id, type) => of(id, type)[0] ?? 0);
  }
  for (const id of deletedIds) {
    const counts = countsById.get(id) ?? {};
    // The operator's log also has the deletion of a team, and outlives it.
    if (counts["team.created"]) continue;
    const count = (...verbs: string[]) =>
      Object.entries(counts).reduce((sum, [type, n]) => sum + (verbs.includes(type.split(".")[1] ?? "") ? n : 0), 0);
    // A login's session has no `session.created` event, and sessions also end with their key or user, or expire.
    if (Object.keys(counts).every((type) => type.startsWith("session."))) {
      expect(Math.max(...Object.values(counts)), `a session: ${JSON.stringify(counts)}`).toBe(1);
      continue;
    }
    // A link also ends with its file, or expires.
    if (counts["link.created"] === 1) continue;
    const created = count("uploaded", "created");
    expect([created, count("deleted", "revoked")], `a deleted record: ${JSON.stringify(counts)}`).toEqual([1, 1]);
  }
}

/** Asserts that nothing is left to do for the events of the team. */
export async function expectFinished(teamId: string, [, , , , ...ofCapabilities]: unknown[][]): Promise<void> {
  for (const { invariant, results } of withResults(ofCapabilities)) await invariant.expectFinished(teamId, results);
}
