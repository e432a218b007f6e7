import { Hono, type MiddlewareHandler } from "hono";
import { methodNotAllowed } from "hono/method-not-allowed";
import { requestId } from "hono/request-id";
import { type Deps, readDeps } from "./deps.ts";
import { AppError } from "./errors.ts";
import type { AppEnv } from "./http/app-env.ts";
import { renderError, renderMethodNotAllowed } from "./http/failures.ts";

import { preflight, requestLog, requireHttps, responseHeaders } from "./http/middleware.ts";

import { mountDescriptions } from "./http/openapi.ts";
import { mount, pathsOf } from "./http/operation.ts";
import { mountPages } from "./http/pages.ts";
import { pathMatcher } from "./http/paths.ts";
import { consoleLog } from "./platform/log.ts";
import * as service from "./service.ts";
import { health } from "./upkeep/health.routes.ts";
import { watchRecovery } from "./upkeep/heartbeat.ts";

const depsInWorker = (env: Env, ctx: Pick<ExecutionContext, "waitUntil">): Deps => readDeps(env, ctx, service);

/** An authorized request looks whether the recovery job of its database runs. */
const watchRecoveryOfCaller: MiddlewareHandler<AppEnv> = async (c, next) => {
  await next();
  const actor = c.get("credential")?.caller?.actor;
  if (actor && actor.kind !== "operator" && !c.error) watchRecovery(c.get("deps"));
};

const { operations, secretPages } = service;
const isSecretPath = pathMatcher([
  ...pathsOf(operations, ({ hasSecretPath }) => hasSecretPath),
  ...secretPages.map(({ path }) => path),
]);
const isFilePath = pathMatcher(pathsOf(operations, ({ sendsFile }) => sendsFile));

export function createApp(depsOf = depsInWorker): Hono<AppEnv> {
  const app = new Hono<AppEnv>();
  // Never taken from the request: repeated ids would make log lines ambiguous.
  app.use(requestId({ headerName: "" }));
  app.use(async (c, next) => {
    c.set("log", consoleLog);
    await next();
  });
  app.use(requestLog);
  const provideDeps: MiddlewareHandler<AppEnv> = async (c, next) => {
    const deps = { ...depsOf(c.env, c.executionCtx), requestId: c.get("requestId") };
    c.set("deps", deps);
    // With LINK_HOST, users' bytes never share an origin with the console.
    const { linkHost } = deps.settings;
    if (linkHost !== null) {
      const { host } = new URL(c.req.url);
      // Hono routes by this path, which is decoded. That of the URL may have an `s` of `links` as `%73`.
      if ((host === linkHost) !== isSecretPath(c.req.path)) throw new AppError("route_not_found");
    }
    await next();
  };
  mountPages(app, provideDeps, secretPages);
  app.use(responseHeaders(isFilePath));
  app.use(preflight);
  app.use(requireHttps(isSecretPath));
  app.use(methodNotAllowed({ app, onMethodNotAllowed: renderMethodNotAllowed }));
  app.use(provideDeps);
  app.use(watchRecoveryOfCaller);
  mount(app, operations);
  mountDescriptions(app, service);
  app.get("/health", health);
  app.notFound((c) => renderError(c, new AppError("route_not_found")));
  app.onError((error, c) => renderError(c, error));
  return app;
}
