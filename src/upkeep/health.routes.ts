import type { Context } from "hono";
import { inDatabase } from "../access/databases.ts";
import type { Deps } from "../deps.ts";
import { AppError } from "../errors.ts";
import { oldestUnread } from "../events/followers.ts";
import type { AppEnv } from "../http/app-env.ts";
import { isOperator } from "../http/authentication.ts";
import { renderError } from "../http/failures.ts";
import { isoOrNull } from "../http/validation.ts";
import { type DatabaseState, MAX_RECOVERY_AGE_MILLISECONDS } from "../platform/health.ts";
import { watchRecovery } from "./heartbeat.ts";

/**
 * Since when followers in the database are behind, by the names of service.ts. Null if none is, or the database doesn't respond. They
 * report their cursors to each run of the recovery job, so an event of the last minutes does not count.
 */
async function behindIn(deps: Deps, { number, bytes }: DatabaseState): Promise<Record<string, string | null>> {
  const there = bytes === null ? null : inDatabase(deps, number);
  const since = async (kind: string) => {
    const at = there && (await oldestUnread(there, kind).catch(() => null));
    return at !== null && deps.system.now() - at > MAX_RECOVERY_AGE_MILLISECONDS ? at : null;
  };
  const kinds = Object.entries(deps.service.followers);
  const named = kinds.flatMap(([kind, { lag }]) => (lag === undefined ? [] : [{ kind, lag }]));
  const fields = named.map(
    async ({ kind, lag }): Promise<[string, string | null]> => [lag, isoOrNull(await since(kind))],
  );
  return Object.fromEntries(await Promise.all(fields));
}

/**
 * `GET /health`, for monitors: 200 if databases, bucket and queues respond and the recovery job runs. Otherwise 503 with the
 * names of the parts that fail. The operator also gets the number, size and limit of each database, when its recovery job last
 * ended, and since when followers of the log are behind.
 */
export async function health(c: Context<AppEnv>): Promise<Response> {
  const deps = c.get("deps");
  const isDetailed = await isOperator(c);
  const { failing, databases } = await deps.health.check();
  const { maxDatabaseBytes: maxBytes } = deps.settings;
  const stateOf = (bytes: number | null) => (bytes === null ? "unavailable" : bytes < maxBytes ? "ok" : "full");
  const describe = async (state: DatabaseState) => ({
    number: state.number,
    bytes: state.bytes,
    maxBytes,
    status: stateOf(state.bytes),
    recoveredAt: isoOrNull(state.recoveredAt),
    ...(await behindIn(deps, state)),
  });
  const details = isDetailed && { databases: await Promise.all(databases.map(describe)) };
  for (const { number, bytes } of databases) {
    const database = bytes === null ? null : inDatabase(deps, number);
    if (database) watchRecovery(database);
  }
  if (failing.length === 0) {
    const message = "Database, bucket and queues respond.";
    return c.json({ status: true, message, ...details });
  }
  const error = renderError(c, new AppError("unavailable", { message: `Not responding: ${failing.join(", ")}.` }));
  return details ? c.json({ ...((await error.json()) as object), ...details }, 503) : error;
}
