import type { Context } from "hono";
import { inDatabase } from "../access/databases.ts";
import { AppError } from "../errors.ts";
import type { AppEnv } from "../http/app-env.ts";
import { isOperator } from "../http/authentication.ts";
import { renderError } from "../http/failures.ts";
import { watchRecovery } from "./heartbeat.ts";

/**
 * `GET /health`, for monitors: 200 if databases, bucket and queues respond and the recovery job runs. Otherwise 503 with the
 * names of the parts that fail. The operator also gets the number, size and limit of each database, and when its recovery
 * job last ended.
 */
export async function health(c: Context<AppEnv>): Promise<Response> {
  const { deps } = c.var;
  const isDetailed = await isOperator(c);
  const { failing, databases } = await deps.health.check();
  const { maxDatabaseBytes: maxBytes } = deps.settings;
  const stateOf = (bytes: number | null) => (bytes === null ? "unavailable" : bytes < maxBytes ? "ok" : "full");
  const details = {
    databases: databases.map(({ number, bytes, recoveredAt }) => ({
      number,
      bytes,
      maxBytes,
      status: stateOf(bytes),
      recoveredAt: recoveredAt === null ? null : new Date(recoveredAt).toISOString(),
    })),
  };
  for (const { number, bytes } of databases) {
    const database = bytes === null ? null : inDatabase(deps, number);
    if (database) watchRecovery(database);
  }
  if (failing.length === 0) {
    const message = "Database, bucket and queues respond.";
    return c.json({ status: true, message, ...(isDetailed && details) });
  }
  const error = renderError(c, new AppError("unavailable", { message: `Not responding: ${failing.join(", ")}.` }));
  return isDetailed ? c.json({ ...((await error.json()) as object), ...details }, 503) : error;
}
