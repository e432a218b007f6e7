import { expect } from "vitest";
import * as z from "zod";
import { api } from "../../src/app.ts";
import { describeApi } from "../../src/http/openapi.ts";

/** The OpenAPI document, loosely typed as tests read it. */
export interface Document {
  openapi: string;
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, object> };
}
interface Described {
  parameters: { name: string; schema: { pattern?: string } }[];
  responses: Record<string, { content?: Record<string, Media> }>;
}
interface Media {
  schema: object;
  example: unknown;
}

export const document = describeApi(api) as unknown as Document;

/** Compiles a schema of the document with Zod, so that responses are validated by the document and not by our types. */
export function compile(schema: object): z.ZodType {
  const $defs = document.components.schemas;
  // Zod does not support `not`. Only the update of a user has it, and other tests cover that over HTTP.
  const { not: _, ...readable } = schema as { not?: object };
  const text = JSON.stringify({ ...readable, $defs }).replaceAll("#/components/schemas/", "#/$defs/");
  return z.fromJSONSchema(JSON.parse(text));
}

const messageSchema = compile({ $ref: "#/components/schemas/WebhookMessage" });

/** Fails if the document does not describe the body of a message to a webhook. */
export function expectDocumentedMessage(body: string): void {
  const result = messageSchema.safeParse(JSON.parse(body));
  expect(result.error?.issues ?? [], "the message differs from the OpenAPI document").toEqual([]);
}

const compiled = new Map<string, z.ZodType>();

const routes = Object.entries(document.paths).map(([path, methods]) => ({
  path,
  methods,
  pattern: new RegExp(`^${path.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+")}$`),
}));

/** Finds the documented route of a request. */
export function routeOf(method: string, path: string): { path: string; method: string } | undefined {
  const found = routes.find(({ pattern, methods }) => pattern.test(path) && method.toLowerCase() in methods);
  return found && { path: found.path, method };
}

/** Fails if the document does not admit the cursor of the next page. */
function expectDocumentedCursor(where: string, { parameters }: Described, response: Response): void {
  const next = /<([^>]+)>; rel="next"/.exec(response.headers.get("Link") ?? "")?.[1];
  if (next === undefined) return;
  const { pattern = "" } = parameters.find(({ name }) => name === "cursor")?.schema ?? {};
  expect(new URL(next).searchParams.get("cursor"), `${where} has a cursor`).toMatch(new RegExp(pattern, "u"));
}

/** Fails if the document does not describe the response: its status, media type, body, and the cursor of the next page. */
export async function expectDocumented(method: string, url: URL, response: Response): Promise<void> {
  const route = routeOf(method, url.pathname);
  if (!route) return;
  const where = `${method} ${route.path} -> ${response.status}`;
  const operation = document.paths[route.path]?.[method.toLowerCase()];
  const described = operation?.responses[response.status];
  if (described && !described.content) {
    expect(await response.clone().text(), `${where} has no body`).toBe("");
    return;
  }
  // The bytes of a file.
  if (described?.content?.["*/*"]) return;
  const schema = described?.content?.["application/json"]?.schema;
  expect(schema, `${where} is not in the OpenAPI document`).toBeDefined();
  const validator = compiled.get(where) ?? compile(schema as object);
  compiled.set(where, validator);
  const result = validator.safeParse(await response.clone().json());
  expect(result.error?.issues ?? [], `${where} differs from the OpenAPI document`).toEqual([]);
  if (operation) expectDocumentedCursor(where, operation, response);
}
