import { type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { type Db, read, write } from "../../platform/db.ts";
import { deliveries, events } from "../../platform/event-schema.ts";
import { DAY } from "../../platform/system.ts";
import type { Batch } from "../recovery-step.ts";
import { ABOVE_ALL } from "./events.ts";

/*
 * Deletes events older than EVENT_DAYS, a team's oldest events above MAX_TEAM_EVENTS, and the deliveries of deleted
 * events. A team always loses the beginning of its log, so the primary key finds the rows. An index by time would cost one
 * more row written for every event.
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
}

/** The next owners after `after`, and those of them whose oldest row has expired. */
function checkOwners(db: Db, { table, owner, isExpired }: Purge, after: string) {
  const next = sql`select min(${owner}) from ${table}`;
  const owners = sql`with recursive one(id) as (${next} where ${owner} > ${after}
    union all select (${next} where ${owner} > one.id) from one where one.id is not null limit ${OWNERS_PER_CHECK})`;
  const first = sql`select ${isExpired} from ${table} oldest where oldest.${owner} = one.id order by oldest.seq limit 1`;
  return db
    .select({ last: sql<string | null>`last`, checked: sql<number>`checked`, expired: sql<string>`expired` })
    .from(sql`(${owners} select max(id) as last, count(*) as checked,
      json_group_array(id) filter (where (${first})) as expired from one where id is not null) page`);
}

/** Deletes up to `rows` expired rows of each owner. */
function deleteExpired(db: Db, { table, owner, isExpired }: Purge, owners: string[], rows: number) {
  const first = sql`select * from ${table} where ${owner} = json_each.value order by seq limit ${rows}`;
  const expired = sql`select value, d.seq from json_each(${JSON.stringify(owners)}) join ${table} d
    on d.${owner} = value and d.seq in (select oldest.seq from (${first}) oldest where ${isExpired})`;
  return db.delete(table).where(sql`(${owner}, seq) in (${expired})`);
}

/** A purge of the run. Each call takes one batch of at most two queries. */
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
      const query = deleteExpired(deps.db, rowsToPurge, turn, rows);
      const [{ meta }] = await write(deps, [query], { isIdempotent: true });
      deleted = meta.changes;
      if (deleted === rows * turn.length) owners.push(...turn);
      else if (deleted >= rows) isAnyLeft = true;
    }
    const isLast = isLastPage && owners.length === 0 && !isAnyLeft;
    if (isLastPage && owners.length === 0) [after, isAnyLeft, isLastPage] = ["", false, false];
    return { rows: deleted, isLast };
  };
}

const isOld = ({ settings, system }: Deps) => sql`oldest.seq < ${(system.now() - settings.eventDays * DAY) * 1000}`;

/** Deletes events that are too old, or too many for their team. */
export function purgeEvents(deps: Deps) {
  const lastPosition = sql`(select position from events where team_id = oldest.team_id order by seq desc limit 1)`;
  const isExpired = sql`(${isOld(deps)} or oldest.position <= ${lastPosition} - ${deps.settings.maxTeamEvents})`;
  return purge(deps, { table: events, owner: sql`team_id`, isExpired });
}

/** Deletes the deliveries of deleted events. */
export function purgeDeliveries(deps: Deps) {
  const firstKept = sql`(select min(seq) from events where team_id = oldest.team_id)`;
  const isExpired = sql`(${isOld(deps)} or oldest.seq < coalesce(${firstKept}, ${ABOVE_ALL}))`;
  return purge(deps, { table: deliveries, owner: sql`webhook_id`, isExpired });
}
