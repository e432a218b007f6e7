import { env } from "cloudflare:workers";
import { expect } from "vitest";
import { RESTART_MILLISECONDS, WebhookOutbox } from "../../src/webhooks/outbox.ts";
import { createOutboxes, keyOf } from "../../src/webhooks/outboxes.ts";
import type { WebhookKey } from "../../src/webhooks/webhooks.schema.ts";
import type { Invariant } from "./capability-invariant.ts";
import { DB } from "./databases.ts";
import { inObject, isEmptyObject, type ObjectClass } from "./objects.ts";

/* The objects of webhooks, and what always holds of webhooks. */

export const WEBHOOK_OBJECTS: ObjectClass = {
  binding: "WEBHOOKS",
  namespace: env.WEBHOOKS,
  open: (deps, state) => new WebhookOutbox(deps, state),
  calls: ["wake", "health", "list", "redeliver", "replay"],
  reads: ["health", "list"],
  wakes: "wake",
  waits: "redeliver",
  connect: (deps, namespace) => ({ ...deps, outboxes: createOutboxes(namespace, deps.system) }),
  alarmFailed(deps, name, cause) {
    deps.log("error", "webhook_sending_failed", { webhookId: keyOf(name).id, cause });
    return RESTART_MILLISECONDS;
  },
};

export const nameOf = ({ teamId, id }: WebhookKey): string => `${teamId}/${id}`;

/** Runs work in the object of a webhook. */
export const inWebhook = <T>(key: WebhookKey, work: (state: DurableObjectState) => Promise<T> | T): Promise<T> =>
  inObject(WEBHOOK_OBJECTS, nameOf(key), work);

/** Whether the object of a webhook stores nothing. */
export const isEmpty = (key: WebhookKey): Promise<boolean> => isEmptyObject(WEBHOOK_OBJECTS, nameOf(key));

/** Reads the deliveries of a webhook in its object. None if the object is empty. */
export const storedDeliveries = <T extends Record<string, SqlStorageValue>>(
  key: WebhookKey,
  columns: string,
  where = "1",
): Promise<T[]> =>
  inWebhook(key, ({ storage }) => {
    const tables = storage.sql.exec("select 1 from sqlite_master where name = 'deliveries'").toArray();
    if (tables.length === 0) return [];
    return storage.sql.exec<T>(`select ${columns} from deliveries where ${where} order by seq`).toArray();
  });

interface StoredWebhook {
  id: string;
  version: number;
  isFollowing: 0 | 1;
}

/** Each webhook has an event for each of its changes, follows the log while it is enabled, and gets each event once. */
export const webhookInvariant: Invariant = {
  queries: [
    `select id, version, iif(disabled_reason is null, f.id is not null and w.types is f.types, f.id is null) as isFollowing
     from webhooks w left join followers f using (team_id, id) where team_id = ?`,
    `select w.id, e.seq
     from webhooks w
     join events c on c.team_id = w.team_id and c.type = 'webhook.created' and c.subject_id = w.id
     join events e on e.team_id = w.team_id and e.seq > c.seq
     where w.team_id = ? and w.types is null and w.disabled_reason is null`,
  ],

  expectSound([webhooks = []], countOf) {
    for (const { id, version, isFollowing } of webhooks as StoredWebhook[]) {
      const count = (verb: string) => countOf(id, `webhook.${verb}`);
      expect([count("created"), count("updated") + count("disabled")], "a webhook").toEqual([1, version]);
      expect(isFollowing, "a webhook follows the log with its types while it is enabled").toBe(1);
    }
  },

  /** Each event since the creation of a webhook has one delivery to it, which has ended. */
  async expectFinished(teamId, [, received = []]) {
    const seqsOf = Map.groupBy(received as { id: string; seq: number }[], ({ id }) => id);
    for (const [id, events] of seqsOf) {
      const ended = await storedDeliveries<{ seq: number }>({ teamId, id }, "seq", "due_at is null");
      const known = new Set(ended.map(({ seq }) => seq));
      expect(
        events.filter(({ seq }) => !known.has(seq)),
        "undelivered events",
      ).toEqual([]);
    }
  },

  async isFinished(teamIds) {
    const marks = teamIds.map((_, at) => `?${at + 1}`).join();
    const select = DB.prepare(`select id, team_id as teamId from webhooks where team_id in (${marks})`);
    const { results } = await select.bind(...teamIds).all<WebhookKey>();
    for (const key of results) if ((await storedDeliveries(key, "seq", "due_at is not null")).length > 0) return false;
    return true;
  },

  /** The objects of deleted webhooks store nothing, and those of others will look whether they are deleted. */
  async expectSettled(teamId, objects) {
    const { results } = await DB.prepare("select id from webhooks where team_id = ?").bind(teamId).all<WebhookKey>();
    const known = new Set(results.map(({ id }) => id));
    for (const { objectClass, name, at } of objects) {
      if (objectClass !== WEBHOOK_OBJECTS) continue;
      const key = keyOf(name);
      if (key.teamId !== teamId) continue;
      const isUsed = !(await isEmpty(key));
      if (!known.has(key.id)) expect(isUsed, "the object of a deleted webhook stores something").toBe(false);
      else if (isUsed) expect(at, "the alarm of an object that stores something").not.toBeNull();
    }
  },
};
