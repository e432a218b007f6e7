import type { Context, Hono } from "hono";
import * as z from "zod";
import type { Deps } from "../deps.ts";
import { type Access, type ActorWith, authorize, type Credential } from "../domain/accounts/authorization.ts";
import { authorizeWrite } from "../domain/accounts/write-authorization.ts";
import type { Page } from "../domain/paging.ts";
import { AppError, type Code } from "../errors.ts";
import type { AppEnv } from "./app-env.ts";
import { noteCaller, withCredential } from "./authentication.ts";
import { renderMethodNotAllowed } from "./failures.ts";
import type { Tag } from "./introduction.ts";
import {
  type BodySchema,
  nextLinkHeader,
  type Output,
  type QuerySchema,
  readBody,
  readQuery,
  setNextLink,
} from "./validation.ts";

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

interface Success<S extends z.ZodType> {
  /** Default: 200. */
  statuses?: (200 | 201 | 204 | 206 | 304)[];
  description: string;
  /** With a message, the body is `{message, data}`, or `{message}` without a schema, and `handle` returns the data. */
  message?: string | ((data: z.input<S>) => string);
  /** The schema of the data, or of the whole body if there is no message. */
  schema?: S;
  example?: z.input<S>;
  /** The body is the bytes of a file. */
  isFile?: true;
  /** Response headers besides the common ones. */
  headers?: Record<string, string>;
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
  success: Success<S>;
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

async function respond<S extends z.ZodType>(
  c: Context<AppEnv>,
  { message }: Success<S>,
  answer: Answer<S>,
): Promise<Response> {
  const result = await answer;
  return result instanceof Response ? result : c.json(bodyOf(message, result));
}

const bodyOf = <S extends z.ZodType>(message: Success<S>["message"], data: z.input<S>): object =>
  message === undefined ? (data as object) : { message: typeof message === "string" ? message : message(data), data };

/** The schema of the body and an example of it, for OpenAPI. */
export function describeBody({ message, schema, example }: Success<z.ZodType>) {
  const body = z.strictObject({ message: z.string(), ...(schema && { data: schema }) });
  return { schema: message === undefined ? schema : body, example: bodyOf(message, example) };
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
  const operation = {
    ...contract,
    access,
    answer: (c: Context<AppEnv>) =>
      withCredential(c, { ...contract, access }, async (credential) => {
        try {
          const query = readQuery(c, contract.query as Q);
          const answer = handle({ ...requestOf<Q, undefined>(c, query, undefined), credential });
          return await respond(c, contract.success, answer);
        } catch (error) {
          const isRequestError = error instanceof AppError && REQUEST_ERRORS.includes(error.code);
          if (isRequestError && !credential.actor) await authorize(c.var.deps, credential);
          throw error;
        }
      }),
  };
  return operation as Operation;
}

/** The response of a list, for one of its items. */
interface PageContract<S extends z.ZodType> {
  description: string;
  /** For the message, such as `API keys: 20.` */
  noun: string;
  /** The schema of an item. */
  schema: S;
  example: z.input<S>;
}

/** The message of a list. */
export const countOf =
  <S extends z.ZodType>(noun: string) =>
  (items: z.input<S>[]) =>
    `${noun}: ${items.length}.`;

/** An operation that returns a page of records. */
export function listOperation<A extends Access, S extends z.ZodType, Q extends QuerySchema, T>(
  access: A,
  { success, ...contract }: Omit<Contract<Q, undefined, S>, "success"> & { success: PageContract<S> },
  fetchPage: (request: Request<Q, undefined> & { credential: Credential<A> }) => Promise<Page<T>>,
  render: (item: T) => z.input<S>,
): Operation {
  const { description, noun, schema, example } = success;
  const page = {
    description,
    message: countOf<S>(noun),
    schema: z.array(schema),
    example: [example],
    headers: nextLinkHeader,
  };
  return readOperation(access, { ...contract, success: page }, async (request) => {
    const { items, next } = await fetchPage(request);
    setNextLink(request.c, next);
    return items.map(render);
  });
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
          // Notes a new token now, because the operation may take minutes. A known one is noted after the operation.
          noteCaller(c, credential);
          const query = readQuery(c, contract.query as Q);
          const body = await readBody(c, contract.body as B, contract);
          return respond(c, contract.success, handle({ ...requestOf<Q, B>(c, query, body), actor, credential }));
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
      const body = await readBody(c, contract.body);
      return respond(c, contract.success, handle(requestOf<undefined, B>(c, undefined, body)));
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
