import { bodyKindOf, bodyTypeOf, needsToken, type Operation, type Route } from "./document.ts";

/* Samples of a request in curl, JavaScript and Python. None contains a token: it is the variable KEY. */

/** The script of the page replaces this by the service's own origin. */
export const ORIGIN = "https://HOST";
const FILE = "interview.mp3";

export interface Sample {
  language: "curl" | "JavaScript" | "Python";
  source: string;
}

/** A request as a sample shows it. */
export interface SampleRequest {
  method: string;
  /** The absolute URL with its query. */
  url: string;
  hasToken: boolean;
  headers: Record<string, string>;
  /** `file` is the name of a file. */
  body?:
    | { kind: "json"; text: string }
    | { kind: "form"; fields: Record<string, string>; file: string }
    | { kind: "bytes"; file: string };
}

/** Indented JSON, but lists of plain values on one line. */
export const formatJson = (value: unknown): string =>
  JSON.stringify(value, null, 2).replaceAll(/\[\n[^[\]{}]*\]/g, (list) =>
    list
      .replaceAll(/\s*\n\s*/g, " ")
      .replace("[ ", "[")
      .replace(" ]", "]"),
  );

function bodyOf(operation: Operation): SampleRequest["body"] {
  const { required, content = {} } = operation.requestBody ?? {};
  const kind = bodyKindOf(operation);
  if (kind === "json") {
    const { example = {} } = content["application/json"] ?? {};
    return { kind, text: formatJson(example) };
  }
  if (kind === "form") return { kind, fields: {}, file: FILE };
  const file = bodyTypeOf(operation) === "text/vtt" ? "interview.vtt" : FILE;
  return kind === "bytes" && required ? { kind, file } : undefined;
}

/** The least that the operation accepts. Variables in the path are upper-case names in `variable`'s notation. */
function requestOf({ method, path, operation }: Route, variable: (name: string) => string): SampleRequest {
  const required = (operation.parameters ?? []).filter((one) => one.required && one.in === "header");
  const headers = required.map(({ name, schema }): [string, string] => [
    name,
    String(schema.const ?? schema.example ?? ""),
  ]);
  const body = bodyOf(operation);
  return {
    method,
    url: ORIGIN + path.replaceAll(/\{(\w+)\}/g, (_, name: string) => variable(name.toUpperCase())),
    hasToken: needsToken(operation),
    headers: {
      ...Object.fromEntries(headers),
      ...(body?.kind === "bytes" && { "Content-Type": bodyTypeOf(operation) }),
    },
    ...(body && { body }),
  };
}

const shellQuote = (text: string) => `'${text.replaceAll("'", "'\\''")}'`;

/** A command for a POSIX shell. `quotedUrl` is the URL as the shell reads it; by default, it contains no variables. */
export function curlOf(request: SampleRequest, quotedUrl = shellQuote(request.url)): string {
  const { method, hasToken, headers, body } = request;
  const isImplied = method === "GET" || (method === "POST" && body !== undefined);
  const verb = method === "HEAD" ? "--head " : isImplied ? "" : `-X ${method} `;
  const options = Object.entries(headers).map(([name, value]) => `-H ${shellQuote(`${name}: ${value}`)}`);
  if (hasToken) options.unshift('-H "Authorization: Bearer $KEY"');
  if (body?.kind === "json") options.push('-H "Content-Type: application/json"', `-d ${shellQuote(body.text)}`);
  if (body?.kind === "form") {
    const fields = Object.entries(body.fields).map(([name, value]) => `-F ${shellQuote(`${name}=${value}`)}`);
    options.push(...fields, `-F ${shellQuote(`file=@${body.file}`)}`);
  }
  if (body?.kind === "bytes") options.push(`--data-binary ${shellQuote(`@${body.file}`)}`);
  return [`curl ${verb}${quotedUrl}`, ...options].join(" \\\n  ");
}

function clientSample({ operation }: Route, source: string): string {
  const options = needsToken(operation) ? `{ url: "${ORIGIN}", key: KEY }` : `{ url: "${ORIGIN}", key: null }`;
  return `import { Stowage } from "stowage";\n\nconst stowage = new Stowage(${options});\n${source}`;
}

/** For operations that the client does not have, or has only as a part of another one. */
function fetchSample(route: Route): string {
  const { method, url, hasToken, headers, body } = requestOf(route, (name) => `\${${name}}`);
  const lines = Object.entries(headers).map(
    ([name, value]) => `    ${JSON.stringify(name)}: ${JSON.stringify(value)},`,
  );
  if (hasToken) lines.unshift(`    Authorization: \`Bearer \${KEY}\`,`);
  const options = [
    `  method: "${method}",`,
    ...(lines.length > 0 ? ["  headers: {", ...lines, "  },"] : []),
    ...(body ? ["  body: file,"] : []),
  ];
  return [`const response = await fetch(\`${url}\`, {`, ...options, "});", "console.log(response.status);"].join("\n");
}

/** A JSON value as a Python literal. */
function pythonOf(value: unknown, indent: string): string {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (typeof value !== "object") return JSON.stringify(value);
  const inner = `${indent}    `;
  const [open, close] = Array.isArray(value) ? "[]" : "{}";
  const parts = Array.isArray(value)
    ? value.map((one) => pythonOf(one, inner))
    : Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${pythonOf(one, inner)}`);
  if (parts.length === 0) return `${open}${close}`;
  const line = `${open}${parts.join(", ")}${close}`;
  if (!line.includes("\n") && line.length < 60) return line;
  return `${open}\n${parts.map((part) => `${inner}${part},\n`).join("")}${indent}${close}`;
}

function pythonSample(route: Route): string {
  const { method, url, hasToken, headers, body } = requestOf(route, (name) => `{${name}}`);
  const pairs = Object.entries(headers).map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  if (hasToken) pairs.unshift('"Authorization": f"Bearer {KEY}"');
  const dictionary =
    pairs.join(", ").length < 80 ? `{${pairs.join(", ")}}` : `{\n        ${pairs.join(",\n        ")},\n    }`;
  const args = [
    `${url.includes("{") ? "f" : ""}"${url}"`,
    ...(pairs.length > 0 ? [`headers=${dictionary}`] : []),
    ...(body?.kind === "json" ? [`json=${pythonOf(JSON.parse(body.text), "    ")}`] : []),
    ...(body?.kind === "form" ? [`files={"file": open("${body.file}", "rb")}`] : []),
    ...(body?.kind === "bytes" ? [`data=open("${body.file}", "rb")`] : []),
  ];
  const isJson = Object.values(route.operation.responses).some(
    ({ content }, index) => index === 0 && content?.["application/json"],
  );
  return [
    "import requests",
    "",
    `response = requests.${method.toLowerCase()}(`,
    ...args.map((arg) => `    ${arg},`),
    ")",
    "response.raise_for_status()",
    isJson ? "print(response.json())" : "print(response.headers)",
  ].join("\n");
}

export function samplesOf(route: Route): Sample[] {
  const client = route.operation["x-codeSamples"]?.find(({ lang }) => lang === "JavaScript")?.source;
  const request = requestOf(route, (name) => `$${name}`);
  return [
    { language: "curl", source: curlOf(request, `"${request.url}"`) },
    { language: "JavaScript", source: client === undefined ? fetchSample(route) : clientSample(route, client) },
    { language: "Python", source: pythonSample(route) },
  ];
}
