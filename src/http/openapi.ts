import { createHash } from "node:crypto";
import type { Context, Handler, Hono } from "hono";
import * as z from "zod";
import { scopeOf } from "../access/authorization.ts";
import { AppError, COMMON_ERRORS, type ErrorCode, type ErrorKind, errorOf } from "../errors.ts";
import { lazy } from "../lazy.ts";
import { RATE_LIMITS } from "../rate-limits.ts";
import type { AppEnv } from "./app-env.ts";
import { describeAccess, describeService, securityOf, securitySchemes, TITLE } from "./introduction.ts";
import { type Document, renderIndex, renderPage } from "./markdown.ts";
import { type Api, describeBody, OCTET_STREAM, type Operation, splitRoute, type Tag } from "./operation.ts";
import { clientPath } from "./pages.ts";

type Json = Record<string, unknown>;

const [firstLimit, ...otherLimits] = Object.keys(RATE_LIMITS);
const REACHED_LIMIT = `\`"${firstLimit}";r=0;t=60\`: the limit that was reached, and the seconds to wait. The others are ${otherLimits.map((name) => `\`${name}\``).join(", ")}.`;

const HEAVY = "Counts as a heavy request.";

/**
 * For `JSON.parse`. Replaces `anyOf`, of which generators make classes that do not compile or are empty: null becomes a second type, and
 * alternatives that are all text become text, whose description says what it may be. An object or null must have a name: of another one,
 * they forget the null.
 */
function withoutAlternatives(_: string, schema: unknown): unknown {
  const { anyOf, ...whole } = (schema ?? {}) as z.core.JSONSchema.BaseSchema;
  if (!Array.isArray(anyOf)) return schema;
  if (anyOf.every(({ type }) => type === "string")) return { ...whole, type: "string" };
  const [value, none, ...others] = anyOf;
  if (others.length > 0 || none?.type !== "null" || typeof value?.type !== "string") return schema;
  return { ...value, ...whole, type: [value.type, "null"], ...(value.enum && { enum: [...value.enum, null] }) };
}

/**
 * Names a field that stands in each response under two names once: generators for Java make the same name of `_id` and `id`.
 * `x-aliases` names the other one.
 */
function nameOnce(schema: z.core.JSONSchema.BaseSchema): void {
  const { _id, ...properties } = schema.properties ?? {};
  if (_id === undefined || properties.id === undefined) return;
  Object.assign(schema, { properties, "x-aliases": { _id: "id" } });
  schema.required = (schema.required ?? []).filter((name) => name !== "_id");
}

/** Converts a Zod schema to JSON Schema and moves its named schemas to `components`. */
function schemaOf(schema: z.ZodType, io: "input" | "output", components: Json): Json {
  const {
    $schema: _,
    $defs = {},
    ...json
  } = z.toJSONSchema(schema, {
    io,
    override: ({ jsonSchema, zodSchema }) => {
      // Zod drops the default of a value that is transformed.
      const fallback = z.globalRegistry.get(zodSchema)?.default;
      if (fallback !== undefined) jsonSchema.default = fallback as typeof jsonSchema.default;
      // Query parameters arrive as text; the document describes their meaning. Zod's patterns use JavaScript syntax that
      // other validators can't read, so a `format` replaces them.
      if (jsonSchema.type === "integer" || jsonSchema.format) delete jsonSchema.pattern;
      // openapi-generator takes a constant `true` for the text "true".
      if (typeof jsonSchema.const === "boolean") delete jsonSchema.const;
      // Zod's bound for all integers says nothing about a field.
      if (jsonSchema.maximum === Number.MAX_SAFE_INTEGER) delete jsonSchema.maximum;
      delete jsonSchema.id;
      if (jsonSchema.additionalProperties === false) {
        delete jsonSchema.additionalProperties;
        // Responses may gain fields, which a client that forbids others would reject. In requests this means the same, and
        // openapi-generator makes Java classes of it that send their fields: with `additionalProperties`, they are empty maps.
        if (io === "input") jsonSchema.unevaluatedProperties = false;
      }
      if (io === "output") nameOnce(jsonSchema);
    },
  });
  const moved = (value: unknown): Json =>
    JSON.parse(JSON.stringify(value).replaceAll('"#/$defs/', '"#/components/schemas/'), withoutAlternatives);
  for (const [name, definition] of Object.entries($defs)) components[name] = moved(definition);
  return moved(json);
}

type SplitRoute = ReturnType<typeof splitRoute>;

/** The shape of every error. Its codes are the common ones, and those that the operations name, in the order of their statuses. */
function errorSchemaFor(operations: Api): z.ZodType {
  const named = Object.values(operations).flatMap(({ errors = [], retryableFailure = [] }) =>
    errors.concat(retryableFailure),
  );
  const errors = [...new Set([...COMMON_ERRORS, ...named.map(errorOf)])].sort((a, b) => a.status - b.status);
  const codes = errors.map(({ code }) => code);
  const repeated = codes.find((code, i) => codes.indexOf(code) !== i);
  if (repeated !== undefined) throw new Error(`Two errors have the code ${repeated}.`);
  const code = z.enum(codes).meta({
    // Redocly's extension for describing enum values.
    "x-enumDescriptions": Object.fromEntries(
      errors.map(({ code, status, message }) => [code, `${status}: ${message}`]),
    ),
  });
  return z
    .strictObject({
      status: z.literal(false),
      message: z.string(),
      code,
      requestId: z.string(),
      errors: z
        .array(z.strictObject({ path: z.string(), message: z.string() }))
        .optional()
        .meta({ description: "Only for `invalid_input`: each invalid field and its problem." }),
    })
    .meta({ id: "Error", description: "The shape of every error." });
}

/** Every error of an operation. */
function errorsOf(operation: Operation, { method, path }: SplitRoute): ErrorCode[] {
  const codes = new Set<ErrorKind>(operation.errors);
  if (operation.access !== null) {
    for (const code of ["token_missing", "token_invalid", "team_suspended"] as const) codes.add(code);
    codes.add("forbidden");
    if (scopeOf(operation.access)) codes.add("insufficient_scope");
    codes.add(operation.retryableFailure ?? "rate_limited");
  }
  if (path.includes("{")) codes.add("not_found");
  if (!["GET", "HEAD", "OPTIONS"].includes(method)) codes.add("storage_full");
  // Every operation rejects unknown query parameters.
  codes.add("invalid_input");
  if (operation.body) {
    for (const code of ["malformed_json", "upload_timeout", "body_too_large", "unsupported_media_type"] as const)
      codes.add(code);
  }
  codes.add("internal");
  if (!operation.retryableFailure) codes.add("unavailable");
  return [...codes].map(errorOf);
}

function errorExample({ code, message }: ErrorCode): Json {
  const requestId = "0c1d6a54-8a43-4c37-9f1e-5d0d7d0f3b6a";
  const errors = code === "invalid_input" && { errors: [{ path: "name", message: "Required." }] };
  return { status: false, message, code, requestId, ...errors };
}

function failuresOf(errors: ErrorCode[]): Json {
  const byStatus = Map.groupBy(errors, ({ status }) => status);
  const responses = [...byStatus].map(([status, same]) => {
    const examples = Object.fromEntries(same.map((error) => [error.code, { value: errorExample(error) }]));
    const headers: Json = {
      ...(same.includes(errorOf("insufficient_scope")) && {
        "WWW-Authenticate": {
          schema: { type: "string" },
          description: 'With `insufficient_scope`: `Bearer error="insufficient_scope", scope="…"`.',
        },
      }),
      ...(status === 401 && { "WWW-Authenticate": { schema: { type: "string" }, description: "`Bearer`" } }),
      ...((status === 423 || status === 429 || status === 503 || same.some(({ hasRetryAfter }) => hasRetryAfter)) && {
        "Retry-After": { schema: { type: "integer" }, description: "Seconds." },
      }),
      ...(status === 429 && {
        RateLimit: { schema: { type: "string" }, description: REACHED_LIMIT },
      }),
    };
    return [
      status,
      {
        description: same.map(({ code, message }) => `\`${code}\`: ${message}`).join("\n"),
        headers,
        content: { "application/json": { schema: { $ref: "#/components/schemas/Error" }, examples } },
      },
    ];
  });
  return Object.fromEntries(responses);
}

/** The description of a body that is not JSON. */
const bytesOf = (example: string | null): Json =>
  example === null ? { schema: { type: "string", format: "binary" } } : { schema: { type: "string" }, example };

function requestOf(operation: Operation, components: Json): Json {
  if (operation.takesFile) {
    const file = { type: "string", format: "binary", minLength: 1 };
    const properties = { type: "string", description: "JSON with the fields of an update, before or after the file." };
    const schema = { type: "object", required: ["file"], properties: { properties, file } };
    return { requestBody: { required: true, content: { "multipart/form-data": { schema } } } };
  }
  if (operation.takesBytes) {
    const types = Object.entries(operation.takesBytes);
    // The first one is what generators choose.
    const any = operation.takesOctetStream && { [OCTET_STREAM]: bytesOf(null) };
    const content = { ...any, ...Object.fromEntries(types.map(([type, example]) => [type, bytesOf(example)])) };
    return { requestBody: { required: !operation.isBodyOptional, content } };
  }
  if (!operation.body) return {};
  const schema = schemaOf(operation.body(), "input", components);
  return {
    requestBody: {
      required: !operation.isBodyOptional,
      content: { "application/json": { schema, example: operation.bodyExample } },
    },
  };
}

const ID = "^[0-9a-f]{24}$";
const SECRET_URL = "^[0-9a-f]{24}\\.[0-9a-f]{32}$";
const IN_PATH: Record<string, { description: string; pattern?: string }> = {
  id: { description: "The id of the record.", pattern: ID },
  secret: { description: "The secret of the link, from its `url`.", pattern: "^[0-9a-f]{32}$" },
  upload: { description: "`{id}.{secret}` from `Location`.", pattern: SECRET_URL },
  link: { description: "`{id}.{secret}`, from the link's `url`.", pattern: SECRET_URL },
  name: { description: "The download name. It is not checked." },
};

function parametersOf(operation: Operation, path: string, components: Json): Json[] {
  const inPath = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = ""]) => {
    const { description, pattern } = IN_PATH[name] ?? {};
    return { name, in: "path", required: true, description, schema: { type: "string", ...(pattern && { pattern }) } };
  });
  const query = operation.query ? schemaOf(operation.query(), "input", components) : {};
  const inQuery = Object.entries((query.properties ?? {}) as Record<string, Json>).map(([name, schema]) => ({
    name,
    in: "query",
    required: false,
    ...(schema.deprecated === true && { deprecated: true }),
    schema,
  }));
  const headers = Object.entries(operation.requestHeaders ?? {}).map(([name, header]) => ({
    name,
    in: "header",
    required: false,
    ...header,
  }));
  return [...inPath, ...inQuery, ...headers];
}

function describe(operation: Operation, route: SplitRoute, operationId: string, components: Json): Json {
  const { tag, summary, sample, description, access, isHeavy, success } = operation;
  const scope = access === null ? null : scopeOf(access);
  const headers = Object.entries(success.headers ?? {}).map(([name, text]) => [
    name,
    { description: text, schema: { type: "string" } },
  ]);
  const { schema, example } = describeBody(success);
  const content = success.mediaType
    ? { [success.mediaType]: bytesOf((success.example as string | undefined) ?? null) }
    : schema && { "application/json": { schema: schemaOf(schema, "output", components), example } };
  const answerOf = (status: number) => ({
    description: success.description,
    headers: Object.fromEntries(headers),
    ...(content && status !== 304 && { content }),
  });
  return {
    operationId,
    tags: [tag.name],
    summary,
    description: [description, describeAccess(operation), isHeavy === true && HEAVY].filter(Boolean).join("\n\n"),
    security: securityOf(operation),
    ...(scope && { "x-scope": scope }),
    parameters: parametersOf(operation, route.path, components),
    ...requestOf(operation, components),
    responses: {
      ...Object.fromEntries((success.statuses ?? [200]).map((status) => [status, answerOf(status)])),
      ...failuresOf(errorsOf(operation, route)),
    },
    // As Redocly and others have it.
    ...(sample && { "x-codeSamples": [{ lang: "JavaScript", label: "Client", source: sample }] }),
  };
}

/** A request that the service sends. */
interface Message {
  operationId: string;
  tag: Tag;
  summary: string;
  description: string;
  headers: Record<string, string>;
  schema: () => z.ZodType;
  example: unknown;
  responses: Record<string, string>;
}
type Messages = Record<string, Message>;

/** The part of `service.ts` that the document describes. */
export interface DescribedService {
  operations: Api;
  tags: Tag[];
  messages: Messages;
}

function describeMessages(messages: Messages, components: Json): Json {
  const described = Object.entries(messages).map(([name, message]) => {
    const { operationId, tag, summary, description, headers, schema, example, responses } = message;
    // Named schemas become components only inside of another.
    const { properties } = schemaOf(z.strictObject({ message: schema() }), "output", components);
    const post = {
      operationId,
      tags: [tag.name],
      summary,
      description,
      security: [],
      parameters: Object.entries(headers).map(([name, description]) => ({
        name,
        in: "header",
        required: true,
        description,
        schema: { type: "string" },
      })),
      requestBody: {
        required: true,
        content: { "application/json": { schema: (properties as { message: Json }).message, example } },
      },
      responses: Object.fromEntries(
        Object.entries(responses).map(([status, description]) => [status, { description }]),
      ),
    };
    return [name, { post }];
  });
  return Object.fromEntries(described);
}

/** Describes the API in OpenAPI 3.1, from the same schemas that validate requests. */
export function describeApi({ operations, tags, messages }: DescribedService): Json {
  const components: Json = {};
  schemaOf(z.strictObject({ error: errorSchemaFor(operations) }), "output", components);
  const paths: Record<string, Json> = {};
  const named = Object.entries(operations).map(([operationId, operation]) => ({ ...operation, operationId }));
  for (const [operationId, operation] of Object.entries(operations)) {
    const split = splitRoute(operation.route);
    const method = split.method.toLowerCase();
    paths[split.path] = { ...paths[split.path], [method]: describe(operation, split, operationId, components) };
  }
  return {
    openapi: "3.1.0",
    info: { title: TITLE, version: "1.0.0", description: describeService(named) },
    servers: [{ url: "/" }],
    tags,
    paths,
    webhooks: describeMessages(messages, components),
    components: { schemas: components, securitySchemes },
  };
}

/** Serves texts, each of which is built once per isolate, so that a request costs no more than sending it. */
function serveTexts(
  contentType: string,
  build: (path: string, c: Context<AppEnv>) => string | undefined | Promise<string>,
): Handler<AppEnv> {
  const built = new Map<string, { text: string; etag: string }>();
  return async (c) => {
    const { path } = c.req;
    let found = built.get(path);
    if (!found) {
      const text = await build(path, c);
      if (text === undefined) throw new AppError("route_not_found");
      found = { text, etag: `"${createHash("sha256").update(text).digest("hex").slice(0, 32)}"` };
      built.set(path, found);
    }
    const { text, etag } = found;
    c.header("ETag", etag);
    c.header("Cache-Control", "no-cache");
    // Weak comparison (RFC 9110, section 13.1.2).
    if (c.req.header("If-None-Match")?.includes(etag)) return c.body(null, 304);
    return c.body(text, 200, { "Content-Type": contentType });
  };
}

/** Mounts the document, `/llms.txt`, and the pages of the reference as Markdown. */
export function mountDescriptions(app: Hono<AppEnv>, service: DescribedService): void {
  const describe = lazy(() => describeApi(service));
  app.get(
    "/openapi.json",
    serveTexts("application/json", () => JSON.stringify(describe())),
  );
  app.get(
    "/llms.txt",
    serveTexts("text/plain; charset=utf-8", async (_, c) =>
      renderIndex(service, await clientPath(c.get("deps"), c.req.url)),
    ),
  );
  const page = (path: string) => renderPage(describe() as unknown as Document, service.operations, path);
  app.on("GET", ["/reference.md", "/reference/:page{\\w+\\.md}"], serveTexts("text/markdown; charset=utf-8", page));
}
