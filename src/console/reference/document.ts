/* The parts of an OpenAPI 3.1 document that the reference shows. */

export interface Schema {
  $ref?: string;
  type?: string | string[];
  format?: string;
  description?: string;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  example?: unknown;
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  minLength?: number;
  maxLength?: number;
  minimum?: number;
  maximum?: number;
  exclusiveMinimum?: number;
  minItems?: number;
  maxItems?: number;
  "x-enumDescriptions"?: Record<string, string>;
  /** Fields that responses have in addition, by their names, and which field has the same value. */
  "x-aliases"?: Record<string, string>;
}

export interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  deprecated?: boolean;
  description?: string;
  schema: Schema;
}

export interface Content {
  schema: Schema;
  example?: unknown;
  examples?: Record<string, { value: unknown }>;
}

export interface Body {
  required?: boolean;
  description?: string;
  content: Record<string, Content>;
}

export interface Answer {
  description: string;
  headers?: Record<string, { description?: string; schema?: Schema }>;
  content?: Record<string, Content>;
}

export interface Operation {
  operationId: string;
  tags: string[];
  summary: string;
  description?: string;
  security?: Record<string, string[]>[];
  "x-scope"?: string;
  parameters?: Parameter[];
  requestBody?: Body;
  responses: Record<string, Answer>;
  "x-codeSamples"?: { lang: string; source: string }[];
}

export interface OpenApi {
  info: { title: string; version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Operation>>;
  /** Requests of the service to its callers' servers, by name and method. */
  webhooks?: Record<string, Record<string, Partial<Operation>>>;
  components: { schemas: Record<string, Schema>; securitySchemes: Record<string, unknown> };
}

/** An operation with its route. */
export interface Route {
  method: string;
  path: string;
  operation: Operation;
}

export const routesOf = ({ paths }: OpenApi): Route[] =>
  Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, operation]) => ({ method: method.toUpperCase(), path, operation })),
  );

/** How the body of an operation is sent. */
export type BodyKind = "none" | "json" | "form" | "bytes";

export function bodyKindOf(operation: Operation): BodyKind {
  const type = bodyTypeOf(operation);
  if (!type) return "none";
  if (type === "application/json") return "json";
  return type === "multipart/form-data" ? "form" : "bytes";
}

/** The media type of the body, or "" if there is none. Of several, the one with an example. */
export function bodyTypeOf({ requestBody }: Operation): string {
  const types = Object.entries(requestBody?.content ?? {});
  return (types.find(([, { example }]) => example !== undefined) ?? types[0])?.[0] ?? "";
}

export const needsToken = ({ security }: Operation): boolean => (security?.length ?? 0) > 0;
