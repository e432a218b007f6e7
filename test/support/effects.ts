/** What a Worker did to the platform. A call counts when it has come back: what nobody waited for is not in yet. */
export interface Effects {
  /** Round trips to D1; a batch is one. */
  trips: number;
  rowsRead: number;
  rowsWritten: number;
  /** R2's methods, in order. */
  r2: string[];
  /** Messages put on the queue. */
  messages: number;
  /** Every statement, with the values of its last use. */
  statements: Map<string, unknown[]>;
}

type Bindings = Pick<Env, "DB" | "BUCKET" | "JOBS">;

/** The bindings, with everything that goes through them written down. */
export function watch(bindings: Bindings): { bindings: Bindings; effects: Effects } {
  const effects: Effects = { trips: 0, rowsRead: 0, rowsWritten: 0, r2: [], messages: 0, statements: new Map() };
  return {
    bindings: {
      DB: watchDatabase(bindings.DB, effects),
      BUCKET: watchBucket(bindings.BUCKET, effects),
      JOBS: watchQueue(bindings.JOBS, effects),
    },
    effects,
  };
}

function watchDatabase(database: D1Database, effects: Effects): D1Database {
  const originals = new WeakMap<object, D1PreparedStatement>();
  const count = <R extends Pick<D1Result, "meta">>(...results: R[]) => {
    effects.trips += 1;
    for (const { meta } of results) {
      effects.rowsRead += meta.rows_read;
      effects.rowsWritten += meta.rows_written;
    }
  };
  const watched = (sql: string, statement: D1PreparedStatement) => {
    const all = async () => {
      const result = await statement.all();
      count(result);
      return result;
    };
    const proxy = {
      bind: (...values: unknown[]) => {
        effects.statements.set(sql, values);
        return watched(sql, statement.bind(...values));
      },
      all,
      run: all,
      // D1's own `raw` tells no meta. Drizzle reads a batch's rows in this way too.
      raw: async () => (await all()).results.map((row) => Object.values(row as object)),
    };
    originals.set(proxy, statement);
    return proxy;
  };
  return {
    prepare: (sql: string) => {
      effects.statements.set(sql, []);
      return watched(sql, database.prepare(sql));
    },
    batch: async (statements: D1PreparedStatement[]) => {
      const results = await database.batch(statements.map((one) => originals.get(one) ?? one));
      count(...results);
      return results;
    },
  } as unknown as D1Database;
}

function watchBucket(bucket: R2Bucket, effects: Effects): R2Bucket {
  return recording(bucket, effects.r2, (result) => {
    const isUpload = typeof result === "object" && result !== null && "uploadPart" in result;
    return isUpload ? recording(result, effects.r2) : result;
  });
}

/** The target, with the name of every method called written to `log` once it has come back. */
function recording<T extends object>(target: T, log: string[], pass = (result: unknown) => result): T {
  return new Proxy(target, {
    get(_, name) {
      const value = Reflect.get(target, name);
      if (typeof value !== "function") return value;
      return async (...values: unknown[]) => {
        const result = await value.apply(target, values);
        log.push(String(name));
        return pass(result);
      };
    },
  });
}

function watchQueue(queue: Queue, effects: Effects): Queue {
  const watched: Pick<Queue, "send" | "sendBatch"> = {
    send: async (body, options) => {
      const result = await queue.send(body, options);
      effects.messages += 1;
      return result;
    },
    sendBatch: async (messages, options) => {
      const all = [...messages];
      const result = await queue.sendBatch(all, options);
      effects.messages += all.length;
      return result;
    },
  };
  return watched as Queue;
}
