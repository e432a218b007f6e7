/**
 * `npm run types:client` writes test/all/openapi.json, the document of the API, so that a change of the API shows in a diff,
 * and src/client/api.ts, its types, for the client, which must not import the Worker. With --check, it fails if one of
 * them is outdated. openapi-typescript 7 was tried in its place. Its records are types without names, so an editor shows
 * `const key: {…}` with 572 characters instead of `const key: ApiKey`, `scopes: ("files:upload" | …)[]` with all
 * values instead of `Scope[]`, and no comment for fields that the document does not describe. Its file is ten times as long.
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { OpenApi, Operation, Parameter, Schema } from "../console/reference/document.ts";
import { FILE_EVENT_FIELDS } from "../files/file-events.ts";
import { describeApi } from "../http/openapi.ts";
import * as service from "../service.ts";

const SIMPLE: Record<string, string> = { integer: "number", number: "number", string: "string", boolean: "boolean" };

/** The names of unions and objects inside of schemas, and where they occur. Every other occurrence has the name, too. */
const NAMED: Record<string, [schema: string, field: string]> = {
  Role: ["User", "role"],
  EventType: ["Event", "type"],
  ActorKind: ["Event.actor", "kind"],
  SubjectKind: ["Event.subject", "kind"],
  ProcessingStatus: ["StoredFile", "status"],
  FailureCode: ["ProcessingFailure", "code"],
  TokenKind: ["Me", "kind"],
  TeamStatus: ["Team", "status"],
  WebhookStatus: ["Webhook", "status"],
  WebhookHealth: ["Webhook", "health"],
  DeliveryStatus: ["Delivery", "status"],
  Disposition: ["Link", "disposition"],
  Actor: ["Event", "actor"],
  Subject: ["Event", "subject"],
};
/** Schemas with names that a program, or this file, uses for something else. */
const RENAMED: Record<string, string> = { Error: "ErrorBody", ProcessingStatus: "FileStatus" };
const typeNameOf = (schema: string) => RENAMED[schema] ?? schema;
/**
 * The comments of fields that mean the same wherever they occur, and need no description for readers of the document. An
 * editor shows one for every field.
 */
const COMMENTS: Record<string, string> = {
  __v: "The version. Pass it as `version` to change only this version.",
  _id: "The `id`, as the API calls it.",
  action: "The change.",
  actor: "Who caused it.",
  apiKey: "The first key of the team.",
  at: "When the attempt began.",
  bytes: "The size of all files, in bytes.",
  channels: "The number of channels.",
  code: "Why it failed.",
  codec: "The codec of the audio.",
  container: "The container of the audio.",
  createdAfter: "Only those that were created after this instant.",
  createdAt: "When it was created.",
  createdBefore: "Only those that were created before this instant.",
  createdBy: "The key or session that created it, with its user.",
  currentPassword: "The password until now.",
  data: "The result.",
  deliveries: "The number of messages that are sent again.",
  description: "A note for people.",
  disposition: "Whether browsers save the file, or show it.",
  durationMilliseconds: "How long it took.",
  email: "The email address of the user.",
  eventId: "The id of the event.",
  events: "The number of events in the log.",
  expiresAt: "When it expires.",
  failed: "How many failed.",
  endSeconds: "Where it ends, in seconds.",
  failure: "Why processing failed. Null unless it did.",
  file: "The file.",
  fileId: "The id of the file.",
  files: "The number of files.",
  fileType: "The type of the file, by its content.",
  fileTypes: "The types of the files.",
  firstName: "The first name of the user.",
  folder: "The full path of the folder.",
  httpStatus: "The status of the response. Null without a response.",
  id: "Identifies the record.",
  ids: "The ids of up to 100 files.",
  isComplete: "Whether all files have been changed. Otherwise the rest follows within minutes.",
  isPublic: "Creates a public key, which can only upload files.",
  isRemoved: "Whether the file is deleted.",
  key: "The key of the object in the store.",
  keyId: "The id of the API key or session.",
  kind: "The kind of record, or of token.",
  lastName: "The last name of the user.",
  lossless: "Whether the codec is lossless.",
  maxBytes: "How many bytes the team can store.",
  maxEvents: "How many events the log keeps.",
  maxFileBytes: "The largest file, in bytes.",
  maxFiles: "The largest number of files.",
  message: "A text for people, which may change.",
  mimeType: "The media type.",
  name: "The name.",
  newPassword: "The password from now on.",
  next: "Pass it as `after` to continue. Null if nothing is left.",
  nextAttemptAt: "When the next attempt follows. Null if none does.",
  ok: "Whether the file was changed.",
  originalName: "The name of the file that was uploaded.",
  password: "The password of the user.",
  path: "The field.",
  permanent: "Erases the files instead of moving them to the trash.",
  processedAt: "When processing ended. Null until then.",
  reason: "Why the file is held.",
  reference: "Your own ID of the file.",
  requestId: "The request, as in its header `X-Request-Id`.",
  revokeOld: "Whether the old secret ends at once.",
  role: "The role of the user, which decides on their scopes.",
  scopes: "What it may do.",
  sessions: "The sessions of the user.",
  signedUrl: "Opens the file without a token.",
  size: "Bytes.",
  startsAt: "When the hour began.",
  startSeconds: "Where it begins, in seconds.",
  status: "The state.",
  storedAt: "When the object was stored.",
  subject: "The record that it is about.",
  succeeded: "How many succeeded.",
  tag: "A tag.",
  tags: "The tags.",
  teamId: "The id of the team.",
  teamName: "The name of the team.",
  token: "The token, which is a secret.",
  trashedAt: "When the file was deleted.",
  type: "The type of the event.",
  updatedAt: "When it last changed.",
  url: "The URL.",
  user: "The user.",
  userId: "The id of the user. Null if there is none.",
  uuid: "Another identifier of the key.",
  version: "The version of the record after the event. Null if it has none.",
};
/** The query parameters of most lists. */
const PAGING = ["limit", "page", "cursor"];
/** The names by the values or fields, as JSON. */
const names = new Map<string, string>();
const keyOf = ({ enum: values, properties, required }: Schema) => JSON.stringify(values ?? [properties, required]);
/** A schema for each of the types of a value. Null is one of the values that it lists. */
const typesOf = (schema: Schema): Schema[] =>
  [schema.type ?? []].flat().map((type) => {
    const { enum: values, ...others } = schema;
    if (type === "null") return { type };
    return { ...others, type, ...(values && { enum: values.filter((value) => value !== null) }) };
  });

/** Requests may contain `undefined`, which JSON omits. Responses never do. */
type Direction = "query" | "body" | "response";

function typeOf(schema: Schema, direction: Direction): string {
  if (schema.$ref) return typeNameOf(schema.$ref.split("/").at(-1) ?? "");
  if (Array.isArray(schema.type))
    return typesOf(schema)
      .map((one) => typeOf(one, direction))
      .join(" | ");
  // The client writes booleans into queries.
  const values = schema.enum ?? (schema.const === undefined ? [] : [schema.const]);
  if (direction === "query" && values.length > 0 && values.every((value) => value === "true" || value === "false"))
    return "boolean";
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  const name = direction === "response" || schema.enum ? names.get(keyOf(schema)) : undefined;
  if (name) return name;
  if (schema.enum) return valuesOf(schema.enum);
  const union = schema.anyOf ?? schema.oneOf;
  if (union) return union.map((one) => typeOf(one, direction)).join(" | ");
  if (schema.type === "array") {
    const item = typeOf(schema.items ?? {}, direction);
    // A pair. A type with more items would be hard to read.
    return schema.minItems === 2 && schema.maxItems === 2 ? `[${item}, ${item}]` : `Array<${item}>`;
  }
  if (schema.type === "object") return objectOf(schema, direction);
  // The client turns a Date into what the service takes.
  if (schema.format === "date-time" && direction !== "response") return "string | Date";
  return schema.type === "null" ? "null" : (SIMPLE[schema.type ?? ""] ?? "unknown");
}

/** Returns a union of values. Of those that make up a named union, only its name. */
function valuesOf(values: unknown[]): string {
  const isPart = (union: string[]) => union.length < values.length && union.every((value) => values.includes(value));
  const parts = [...names].map(([key, name]): [string, string[]] => [name, JSON.parse(key)]);
  const [name, union = []] =
    parts.filter(([, union]) => isPart(union)).sort((a, b) => b[1].length - a[1].length)[0] ?? [];
  const others = values.filter((value) => !union.includes(value as string));
  return [...(name ? [name] : []), ...others.map((value) => JSON.stringify(value))].join(" | ");
}

/** Indents all lines except the first. */
const indented = (text: string) => text.replaceAll("\n", "\n  ");

function objectOf({ properties, required = [], additionalProperties }: Schema, direction: Direction): string {
  if (!properties) {
    const values = typeof additionalProperties === "object" ? typeOf(additionalProperties, direction) : "unknown";
    return `Record<string, ${values}>`;
  }
  // The client adds `id` to each record.
  const { _id, ...others } = properties;
  const withId = direction === "response" && _id !== undefined && !others.id;
  const all = withId ? { _id, id: _id, ...others } : properties;
  const fields = Object.entries(all).map(([name, schema]) => {
    const text = schema.description ?? COMMENTS[name];
    if (text === undefined) throw new Error(`The field "${name}" needs a description, or a text in client-types.ts.`);
    // On a separate line, or editors do not show it.
    const comment = `/** ${text.replaceAll("*/", "* /")} */\n`;
    const isRequired = required.includes(name) || (withId && name === "id");
    const mayBeUndefined = !isRequired && direction !== "response" ? " | undefined" : "";
    return `${comment}${name}${isRequired ? "" : "?"}: ${typeOf(schema, direction)}${mayBeUndefined};`;
  });
  return blockOf(fields);
}

const blockOf = (fields: string[]) => `{${fields.map((field) => indented(`\n${field}`)).join("")}\n}`;

/** Returns a union or object by a place such as `["Event.actor", "kind"]`. */
function findNamed(schemas: Record<string, Schema>, [place, field]: [string, string]): Schema {
  const resolve = (schema: Schema | undefined): Schema => {
    const object = schema?.anyOf?.find(({ $ref }) => $ref) ?? schema ?? {};
    return object.$ref ? resolve(schemas[object.$ref.split("/").at(-1) ?? ""]) : (object.items ?? object);
  };
  const path = [...place.split(".").slice(1), field];
  const found = path.reduce(
    (schema, name) => resolve(schema.properties?.[name]),
    resolve(schemas[place.split(".")[0] ?? ""]),
  );
  const [value] = typesOf(found);
  if (!value?.enum && !value?.properties)
    throw new Error(`${place}.${field} is neither a union nor an object. Correct NAMED in client-types.ts.`);
  return value;
}

/** Adds the second names of fields, which the document leaves out. */
function withAliases(schema: Schema): Schema {
  const { properties = {}, required = [], "x-aliases": names = {} } = schema;
  const aliases = Object.entries(names).map(([alias, name]) => [alias, properties[name]]);
  return {
    ...schema,
    properties: { ...Object.fromEntries(aliases), ...properties },
    required: [...Object.keys(names), ...required],
  };
}

/** Declares a schema by the fields that it adds to the largest other record, with an id, whose fields it has. */
function declarationOf(name: string, schemas: Record<string, Schema>): string {
  const { enum: values, ...schema } = schemas[name] ?? {};
  if (values) return `export type ${typeNameOf(name)} = ${values.map((value) => JSON.stringify(value)).join(" | ")};`;
  const { properties = {}, required = [] } = withAliases(schema);
  const isBase = ([other, { properties: fields = {}, required: needed = [] }]: [string, Schema]) =>
    other !== name &&
    fields._id !== undefined &&
    Object.entries(fields).every(
      ([field, schema]) =>
        JSON.stringify(schema) === JSON.stringify(properties[field]) &&
        needed.includes(field) === required.includes(field),
    );
  const sizeOf = ([, other]: [string, Schema]) => Object.keys(other.properties ?? {}).length;
  const bases = Object.entries(schemas).filter(isBase);
  const [base] = bases.sort((one, other) => sizeOf(other) - sizeOf(one));
  const own = Object.entries(properties).filter(([field]) => !base?.[1].properties?.[field]);
  const fieldsOf = (some: [string, Schema][]) =>
    objectOf({ properties: Object.fromEntries(some), required }, "response");
  if (name === OUTCOME) {
    const outcomes = outcomesOf(properties).map((outcome) => indented(`\n| ${fieldsOf(Object.entries(outcome))}`));
    const others = fieldsOf(own.filter(([field]) => !(field in (outcomesOf(properties)[0] ?? {}))));
    return `export type ${typeNameOf(name)} = ${others} & (${outcomes.join("")}\n);`;
  }
  // An interface can't extend a union.
  if (base?.[0] === OUTCOME) return `export type ${typeNameOf(name)} = ${typeNameOf(OUTCOME)} & ${fieldsOf(own)};`;
  return `export interface ${typeNameOf(name)} ${base ? `extends ${typeNameOf(base[0])} ` : ""}${fieldsOf(own)}`;
}

/** The record whose status says whether it has a failure. */
const OUTCOME = "ProcessingStatus";
/** The fields of a record that has failed, and those of all others. */
function outcomesOf({ status = {}, failure = {} }: Record<string, Schema>): Record<string, Schema>[] {
  const [values = [], none] = [status.enum ?? [], { type: "null" }];
  const reason = (failure.anyOf ?? []).find(({ $ref }) => $ref) ?? {};
  const { description } = failure;
  return [
    { status: { ...status, enum: values.filter((value) => value !== "failed") }, failure: { ...none, description } },
    { status: { ...status, enum: ["failed"] }, failure: { ...reason, description } },
  ] as Record<string, Schema>[];
}

function queryOf(parameters: Parameter[]): string {
  const inQuery = parameters.filter((parameter) => parameter.in === "query");
  if (inQuery.length === 0) return "undefined";
  const fields = inQuery.map(({ name, schema }): [string, Schema] => [name, schema]);
  const isPaged = isPaging(fields);
  const own = fields.filter(([name]) => !isPaged || !PAGING.includes(name));
  const shown = own.length > 0 ? [objectOf({ properties: Object.fromEntries(own) }, "query")] : [];
  return [...(isPaged ? ["Paging"] : []), ...shown].join(" & ");
}

/** Whether these are, or contain, the parameters of `Paging`: the first list that has all of them declares it. */
function isPaging(fields: [string, Schema][]): boolean {
  const properties = Object.fromEntries(fields.filter(([name]) => PAGING.includes(name)));
  if (Object.keys(properties).length < PAGING.length) return false;
  paging ??= objectOf({ properties }, "query");
  return paging === objectOf({ properties }, "query");
}
let paging: string | undefined;

/** Most responses have only a message, or a message and data. */
function responseOf(schema: Schema): string {
  const fields = (schema.required ?? []).join();
  if (Object.keys(schema.properties ?? {}).join() !== fields) return typeOf(schema, "response");
  if (fields === "message") return "Message";
  const { data } = schema.properties ?? {};
  return fields === "message,data" && data ? `Data<${typeOf(data, "response")}>` : typeOf(schema, "response");
}

function operationOf({ parameters = [], requestBody, responses }: Operation): string | undefined {
  const response = responses["200"]?.content?.["application/json"]?.schema;
  if (!response) return undefined;
  const body = requestBody?.content["application/json"]?.schema;
  const fields = [
    `query: ${queryOf(parameters)};`,
    `body: ${body ? typeOf(body, "body") : "undefined"};`,
    `response: ${responseOf(response)};`,
  ];
  return blockOf(fields);
}

function declarations(): string {
  const { paths, components } = describeApi(service) as unknown as OpenApi;
  const named = Object.entries(NAMED).map(([name, place]) => ({ name, schema: findNamed(components.schemas, place) }));
  for (const { name, schema } of named) names.set(keyOf(schema), name);
  for (const [name, schema] of Object.entries(components.schemas)) if (schema.enum) names.set(keyOf(schema), name);
  const types = named.map(({ name, schema }) =>
    schema.enum
      ? `export type ${name} = ${valuesOf(schema.enum)};`
      : `export interface ${name} ${objectOf(schema, "response")}`,
  );
  const schemas = Object.keys(components.schemas);
  const routes = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, described]) => {
      const operation = operationOf(described);
      return operation ? [`  "${method.toUpperCase()} ${path}": ${indented(operation)};`] : [];
    }),
  );
  return [
    "// Written by `npm run types:client` from the schemas that make /openapi.json.",
    ...types,
    "export interface Message {",
    `  /** ${COMMENTS.message} */`,
    "  message: string;",
    "}",
    "export interface Data<T> extends Message {",
    `  /** ${COMMENTS.data} */`,
    "  data: T;",
    "}",
    `export interface Paging ${paging}`,
    ...schemas.map((name) => declarationOf(name, components.schemas)),
    "/** The fields of a file that its events have. */",
    `export type FileEventField = ${FILE_EVENT_FIELDS.map((field) => JSON.stringify(field)).join(" | ")};`,
    "/** The schemas of /openapi.json. */",
    "export interface Schemas {",
    ...schemas.map((name) => `  ${name}: ${typeNameOf(name)};`),
    "}",
    "/** Request and response types of each route. */",
    "export interface Api {",
    ...routes,
    "}",
    "",
  ].join("\n");
}

/** Levels of the document with a line for each field. So each parameter list, body, response and schema field is a line. */
const DOCUMENT_LEVELS = 5;
function linesOf(value: unknown, levels = DOCUMENT_LEVELS): string {
  if (levels === 0 || typeof value !== "object" || value === null || Array.isArray(value)) return JSON.stringify(value);
  const fields = Object.entries(value).map(([name, field]) => `${JSON.stringify(name)}: ${linesOf(field, levels - 1)}`);
  return fields.length > 0 ? `{${indented(`\n${fields.join(",\n")}`)}\n}` : "{}";
}

const root = join(import.meta.dirname, "../..");
const outputs: [file: string, text: string][] = [
  ["src/client/api.ts", declarations()],
  ["test/all/openapi.json", `${linesOf(describeApi(service))}\n`],
];
for (const [file, text] of outputs) {
  const path = join(root, file);
  if (!process.argv.includes("--check")) writeFileSync(path, text);
  else if (!existsSync(path) || readFileSync(path, "utf8") !== text) {
    console.error(`${file} is outdated. Run \`npm run types:client\`.`);
    process.exitCode = 1;
  }
}
