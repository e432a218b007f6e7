import { describeAccess, TITLE } from "./introduction.ts";
import { type Api, splitRoute, type Tag } from "./operation.ts";

/* The API as text for programs that read: `/llms.txt` (llmstxt.org), and each page of the reference as Markdown. */

/** The parts of the OpenAPI document that the pages show. */
interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  default?: unknown;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minItems?: number;
  maxItems?: number;
}
type Headers = Record<string, { description: string }>;
type Content = Record<string, { schema: Schema; example?: unknown }>;
interface Described {
  operationId: string;
  summary: string;
  description: string;
  parameters: { name: string; in: string; required: boolean; description?: string; schema: Schema }[];
  requestBody?: { required: boolean; content: Content };
  responses: Record<string, { description: string; headers?: Headers; content?: Content }>;
  "x-codeSamples"?: { source: string }[];
}
export interface Document {
  info: { title: string; description: string };
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, Schema> };
}

const PAGES = "/reference";
const pageOf = (operationId: string) => `${PAGES}/${operationId}.md`;

/**
 * A description of the service, links to its documents, and each operation on a line.
 * @param client the path of the client's package
 */
export function renderIndex({ operations, tags }: { operations: Api; tags: Tag[] }, client: string): string {
  const all = Object.entries(operations).map(([id, operation]) => ({ id, ...operation }));
  const groups = tags.flatMap(({ name, description }) => {
    const lines = all
      .filter(({ tag }) => tag.name === name)
      .map(({ id, route, ...one }) => `- [${route}](${pageOf(id)}): ${one.summary}. ${describeAccess(one)}`);
    return lines.length > 0 ? [`## ${name}\n\n${description}\n\n${lines.join("\n")}`] : [];
  });
  return `${[
    `# ${TITLE}`,
    "> An HTTP service for accounts, API keys and audio files: uploads, metadata, transcripts, links and webhooks.",
    "Send a token with every request, as `Authorization: Bearer <token>`, unless the operation needs none. Requests and responses are JSON, except file contents. Every operation below links to a page with its parameters, body, response and errors.",
    "## Documents\n\n" +
      `- [Introduction](${PAGES}.md): ` +
      "quickstart, authentication, scopes, errors, lists, retries and rate limits\n- [OpenAPI 3.1](/openapi.json): " +
      "every operation and schema, for generators of clients\n- [Guide](/guide.md): " +
      "tasks with their calls, such as uploads from a web page, sharing, users and webhooks\n- [Client](/client.md): " +
      `the typed client, the upload element with its recorder, and the command line\n- [Package of the client](${client}): ` +
      `for \`npm install https://HOST${client}\`, an address that stays valid\n- [Reference](${PAGES}): ` +
      "the same for people, with forms to try it",
    ...groups,
  ].join("\n\n")}\n`;
}

const nameOf = (ref: string) => ref.split("/").at(-1) ?? "";

/** The type of a value in a few words. */
function typeOf(schema: Schema): string {
  if (schema.$ref) return nameOf(schema.$ref);
  if (schema.const !== undefined) return JSON.stringify(schema.const);
  if (schema.enum) return schema.enum.map((value) => JSON.stringify(value)).join(" or ");
  const union = schema.anyOf ?? schema.oneOf;
  if (union) return [...new Set(union.map(typeOf))].join(" or ");
  if (schema.items) return `array of ${typeOf(schema.items)}${schema.type?.includes("null") ? " or null" : ""}`;
  return [schema.type ?? "any"].flat().join(" or ") + (schema.format ? `, ${schema.format}` : "");
}

const rangeOf = (least: number | undefined, most: number | undefined, unit = ""): string[] => {
  if (most === undefined) return least === undefined ? [] : [`at least ${least}${unit}`];
  return [least === undefined ? `at most ${most}${unit}` : `${least} to ${most}${unit}`];
};

/** The limits of a value, such as `1 to 200 characters`, and its default. */
function limitsOf(schema: Schema): string[] {
  const limits = (schema.anyOf ?? schema.oneOf ?? [schema]).flatMap((one) => [
    ...(one.format === "binary" ? [] : rangeOf(one.minLength, one.maxLength, " characters")),
    ...rangeOf(one.minimum, one.maximum),
    ...(one.exclusiveMinimum === undefined ? [] : [`more than ${one.exclusiveMinimum}`]),
    ...rangeOf(one.minItems, one.maxItems, " items"),
  ]);
  return [...limits, ...(schema.default === undefined ? [] : [`default ${JSON.stringify(schema.default)}`])];
}

const lineOf = (name: string, facts: string[], description = "") =>
  `- \`${name}\` (${facts.join(", ")})${description ? `: ${description.replaceAll(/\s+/g, " ")}` : ""}`;

/** Deeper fields are in the example. */
const MAX_DEPTH = 4;

const resolve = (schema: Schema, document: Document): Schema =>
  schema.$ref ? (document.components.schemas[nameOf(schema.$ref)] ?? {}) : schema;

const indented = (lines: string[]) => lines.map((line) => `  ${line}`);

/** Distinguishes an object of a union by its constants, such as ``With `action` "move"``. */
function conditionOf({ properties = {} }: Schema): string {
  const fixed = Object.entries(properties).filter(
    ([, { const: value, enum: values }]) => value !== undefined || values,
  );
  return `With ${fixed.map(([name, field]) => `\`${name}\` ${typeOf(field)}`).join(" and ")}`;
}

/** The fields of an object, with those of objects in it. Of a union, those of each object. */
function fieldsOf(schema: Schema, document: Document, isRequest: boolean, depth = 0): string[] {
  if (depth > MAX_DEPTH) return [];
  const resolved = resolve(schema, document);
  if (resolved.items) return fieldsOf(resolved.items, document, isRequest, depth);
  if (schema.$ref && resolved.enum) return [`- ${typeOf(resolved)}`];
  const union = (resolved.anyOf ?? resolved.oneOf ?? []).filter((one) => one.$ref || one.properties || one.items);
  if (union.length > 1)
    return union.flatMap((one) => [
      `- ${conditionOf(resolve(one, document))}:`,
      ...indented(fieldsOf(one, document, isRequest, depth + 1)),
    ]);
  if (union[0]) return fieldsOf(union[0], document, isRequest, depth);
  return Object.entries(resolved.properties ?? {}).flatMap(([name, field]) => {
    const isRequired = resolved.required?.includes(name) ?? false;
    const marks = isRequired === isRequest ? [isRequired ? "required" : "optional"] : [];
    const line = lineOf(name, [typeOf(field), ...marks, ...limitsOf(field)], field.description);
    return [line, ...indented(fieldsOf(field, document, isRequest, depth + 1))];
  });
}

const fence = (text: string, language = "") => `\`\`\`${language}\n${text.trimEnd()}\n\`\`\``;
/** A list of numbers, such as peaks, is one line. */
const NUMBERS = /\[\s+(-?[\d.]+(?:,\s+-?[\d.]+)*)\s+\]/g;
const exampleOf = (example: unknown) =>
  typeof example === "string"
    ? fence(example)
    : fence(
        JSON.stringify(example, null, 2).replaceAll(NUMBERS, (_, list: string) => `[${list.replaceAll(/\s+/g, " ")}]`),
        "json",
      );

function renderContent(content: Content | undefined, document: Document, isRequest: boolean): string[] {
  return Object.entries(content ?? {}).flatMap(([type, { schema, example }]) => [
    `Type: \`${type}\``,
    ...[fieldsOf(schema, document, isRequest).join("\n")].filter(Boolean),
    ...(example === undefined ? [] : [exampleOf(example)]),
  ]);
}

function renderHeaders(headers: Headers = {}): string[] {
  const lines = Object.entries(headers).map(([name, { description }]) => `- \`${name}\`: ${description}`);
  return lines.length > 0 ? ["Headers:", lines.join("\n")] : [];
}

function renderOperation(document: Document, method: string, path: string, described: Described): string {
  const { summary, description, parameters, requestBody, responses, "x-codeSamples": samples = [] } = described;
  const isError = ([status]: [string, unknown]) => Number(status) >= 400;
  const successes = Object.entries(responses).filter((one) => !isError(one));
  const errors = Object.entries(responses)
    .filter(isError)
    .flatMap(([status, { description }]) => description.split("\n").map((line) => `- ${status} ${line}`));
  const section = (title: string, parts: string[]) => (parts.length > 0 ? [`## ${title}`, ...parts] : []);
  const inList = parameters.map(({ name, in: where, required, description, schema }) =>
    lineOf(
      name,
      [where, typeOf(schema), ...(required ? ["required"] : []), ...limitsOf(schema)],
      description ?? schema.description,
    ),
  );
  return `${[
    `# ${summary}`,
    `\`${method.toUpperCase()} ${path}\``,
    description,
    ...section("Parameters", inList.length > 0 ? [inList.join("\n")] : []),
    ...section("Body", renderContent(requestBody?.content, document, true)),
    ...successes.flatMap(([status, { description, headers, content }]) =>
      section(`Response ${status}`, [
        description,
        ...renderHeaders(headers),
        ...renderContent(content, document, false),
      ]),
    ),
    ...section("Errors", [errors.join("\n")]),
    ...section(
      "Client",
      samples.map(({ source }) => fence(source, "js")),
    ),
    `[Introduction](${PAGES}.md) · [All operations](/llms.txt)`,
  ].join("\n\n")}\n`;
}

/** Returns the page at this path; undefined if there is none. */
export function renderPage(document: Document, api: Api, path: string): string | undefined {
  if (path === `${PAGES}.md`) {
    return `# ${document.info.title} API\n\n${document.info.description}\n\n[All operations](/llms.txt)\n`;
  }
  const [, id = ""] = /^\/reference\/(\w+)\.md$/.exec(path) ?? [];
  const operation = Object.hasOwn(api, id) ? api[id] : undefined;
  if (!operation) return undefined;
  const { method, path: template } = splitRoute(operation.route);
  const described = document.paths[template]?.[method.toLowerCase()];
  return described && renderOperation(document, method, template, described);
}
