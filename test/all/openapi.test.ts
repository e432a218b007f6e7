import { describe, expect, test, vi } from "vitest";
import { createApp } from "../../src/app.ts";
import { errorOf } from "../../src/errors.ts";
import { EVENT_TYPE_NAMES } from "../../src/event-types.ts";
import { compile } from "../support/contract.ts";
import { call, newTeam, rejected, startWorker } from "../support/harness.ts";
import { mountedRoutes, PAGES, routeNamed, tokenFor } from "../support/routes.ts";
import checkedIn from "./openapi.json?raw";

/*
 * GET /openapi.json is complete and correct. What it says of each operation is reviewed in openapi.json, and here is what must
 * hold for all of them. support/client.ts checks every response in every test against it, and fuzz.test.ts compares the
 * accepted bodies.
 */

interface Parameter {
  name: string;
  in: string;
  required: boolean;
  deprecated?: true;
  schema: { pattern?: string; maxLength?: number; format?: string };
}
interface Body {
  content: Record<string, { schema: object; example?: unknown; examples?: Record<string, { value: unknown }> }>;
}
interface Described {
  operationId: string;
  summary: string;
  tags: string[];
  description: string;
  security: Record<string, string[]>[];
  "x-scope"?: string;
  parameters: Parameter[];
  requestBody?: Body & { required: boolean };
  responses: Record<string, Body & { description: string; headers: Record<string, object> }>;
}

const answer = await call("GET", "/openapi.json");
const document = answer.body;
/** Of each error code: its status and message. */
const ERRORS: Record<string, string> = document.components.schemas.Error.properties.code["x-enumDescriptions"];
/** The routes of resumable uploads and of links, which their own test files cover. */
const hasOwnTests = (route: string) =>
  /\/resumable|\{link\}|\{secret\}|\/logout/.test(route) || route.endsWith("/me/password");
const operations = Object.entries(document.paths as Record<string, Record<string, Described>>)
  .filter(([path]) => !hasOwnTests(path))
  .flatMap(([path, item]) =>
    Object.entries(item).map(([method, described]) => {
      const route = `${method.toUpperCase()} ${path}`;
      return { route, path, method: method.toUpperCase(), described, operation: routeNamed(route).operation };
    }),
  );

describe("GET /openapi.json", () => {
  test("returns exactly test/all/openapi.json, which `npm run types:client` writes", () => {
    expect(document, "If you meant to change the API, run `npm run types:client`.").toEqual(JSON.parse(checkedIn));
  });

  test("has an ETag, by which a client with the same document gets 304 without a body", async () => {
    const etag = answer.headers.get("ETag") ?? "";
    expect(etag).toMatch(/^"[0-9a-f]{32}"$/);
    expect(answer.headers.get("Cache-Control")).toBe("no-cache, no-transform");
    for (const tag of [etag, `W/${etag}`]) {
      const response = await call("GET", "/openapi.json", { headers: { "If-None-Match": tag } });
      expect([response.status, response.text]).toEqual([304, ""]);
    }
    expect((await call("GET", "/openapi.json", { headers: { "If-None-Match": '"other"' } })).status).toBe(200);
  });

  test("is built once, so that no caller can make the Worker build it again", async () => {
    const { call } = startWorker();
    const build = vi.spyOn(JSON, "stringify");
    const built = async () => {
      build.mockClear();
      const { status, text } = await call("GET", "/openapi.json");
      expect([status, text]).toEqual([200, answer.text]);
      return build.mock.results.filter(({ value }) => value === text).length;
    };
    expect([await built(), await built(), await built()]).toEqual([1, 0, 0]);
    build.mockRestore();
  });

  test("is OpenAPI 3.1 in JSON, with version 1.0.0, relative to its own URL, without a token", () => {
    expect([answer.status, answer.headers.get("Content-Type")]).toEqual([200, "application/json"]);
    expect(document.openapi).toMatch(/^3\.1\.\d$/);
    expect(document.info).toMatchObject({ title: expect.any(String), version: "1.0.0" });
    expect(document.servers).toEqual([{ url: "/" }]);
  });

  test("describes exactly the routes of the router", () => {
    const routed = mountedRoutes(createApp()).filter((route) => !PAGES.includes(route) && !hasOwnTests(route));
    expect(operations.map(({ route }) => route).sort()).toEqual(routed);
  });

  test("resolves every reference and uses every schema", () => {
    const references = [...answer.text.matchAll(/"\$ref":"([^"]+)"/g)].map(([, reference]) => reference ?? "");
    expect(references.length).toBeGreaterThan(0);
    for (const reference of new Set(references)) {
      const [root, ...steps] = reference.split("/");
      expect(root).toBe("#");
      expect(
        steps.reduce((value, step) => value?.[step], document),
        reference,
      ).toBeTypeOf("object");
    }
    for (const name of Object.keys(document.components.schemas)) {
      expect(references, `${name} is used`).toContain(`#/components/schemas/${name}`);
    }
  });

  test("describes each kind of bearer token, and the tokens and the scope that each operation accepts", () => {
    const bearer = { type: "http", scheme: "bearer", description: expect.any(String) };
    const schemes = {
      secretKey: bearer,
      session: bearer,
      publicKey: bearer,
      uploadToken: bearer,
      operatorToken: bearer,
    };
    expect(document.components.securitySchemes).toEqual(schemes);
    const table: string = document.info.description;
    for (const { described, operation, route } of operations) {
      const { access } = operation;
      const optional = route.includes("invitations") ? [] : [{}, { secretKey: ["users:write"] }];
      if (access === null) expect(described.security, route).toEqual(optional);
      const scope = described["x-scope"];
      if (!scope) continue;
      const also = typeof access === "object" ? access?.also : undefined;
      expect(described.security, route).toEqual([
        { secretKey: [scope] },
        { session: [scope] },
        ...(scope === "files:upload" && !operation.rejectsVisitors
          ? [{ publicKey: [scope] }, { uploadToken: [scope] }]
          : []),
        ...(also === "uploader" ? [{ publicKey: [] }, { uploadToken: [] }] : []),
        ...(also === "deleting token" ? [{ uploadToken: [] }] : []),
        ...(also === "operator" ? [{ operatorToken: [] }] : []),
      ]);
      expect(described.description).toContain(`Scope: \`${scope}\``);
      const row = table.split("\n").find((line) => line.startsWith(`| \`${scope}\` |`));
      const marks = `${also === "operator" ? "†" : ""}${operation.rejectsVisitors ? "‡" : ""}`;
      expect(row).toMatch(new RegExp(`[ ,]${described.operationId}${marks}[, ]`));
    }
  });

  test("describes every tag and uses it", () => {
    const tags = document.tags as { name: string; description: string }[];
    for (const { description, name } of tags) expect(description, name).toMatch(/^\S.*\.$/);
    const items = { ...document.paths, ...document.webhooks } as Record<string, Record<string, Described>>;
    const used = Object.values(items).flatMap((item) => Object.values(item).map((described) => described.tags[0]));
    expect([...new Set(used)].sort()).toEqual(tags.map(({ name }) => name).sort());
  });

  test("describes the message of webhooks, with a valid example for the types of events and for a test", () => {
    const { post } = document.webhooks.event;
    expect(Object.keys(document.webhooks)).toEqual(["event"]);
    expect(post).toMatchObject({ operationId: "receiveEvent", tags: ["Webhook messages"], security: [] });
    expect(post.parameters.map(({ name }: Parameter) => name)).toEqual([
      "webhook-id",
      "webhook-timestamp",
      "webhook-signature",
    ]);
    expect(Object.keys(post.responses)).toEqual(["200", "410", "default"]);
    const { schema, example } = post.requestBody.content["application/json"];
    expect(schema).toEqual({ $ref: "#/components/schemas/WebhookMessage" });
    const message = compile(schema);
    for (const type of [...EVENT_TYPE_NAMES, "webhook.test"]) {
      expect(message.safeParse({ ...example, type }).error, type).toBeUndefined();
    }
    expect(Object.keys(example).sort()).toEqual(["actor", "data", "id", "subject", "teamId", "timestamp", "type"]);
    expect(message.safeParse({ ...example, type: "file.renamed" }).success).toBe(false);
  });

  /** Every schema of the document, and those in it. */
  function* schemasIn(value: unknown): Generator<Record<string, unknown>> {
    if (typeof value !== "object" || value === null) return;
    if (!Array.isArray(value)) yield value as Record<string, unknown>;
    for (const [name, inner] of Object.entries(value)) if (!name.startsWith("example")) yield* schemasIn(inner);
  }

  test("has nothing of which openapi-generator makes Java or Kotlin that does not compile", () => {
    const schemas = [...schemasIn({ ...document })];
    expect(schemas.length).toBeGreaterThan(1000);
    for (const schema of schemas) {
      const where = JSON.stringify(schema).slice(0, 200);
      const { anyOf, properties, items, uniqueItems, enum: values } = schema as Record<string, object | undefined>;
      // The update of a user excludes such fields by `not`, which generators ignore.
      const isOfTypes = Array.isArray(anyOf) && !anyOf.some((one) => one.required);
      if (isOfTypes)
        expect(
          anyOf.filter((one: object) => !("$ref" in one) && !("type" in one && one.type === "null")),
          where,
        ).toEqual([]);
      const names = Object.keys(typeof properties === "object" ? properties : {}).map((name) =>
        name.replace(/^_+/, ""),
      );
      expect(names, where).toEqual([...new Set(names)]);
      expect(schema.type, where).not.toEqual(["object", "null"]);
      if (uniqueItems && items) expect(items, where).not.toHaveProperty("enum");
      if (Array.isArray(values) && (values.includes("name") || values.includes("ordinal")))
        expect(schema["x-enum-varnames"], where).toHaveLength(values.length);
    }
    // The names of classes that every program has.
    const named = Object.keys(document.components.schemas);
    for (const name of ["File", "Object", "String", "List", "Map", "Null"]) expect(named).not.toContain(name);
  });

  test("forbids no fields in responses, because they may gain some, and names each second name of a field", () => {
    const { ApiKey, StoredFile } = document.components.schemas;
    expect(ApiKey).toMatchObject({ "x-aliases": { _id: "id" }, properties: { id: { type: "string" } } });
    for (const schema of [ApiKey, StoredFile]) expect(schema).not.toHaveProperty("additionalProperties");
    const { post } = document.paths["/auth/v1/users"];
    expect(post.requestBody.content["application/json"].schema).toHaveProperty("unevaluatedProperties", false);
  });

  test("has nothing that generators of clients are known to reject", () => {
    expect(answer.text, "a constant that is not text").not.toMatch(/"const":(true|false)/);
    const items = Object.values(document.paths as Record<string, Record<string, Described>>);
    const parameters = items.flatMap((item) => Object.values(item).flatMap((described) => described.parameters));
    const headers = parameters.filter((parameter) => parameter.in === "header");
    expect(headers.map(({ name }) => name)).toContain("Tus-Resumable");
    for (const { name, schema } of headers) expect(schema, name).not.toHaveProperty("const");
    // Generators name the type of an inline enum after its schema and field, so `StoredFile.status` becomes `StoredFileStatus`.
    const schemas = document.components.schemas as Record<string, { properties?: Record<string, { enum?: unknown }> }>;
    const inline = Object.entries(schemas).flatMap(([schema, { properties = {} }]) =>
      Object.entries(properties).flatMap(([field, { enum: values }]) =>
        values ? [`${schema}${field.charAt(0).toUpperCase()}${field.slice(1)}`] : [],
      ),
    );
    expect(inline).toContain("StoredFileStatus");
    expect(inline.filter((name) => name in schemas)).toEqual([]);
  });

  test("states what ids and digests look like, with examples that match, and that the limit of an upload is deprecated", () => {
    const items = Object.values(document.paths as Record<string, Record<string, Described>>);
    const parameters = items.flatMap((item) => Object.values(item).flatMap((described) => described.parameters));
    const patternOf = (name: string) =>
      new RegExp(parameters.find((parameter) => parameter.name === name)?.schema.pattern ?? "$^");
    const id = "0193477c0a5e2b7f4d1c8e90";
    for (const [name, accepted, rejected] of [
      ["id", id, id.toUpperCase()],
      ["upload", `${id}.${"0f".repeat(16)}`, id],
      ["link", `${id}.${"0f".repeat(16)}`, `${id}.0f`],
      ["Content-Digest", "sha-256=:X48E9qOokqqrvdts8nOJRJN3OWDUoyWxBf7kbu9DBPE=:", "sha-256=X48E9"],
      ["Repr-Digest", `md5=:${btoa("x")}:, sha-256=:${"A".repeat(43)}=:`, `sha256=:${"A".repeat(43)}=:`],
    ] as const) {
      expect(accepted, name).toMatch(patternOf(name));
      expect(rejected, name).not.toMatch(patternOf(name));
    }
    const { post } = document.paths["/docs/v1/uploads"];
    const deprecated = post.parameters.filter((parameter: Parameter) => parameter.deprecated);
    expect(deprecated.map(({ name }: Parameter) => name)).toEqual(["limit"]);
  });

  test("introduces a quickstart, authentication, scopes, errors, lists, retries and rate limits", () => {
    const headings = [...document.info.description.matchAll(/^## (.+)$/gm)].map(([, heading]) => heading).join(", ");
    expect(headings).toBe("Quickstart, Authentication, Scopes, Errors, Lists, Retries and versions, Rate limits");
  });

  test("gives the status and meaning of every error code", () => {
    const { code } = document.components.schemas.Error.properties;
    expect(Object.keys(ERRORS)).toEqual(code.enum);
    for (const [name, text] of Object.entries(ERRORS)) expect(text, name).toMatch(/^[45]\d\d: \S/);
  });

  test("requires a token for every operation except the login, resets and invitations", () => {
    const open = operations.filter(
      ({ described }) =>
        described.security.length === 0 || described.security.some((tokens) => Object.keys(tokens).length === 0),
    );
    expect(open.map(({ route }) => route)).toEqual([
      "POST /auth/v1/login",
      "POST /auth/v1/invitations/describe",
      "POST /auth/v1/invitations/accept",
      "POST /auth/v1/password/forgot",
    ]);
  });
});

describe.each(operations)("$route", ({ route, path, described, operation }) => {
  const { parameters, requestBody, responses } = described;

  const names = parameters.map(({ name }) => name);

  test("has a summary and a tag, and describes the parameters of its path", () => {
    expect(described.summary).toMatch(/^[A-Z]/);
    expect(described.tags).toHaveLength(1);
    const inPath = parameters.filter((parameter) => parameter.in === "path");
    expect(inPath.map(({ name }) => `{${name}}`)).toEqual(path.match(/\{\w+\}/g) ?? []);
    expect(inPath.every(({ required }) => required)).toBe(true);
    for (const { schema, name } of parameters) expect(schema, name).toHaveProperty("type");
  });

  test("describes its body, with a valid example", () => {
    if (operation.takesFile) {
      expect(requestBody?.content["multipart/form-data"]?.schema).toMatchObject({ required: ["file"] });
    } else if (operation.body) {
      const { schema, example } = requestBody?.content["application/json"] ?? {};
      expect(compile(schema!).safeParse(example).error).toBeUndefined();
      expect(compile(schema!).safeParse({ ...(example as object), unknown: 1 }).success).toBe(false);
    } else if (operation.takesBytes) {
      const texts = Object.entries(operation.takesBytes);
      const octets = operation.takesOctetStream && { schema: { type: "string", format: "binary" } };
      expect(requestBody?.content).toEqual({
        ...(octets && { "application/octet-stream": octets }),
        ...Object.fromEntries(texts.map(([type, example]) => [type, { schema: { type: "string" }, example }])),
      });
    } else {
      expect(requestBody).toBeUndefined();
    }
  });

  test("describes one success, and the error shape for everything else, with valid examples", () => {
    for (const [status, { description, content }] of Object.entries(responses)) {
      expect(description, status).not.toBe("");
      const { schema, example, examples } = content["application/json"] ?? content["text/vtt"] ?? {};
      const values = examples ? Object.values(examples).map(({ value }) => value) : [example];
      expect(values).not.toEqual([]);
      for (const value of values) expect(compile(schema!).safeParse(value).error?.issues, status).toBeUndefined();
      if (status === "200") continue;
      expect(schema, status).toEqual({ $ref: "#/components/schemas/Error" });
      for (const [code, { value }] of Object.entries(examples ?? {})) {
        expect(value).toMatchObject({ code });
        expect(ERRORS[code]).toMatch(new RegExp(`^${status}: `));
      }
    }
  });

  test("lists the statuses of its own errors, and those that follow from the rest of its contract", () => {
    const { access, body, errors = [], isBodyOptional, takesBytes } = operation;
    const wanted = [
      ...["200", "400", "429", "500", "503"],
      ...errors.map((kind) => String(errorOf(kind).status)),
      ...(access === null ? [] : ["401", "403"]),
      ...(path.includes("{") ? ["404"] : []),
      ...(body || takesBytes ? ["408", "413", "415"] : []),
      ...(route.startsWith("GET") ? [] : ["507"]),
    ];
    expect(Object.keys(responses)).toEqual([...new Set(wanted)].sort());
    if (body && !isBodyOptional)
      expect(responses[400]?.content["application/json"]?.examples).toHaveProperty("malformed_json");
    expect(names.includes("If-Match")).toBe(Object.hasOwn(responses, 412));
  });

  test("describes the headers of its responses", () => {
    if (responses[401]) expect(responses[401].headers).toHaveProperty("WWW-Authenticate");
    for (const status of [429, 503]) expect(responses[status]?.headers).toHaveProperty("Retry-After");
    expect(Object.hasOwn(responses[200]?.headers ?? {}, "Link")).toBe(names.includes("cursor"));
  });
});

/** An email of the greatest length has several parts, each with its own limit. */
const limited = operations
  .filter(({ method, path }) => method === "GET" && !path.includes("{"))
  .flatMap(({ route, path, described }) =>
    described.parameters.flatMap(({ name, schema: { maxLength, format } }) =>
      maxLength === undefined || format ? [] : [{ route, path, name, maxLength }],
    ),
  );

test.each(limited)(
  "$route accepts $maxLength characters as `$name`, and rejects more",
  async ({ path, name, maxLength }) => {
    const team = await newTeam();
    const ask = (length: number) =>
      call("GET", `${path}?${name}=${"a".repeat(length)}`, { token: tokenFor({ path }, team) });
    expect((await ask(maxLength)).status).toBe(200);
    await rejected(team, 400, "invalid_input", () => ask(maxLength + 1), [name]);
  },
);

test("messages name no headers in place of what clients call an option, except in mistakes that no client makes", () => {
  const own = ["unsupported_media_type", "unsupported_version", "offset_mismatch"];
  const examples = [...checkedIn.matchAll(/"message":"((?:[^"\\]|\\.)*)","code":"(\w+)"/g)];
  expect(examples.length).toBeGreaterThan(100);
  const naming = examples.filter(([, message = ""]) => /\b[A-Z][a-z]+(-[A-Z][a-z]+)+\b/.test(message));
  expect(new Set(naming.map(([, , code]) => code))).toEqual(new Set(own));
});
