import type { Context, Hono, MiddlewareHandler } from "hono";
import type * as z from "zod";
import type { Deps } from "../deps.ts";
import type { Actor, ActorWith, Right } from "../domain/actor.ts";
import type { Caller } from "../domain/proof.ts";
import type { Code } from "../errors.ts";
import { identified, proven } from "./auth.ts";
import { jsonBody, validate } from "./validate.ts";

export type AppEnv = {
  Bindings: Env;
  Variables: {
    requestId: string;
    /** Set before all else: it works when `deps` can't be had. */
    log: Deps["log"];
    deps: Deps;
    caller: Caller;
    actor: Actor;
    /** The code of the error that was answered, for the log. */
    code?: Code;
  };
};

type Output<S> = S extends z.ZodType ? z.output<S> : undefined;

interface Request<Q, B> {
  c: Context<AppEnv>;
  deps: Deps;
  /** The path's `{id}`; empty where the path has none. */
  id: string;
  query: Output<Q>;
  body: Output<B>;
}

interface Contract<Q extends z.ZodType | undefined, B extends z.ZodType | undefined, S extends z.ZodType> {
  summary: string;
  description?: string;
  query?: Q;
  /** A JSON body. */
  body?: B;
  /** An example of the JSON body. */
  bodyExample?: B extends z.ZodType ? z.input<B> : never;
  /** The body is multipart/form-data with one part `file`; the operation reads it as a stream. */
  takesFile?: true;
  /** Request headers that it honours, each with what it is for. */
  requestHeaders?: Record<string, string>;
  success: {
    description: string;
    schema: S;
    example: z.input<S>;
    /** Response headers beside those of every response. */
    headers?: Record<string, string>;
  };
  /** Codes it may answer beside those that follow from its other properties. */
  refusals?: Code[];
}

/** An operation of the API: its contract and what carries it out. The table in app.ts gives it method and path. */
export interface Operation extends Contract<z.ZodType | undefined, z.ZodType | undefined, z.ZodType> {
  access: Right | "open";
  steps: MiddlewareHandler<AppEnv>[];
}

type Answer<S extends z.ZodType> = Promise<z.input<S> | Response>;

function assemble<Q extends z.ZodType | undefined, B extends z.ZodType | undefined, S extends z.ZodType>(
  access: Operation["access"],
  contract: Contract<Q, B, S>,
  before: MiddlewareHandler<AppEnv>[],
  beforeRefusingQuery: MiddlewareHandler<AppEnv> | undefined,
  handle: (request: Request<Q, B>) => Answer<S>,
): Operation {
  const { query, body } = contract;
  const answer: MiddlewareHandler<AppEnv> = async (c) => {
    // What the validators left is typed by the contract; Hono's own inference ends at a table of operations.
    const valid = (target: "query" | "json") => c.req.valid(target as never) as never;
    const result = await handle({
      c,
      deps: c.var.deps,
      id: c.req.param("id") ?? "",
      query: (query && valid("query")) as Output<Q>,
      body: (body && valid("json")) as Output<B>,
    });
    return result instanceof Response ? result : c.json(result as object);
  };
  const steps = [
    ...before,
    ...(query ? [validate("query", query, beforeRefusingQuery)] : []),
    ...(body ? [jsonBody, validate("json", body)] : []),
    answer,
  ];
  return { ...contract, access, steps } as Operation;
}

/**
 * An operation that only reads: the domain proves the caller in the same round trip as it reads, so `caller` is not
 * proven yet when `handle` is called. Before its query is refused, the caller is.
 */
export function read<R extends Right, S extends z.ZodType, Q extends z.ZodType | undefined = undefined>(
  access: R,
  contract: Contract<Q, undefined, S>,
  handle: (request: Request<Q, undefined> & { caller: Caller }) => Answer<S>,
): Operation {
  return assemble(access, contract, [identified], proven(access), (request) =>
    handle({ ...request, caller: request.c.var.caller }),
  );
}

/** An operation that writes: the caller is proven before the body is looked at. */
export function write<
  R extends Right,
  S extends z.ZodType,
  Q extends z.ZodType | undefined = undefined,
  B extends z.ZodType | undefined = undefined,
>(
  access: R,
  contract: Contract<Q, B, S>,
  handle: (request: Request<Q, B> & { actor: ActorWith<R> }) => Answer<S>,
): Operation {
  return assemble(access, contract, [identified, proven(access)], undefined, (request) =>
    handle({ ...request, actor: request.c.var.actor as ActorWith<R> }),
  );
}

/** An operation without a token. */
export function open<S extends z.ZodType, B extends z.ZodType | undefined = undefined>(
  contract: Contract<undefined, B, S>,
  handle: (request: Request<undefined, B>) => Answer<S>,
): Operation {
  return assemble("open", contract, [], undefined, handle);
}

/** `GET /docs/v1/uploads/{id}`: the interface's way of writing a route. */
export type Route = `${"GET" | "POST" | "PATCH" | "DELETE"} /${string}`;
export type Api = Record<Route, Operation>;

export function splitRoute(route: string): { method: string; path: string } {
  const [method = "", path = ""] = route.split(" ");
  return { method, path };
}

/** Mounts every operation of the table; answers which methods a path takes. */
export function mount(app: Hono<AppEnv>, api: Api): (path: string) => string[] {
  const known = Object.entries(api).map(([route, operation]) => {
    const { method, path } = splitRoute(route);
    app.on(method, [path.replaceAll(/\{(\w+)\}/g, ":$1")], ...operation.steps);
    return { method, pattern: new RegExp(`^${path.replaceAll(/\{\w+\}/g, "[^/]+")}$`) };
  });
  return (path) => known.filter(({ pattern }) => pattern.test(path)).map(({ method }) => method);
}

/** A page's `Link` to the next (RFC 8288), with the same limit and filters. Null cursor: the last page, no link. */
export function nextLink(c: Context<AppEnv>, cursor: string | null): Record<string, string> {
  if (cursor === null) return {};
  const url = new URL(c.req.url);
  url.searchParams.delete("page");
  url.searchParams.set("cursor", cursor);
  return { Link: `<${url}>; rel="next"` };
}
