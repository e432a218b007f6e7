import { sql } from "drizzle-orm";
import { hasNone, ofDeletedTeams } from "../access/deleted-teams.ts";
import type { TeamRows } from "../deps.ts";
import { wake } from "../events/followers.ts";
import { read } from "../platform/db.ts";
import { followerOf } from "./webhook-rows.ts";
import { webhooks } from "./webhooks.schema.ts";

/** Webhooks of a batch. Each is a call to its object. */
const WOKEN_WEBHOOKS = 100;

/** The webhooks of deleted teams. The row goes once its object will notice that, and delete the deliveries. */
export const webhooksOfDeleted: TeamRows = {
  async remove(deps) {
    const columns = sql`${webhooks.teamId} as team_id, ${webhooks.id} as id`;
    const next = sql`(${ofDeletedTeams(columns, webhooks, webhooks.teamId)} limit ${WOKEN_WEBHOOKS})`;
    const found = await read(deps, deps.db.select({ teamId: sql<string>`team_id`, id: sql<string>`id` }).from(next));
    const woken = await wake(deps, found.map(followerOf), true);
    const gone = sql`select value ->> 'teamId', value ->> 'id' from json_each(${JSON.stringify(woken)})`;
    return [deps.db.delete(webhooks).where(sql`(team_id, id) in (${gone})`)];
  },
  isGone: hasNone(webhooks, webhooks.teamId),
};
