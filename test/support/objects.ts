import { runInDurableObject } from "cloudflare:test";
import { env } from "cloudflare:workers";
import { AsyncLocalStorage } from "node:async_hooks";
import { WebhookOutbox } from "../../src/webhooks/outbox.ts";
import { keyOf, type Outbox, type Outboxes } from "../../src/webhooks/outboxes.ts";
import type { WebhookKey } from "../../src/webhooks/webhooks.schema.ts";
import type { Deps } from "./deps.ts";

/*
 * The Durable Objects of webhooks: their storage is real. The alarm of a real object would run in real time, with real
 * requests to endpoints. So tests store its time elsewhere, and run it when they want.
 */

/** When the alarm of an object is due. Null if it is not set. */
export interface Alarm {
  at: number | null;
}

export const nameOf = ({ teamId, id }: WebhookKey): string => `${teamId}/${id}`;

const stubOf = (key: WebhookKey) => env.WEBHOOKS.getByName(nameOf(key));

const current = new AsyncLocalStorage<DurableObjectState>();

/** Runs work in the object of a webhook: only there may code use its storage. Work that is in it already stays there. */
export async function inObject<T>(key: WebhookKey, work: (state: DurableObjectState) => Promise<T> | T): Promise<T> {
  const entered = current.getStore();
  if (entered?.id.name === nameOf(key)) return work(entered);
  return runInDurableObject(stubOf(key), (_: unknown, state: DurableObjectState) =>
    current.run(state, () => work(state)),
  );
}

/** The real storage, except for the alarm. */
export function storageWith(storage: DurableObjectStorage, alarm: Alarm): DurableObjectStorage {
  const replaced = {
    sql: storage.sql,
    transactionSync: <T>(work: () => T) => storage.transactionSync(work),
    getAlarm: async () => alarm.at,
    setAlarm: async (at: number) => {
      alarm.at = at;
    },
    deleteAll: async () => {
      await storage.deleteAll();
      alarm.at = null;
    },
  };
  return replaced as unknown as DurableObjectStorage;
}

/** The calls of an object, each of which `call` makes. */
export const outboxOf = (
  call: <T>(name: keyof Outbox, work: (outbox: Outbox) => Promise<T>) => Promise<T>,
): Outbox => ({
  wake: (isChanged) => call("wake", (outbox) => outbox.wake(isChanged)),
  health: () => call("health", (outbox) => outbox.health()),
  list: (request) => call("list", (outbox) => outbox.list(request)),
  redeliver: (seq, requestId) => call("redeliver", (outbox) => outbox.redeliver(seq, requestId)),
  replay: (request) => call("replay", (outbox) => outbox.replay(request)),
});

/** Runs the alarm that a resend sets, as the platform does while the call waits for its result. */
export async function withResend<T>(name: keyof Outbox, outbox: WebhookOutbox, result: Promise<T>): Promise<T> {
  if (name === "redeliver") await outbox.run();
  return result;
}

/** Objects that send as soon as they are woken, without an alarm. */
export const promptOutboxes =
  (deps: Deps): Outboxes =>
  (key) =>
    outboxOf((name, work) =>
      inObject(key, async ({ id, storage }) => {
        const outbox = new WebhookOutbox(deps, { id, storage: storageWith(storage, { at: null }) });
        const result = await withResend(name, outbox, work(outbox));
        if (name === "wake") await outbox.run();
        return result;
      }),
    );

/** As a binding. */
export const namespaceOf = (outboxes: Outboxes): Env["WEBHOOKS"] =>
  ({ getByName: (name: string) => outboxes(keyOf(name)) }) as unknown as Env["WEBHOOKS"];

/** Reads the deliveries of a webhook in its object. None if the object is empty. */
export const storedDeliveries = <T extends Record<string, SqlStorageValue>>(
  key: WebhookKey,
  columns: string,
  where = "1",
): Promise<T[]> =>
  inObject(key, ({ storage }) => {
    const tables = storage.sql.exec("select 1 from sqlite_master where name = 'deliveries'").toArray();
    if (tables.length === 0) return [];
    return storage.sql.exec<T>(`select ${columns} from deliveries where ${where} order by seq`).toArray();
  });

/** Whether an object stores nothing. */
export const isEmpty = (key: WebhookKey): Promise<boolean> =>
  inObject(key, ({ storage }) => {
    const query = "select 1 from sqlite_master where name in ('deliveries', 'state')";
    return storage.sql.exec(query).toArray().length === 0;
  });
