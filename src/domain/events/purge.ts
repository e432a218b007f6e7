import { type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type Db, read, write } from "../../platform/db.ts";
import { deliveries, events } from "../../platform/event-schema.ts";
import { teams } from "../../platform/schema.ts";
import { DAY } from "../../platform/system.ts";
import type { Batch } from "../recovery-step.ts";
import { ABOVE_ALL, isLimitedType } from "./events.ts";

/*
 * Deletes events older than EVENT_DAYS, a team's oldest file and link events above MAX_TEAM_EVENTS, and the deliveries of deleted
 * events. A team always loses the beginning of its log, so the primary key finds the rows. An index by time would cost one
 * more row written for every event. Account events stay among the deleted ones: `events_purged_to` of the team is where the log
 * without gaps begins, so that they are not read again.
 *
 * Teams take turns. A round visits all owners of rows (teams, or webhooks for deliveries) and deletes at most an equal
 * share of a statement for each. An owner with a large backlog gets more rounds, and never delays another owner's turn.
 */

/** Rows of one statement. D1 runs one statement at a time, and API requests wait while this one runs. */
const PURGED_ROWS = 1000;
/** Owners of one statement. Each has a share of at least 10 rows. */
const OWNERS_PER_DELETE = 100;
/** Owners that one query checks, by one lookup in the key for each. */
export const OWNERS_PER_CHECK = 1000;

/** The rows to purge. An owner's rows expire in the order of `seq`. */
interface Purge {
  table: typeof events | typeof deliveries;
  /** The column of the owner. */
  owner: SQL;
  /** A condition on a row that the query names `oldest`. */
  isExpired: SQL;
  /** The rows of the owner `id` that are checked. By default all. */
  isChecked?: (id: SQL) => SQL;
  /** Deletes rows of owners whose oldest row has expired, up to a number for each. @returns how many */
  remove: (owners: string[], rows: number) => Promise<number>;
}

/** The next owners after `after`, and those of them whose oldest row has expired. */
function checkOwners(db: Db, { table, owner, isExpired, isChecked = () => sql`true` }: Purge, after: string) {
  const next = sql`select min(${owner}) from ${table}`;
  const owners = sql`with recursive one(id) as (${next} where ${owner} > ${after}
    union all select (${next} where ${owner} > one.id) from one where one.id is not null limit ${OWNERS_PER_CHECK})`;
  const first = sql`select ${isExpired} from ${table} oldest
    where oldest.${owner} = one.id and ${isChecked(sql`one.id`)} order by oldest.seq limit 1`;
  return db
    .select({ last: sql<string | null>`last`, checked: sql<number>`checked`, expired: sql<string>`expired` })
    .from(sql`(${owners} select max(id) as last, count(*) as checked,
      json_group_array(id) filter (where (${first})) as expired from one where id is not null) page`);
}

/** Deletes up to `rows` expired rows of each owner, from its oldest on. */
async function deleteOldest(
  deps: Deps,
  { table, owner, isExpired }: Omit<Purge, "remove">,
  owners: string[],
  rows: number,
): Promise<number> {
  const first = sql`select * from ${table} where ${owner} = json_each.value order by seq limit ${rows}`;
  const expired = sql`select value, d.seq from json_each(${JSON.stringify(owners)}) join ${table} d
    on d.${owner} = value and d.seq in (select oldest.seq from (${first}) oldest where ${isExpired})`;
  const remove = deps.db.delete(table).where(sql`(${owner}, seq) in (${expired})`);
  const [{ meta }] = await write(deps, [remove], { isIdempotent: true });
  return meta.changes;
}

/** A purge of the run. Each call checks owners, or deletes rows of some. */
function purge(deps: Deps, rowsToPurge: Purge): () => Promise<Batch> {
  let after = "";
  let owners: string[] = [];
  let isLastPage = false;
  /** True if some owner may still have expired rows, so another round is needed. */
  let isAnyLeft = false;
  return async () => {
    if (owners.length === 0) {
      const [[page]] = await read(deps, [checkOwners(deps.db, rowsToPurge, after)]);
      after = page?.last ?? "";
      owners = JSON.parse(page?.expired ?? "[]");
      isLastPage = (page?.checked ?? 0) < OWNERS_PER_CHECK;
    }
    const turn = owners.splice(0, OWNERS_PER_DELETE);
    let deleted = 0;
    if (turn.length > 0) {
      const rows = Math.floor(PURGED_ROWS / turn.length);
      deleted = await rowsToPurge.remove(turn, rows);
      if (deleted === rows * turn.length) owners.push(...turn);
      // Where rows stay among the deleted ones, their number doesn't show whether others follow. Another round checks it.
      else if (deleted >= rows || rowsToPurge.isChecked) isAnyLeft = true;
    }
    const isLast = isLastPage && owners.length === 0 && !isAnyLeft;
    if (isLastPage && owners.length === 0) [after, isAnyLeft, isLastPage] = ["", false, false];
    return { rows: deleted, isLast };
  };
}

const isOld = ({ settings, system }: Deps) => sql`oldest.seq < ${(system.now() - settings.eventDays * DAY) * 1000}`;

const oldestFirst = (deps: Deps, rows: Omit<Purge, "remove">) =>
  purge(deps, { ...rows, remove: (owners, count) => deleteOldest(deps, rows, owners, count) });

/** Deletes events that are too old. */
export const purgeOldEvents = (deps: Deps) =>
  oldestFirst(deps, { table: events, owner: sql`team_id`, isExpired: isOld(deps) });

const purgedTo = (teamId: SQL) => sql`coalesce((select events_purged_to from teams where id = ${teamId}), 0)`;

/** Deletes file and link events that are too many for their team. */
export function purgeExcessEvents(deps: Deps) {
  const { db, settings } = deps;
  const lastOf = (teamId: SQL) =>
    sql`(select position from events where team_id = ${teamId} order by seq desc limit 1)`;
  const isExcess = (teamId: SQL) => sql`position <= ${lastOf(teamId)} - ${settings.maxTeamEvents}`;
  const remove = async (owners: string[], rows: number) => {
    const next = sql`select seq from events where team_id = json_each.value and seq > ${purgedTo(sql`json_each.value`)}
      and ${isExcess(sql`json_each.value`)} order by seq limit ${rows}`;
    const ends = db
      .select({
        ends: sql<string>`json_group_array(json_object('id', value, 'end', (select max(seq) from (${next}) found)))`,
      })
      .from(sql`json_each(${JSON.stringify(owners)})`);
    const [[found]] = await read(deps, [ends]);
    const given = sql`(select value ->> 'id' as id, value ->> 'end' as last from json_each(${found?.ends}) where last is not null) one`;
    const excess = sql`select d.team_id, d.seq from ${given} join events d on d.team_id = one.id
      and d.seq > ${purgedTo(sql`one.id`)} and d.seq <= one.last where ${isLimitedType(sql`d.type`)}`;
    const advance = db
      .update(teams)
      .set({ eventsPurgedTo: sql`(select last from ${given} where one.id = ${teams.id})` })
      .where(sql`${teams.id} in (select id from ${given})`);
    const deletion = db.delete(events).where(sql`(team_id, seq) in (${excess})`);
    const [{ meta }] = await write(deps, [deletion, advance], { isIdempotent: true });
    return meta.changes;
  };
  return purge(deps, {
    table: events,
    owner: sql`team_id`,
    isExpired: isExcess(sql`oldest.team_id`),
    isChecked: (id) => sql`oldest.seq > ${purgedTo(id)}`,
    remove,
  });
}

/** Deletes the deliveries of deleted events, and of account events among them. */
export function purgeDeliveries(deps: Deps) {
  const firstKept = sql`(select min(seq) from events where team_id = oldest.team_id)`;
  const isUnkept = sql`oldest.seq < coalesce(${firstKept}, ${ABOVE_ALL}) or oldest.seq <= ${purgedTo(sql`oldest.team_id`)}`;
  return oldestFirst(deps, {
    table: deliveries,
    owner: sql`webhook_id`,
    isExpired: sql`(${isOld(deps)} or ${isUnkept})`,
  });
}
