import type { Context, Hono } from "hono";
import type * as z from "zod";
import type { Deps } from "../deps.ts";
import { type Access, type ActorWith, authorize, type Credential } from "../domain/accounts/authorization.ts";
import { authorizeWrite } from "../domain/accounts/write-authorization.ts";
import { AppError, type Code } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";
import { noteCaller, withCredential } from "./authentication.ts";
import { renderMethodNotAllowed } from "./failures.ts";
import type { Tag } from "./introduction.ts";
import { type BodySchema, type Output, type QuerySchema, readBody, readQuery } from "./validation.ts";

interface Request<Q, B> {
  c: Context<AppEnv>;
  deps: Deps;
  /** The path's `{id}`; empty if the path has none. */
  id: string;
  query: Output<Q>;
  body: Output<B>;
}

export interface HeaderContract {
  description: string;
  required?: true;
  schema: Record<string, unknown>;
}

interface Contract<Q extends QuerySchema, B extends BodySchema, S extends z.ZodType> {
  /** Its group in the OpenAPI document. */
  tag: Tag;
  summary: string;
  description?: string;
  query?: Q;
  /** A JSON body. */
  body?: B;
  /** The body can be absent, and so can all of its fields. */
  isBodyOptional?: true;
  /** The limit of a JSON body; by default `JSON_BODY_BYTES`. */
  maxBodyBytes?: number;
  /** An example of the JSON body. */
  bodyExample?: B extends z.ZodType ? z.input<B> : never;
  /** The body is multipart/form-data with one part `file`; the operation reads it as a stream. */
  takesFile?: true;
  /** The body is bytes of this type; the operation reads it as a stream. */
  takesBytes?: string;
  /** How long a public key may still run the operation after its expiry. */
  graceMilliseconds?: number;
  /** Replaces 429 and 503, on which its clients would start over. */
  retryableFailureCode?: Code;
  requestHeaders?: Record<string, HeaderContract>;
  success: {
    /** Default: 200. */
    statuses?: (200 | 201 | 204 | 206 | 304)[];
    description: string;
    /** Absent if the response has no body. */
    schema?: S;
    example?: z.input<S>;
    /** The body is the bytes of a file. */
    isFile?: true;
    /** Response headers besides the common ones. */
    headers?: Record<string, string>;
  };
  /** Error codes besides those that follow from the other properties. */
  errorCodes?: Code[];
}

/** An operation of the API: its contract and its handler. The table in app.ts gives it an id, a method and a path. */
export interface Operation extends Contract<QuerySchema, BodySchema, z.ZodType> {
  /** `public` needs no token. */
  access: Access | "public";
  answer(c: Context<AppEnv>): Promise<Response>;
}

type Answer<S extends z.ZodType> = Promise<z.input<S> | Response>;

async function respond<S extends z.ZodType>(c: Context<AppEnv>, answer: Answer<S>): Promise<Response> {
  const result = await answer;
  return result instanceof Response ? result : c.json(result as object);
}

function requestOf<Q, B>(c: Context<AppEnv>, query: Output<Q>, body: Output<B>): Request<Q, B> {
  return { c, deps: c.var.deps, id: c.req.param("id") ?? "", query, body };
}

/** Errors of a read that are found before the database is queried. */
const REQUEST_ERRORS: Code[] = ["invalid_input", "unsupported_version", "not_found"];

/**
 * An operation that only reads. The domain authorizes the caller in the same round trip as it reads, so `handle` gets a
 * credential and not an actor. Only an authorized caller gets the errors of an invalid request.
 */
export function readOperation<A extends Access, S extends z.ZodType, Q extends QuerySchema = undefined>(
  access: A,
  contract: Contract<Q, undefined, S>,
  handle: (request: Request<Q, undefined> & { credential: Credential<A> }) => Answer<S>,
): Operation {
  return {
    ...contract,
    access,
    answer: (c) =>
      withCredential(c, { ...contract, access }, async (credential) => {
        try {
          const query = readQuery(c, contract.query as Q);
          return await respond(c, handle({ ...requestOf<Q, undefined>(c, query, undefined), credential }));
        } catch (error) {
          const isRequestError = error instanceof AppError && REQUEST_ERRORS.includes(error.code);
          if (isRequestError && !credential.actor) await authorize(c.var.deps, credential);
          throw error;
        }
      }),
  };
}

/**
 * An operation that writes. Only an authorized caller gets a response other than 401, 403, 429 and 503, and can change
 * anything.
 */
export function writeOperation<
  A extends Access,
  S extends z.ZodType,
  Q extends QuerySchema = undefined,
  B extends BodySchema = undefined,
>(
  access: A,
  contract: Contract<Q, B, S>,
  handle: (request: Request<Q, B> & { actor: ActorWith<A>; credential: Credential<A> }) => Answer<S>,
): Operation {
  const operation = {
    ...contract,
    access,
    answer: (c: Context<AppEnv>) =>
      withCredential(c, { ...contract, access }, (credential) =>
        authorizeWrite(c.var.deps, credential, async ({ actor, deps }) => {
          c.set("deps", deps);
          // A new token is noted now, because the operation may take minutes. One that this isolate knows was noted when
          // it was new, and is authorized, and noted again, only with the first batch.
          noteCaller(c, credential);
          const query = readQuery(c, contract.query as Q);
          const body = await readBody(c, contract.body as B, contract);
          return respond(c, handle({ ...requestOf<Q, B>(c, query, body), actor, credential }));
        }),
      ),
  };
  return operation as Operation;
}

/** An operation without a token. */
export function publicOperation<S extends z.ZodType, B extends z.ZodType>(
  contract: Contract<undefined, B, S> & { body: B },
  handle: (request: Request<undefined, B>) => Answer<S>,
): Operation {
  const operation = {
    ...contract,
    access: "public",
    answer: async (c: Context<AppEnv>) => {
      readQuery(c, undefined);
      return respond(c, handle(requestOf<undefined, B>(c, undefined, await readBody(c, contract.body))));
    },
  };
  return operation as Operation;
}

/** A route in the notation of the OpenAPI document, such as `GET /docs/v1/uploads/{id}`. */
export type Route = `${"GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS"} /${string}`;
export type Api = Record<string, [Route, Operation]>;

export function splitRoute(route: string): { method: string; path: string } {
  const [method = "", path = ""] = route.split(" ");
  return { method, path };
}

const methodsOf = (api: Api, path: string): string[] =>
  Object.values(api)
    .map(([route]) => splitRoute(route))
    .filter((route) => route.path === path)
    .map(({ method }) => method);

export function mount(app: Hono<AppEnv>, api: Api): void {
  for (const [route, operation] of Object.values(api)) {
    const { method, path } = splitRoute(route);
    const pattern = path.replaceAll(/\{(\w+)\}/g, ":$1");
    // Hono handles HEAD as GET. If the path has no GET, reject other methods here.
    if (method === "HEAD") {
      app.get(pattern, (c) =>
        c.req.method === "HEAD" ? operation.answer(c) : renderMethodNotAllowed(c, methodsOf(api, path)),
      );
    } else app.on(method, [pattern], (c) => operation.answer(c));
  }
}
