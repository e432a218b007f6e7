/* What the page shows, read from /openapi.json. */

export interface Schema {
  $ref?: string;
  type?: string | string[];
  enum?: unknown[];
  const?: unknown;
  anyOf?: Schema[];
  items?: Schema;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: Schema | boolean;
  description?: string;
  default?: unknown;
  example?: unknown;
  format?: string;
  pattern?: string;
  minimum?: number;
  maximum?: number;
  minLength?: number;
  maxLength?: number;
  minItems?: number;
  maxItems?: number;
  minProperties?: number;
  "x-enumDescriptions"?: Record<string, string>;
}

export interface Parameter {
  name: string;
  in: "path" | "query" | "header";
  required?: boolean;
  description?: string;
  schema: Schema;
}

interface Content {
  schema?: Schema;
  example?: unknown;
  examples?: Record<string, { value: { message: string } }>;
}

export interface RequestBody extends Content {
  mediaType: string;
  isRequired: boolean;
  /** The object that a JSON body is, also where its schema is a named one. */
  object: Schema | undefined;
}

export interface OperationResponse {
  status: string;
  description: string;
  headers: Record<string, { description?: string }>;
  content: Content | undefined;
}

export interface Operation {
  id: string;
  method: string;
  path: string;
  summary: string;
  description: string;
  /** Names of the security schemes of which any one is enough; none where no token is needed. */
  tokens: string[];
  parameters: Parameter[];
  /** How the typed client does it; empty where it doesn't. */
  clientSample: string;
  body: RequestBody | undefined;
  responses: OperationResponse[];
}

/** A part of the page that has a heading and an address, such as `#lists`. */
export interface Section {
  id: string;
  title: string;
  text: string;
}

export type Group = Section & { operations: Operation[] };

export interface Reference {
  version: string;
  introduction: string;
  sections: Section[];
  groups: Group[];
  schemas: Record<string, Schema>;
  /** The security schemes' descriptions. */
  tokens: Record<string, string>;
  codes: { code: string; status: string; meaning: string }[];
}

interface Described {
  operationId: string;
  tags: string[];
  summary: string;
  description?: string;
  security: Record<string, unknown>[];
  parameters?: Parameter[];
  "x-codeSamples"?: { source: string }[];
  requestBody?: { required?: boolean; content: Record<string, Content> };
  responses: Record<
    string,
    { description: string; headers?: OperationResponse["headers"]; content?: Record<string, Content> }
  >;
}

interface OpenApi {
  info: { version: string; description: string };
  tags: { name: string; description: string }[];
  paths: Record<string, Record<string, Described>>;
  components: {
    schemas: Record<string, Schema>;
    securitySchemes: Record<string, { description: string }>;
  };
}

const slug = (title: string) => title.toLowerCase().replaceAll(/\W+/g, "-");

function readOperation(method: string, path: string, described: Described, schemas: Record<string, Schema>): Operation {
  const schemaOf = (schema: Schema = {}) => schemas[refersTo(schema) ?? ""] ?? schema;
  const [mediaType = "", content] = Object.entries(described.requestBody?.content ?? {})[0] ?? [];
  return {
    id: described.operationId,
    method: method.toUpperCase(),
    path,
    summary: described.summary,
    description: described.description ?? "",
    tokens: described.security.flatMap((scheme) => Object.keys(scheme)),
    parameters: described.parameters ?? [],
    clientSample: described["x-codeSamples"]?.[0]?.source ?? "",
    body: content && {
      ...content,
      mediaType,
      isRequired: described.requestBody?.required ?? false,
      object: objectIn(schemaOf(content.schema)),
    },
    responses: Object.entries(described.responses).map(([status, { description, headers = {}, content = {} }]) => ({
      status,
      description,
      headers,
      content: Object.values(content)[0],
    })),
  };
}

export function readDocument({ info, tags, paths, components }: OpenApi): Reference {
  const [introduction = "", ...parts] = info.description.split(/^## /m);
  const operations = Object.entries(paths).flatMap(([path, methods]) =>
    Object.entries(methods).map(([method, described]) => ({
      tag: described.tags[0],
      operation: readOperation(method, path, described, components.schemas),
    })),
  );
  const codes = components.schemas.Error?.properties?.code?.["x-enumDescriptions"] ?? {};
  return {
    version: info.version,
    introduction,
    sections: parts.map((part) => {
      const [title = "", ...text] = part.split("\n");
      return { id: slug(title), title, text: text.join("\n") };
    }),
    groups: tags.map(({ name, description }) => ({
      id: slug(name),
      title: name,
      text: description,
      operations: operations.filter(({ tag }) => tag === name).map(({ operation }) => operation),
    })),
    schemas: components.schemas,
    tokens: Object.fromEntries(
      Object.entries(components.securitySchemes).map(([name, { description }]) => [name, description]),
    ),
    codes: Object.entries(codes).map(([code, text]) => {
      const [status = "", meaning = ""] = text.split(/: (.*)/s);
      return { code, status, meaning };
    }),
  };
}

/** `secretKey` as people read it: "secret key". */
export const words = (name: string): string => name.replaceAll(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);

/** The name of the schema that is referred to. */
export const refersTo = ({ $ref }: Schema): string | undefined => $ref?.split("/").at(-1);

/** The object with fields that a schema is, or is a list of, or null beside which it is. */
export function objectIn(schema: Schema): Schema | undefined {
  if (schema.properties) return schema;
  if (schema.items) return objectIn(schema.items);
  return schema.anyOf?.map(objectIn).find(Boolean);
}
