import type { Context } from "hono";
import { AppError } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";

/** `GET /health`, for monitors: 200 if database, bucket and queues respond. Otherwise 503 with the names of the parts that fail. */
export async function health(c: Context<AppEnv>): Promise<Response> {
  const failing = await c.var.deps.health.failing();
  if (failing.length > 0) throw new AppError("unavailable", { message: `Not responding: ${failing.join(", ")}.` });
  return c.json({ status: true, message: "Database, bucket and queues respond." });
}
