import { sql } from "drizzle-orm";
import { REENCRYPTED_ROWS } from "../access/encryption.ts";
import type { Deps } from "../deps.ts";
import { wakeWebhooks } from "../events/events.ts";
import { purgeExcessEvents, purgeOldEvents } from "../events/purge.ts";
import { read, write } from "../platform/db.ts";
import { type Batch, newStep, type RecoveryStep } from "../platform/recovery-step.ts";
import { reencryptSecrets } from "./signing.ts";
import { webhooks } from "./webhooks.schema.ts";

/** Webhooks that one batch checks. It may wake each of them. */
const PAGE_WEBHOOKS = 100;

/**
 * Wakes each webhook whose team has events behind its cursor, because a wake may be lost, and stores the cursor that its
 * object reports.
 */
function wakeBehind(deps: Deps): () => Promise<Batch> {
  let after = { teamId: "", id: "" };
  return async () => {
    const isBehind = sql<number>`status = 'enabled' and exists (select 1 from events
      where events.team_id = webhooks.team_id and seq > max(cursor, since_seq))`;
    const page = deps.db
      .select({ teamId: webhooks.teamId, id: webhooks.id, isBehind: isBehind.as("is_behind") })
      .from(webhooks)
      .where(sql`(team_id, id) > (${after.teamId}, ${after.id})`)
      .orderBy(webhooks.teamId, webhooks.id)
      .limit(PAGE_WEBHOOKS);
    const [rows] = await read(deps, [page]);
    after = rows.at(-1) ?? after;
    const behind = rows.filter(({ isBehind }) => isBehind === 1);
    const cursors = await wakeWebhooks(deps, behind);
    if (cursors.length > 0) {
      const read = (name: string) => sql`(json_each.value ->> ${name})`;
      const store = deps.db
        .update(webhooks)
        .set({ cursor: read("cursor") })
        .from(sql`json_each(${JSON.stringify(cursors)})`)
        .where(sql`${webhooks.teamId} = ${read("teamId")} and ${webhooks.id} = ${read("id")}`);
      await write(deps, [store], { isIdempotent: true });
    }
    return { rows: cursors.length, isLast: rows.length < PAGE_WEBHOOKS };
  };
}

export const EVENT_STEPS: RecoveryStep<"webhooks" | "purged" | "reencrypted">[] = [
  { name: "webhooks", count: "webhooks", isUrgent: true, start: wakeBehind },
  { name: "events", count: "purged", isUrgent: false, start: purgeOldEvents },
  { name: "excess_events", count: "purged", isUrgent: false, start: purgeExcessEvents },
  newStep("secrets", "reencrypted", REENCRYPTED_ROWS, reencryptSecrets),
];
