/**
 * `npm run types:client` writes src/client/api.ts, the API's types, for the client, which must not import the Worker.
 * With --check, it fails if the file is outdated. openapi-typescript can't do it: it needs the compiler API that
 * TypeScript 7 no longer has.
 */
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { api } from "../app.ts";
import { describeApi } from "../http/openapi.ts";

interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  description?: string;
  format?: string;
}
interface Parameter {
  name: string;
  in: string;
  schema: Schema;
}
interface Described {
  parameters?: Parameter[];
  requestBody?: { content: Record<string, { schema: Schema }> };
  responses: Record<string, { content?: Record<string, { schema: Schema }> }>;
}

const SIMPLE: Record<string, string> = { integer: "number", number: "number", string: "string", boolean: "boolean" };

/** The names of unions, and where they occur. Every other occurrence of the same values has the name, too. */
const NAMED: Record<string, [schema: string, field: string]> = {
  Scope: ["ApiKey", "scopes"],
  Role: ["User", "role"],
  EventType: ["Event", "type"],
  ActorKind: ["Event.actor", "kind"],
  SubjectKind: ["Event.subject", "kind"],
  FileType: ["File", "fileType"],
  ProcessingStatus: ["File", "status"],
  FailureCode: ["ProcessingStatus.failure", "code"],
  TokenKind: ["Me", "kind"],
  TeamStatus: ["Team", "status"],
  WebhookStatus: ["Webhook", "status"],
  WebhookHealth: ["Webhook", "health"],
  DeliveryStatus: ["Delivery", "status"],
  Disposition: ["Link", "disposition"],
};
/** The names by the values, as JSON. */
const names = new Map<string, string>();

/** Requests may contain `undefined`, which JSON omits. Responses never do. */
type Direction = "query" | "body" | "response";

function typeOf(schema: Schema, direction: Direction): string {
  if (schema.$ref) return `Schemas["${schema.$ref.split("/").at(-1)}"]`;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return names.get(JSON.stringify(schema.enum)) ?? valuesOf(schema.enum);
  const union = schema.anyOf ?? schema.oneOf;
  if (union) return union.map((one) => typeOf(one, direction)).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type }, direction)).join(" | ");
  if (schema.type === "array") return `Array<${typeOf(schema.items ?? {}, direction)}>`;
  if (schema.type === "object") return objectOf(schema, direction);
  // JSON turns a Date into what the service takes.
  if (schema.format === "date-time" && direction === "body") return "string | Date";
  return schema.type === "null" ? "null" : (SIMPLE[schema.type ?? ""] ?? "unknown");
}

const valuesOf = (values: unknown[]) => values.map((value) => JSON.stringify(value)).join(" | ");

/** Indents all lines except the first. */
const indented = (text: string) => text.replaceAll("\n", "\n  ");

function objectOf({ properties, required = [], additionalProperties }: Schema, direction: Direction): string {
  if (!properties) {
    const values = typeof additionalProperties === "object" ? typeOf(additionalProperties, direction) : "unknown";
    return `Record<string, ${values}>`;
  }
  const fields = Object.entries(properties).map(([name, schema]) => {
    // On a separate line, or editors do not show it.
    const comment = schema.description ? `/** ${schema.description.replaceAll("*/", "* /")} */\n` : "";
    const isRequired = required.includes(name);
    const mayBeUndefined = !isRequired && direction !== "response" ? " | undefined" : "";
    return `${comment}${name}${isRequired ? "" : "?"}: ${typeOf(schema, direction)}${mayBeUndefined};`;
  });
  return blockOf(fields);
}

const blockOf = (fields: string[]) => `{${fields.map((field) => indented(`\n${field}`)).join("")}\n}`;

/** Returns the values of a union by a place such as `["Event.actor", "kind"]`. */
function findEnum(schemas: Record<string, Schema>, [place, field]: [string, string]): unknown[] {
  const resolve = (schema: Schema | undefined): Schema => {
    const object = schema?.anyOf?.find(({ type, $ref }) => type === "object" || $ref) ?? schema ?? {};
    return object.$ref ? resolve(schemas[object.$ref.split("/").at(-1) ?? ""]) : (object.items ?? object);
  };
  const path = [...place.split(".").slice(1), field];
  const found = path.reduce(
    (schema, name) => resolve(schema.properties?.[name]),
    resolve(schemas[place.split(".")[0] ?? ""]),
  );
  if (!found.enum) throw new Error(`The union ${place}.${field} is gone. Correct NAMED in client-types.ts.`);
  return found.enum;
}

function queryOf(parameters: Parameter[]): string {
  const inQuery = parameters.filter((parameter) => parameter.in === "query");
  if (inQuery.length === 0) return "undefined";
  return objectOf({ properties: Object.fromEntries(inQuery.map(({ name, schema }) => [name, schema])) }, "query");
}

function operationOf({ parameters = [], requestBody, responses }: Described): string | undefined {
  const response = responses["200"]?.content?.["application/json"]?.schema;
  if (!response) return undefined;
  const body = requestBody?.content["application/json"]?.schema;
  const fields = [
    `query: ${queryOf(parameters)};`,
    `body: ${body ? typeOf(body, "body") : "undefined"};`,
    `response: ${typeOf(response, "response")};`,
  ];
  return blockOf(fields);
}

function declarations(): string {
  const { paths, components } = describeApi(api) as unknown as {
    paths: Record<string, Record<string, Described>>;
    components: { schemas: Record<string, Schema> };
  };
  const unions = Object.entries(NAMED).map(([name, place]) => {
    const values = findEnum(components.schemas, place);
    names.set(JSON.stringify(values), name);
    return `export type ${name} = ${valuesOf(values)};`;
  });
  const schemas = Object.entries(components.schemas).map(
    ([name, schema]) => `  ${name}: ${indented(typeOf(schema, "response"))};`,
  );
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, described]) => {
      const operation = operationOf(described);
      return operation ? [`  "${method.toUpperCase()} ${path}": ${indented(operation)};`] : [];
    }),
  );
  return [
    "// Written by `npm run types:client` from the schemas that make /openapi.json.",
    ...unions,
    "export interface Schemas {",
    ...schemas,
    "}",
    "/** Request and response types of each route. */",
    "export interface Api {",
    ...operations,
    "}",
    "",
  ].join("\n");
}

const file = join(import.meta.dirname, "../client/api.ts");
if (!process.argv.includes("--check")) writeFileSync(file, declarations());
else if (readFileSync(file, "utf8") !== declarations()) {
  console.error("src/client/api.ts is outdated. Run `npm run types:client`.");
  process.exitCode = 1;
}
