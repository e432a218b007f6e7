import { Hono } from "hono";
import { cors } from "hono/cors";
import { readDeps } from "./deps.ts";
import { chargeAddress } from "./http/auth.ts";
import { observed, secured } from "./http/envelope.ts";
import * as files from "./http/files.ts";
import * as keys from "./http/keys.ts";
import { describeApi } from "./http/openapi.ts";
import { type Api, type AppEnv, mount } from "./http/operation.ts";
import { notFound, renderError } from "./http/render.ts";
import * as users from "./http/users.ts";
import { consoleLog } from "./platform/log.ts";

/** The whole API. */
export const api = {
  "POST /auth/v1/login": keys.login,
  "POST /auth/v1/apikeys": keys.create,
  "GET /auth/v1/apikeys": keys.list,
  "GET /auth/v1/apikeys/{id}": keys.get,
  "DELETE /auth/v1/apikeys/{id}": keys.remove,

  "POST /auth/v1/users": users.create,
  "GET /auth/v1/users": users.list,
  "GET /auth/v1/users/{id}": users.get,
  "PATCH /auth/v1/users/{id}": users.update,
  "DELETE /auth/v1/users/{id}": users.remove,

  "GET /docs/v1/uploads": files.list,
  "POST /docs/v1/uploads": files.upload,
  "GET /docs/v1/uploads/{id}": files.sign,
  "DELETE /docs/v1/uploads/{id}": files.remove,
  "GET /docs/v1/uploads/{id}/metadata": files.metadata,
  "POST /docs/v1/uploads/{id}/reprocess": files.reprocess,
  "GET /docs/v1/usage": files.usage,
} satisfies Api;

export function createApp(openDeps = readDeps): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  app.use(async (c, next) => {
    c.set("log", consoleLog);
    await next();
  });
  app.use(observed, secured);
  // What it says of every other response is in `secured`.
  app.options(
    "*",
    cors({
      origin: "*",
      allowMethods: ["GET", "POST", "PATCH", "DELETE"],
      allowHeaders: ["Authorization", "Content-Type", "Idempotency-Key", "If-Match"],
      maxAge: 86_400,
    }),
  );
  app.use(async (c, next) => {
    c.set("deps", openDeps(c.env, c.executionCtx));
    await next();
  });
  const methodsAt = mount(app, api);
  let description: ReturnType<typeof describeApi> | undefined;
  app.get("/openapi.json", (c) => {
    description ??= describeApi(api);
    return c.json(description);
  });
  app.notFound(notFound((path) => (path === "/openapi.json" ? ["GET"] : methodsAt(path))));
  app.onError(async (error, c) => renderError(c, await chargeAddress(c, error)));
  return app;
}
