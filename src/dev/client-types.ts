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

/** Requests may contain `undefined`, which JSON omits. Responses never do. */
type Direction = "request" | "response";

function typeOf(schema: Schema, direction: Direction): string {
  if (schema.$ref) return `Schemas["${schema.$ref.split("/").at(-1)}"]`;
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" | ");
  const union = schema.anyOf ?? schema.oneOf;
  if (union) return union.map((one) => typeOf(one, direction)).join(" | ");
  if (Array.isArray(schema.type)) return schema.type.map((type) => typeOf({ ...schema, type }, direction)).join(" | ");
  if (schema.type === "array") return `Array<${typeOf(schema.items ?? {}, direction)}>`;
  if (schema.type === "object") return objectOf(schema, direction);
  return schema.type === "null" ? "null" : (SIMPLE[schema.type ?? ""] ?? "unknown");
}

function objectOf({ properties, required = [], additionalProperties }: Schema, direction: Direction): string {
  if (!properties) {
    const values = typeof additionalProperties === "object" ? typeOf(additionalProperties, direction) : "unknown";
    return `Record<string, ${values}>`;
  }
  const fields = Object.entries(properties).map(([name, schema]) => {
    const comment = schema.description ? `/** ${schema.description.replaceAll("*/", "* /")} */ ` : "";
    const isRequired = required.includes(name);
    const mayBeUndefined = !isRequired && direction === "request" ? " | undefined" : "";
    return `${comment}${name}${isRequired ? "" : "?"}: ${typeOf(schema, direction)}${mayBeUndefined}`;
  });
  return `{ ${fields.join("; ")} }`;
}

function queryOf(parameters: Parameter[]): string {
  const inQuery = parameters.filter((parameter) => parameter.in === "query");
  if (inQuery.length === 0) return "undefined";
  return objectOf({ properties: Object.fromEntries(inQuery.map(({ name, schema }) => [name, schema])) }, "request");
}

function operationOf({ parameters = [], requestBody, responses }: Described): string | undefined {
  const response = responses["200"]?.content?.["application/json"]?.schema;
  if (!response) return undefined;
  const body = requestBody?.content["application/json"]?.schema;
  const fields = [
    `query: ${queryOf(parameters)}`,
    `body: ${body ? typeOf(body, "request") : "undefined"}`,
    `response: ${typeOf(response, "response")}`,
  ];
  return `{ ${fields.join("; ")} }`;
}

function declarations(): string {
  const { paths, components } = describeApi(api) as unknown as {
    paths: Record<string, Record<string, Described>>;
    components: { schemas: Record<string, Schema> };
  };
  const schemas = Object.entries(components.schemas).map(
    ([name, schema]) => `  ${name}: ${typeOf(schema, "response")};`,
  );
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).flatMap(([method, described]) => {
      const operation = operationOf(described);
      return operation ? [`  "${method.toUpperCase()} ${path}": ${operation};`] : [];
    }),
  );
  return [
    "// Written by `npm run types:client` from the schemas that make /openapi.json.",
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
