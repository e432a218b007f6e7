import { expect } from "vitest";
import * as z from "zod";

/** The OpenAPI document, loosely typed as tests read it. */
export interface Document {
  openapi: string;
  paths: Record<string, Record<string, Operation>>;
  components: { schemas: Record<string, object> };
}
interface Operation {
  parameters: { name: string; schema: { pattern?: string } }[];
  responses: Record<string, { content?: Record<string, Media> }>;
}
interface Media {
  schema: object;
  example: unknown;
  /** The examples of errors, by code. */
  examples?: Record<string, unknown>;
}

/** A response as the service sends it, or as a test invents it. */
export interface Described {
  status: number;
  text: string;
}

interface ObjectSchema {
  properties?: Record<string, object>;
  required?: string[];
  additionalProperties?: unknown;
  unevaluatedProperties?: false;
  "x-aliases"?: Record<string, string>;
}

/**
 * For `JSON.parse`. Clients must ignore fields that they don't know, so the document forbids none in a response. The tests do, and require
 * the second names of fields.
 */
function closed(_: string, schema: unknown): unknown {
  // Zod knows only `additionalProperties`.
  const {
    properties,
    required = [],
    "x-aliases": aliases = {},
    unevaluatedProperties: _closed,
    ...others
  } = (schema ?? {}) as ObjectSchema;
  if (typeof properties !== "object" || Array.isArray(schema)) return schema;
  const fields = Object.entries(aliases).map(([alias, name]) => [alias, properties[name]]);
  return {
    additionalProperties: false,
    ...others,
    properties: { ...properties, ...Object.fromEntries(fields) },
    required: [...required, ...Object.keys(aliases)],
  };
}

/** Compares responses with an OpenAPI document. It knows nothing else of the service, so it also runs outside Workers. */
export class Validation {
  readonly #document: Document;
  /** By their text. Most responses of an error have the same one. */
  readonly #compiled = new Map<string, z.ZodType>();
  readonly #definitions: string;
  readonly #routes: { path: string; methods: object; pattern: RegExp }[];

  constructor(document: Document) {
    this.#document = document;
    this.#definitions = JSON.stringify(document.components.schemas);
    this.#routes = Object.entries(document.paths).map(([path, methods]) => ({
      path,
      methods,
      pattern: new RegExp(`^${path.replaceAll(".", "\\.").replaceAll(/\{\w+\}/g, "[^/]+")}$`),
    }));
  }

  /** Compiles a schema of the document with Zod, so that responses are validated by the document and not by our types. */
  compile(schema: object): z.ZodType {
    // Zod does not support `not`. Only the update of a user has it, and other tests cover that over HTTP.
    const { not: _, ...readable } = schema as { not?: object };
    const text = JSON.stringify(readable);
    const known = this.#compiled.get(text);
    if (known) return known;
    const whole = `{"$defs":${this.#definitions},"own":${text}}`.replaceAll("#/components/schemas/", "#/$defs/");
    const { own, $defs } = JSON.parse(whole, closed);
    const compiled = z.fromJSONSchema({ ...own, $defs });
    this.#compiled.set(text, compiled);
    return compiled;
  }

  /** Finds the documented route of a request. */
  routeOf(method: string, path: string): { path: string; method: string } | undefined {
    const found = this.#routes.find(({ pattern, methods }) => pattern.test(path) && method.toLowerCase() in methods);
    return found && { path: found.path, method };
  }

  /** Fails if the document does not describe the response: its status, media type, body, and the code of an error. */
  expectDescribed(route: { path: string; method: string }, { status, text }: Described): void {
    const where = `${route.method} ${route.path} -> ${status}`;
    const described = this.#document.paths[route.path]?.[route.method.toLowerCase()]?.responses[status];
    if ((described && !described.content) || (described && route.method === "HEAD")) {
      expect(text, `${where} has no body`).toBe("");
      return;
    }
    // The bytes of a file, or text.
    if (described?.content && !described.content["application/json"]) return;
    const media = described?.content?.["application/json"];
    expect(media?.schema, `${where} is not in the OpenAPI document`).toBeDefined();
    const validator = this.compile(media?.schema as object);
    const body = JSON.parse(text);
    const result = validator.safeParse(body);
    expect(result.error?.issues ?? [], `${where} differs from the OpenAPI document`).toEqual([]);
    // Every route responds so on a host that serves only others.
    if (media?.examples && body.code !== "route_not_found")
      expect(Object.keys(media.examples), `${where} has no such code`).toContain(body.code);
  }

  /** Fails if the document does not admit the cursor of the next page. */
  expectDescribedCursor(route: { path: string; method: string }, link: string | null): void {
    const next = /<([^>]+)>; rel="next"/.exec(link ?? "")?.[1];
    if (next === undefined) return;
    const operation = this.#document.paths[route.path]?.[route.method.toLowerCase()];
    const { pattern = "" } = operation?.parameters.find(({ name }) => name === "cursor")?.schema ?? {};
    const cursor = new URL(next).searchParams.get("cursor");
    expect(cursor, `the cursor of ${route.method} ${route.path}`).toMatch(new RegExp(pattern, "u"));
  }
}
