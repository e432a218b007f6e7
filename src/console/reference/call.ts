import type { Operation, Parameter, Schema } from "./document.ts";

/** A request, as it is shown and as it is sent. The token is apart, so that what is shown never has it. */
export interface Call {
  method: string;
  /** With the query. */
  path: string;
  headers: Record<string, string>;
  needsToken: boolean;
  body?: CallBody | undefined;
}

type CallBody = { kind: "json"; text: string } | { kind: "form" | "bytes"; mediaType: string; file: File | undefined };

const FILE_NAME = "interview.mp3";
const fileName = ({ file }: { file: File | undefined }) => file?.name ?? FILE_NAME;

/** JSON for people: indented, numbers in lines. Within its strings there are no line ends. */
export const jsonText = (value: unknown): string =>
  JSON.stringify(value, null, 2).replaceAll(
    /\[\n[-+\d.eE,\s]+\]/g,
    (numbers) => `[${numbers.slice(1, -1).trim().split(/,\s+/).join(", ")}]`,
  );

/** Values by the parameter's place and name, such as `query.limit`; what is empty is left out. */
export function prepareCall(operation: Operation, values: Record<string, string>, body?: CallBody): Call {
  const { method, parameters, tokens } = operation;
  const query = new URLSearchParams();
  const headers: Record<string, string> = {};
  let path = operation.path;
  for (const { name, in: place } of parameters) {
    const value = values[`${place}.${name}`] ?? "";
    if (value === "") continue;
    if (place === "path") path = path.replace(`{${name}}`, encodeURIComponent(value));
    else if (place === "query") query.set(name, value);
    else headers[name] = value;
  }
  if (body?.kind === "json") headers["Content-Type"] = "application/json";
  if (body?.kind === "bytes") headers["Content-Type"] = body.mediaType;
  return {
    method,
    path: query.size > 0 ? `${path}?${query}` : path,
    headers,
    needsToken: tokens.length > 0,
    body,
  };
}

/** The id of some record at this path, out of the document's examples. */
function exampleId(operation: Operation, all: Operation[]): string | undefined {
  const prefix = operation.path.split("{id}")[0] ?? "";
  const examples = all
    .filter(({ path }) => path.startsWith(`${prefix}{id}`))
    .flatMap(({ responses }) =>
      responses.map(({ content }) => content?.example as { _id?: string; data?: { _id?: string } }),
    );
  return examples.map((example) => example?.data?._id ?? example?._id).find(Boolean);
}

/** What a parameter can be, where the document tells: its example, its one value, the first of several. */
export function exampleOf({ const: only, enum: listed, example, minimum }: Schema): string {
  return String(only ?? example ?? listed?.[0] ?? minimum ?? "");
}

function exampleValue({ name, in: place, schema }: Parameter, operation: Operation, all: Operation[]): string {
  if (place === "path") return (name === "id" && exampleId(operation, all)) || name.toUpperCase();
  return exampleOf(schema);
}

/** The call that the examples show: with what has to be there, and the document's example of the body. */
export function exampleCall(operation: Operation, all: Operation[]): Call {
  const { parameters, body } = operation;
  const values = parameters
    .filter(({ required }) => required)
    .map((parameter) => [`${parameter.in}.${parameter.name}`, exampleValue(parameter, operation, all)]);
  return prepareCall(operation, Object.fromEntries(values), exampleBody(body));
}

/** The document's example of the body; of bytes, their type alone. */
export function exampleBody(body: Operation["body"]): CallBody | undefined {
  if (!body) return undefined;
  const { mediaType, example } = body;
  if (mediaType === "application/json") return { kind: "json", text: jsonText(example ?? {}) };
  return { kind: mediaType.startsWith("multipart/") ? "form" : "bytes", mediaType, file: undefined };
}

/** Between single quotes a shell takes all but these as they are. */
const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export function curlOf({ method, path, headers, needsToken, body }: Call, origin: string): string {
  const parts = [
    ...Object.entries(headers).map(([name, value]) => `-H ${quoted(`${name}: ${value}`)}`),
    ...(needsToken ? ['-H "Authorization: Bearer $STOWAGE_KEY"'] : []),
    ...(body?.kind === "json" ? [`-d ${quoted(body.text)}`] : []),
    ...(body?.kind === "form" ? [`-F ${quoted(`file=@${fileName(body)}`)}`] : []),
    ...(body?.kind === "bytes" ? [`--data-binary ${quoted(`@${fileName(body)}`)}`] : []),
  ];
  const flag = { GET: "", HEAD: "--head " }[method] ?? `-X ${method} `;
  const start = `curl ${flag}${quoted(origin + path)}`;
  return [start, ...parts].join(" \\\n  ");
}

export function fetchOf({ method, path, headers, needsToken, body }: Call, origin: string): string {
  const told = Object.entries(headers).map(([name, value]) => `${JSON.stringify(name)}: ${JSON.stringify(value)}`);
  const all = needsToken ? ["Authorization: `Bearer $" + "{key}`", ...told] : told;
  const bodies = {
    json:
      body?.kind === "json" &&
      `JSON.stringify(${body.text.replaceAll(/"([A-Za-z]\w*)":/g, "$1:").replaceAll("\n", "\n  ")})`,
    form: "form",
    bytes: "file",
  };
  const options = [
    ...(method === "GET" ? [] : [`method: ${JSON.stringify(method)}`]),
    ...(all.length > 0 ? [`headers: { ${all.join(", ")} }`] : []),
    ...(body ? [`body: ${bodies[body.kind]}`] : []),
  ];
  const before = body?.kind === "form" ? 'const form = new FormData();\nform.append("file", file);\n' : "";
  const end = options.length > 0 ? `, {\n  ${options.join(",\n  ")},\n}` : "";
  const answer = method === "HEAD" || method === "OPTIONS" ? "" : "\nconst answer = await response.json();";
  return `${before}const response = await fetch(${JSON.stringify(origin + path)}${end});${answer}`;
}
