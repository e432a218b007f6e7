import fc from "fast-check";
import { beforeAll, expect, test } from "vitest";
import type { AppError } from "../../src/errors.ts";
import { properties } from "../../src/files/properties.routes.ts";
import { METADATA_PATTERN, parseMetadata } from "../../src/uploads/resumable.routes.ts";
import { compile, document } from "../support/contract.ts";
import {
  type CallOptions,
  type Change,
  compose,
  newKey,
  newTeam,
  OPERATOR,
  startWorker,
  type Team,
  withoutHashing,
  withoutJobs,
  withoutLimits,
} from "../support/harness.ts";
import { newRecords, nounOf, type Records, tokenFor } from "../support/routes.ts";
import { isExhaustive } from "../support/tiers.ts";
import { newUploadToken } from "../support/visitors.ts";

/*
 * Valid and invalid requests to every route, generated from the OpenAPI document. No response may be a 5xx, and the
 * document must describe each (the harness's `call` checks that). A failure prints the smallest request that
 * reproduces it. Set VITE_FUZZ_RUNS=20000 for more runs, and STOWAGE_SEED for other ones.
 */

const setting = (name: string) => Number((import.meta.env as Record<string, string | undefined>)[name]) || undefined;
const RUNS = setting("VITE_FUZZ_RUNS") ?? (isExhaustive ? 1500 : 480);

// Hashing is slow. Messages and limits are not under test.
const withoutVerifying: Change = (deps) => ({
  ...deps,
  secrets: { ...deps.secrets, verifyPassword: async () => false },
});
const worker = startWorker(compose(withoutJobs, withoutHashing, withoutLimits, withoutVerifying));

type Schema = {
  $ref?: string;
  type?: string;
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
} & {
  [limit in "minItems" | "minLength" | "maxLength" | "minimum" | "maximum"]?: number;
} & { [text in "pattern" | "format"]?: string };
interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  schema: Schema;
}
interface OperationObject {
  parameters: Parameter[];
  requestBody?: { content: Record<string, { schema: Schema }> };
}

const operations = Object.entries(document.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, operation]) => ({
    method: method.toUpperCase(),
    path,
    operation: operation as unknown as OperationObject,
  })),
);

/** Texts that are known to break parsers. */
const hostileText = fc.constantFrom(
  ..."\0|\u202e|\ud800|\udc00|%|%00|%zz|..|../..|'|\"|;|--|{}|[]|null|undefined|NaN|__proto__|constructor".split("|"),
  ...["toString", "-1", "0", "1e999", "9".repeat(400), "\r\nX: y", "\u00e9".repeat(300), "a".repeat(5000), "", " "],
);
const anyText = fc.oneof(fc.string({ unit: "binary" }), fc.string(), hostileText);

const resolved = (schema: Schema): Schema =>
  schema.$ref ? (document.components.schemas[schema.$ref.split("/").at(-1) ?? ""] as Schema) : schema;

/** Generates values that match the schema. */
function valid(reference: Schema): fc.Arbitrary<unknown> {
  const schema = resolved(reference);
  const { type, properties = {}, required = [], minLength = 0, maxLength = 60, format, pattern } = schema;
  if (type === "object") {
    const fields = Object.entries(properties).map(([name, field]) => [name, valid(field)] as const);
    return fc.record(Object.fromEntries(fields), { requiredKeys: required });
  }
  if (type === "boolean") return fc.boolean();
  if (type === "array") {
    const { items = {}, minItems = 0 } = schema;
    return fc.array(valid(items), { minLength: minItems, maxLength: minItems + 3 });
  }
  if (type === "number") return fc.double({ min: schema.minimum ?? -5, max: schema.maximum ?? 500, noNaN: true });
  if (type === "integer") {
    return fc.integer({ min: schema.minimum ?? -5, max: schema.maximum ?? 500 });
  }
  if (format === "date-time") {
    const now = Date.now();
    return fc
      .date({ min: new Date(now), max: new Date(now + 3e11), noInvalidDate: true })
      .map((date) => date.toISOString());
  }
  if (pattern?.includes("@")) return fc.uuid().map((uuid) => `${uuid}@canary.example`);
  if (pattern) return fc.stringMatching(new RegExp(pattern, "u"));
  return fc.string({ minLength, maxLength: Math.min(maxLength, minLength + 60) });
}

/** Generates values that usually violate the schema: another type, or changed and additional fields. */
function invalid(reference: Schema): fc.Arbitrary<unknown> {
  const schema = resolved(reference);
  const anything = fc.oneof(anyText, fc.jsonValue({ maxDepth: 3 }), fc.constant(null));
  if (schema.type !== "object") return anything;
  const names = Object.keys(schema.properties ?? {});
  const field = fc.oneof(fc.constantFrom(...names), fc.constantFrom("teamId", "_id", "__proto__", "x"), anyText);
  const changed = fc
    .tuple(valid(schema), fc.array(fc.tuple(field, anything), { minLength: 1, maxLength: 3 }))
    .map(([value, changes]) => ({ ...(value as object), ...Object.fromEntries(changes) }));
  return fc.oneof(changed, anything);
}

const either = (schema: Schema) =>
  fc.oneof({ arbitrary: valid(schema), weight: 3 }, { arbitrary: invalid(schema), weight: 2 });

const BOUNDARY = "canaryboundary";

/** Picks the first, unless a rare other one is picked. */
const mostly = <T>(weight: number, usual: fc.Arbitrary<T>, ...rare: fc.Arbitrary<T>[]) =>
  fc.oneof({ arbitrary: usual, weight }, ...rare.map((arbitrary) => ({ arbitrary, weight: 1 })));

function multipart(): fc.Arbitrary<Pick<CallOptions, "body" | "headers">> {
  const delimiters = [`--${BOUNDARY}\r\n`, `\r\n--${BOUNDARY}--\r\n`, "\r\n", "\r\n\r\n", "--", "\0"];
  const headers = ['Content-Disposition: form-data; name="file"', "Content-Type: audio/mpeg\r\n"];
  const parameters = ['; filename="a.mp3"', "; filename*=UTF-8''%41"];
  const piece = fc.oneof(fc.constantFrom(...delimiters), fc.constantFrom(...headers, ...parameters), anyText);
  const whole = fc
    .tuple(anyText, fc.oneof(anyText, fc.constant("ID3"), fc.constant("RIFF")))
    .map(([name, content]) => [
      `--${BOUNDARY}\r\nContent-Disposition: form-data; name="file"; filename="${name.replace(/["\r\n]/g, "")}"\r\n\r\n`,
      `${content}\r\n--${BOUNDARY}--\r\n`,
    ]);
  const otherTypes = ["multipart/form-data", "text/plain", 'multipart/form-data; boundary="', ""];
  const type = mostly(6, fc.constant(`multipart/form-data; boundary=${BOUNDARY}`), fc.constantFrom(...otherTypes));
  return fc.tuple(fc.oneof(whole, fc.array(piece, { maxLength: 12 })), type).map(([pieces, contentType]) => ({
    body: new Blob([pieces.join("")]).stream() as ReadableStream<Uint8Array>,
    headers: { "Content-Type": contentType },
  }));
}

function bodyOf(operation: OperationObject): fc.Arbitrary<Pick<CallOptions, "body" | "headers">> {
  const { content = {} } = operation.requestBody ?? {};
  if (content["multipart/form-data"]) return multipart();
  const schema = content["application/json"]?.schema;
  if (!schema) return fc.constant({});
  const jsonTypes = fc.constantFrom("application/json", "APPLICATION/JSON; charset=utf-8");
  const type = mostly(9, jsonTypes, fc.constantFrom("text/plain", "", "application/x-www-form-urlencoded"));
  const json = either(schema).map((value) => JSON.stringify(value) ?? "");
  const truncated = fc.tuple(json, fc.nat(80)).map(([text, length]) => text.slice(0, length));
  const text = mostly(8, json, truncated, anyText);
  return fc.tuple(text, type).map(([body, contentType]) => ({ body, headers: { "Content-Type": contentType } }));
}

/** Generates header values that fetch accepts. */
const headerText = fc.oneof(
  fc.string().map((text) => text.trim()),
  fc.constantFrom(
    '"0"',
    '"1", "2"',
    'W/"0"',
    "*",
    '""',
    ",,,",
    '"999999999999999999"',
    "k".repeat(255),
    "k".repeat(256),
  ),
  fc.array(fc.nat(), { maxLength: 300, size: "max" }).map((numbers) => numbers.map((n) => `"${n}"`).join()),
);

const encoded = (text: string) => encodeURIComponent(text.toWellFormed());
/** Unlike `String`, does not throw on an object with its own `toString`. */
const asText = (value: unknown) => (typeof value === "string" ? value : (JSON.stringify(value) ?? ""));

type Caller = "team" | "page" | "visitor" | "operator" | "none" | "garbage";
interface GeneratedRequest {
  method: string;
  target: string;
  caller: Caller;
  options: CallOptions;
}

/** Generates requests to one route. `{own}` is replaced by an id when the request is sent. */
function requestsTo({ method, path, operation }: (typeof operations)[number]): fc.Arbitrary<GeneratedRequest> {
  const inQuery = operation.parameters.filter((parameter) => parameter.in === "query");
  const inHeaders = operation.parameters.filter((parameter) => parameter.in === "header");
  const parameters = inQuery.map(({ name, schema }) =>
    fc.option(either(schema), { freq: 3 }).map((value) => (value === null ? "" : `${name}=${encoded(asText(value))}`)),
  );
  const unknown = fc.tuple(anyText, anyText).map((pair) => pair.map(encoded).join("="));
  const odd = fc.constantFrom("%", "=", "&&", "?", "limit", "limit=1&limit=2", "page=1&cursor=x", "%ff=%ff", "+");
  const query = fc.tuple(...parameters, mostly(14, fc.constant(""), unknown), mostly(14, fc.constant(""), odd));
  const headers = fc.tuple(
    ...inHeaders.map(({ name }) =>
      fc.option(headerText, { freq: 2 }).map((value) => (value === null ? [] : [[name, value]])),
    ),
  );
  const unknownIds = fc.oneof(
    fc.stringMatching(/^[0-9a-f]{24}$/),
    anyText.map((text) => encoded(text) || "x"),
    fc.constantFrom("%", "%2f", "%2e%2e%2f", "%ff", "a%00b"),
  );
  const id = mostly(2, fc.constant("{own}"), unknownIds);
  const caller = mostly(
    5,
    fc.constant<Caller>("team"),
    fc.constantFrom<Caller>("page", "visitor", "operator", "none", "garbage"),
  );
  return fc.tuple(id, query, headers, bodyOf(operation), caller).map(([id, query, headers, body, caller]) => ({
    method,
    target: `${path.replace("{id}", id)}?${query.filter(Boolean).join("&")}`,
    caller,
    options: { ...body, headers: { ...body.headers, ...Object.fromEntries(headers.flat()) } },
  }));
}

let team: Team;
let tokens: Record<Caller, string | undefined>;
let ids: Records;

beforeAll(async () => {
  team = await newTeam(worker);
  ids = await newRecords(team);
  const page = await newKey(team, { isPublic: true });
  const visitor = (await newUploadToken(team)).token;
  tokens = { team: team.token, page: page.key, visitor, operator: OPERATOR, none: undefined, garbage: "garbage" };
});

test("generated requests get only documented responses, and no 5xx", {
  timeout: 120_000 + RUNS * 1000,
}, async () => {
  const statuses: Record<string, number> = {};
  const send = async ({ method, target, caller, options }: GeneratedRequest) => {
    const path = target.replace("{own}", ids[nounOf({ path: target })]);
    // The records that later requests need are not deleted.
    const isNeeded = method === "DELETE" && target.includes("{own}");
    const token = isNeeded ? tokens.page : tokens[caller];
    const { status, text } = await worker.call(method, path, { ...options, token });
    expect(status, text).toBeLessThan(500);
    statuses[status] = (statuses[status] ?? 0) + 1;
  };
  for (const operation of operations)
    await fc.assert(fc.asyncProperty(requestsTo(operation), send), { numRuns: Math.ceil(RUNS / operations.length) });
  console.log(`fuzz: ${JSON.stringify(statuses)}`);
  // The requests must reach every kind of response.
  for (const status of [200, 400, 401, 403, 404])
    expect(statuses[status] ?? 0, `responses with ${status}`).toBeGreaterThan(0);
});

/** The fields for which a body that matches its schema can still be rejected with 400, because the schema cannot state the rule. */
const UNSTATED: Record<string, string[]> = {
  // Relative to the current time, or to the kind of key.
  "POST /auth/v1/apikeys": ["expiresAt", "scopes", "limits"],
  "PATCH /auth/v1/apikeys/{id}": ["expiresAt", "scopes"],
  "POST /docs/v1/uploads/{id}/links": ["expiresAt"],
  // Internal host names, this service, and its storage.
  "POST /auth/v1/webhooks": ["url"],
  "PATCH /auth/v1/webhooks/{id}": ["url"],
  // The ID of an event, or an instant: generators of clients make nothing of alternatives.
  "POST /auth/v1/webhooks/{id}/replay": ["after"],
  // Equal lengths.
  "PUT /docs/v1/uploads/{id}/waveform": ["channels.1"],
  // Limits in bytes.
  "PATCH /docs/v1/uploads/{id}": ["name", "folder", "metadata"],
  "POST /docs/v1/uploads/batch": ["ids", "folder"],
  "POST /docs/v1/uploadtokens": ["name", "folder", "metadata"].map((name) => `properties.${name}`).concat("properties"),
  // The validator of these tests does not support `not`, which forbids a name in both spellings.
  "PATCH /auth/v1/users/{id}": ["firstname", "firstName", "lastname", "lastName", ""],
};

test("the service accepts the JSON bodies that the document allows, and rejects all others", {
  timeout: 120_000 + RUNS * 1000,
}, async () => {
  const bodies = operations.flatMap(({ method, path, operation }) => {
    const schema = operation.requestBody?.content["application/json"]?.schema;
    if (!schema || path.includes("/me/") || path.includes("/logout")) return [];
    const validator = compile(schema);
    return [either(schema).map((value) => ({ method, path, value, isAllowed: validator.safeParse(value).success }))];
  });
  const property = fc.asyncProperty(fc.oneof(...bodies), async ({ method, path, value, isAllowed }) => {
    const body = JSON.stringify(value);
    if (body === undefined || JSON.stringify(JSON.parse(body)) !== body) return;
    const target = path.replace("{id}", path.includes("{id}") ? ids[nounOf({ path })] : "");
    const headers = { "Content-Type": "application/json" };
    const answer = await worker.call(method, target, { token: tokenFor({ path }, team), body, headers });
    const context = `${method} ${path} ${body}: ${answer.text}`;
    const unstated = isAllowed ? (UNSTATED[`${method} ${path}`] ?? []) : [];
    if (!isAllowed) expect([400, 413], context).toContain(answer.status);
    else if (answer.status !== 400) expect([413, 415], context).not.toContain(answer.status);
    else for (const error of answer.body.errors) expect(unstated, context).toContain(error.path);
  });
  await fc.assert(property, { numRuns: Math.ceil(RUNS / 5) });
});

test("names, folders, tags and references are accepted exactly if they match their documented patterns", () => {
  const update = document.paths["/docs/v1/uploads/{id}"]?.patch as unknown as OperationObject;
  const described = update.requestBody?.content["application/json"]?.schema.properties ?? {};
  const { name, folder, reference, tags } = properties().shape;
  const rules = [
    [name, described.name],
    [folder, described.folder],
    [reference, described.reference],
    [tags, described.tags?.items],
  ] as const;
  const part = fc.constantFrom(
    ..."./\\ a-é\u0301\0\n\x7f\x9f\xa0\u061c\u200d\u200f\u2028\u202e\u2066\u3000\ufeff",
    "..",
    "ab",
  );
  const text = fc.array(part, { maxLength: 6 }).map((parts) => parts.join(""));
  const property = fc.property(text, fc.constantFrom(...rules), (text, [schema, stated]) => {
    // The reference can be null, so its pattern is that of a branch.
    const branches = (stated as { anyOf?: Schema[] }).anyOf ?? [stated];
    const pattern = branches.find((branch) => branch?.pattern)?.pattern ?? "";
    const { minLength = 0 } = branches[0] ?? {};
    const isAllowed = text.length >= minLength && new RegExp(pattern, "u").test(text);
    expect(schema.safeParse(schema === tags ? [text] : text).success, JSON.stringify(text)).toBe(isAllowed);
  });
  fc.assert(property, { numRuns: RUNS });
});

test("the Upload-Metadata header is accepted if it matches the documented pattern, has unique keys, and names a file in UTF-8", () => {
  const text = fc.oneof(
    fc.stringMatching(new RegExp(METADATA_PATTERN)),
    fc
      .array(fc.constantFrom("filename", "a", " ", ",", "YQ==", "YR==", "/w==", "=", "é"))
      .map((parts) => parts.join("")),
  );
  const reasonOf = (header: string) => {
    try {
      parseMetadata(header);
      return null;
    } catch (error) {
      return (error as AppError).errors?.[0]?.message ?? "";
    }
  };
  const property = fc.property(text, (header) => {
    const reason = reasonOf(header);
    if (!new RegExp(METADATA_PATTERN).test(header)) expect(reason, header).not.toBeNull();
    else if (reason !== null) expect(reason, header).toMatch(/unique|UTF-8|at most 12288/);
  });
  fc.assert(property, { numRuns: RUNS });
});
