import type { Context, Hono, MiddlewareHandler } from "hono";
import * as z from "zod";
import {
  type Access,
  type ActorWith,
  authorize,
  type Credential,
  checkCounted,
  type Weigh,
} from "../access/authorization.ts";
import { inDatabaseOf } from "../access/databases.ts";
import type { Scope } from "../access/scopes.ts";
import type { Deps } from "../deps.ts";
import { AppError, type ErrorKind } from "../errors.ts";
import { lazy } from "../lazy.ts";
import type { Page } from "../platform/paging.ts";
import type { AppEnv } from "./app-env.ts";
import { withCredential } from "./authentication.ts";
import { renderMethodNotAllowed } from "./failures.ts";
import {
  type BodySchema,
  isDeepPage,
  nextLinkHeader,
  type Output,
  publicValidators,
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
  /** The schema of the data, or of the whole body if there is no message. Only the document needs it. */
  schema?: () => S;
  example?: z.input<S>;
  /** The body is not JSON, but this. `example` may be one of its text. */
  mediaType?: string;
  /** Response headers besides the common ones. */
  headers?: Record<string, string>;
}

export const OCTET_STREAM = "application/octet-stream";

/** A group of operations in the OpenAPI document. */
export interface Tag {
  name: string;
  description: string;
}

interface Contract<Q extends QuerySchema, B extends BodySchema, S extends z.ZodType> {
  route: Route;
  /** The path as Hono matches it, if a segment is more than one parameter, which Hono's are. */
  pattern?: string;
  tag: Tag;
  summary: string;
  /** How the typed client does it, in JavaScript. */
  sample?: string;
  description?: string;
  /** Built by the first request, like `body`. */
  query?: () => NonNullable<Q>;
  /** A JSON body. */
  body?: () => NonNullable<B>;
  /** The body can be absent, and so can all of its fields. */
  isBodyOptional?: true;
  /** The limit of a JSON body; by default `JSON_BODY_BYTES`. */
  maxBodyBytes?: number;
  /** An example of the JSON body. */
  bodyExample?: B extends z.ZodType ? z.input<B> : never;
  /** The body is multipart/form-data with one part `file`; the operation reads it as a stream. */
  takesFile?: true;
  /** The body is bytes of one of these types, each with an example if they are text. The operation reads it as a stream. */
  takesBytes?: Record<string, string | null>;
  /** They may be declared as `application/octet-stream`, too: generated clients can't send every type. */
  takesOctetStream?: true;
  /** How long a public key may still run the operation after its expiry. */
  graceMilliseconds?: number;
  /** Replaces 429 and 503, after which tus clients would upload the file again from the start. */
  retryableFailure?: ErrorKind;
  /** The scope of a secret key that a public operation can also be called with. */
  optionalScope?: Scope;
  /** Rejects public keys and upload tokens, although they have the scope. The domain decides. */
  rejectsVisitors?: true;
  /**
   * The path has a secret that is all the operation needs, so anyone with the URL may call it: only over https, and only on the
   * host of links, if there is one. The log has the route, never the path.
   */
  hasSecretPath?: true;
  /** The response is a file of a user. Its headers sandbox it, in place of those of the API. */
  sendsFile?: true;
  requestHeaders?: Record<string, HeaderContract>;
  /**
   * The request counts as heavy, because it reads or writes many rows, or sends an email or a request to a URL. Whether that of a
   * list does depends on its query, and may depend on the caller: other indexes serve the lists of a contributor.
   */
  isHeavy?: true | "transcripts" | ((query: Output<Q>, isContributor: boolean) => boolean);
  success: Success<S>;
  /** Errors besides those that follow from the other properties. */
  errors?: ErrorKind[];
}

/** An operation of the API: its contract and its handler. */
export interface Operation extends Contract<QuerySchema, BodySchema, z.ZodType> {
  /** Null if it needs no token. */
  access: Access | null;
  /** Runs before `answer`. */
  middleware?: MiddlewareHandler<AppEnv>[];
  answer(c: Context<AppEnv>): Promise<Response>;
}

/** The contract, whose schemas are built by the first request that is validated, and kept. */
function withLazySchemas<C extends { query?: () => unknown; body?: () => unknown }>(contract: C): C {
  const { query, body } = contract;
  return { ...contract, ...(query && { query: lazy(query) }), ...(body && { body: lazy(body) }) };
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
  const data = schema?.();
  const body = z.strictObject({ message: z.string(), ...(data && { data }) });
  return { schema: message === undefined ? data : body, example: bodyOf(message, example) };
}

function requestOf<Q, B>(
  c: Context<AppEnv>,
  query: Output<Q>,
  body: Output<B>,
  credential?: Credential,
): Request<Q, B> {
  const id = c.req.param("id") ?? "";
  const deps = c.get("deps");
  const isOperator = credential?.tokenHash === null;
  if (!isOperator || credential.access === "any token") return { c, deps, id, query, body };
  // The operator has no team. The team or the record that the request names chooses the database.
  const named = teamIn(query) ?? teamIn(body) ?? id;
  return { c, deps: named === "" ? deps : inDatabaseOf(deps, named), id, query, body };
}

const teamIn = (fields: unknown) => (fields as { teamId?: string } | undefined)?.teamId;

/** The statuses of errors of a read that are found before the database is queried: of its input, its id, or its headers. */
const REQUEST_STATUSES = [400, 404, 412];

/** Tells how heavy a request is. One with an invalid query is light: it is rejected. */
function weigherOf<Q extends QuerySchema>(
  { isHeavy = () => false, query }: Pick<Contract<Q, undefined, z.ZodType>, "isHeavy" | "query">,
  givenQuery: () => Output<Q>,
): Weigh {
  if (typeof isHeavy !== "function") return () => isHeavy;
  if (query === undefined) return () => false;
  try {
    const given = givenQuery();
    return (isContributor) => isHeavy(given, isContributor) || isDeepPage(given ?? {});
  } catch {
    return () => false;
  }
}

/**
 * An operation that only reads. The domain authorizes the caller in the same round trip as it reads, so `handle` gets a
 * credential and not an actor. Only an authorized caller gets the errors of an invalid request. A heavy request is authorized and
 * counted before, so that requests which arrive at once can't read more than the limit allows.
 */
export function readOperation<A extends Access, S extends z.ZodType, Q extends QuerySchema = undefined>(
  access: A,
  described: Contract<Q, undefined, S>,
  handle: (request: Request<Q, undefined> & { credential: Credential<A> }) => Answer<S>,
): Operation {
  const contract = withLazySchemas(described);
  const operation = {
    ...contract,
    access,
    answer: (c: Context<AppEnv>) => {
      const givenQuery = lazy(() => readQuery(c, contract.query?.() as Q));
      const weigh = weigherOf(contract, givenQuery);
      return withCredential(c, { ...contract, access, weigh }, async (credential) => {
        try {
          if (weigh(false)) await authorizeCounted(c, credential);
          const query = givenQuery();
          const answer = handle({ ...requestOf<Q, undefined>(c, query, undefined, credential), credential });
          return await respond(c, contract.success, answer);
        } catch (error) {
          const isRequestError = error instanceof AppError && REQUEST_STATUSES.includes(error.kind.status);
          if (isRequestError && !credential.caller) await authorize(c.get("deps"), credential);
          throw error;
        }
      });
    },
  };
  return operation as Operation;
}

/** The response of a list, for one of its items. */
interface PageContract<S extends z.ZodType> {
  description: string;
  /** For the message, such as `API keys: 20.` */
  noun: string;
  /** The schema of an item. */
  schema: () => S;
  example: z.input<S>;
}

/** The message of a list. */
export const countOf =
  <S extends z.ZodType>(noun: string) =>
  (items: z.input<S>[]) =>
    `${noun}: ${items.length}.`;

/** The contract of a list, with that of its page. */
type ListContract<Q extends QuerySchema, S extends z.ZodType> = Omit<Contract<Q, undefined, S>, "success"> & {
  success: PageContract<S>;
};

/** An operation that returns a page of records. */
export function listOperation<A extends Access, S extends z.ZodType, Q extends QuerySchema, T>(
  access: A,
  { success, ...contract }: ListContract<Q, S>,
  fetchPage: (request: Request<Q, undefined> & { credential: Credential<A> }) => Promise<Page<T>>,
  render: (item: T, request: { deps: Deps }) => z.input<S>,
): Operation {
  const { description, noun, schema, example } = success;
  const page = {
    description,
    message: countOf<S>(noun),
    schema: () => z.array(schema()),
    example: [example],
    headers: nextLinkHeader,
  };
  return readOperation(access, { ...contract, success: page }, async (request) => {
    const { items, next } = await fetchPage(request);
    setNextLink(request.c, next);
    return items.map((item) => render(item, request));
  });
}

/** Authorizes the caller, and counts its request. @throws `rate_limited`, and the errors of `authorize` */
async function authorizeCounted<A extends Access>(
  c: Context<AppEnv>,
  credential: Credential<A>,
): Promise<ActorWith<A>> {
  const actor = await authorize(c.get("deps"), credential);
  await checkCounted(credential);
  return actor;
}

interface Caller<A extends Access> {
  actor: ActorWith<A>;
  credential: Credential<A>;
}

/**
 * An operation that writes, or that is expensive. The caller is authorized before anything else, so only an authorized
 * caller gets a response other than 401, 403, 429 and 503. Its body may take half a minute to arrive, in which the token can be
 * revoked, so the write itself states the right once more (`stillAllowed`).
 */
export function writeOperation<
  A extends Access,
  S extends z.ZodType,
  Q extends QuerySchema = undefined,
  B extends BodySchema = undefined,
>(access: A, described: Contract<Q, B, S>, handle: (request: Request<Q, B> & Caller<A>) => Answer<S>): Operation {
  const contract = withLazySchemas(described);
  const operation = {
    ...contract,
    access,
    answer: (c: Context<AppEnv>) => {
      const givenQuery = lazy(() => readQuery(c, contract.query?.() as Q));
      return withCredential(c, { ...contract, access, weigh: weigherOf(contract, givenQuery) }, async (credential) => {
        const actor = await authorizeCounted(c, credential);
        const query = givenQuery();
        const body = await readBody(c, contract.body?.() as B, contract);
        const request = requestOf<Q, B>(c, query, body, credential);
        return respond(c, contract.success, handle({ ...request, actor, credential }));
      });
    },
  };
  return operation as Operation;
}

/** An operation without a token. */
export function publicOperation<S extends z.ZodType, B extends z.ZodType>(
  described: Contract<undefined, B, S> & { body: () => B },
  handle: (request: Request<undefined, B>) => Answer<S>,
): Operation {
  const contract = withLazySchemas(described);
  const operation = {
    ...contract,
    access: null,
    middleware: publicValidators(contract.body),
    answer: (c: Context<AppEnv>) => {
      const body = c.req.valid("json" as never) as Output<B>;
      return respond(c, contract.success, handle(requestOf<undefined, B>(c, undefined, body)));
    },
  };
  return operation as Operation;
}

/** A route in the notation of the OpenAPI document, such as `GET /docs/v1/uploads/{id}`. */
export type Route = `${"GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE" | "OPTIONS"} /${string}`;
/** Operations by their ids. */
export type Api = Record<string, Operation>;

type IdOf<List> = List extends Api ? keyof List : never;
/** The ids that are in more than one of the lists. */
type Repeated<Lists, Seen = never> = Lists extends [infer First, ...infer Others]
  ? (Seen & keyof First) | Repeated<Others, Seen | keyof First>
  : never;

/** All operations of the lists, in their order. Where two have the same id, this does not compile: one would replace the other. */
export const joinOperations = <Lists extends Api[]>(
  ...lists: [Repeated<Lists>] extends [never] ? Lists : Repeated<Lists>[]
): Record<IdOf<Lists[number]>, Operation> => Object.assign({}, ...lists);

export function splitRoute(route: string): { method: string; path: string } {
  const [method = "", path = ""] = route.split(" ");
  return { method, path };
}

const methodsOf = (api: Api, path: string): string[] =>
  Object.values(api)
    .map(({ route }) => splitRoute(route))
    .filter((route) => route.path === path)
    .map(({ method }) => method);

/** The paths of the operations that match. */
export const pathsOf = (api: Api, matches: (operation: Operation) => boolean | undefined): string[] =>
  Object.values(api)
    .filter(matches)
    .map(({ route }) => splitRoute(route).path);

export function mount(app: Hono<AppEnv>, api: Api): void {
  for (const operation of Object.values(api)) {
    const { method, path } = splitRoute(operation.route);
    const pattern = operation.pattern ?? path.replaceAll(/\{(\w+)\}/g, ":$1");
    // Hono handles HEAD as GET. If the path has no GET, reject other methods here.
    if (method === "HEAD") {
      app.get(pattern, (c) =>
        c.req.method === "HEAD" ? operation.answer(c) : renderMethodNotAllowed(c, methodsOf(api, path)),
      );
    } else app.on(method, [pattern], ...(operation.middleware ?? []), (c) => operation.answer(c));
  }
}
