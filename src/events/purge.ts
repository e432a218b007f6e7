import { type SQL, sql } from "drizzle-orm";
import { rowsOfDeleted } from "../access/deleted-teams.ts";
import { teams } from "../accounts/teams.schema.ts";
import type { Deps, RecoveryStep } from "../deps.ts";
import { type Db, hasRow, read, write } from "../platform/db.ts";
import { DAY } from "../platform/system.ts";
import { events } from "./events.schema.ts";
import { followers } from "./followers.schema.ts";
import { isUnreadBy } from "./followers.ts";
import { isCountedType } from "./kinds.ts";

/*
 * Deletes events older than EVENT_DAYS, and a team's oldest file and link events above MAX_TEAM_EVENTS. Those that a
 * follower has not read yet stay, up to as many again, so that one that hangs can't fill the database. A team always loses
 * the beginning of its log, so the primary key finds the rows. An index by time would cost one more row written for every event.
 * Account events stay among the deleted ones: `events_purged_to` of the team is where the log without gaps begins, so that they
 * are not read again.
 *
 * A round visits all teams and deletes at most an equal share of a statement for each, so a team with a large backlog delays
 * no other.
 */

/** Rows of one statement. D1 runs one statement at a time, and API requests wait while this one runs. */
const PURGED_ROWS = 3000;
/** Teams of one statement. Each has a share of at least 30 rows. */
const TEAMS_PER_DELETE = 100;
/** Queries that a batch sends at most, of each purge. */
const OLD_QUERIES = 34;
const EXCESS_QUERIES = 68;
/** Teams that one query checks, by one lookup in the key for each. */
export const TEAMS_PER_CHECK = 5000;

/** The events to purge. Those of a team expire in the order of `seq`. */
interface Purge {
  /** A condition on an event that the query names `oldest`. */
  isExpired: SQL;
  /** The events of the team `id` that are checked. By default all. */
  isChecked?: (id: SQL) => SQL;
  /** How many queries a batch sends at most, and how many of them `remove` sends. */
  maxQueries: number;
  queriesToRemove: number;
  /** Deletes events of teams whose oldest one has expired, up to a number for each. @returns how many */
  remove: (teams: string[], rows: number) => Promise<number>;
}

/** The next teams after `after`, and those of them whose oldest event has expired. */
function checkTeams(db: Db, { isExpired, isChecked = () => sql`true` }: Purge, after: string) {
  const next = sql`select min(team_id) from ${events}`;
  const found = sql`with recursive one(id) as (${next} where team_id > ${after}
    union all select (${next} where team_id > one.id) from one where one.id is not null limit ${TEAMS_PER_CHECK})`;
  const first = sql`select ${isExpired} from ${events} oldest
    where oldest.team_id = one.id and ${isChecked(sql`one.id`)} order by oldest.seq limit 1`;
  return db
    .select({ last: sql<string | null>`last`, checked: sql<number>`checked`, expired: sql<string>`expired` })
    .from(sql`(${found} select max(id) as last, count(*) as checked,
      json_group_array(id) filter (where (${first})) as expired from one where id is not null) page`);
}

/** Purges in rounds, until one finds nothing or the queries are used. @returns how many events are gone */
async function purgeInRounds(deps: Deps, events: Purge): Promise<number> {
  let purged = 0;
  let queries = 0;
  for (let before = -1; before < purged; ) {
    before = purged;
    let page: { last: string | null; checked: number; expired: string } | undefined;
    do {
      if (++queries > events.maxQueries) return purged;
      [page] = await read(deps, checkTeams(deps.db, events, page?.last ?? ""));
      const expired: string[] = JSON.parse(page?.expired ?? "[]");
      for (let i = 0; i < expired.length; i += TEAMS_PER_DELETE) {
        queries += events.queriesToRemove;
        if (queries > events.maxQueries) return purged;
        const teamIds = expired.slice(i, i + TEAMS_PER_DELETE);
        purged += await events.remove(teamIds, Math.floor(PURGED_ROWS / teamIds.length));
      }
    } while (page?.checked === TEAMS_PER_CHECK);
  }
  return purged;
}

/** Deletes events of both kinds. */
const purgeEvents = async (deps: Deps) => ({
  purged: (await purgeOldEvents(deps)) + (await purgeExcessEvents(deps)),
});

/** Deletes events that are too old. */
function purgeOldEvents(deps: Deps) {
  const isExpired = sql`oldest.seq < ${(deps.system.now() - deps.settings.eventDays * DAY) * 1000}`;
  const remove = async (teamIds: string[], rows: number) => {
    const first = sql`select * from ${events} where team_id = json_each.value order by seq limit ${rows}`;
    const expired = sql`select value, d.seq from json_each(${JSON.stringify(teamIds)}) join ${events} d
      on d.team_id = value and d.seq in (select oldest.seq from (${first}) oldest where ${isExpired})`;
    const deletion = deps.db.delete(events).where(sql`(team_id, seq) in (${expired})`);
    const { meta } = await write(deps, deletion, { isIdempotent: true, caller: null });
    return meta.changes;
  };
  return purgeInRounds(deps, { isExpired, maxQueries: OLD_QUERIES, queriesToRemove: 1, remove });
}

const purgedTo = (teamId: SQL) => sql`coalesce((select events_purged_to from teams where id = ${teamId}), 0)`;

/** Deletes file and link events that are too many for their team. */
function purgeExcessEvents(deps: Deps) {
  const { db, settings } = deps;
  const lastOf = (teamId: SQL) =>
    sql`(select position from events where team_id = ${teamId} order by seq desc limit 1)`;
  const isUnread = (teamId: SQL) => hasRow(followers, sql`${followers.teamId} = ${teamId} and ${isUnreadBy(sql`seq`)}`);
  const isExcess = (teamId: SQL) =>
    sql`position <= ${lastOf(teamId)} - ${settings.maxTeamEvents} * iif(${isUnread(teamId)}, 2, 1)`;
  const remove = async (teamIds: string[], rows: number) => {
    const next = sql`select seq from events where team_id = json_each.value and seq > ${purgedTo(sql`json_each.value`)}
      and ${isExcess(sql`json_each.value`)} order by seq limit ${rows}`;
    const ends = db
      .select({
        ends: sql<string>`json_group_array(json_object('id', value, 'end', (select max(seq) from (${next}) found)))`,
      })
      .from(sql`json_each(${JSON.stringify(teamIds)})`);
    const [found] = await read(deps, ends);
    const given = sql`(select value ->> 'id' as id, value ->> 'end' as last from json_each(${found?.ends}) where last is not null) one`;
    const excess = sql`select d.team_id, d.seq from ${given} join events d on d.team_id = one.id
      and d.seq > ${purgedTo(sql`one.id`)} and d.seq <= one.last where ${isCountedType(sql`d.type`)}`;
    const advance = db
      .update(teams)
      .set({ eventsPurgedTo: sql`(select last from ${given} where one.id = ${teams.id})` })
      .where(sql`${teams.id} in (select id from ${given})`);
    const deletion = db.delete(events).where(sql`(team_id, seq) in (${excess})`);
    const done = await write(deps, { deletion, advance }, { isIdempotent: true, caller: null });
    return done.deletion.meta.changes;
  };
  return purgeInRounds(deps, {
    isExpired: isExcess(sql`oldest.team_id`),
    isChecked: (id) => sql`oldest.seq > ${purgedTo(id)}`,
    maxQueries: EXCESS_QUERIES,
    queriesToRemove: 3,
    remove,
  });
}

/** The events of deleted teams. */
export const eventsOfDeleted = rowsOfDeleted(events, { key: [events.teamId, events.seq] });

export const oldEvents: RecoveryStep = {
  name: "events",
  counts: ["purged"],
  runBatch: purgeEvents,
  maxBatches: 2,
  queries: OLD_QUERIES + EXCESS_QUERIES,
};
