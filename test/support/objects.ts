import { runInDurableObject } from "cloudflare:test";
import { AsyncLocalStorage } from "node:async_hooks";
import type { Deps } from "./deps.ts";

/*
 * Durable Objects in tests: their storage is real. The alarm of a real object would run in real time, with real requests. So tests
 * store its time elsewhere, and run it when they want. Which classes there are says capabilities.ts.
 */

type State = Pick<DurableObjectState, "id" | "storage">;

/** An object in memory. Its methods besides `run` are what the Worker calls. */
export interface OpenObject {
  /** Runs the alarm. */
  run(): Promise<void>;
}

/** A class of Durable Objects. */
export interface ObjectClass {
  readonly binding: "WEBHOOKS" | "SEARCH";
  readonly namespace: DurableObjectNamespace;
  open(deps: Deps, state: State): OpenObject;
  /** The methods that the Worker calls. */
  readonly calls: readonly string[];
  /** The methods that change nothing. */
  readonly reads: readonly string[];
  /** The one that sets the alarm to now. */
  readonly wakes: string;
  /** The one that does so, and waits for what the alarm does, if there is one. */
  readonly waits?: string;
  /** Has the dependencies reach the objects in this namespace. */
  connect(deps: Deps, namespace: DurableObjectNamespace): Deps;
  /** Logs an alarm that failed, as the Worker does. @returns after how many milliseconds it runs again */
  alarmFailed(deps: Deps, name: string, cause: unknown): number;
}

/** When the alarm of an object is due. Null if it is not set. */
export interface Alarm {
  at: number | null;
}

const current = new AsyncLocalStorage<DurableObjectState>();

/** Runs work in an object: only there may code use its storage. Work that is in it already stays there. */
export async function inObject<T>(
  { namespace }: Pick<ObjectClass, "namespace">,
  name: string,
  work: (state: DurableObjectState) => Promise<T> | T,
): Promise<T> {
  const entered = current.getStore();
  if (entered?.id.name === name) return work(entered);
  return runInDurableObject(namespace.getByName(name), (_: unknown, state: DurableObjectState) =>
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

/** A call to an object. */
export type ObjectCall = (object: OpenObject) => Promise<unknown>;

/** A namespace whose objects pass their calls on. */
export function namespaceWith(
  { calls }: ObjectClass,
  pass: (name: string, method: string, call: ObjectCall) => Promise<unknown>,
): DurableObjectNamespace {
  const methodOf =
    (name: string, method: string) =>
    (...input: unknown[]) =>
      pass(name, method, (object) =>
        (object as unknown as Record<string, (...input: unknown[]) => Promise<unknown>>)[method]!(...input),
      );
  const getByName = (name: string) =>
    Object.fromEntries(calls.map((method) => [method, methodOf(name, method)])) as unknown as DurableObjectStub;
  return { getByName } as DurableObjectNamespace;
}

/** Objects that work as soon as they are called, without an alarm. */
export const promptObjects = (objectClass: ObjectClass, deps: Deps): DurableObjectNamespace =>
  namespaceWith(objectClass, (name, method, call) =>
    inObject(objectClass, name, async ({ id, storage }) => {
      const object = objectClass.open(deps, { id, storage: storageWith(storage, { at: null }) });
      const result = call(object);
      if (method !== objectClass.waits) await result;
      if (method === objectClass.waits || method === objectClass.wakes) await object.run();
      return result;
    }),
  );

/** Whether an object stores nothing. */
export const isEmptyObject = (objectClass: ObjectClass, name: string): Promise<boolean> =>
  inObject(objectClass, name, ({ storage }) => {
    const query = "select 1 from sqlite_master where type = 'table' and name not like '\\_cf%' escape '\\'";
    return storage.sql.exec(query).toArray().length === 0;
  });
