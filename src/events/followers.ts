import { and, eq, isNull, or, type SQL, type SQLWrapper, sql } from "drizzle-orm";
import { teamExists } from "../access/authorization.ts";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { read, write } from "../platform/db.ts";
import type { About, EventType } from "./event-type.ts";
import { events } from "./events.schema.ts";
import { type FollowerKey, followers } from "./followers.schema.ts";

/*
 * The followers of a team's log. The batch of a change returns those that its events concern, and they are woken after it. A wake
 * may be lost, so the recovery job wakes each that is behind. The cursor in the row is a report of the object, never the truth: an
 * object without state begins at `since` or `cursor`, whichever is later.
 *
 * Each row of some kinds is a record, such as an enabled webhook. Others follow the log of every team that has what they want: the
 * object of such a team is woken without a row, and inserts one when it first needs more events than those that are about it.
 */

const keyColumns = { teamId: followers.teamId, kind: followers.kind, id: followers.id };

export const isFollower = ({ teamId, kind, id }: FollowerKey) =>
  and(eq(followers.teamId, teamId), eq(followers.kind, kind), eq(followers.id, id));

/** The number of the last event of the team. */
const lastSeq = (teamId: string) => sql`coalesce((select max(seq) from events where team_id = ${teamId}), 0)`;

/**
 * Part of a batch: follows the log from the next event on, and changes nothing if it does already. `source`, a FROM and WHERE, finds
 * its record, with the types.
 */
export const follow = ({ db }: Pick<Deps, "db">, { teamId, kind, id }: FollowerKey, types: SQLWrapper, source: SQL) =>
  db
    .insert(followers)
    .select(sql`select ${teamId}, ${kind}, ${id}, ${types}, ${lastSeq(teamId)}, 0 ${source}`)
    .onConflictDoNothing();

/** The followers of every team that want to know of such an event. They may have no row yet. */
export const followersAbout = ({ service }: Pick<Deps, "service">, teamId: string, about: About[]): FollowerKey[] =>
  Object.entries(service.followers)
    .filter(([, { wants = [] }]) => wants.some((one) => about.includes(one)))
    .map(([kind]) => ({ teamId, kind, id: teamId }));

/** The followers of a team that an event of the type wakes, or all. `instr` finds the type without reading rows, as `json_each` would. */
export const followersOf = ({ db }: Pick<Deps, "db">, teamId: string, type?: EventType) =>
  db
    .select(keyColumns)
    .from(followers)
    .where(
      and(
        eq(followers.teamId, teamId),
        type && or(isNull(followers.types), sql`instr(${followers.types}, json_quote(${type.name}))`),
      ),
    );

/**
 * Wakes the objects of followers. If that fails, the recovery job wakes them. After a change of the follower or its team
 * (`isChanged`), wait for it before the response: from then on, nothing begins that the change forbids.
 * @returns those that are awake, with their cursors
 */
export async function wake(
  deps: Deps,
  keys: FollowerKey[],
  isChanged: boolean,
): Promise<(FollowerKey & { cursor: number })[]> {
  const woken = keys.map(async (key) => {
    const kind = deps.service.followers[key.kind];
    if (!kind) throw new Error(`No class of objects has the kind ${key.kind}.`);
    return { ...key, cursor: await kind.open(deps, key).wake(isChanged) };
  });
  return (await Promise.allSettled(woken)).flatMap((result) => {
    if (result.status === "fulfilled") return [result.value];
    deps.log("warn", "follower_wake_failed", { cause: result.reason });
    return [];
  });
}

/** Whether a follower has not read the event. */
export const isUnreadBy = (seq: SQL) => sql`${seq} > max(${followers.cursor}, ${followers.since})`;

/**
 * When the oldest event was recorded that a follower of this kind has not read. Cursors are some minutes old, so an event of the last
 * minutes may have been read. Null if all events are.
 */
export async function oldestUnread(deps: Deps, kind: string): Promise<number | null> {
  const ofTeam = eq(events.teamId, followers.teamId);
  const oldest = deps.db
    .select({ at: events.createdAt })
    .from(events)
    .where(and(ofTeam, isUnreadBy(sql`${events.seq}`)))
    .orderBy(events.seq)
    .limit(1);
  const [row] = await read(
    deps,
    deps.db
      .select({ at: sql<number | null>`min(${oldest})` })
      .from(followers)
      .where(and(eq(followers.kind, kind), teamExists(followers.teamId))),
  );
  return row?.at ?? null;
}

/** Followers of a page. Each is a call to its object. */
const PAGE_FOLLOWERS = 100;
/** Pages of a run. Each sends two queries. */
const MAX_PAGES = 30;

/**
 * Wakes each follower whose team has events behind its cursor, and stores the cursor that its object reports. A webhook that is
 * behind stays so while its endpoint fails, so another run would not find fewer.
 */
async function wakeBehind(deps: Deps) {
  const isBehind = sql`exists (select 1 from ${events}
    where ${events.teamId} = ${followers.teamId} and ${isUnreadBy(sql`${events.seq}`)})`;
  let after: FollowerKey = { teamId: "", kind: "", id: "" };
  let count = 0;
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = deps.db
      .select(keyColumns)
      .from(followers)
      .where(sql`(team_id, kind, id) > (${after.teamId}, ${after.kind}, ${after.id}) and ${isBehind}`)
      .orderBy(followers.teamId, followers.kind, followers.id)
      .limit(PAGE_FOLLOWERS);
    const rows = await read(deps, page);
    const reports = await wake(deps, rows, false);
    count += reports.length;
    if (reports.length > 0) {
      const field = (name: string) => sql`(json_each.value ->> ${name})`;
      const store = deps.db
        .update(followers)
        .set({ cursor: field("cursor") })
        .from(sql`json_each(${JSON.stringify(reports)})`)
        .where(
          sql`${followers.teamId} = ${field("teamId")} and ${followers.kind} = ${field("kind")} and ${followers.id} = ${field("id")}`,
        );
      await write(deps, store, { isIdempotent: true, caller: null });
    }
    const last = rows[PAGE_FOLLOWERS - 1];
    if (!last) break;
    after = last;
  }
  return { followers: count };
}

/** The rows of deleted teams. Who follows such a team notices by itself that it is gone. */
export const followersOfDeleted = rowsOfDeleted(followers, { key: [followers.teamId, followers.kind, followers.id] });

/** It looks at all followers each time. */
export const followersBehind: RecoveryStep = {
  name: "followers",
  counts: ["followers"],
  runBatch: wakeBehind,
  maxBatches: 1,
  queries: 2 * MAX_PAGES,
};
