import { sql } from "drizzle-orm";
import type { Deps } from "../deps.ts";
import { wakeWebhooks } from "../events/events.ts";
import { read, write } from "../platform/db.ts";
import { webhooks } from "./webhooks.schema.ts";

/** Webhooks of a page. Each is a call to its object. */
const PAGE_WEBHOOKS = 100;
/** Pages of a run. Each sends two queries. */
const MAX_PAGES = 30;
export const WAKE_QUERIES = 2 * MAX_PAGES;

/**
 * Wakes each webhook whose team has events behind its cursor, because a wake may be lost, and stores the cursor that its
 * object reports. A webhook that is behind stays so while its endpoint fails, so another run would not find fewer.
 */
export async function wakeBehind(deps: Deps) {
  const isBehind = sql`status = 'enabled' and exists (select 1 from events
    where events.team_id = webhooks.team_id and seq > max(cursor, since_seq))`;
  let after = { teamId: "", id: "" };
  let count = 0;
  for (let pages = 0; pages < MAX_PAGES; pages++) {
    const page = deps.db
      .select({ teamId: webhooks.teamId, id: webhooks.id })
      .from(webhooks)
      .where(sql`(team_id, id) > (${after.teamId}, ${after.id}) and ${isBehind}`)
      .orderBy(webhooks.teamId, webhooks.id)
      .limit(PAGE_WEBHOOKS);
    const [rows] = await read(deps, [page]);
    const cursors = await wakeWebhooks(deps, rows, false);
    count += cursors.length;
    if (cursors.length > 0) {
      const field = (name: string) => sql`(json_each.value ->> ${name})`;
      const store = deps.db
        .update(webhooks)
        .set({ cursor: field("cursor") })
        .from(sql`json_each(${JSON.stringify(cursors)})`)
        .where(sql`${webhooks.teamId} = ${field("teamId")} and ${webhooks.id} = ${field("id")}`);
      await write(deps, [store], { isIdempotent: true, caller: null });
    }
    const last = rows[PAGE_WEBHOOKS - 1];
    if (!last) break;
    after = last;
  }
  return { webhooks: count };
}
