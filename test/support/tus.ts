import type { Answer, Call, CallOptions } from "./client.ts";

/* Requests of tus 1.0.0, as its clients send them. */

export const RESUMABLE = "/docs/v1/uploads/resumable";

export const base64 = (text: string) => Buffer.from(text).toString("base64");
export const metadataOf = (values: Record<string, string>) =>
  Object.entries(values)
    .map(([key, value]) => `${key} ${base64(value)}`)
    .join(",");

export const tusHeaders = (headers: Record<string, string> = {}) => ({ "Tus-Resumable": "1.0.0", ...headers });

/** Sends a tus request. A header with the value `undefined` is omitted. */
export function ask(
  call: Call,
  method: string,
  path: string,
  headers: Record<string, string | undefined> = {},
  options: CallOptions = {},
): Promise<Answer> {
  const all = Object.entries(tusHeaders(headers as Record<string, string>)).filter(([, value]) => value !== undefined);
  return call(method, path, { ...options, headers: Object.fromEntries(all) });
}

export const create = (
  call: Call,
  bytes: number,
  values: Record<string, string> = { filename: "a.bin" },
  options = {},
) => ask(call, "POST", RESUMABLE, { "Upload-Length": `${bytes}`, "Upload-Metadata": metadataOf(values) }, options);

export const patch = (
  call: Call,
  path: string,
  offset: number,
  body: Uint8Array | ReadableStream<Uint8Array>,
  options = {},
) =>
  ask(
    call,
    "PATCH",
    path,
    {
      "Upload-Offset": `${offset}`,
      "Content-Type": "application/offset+octet-stream",
      ...(body instanceof Uint8Array && { "Content-Length": `${body.length}` }),
    },
    { body: body as Uint8Array<ArrayBuffer>, ...options },
  );

export const head = (call: Call, path: string, options = {}) => ask(call, "HEAD", path, {}, options);

export const locationOf = (answer: Answer) => answer.headers.get("Location") ?? "";
export const offsetOf = (answer: Answer) => Number(answer.headers.get("Upload-Offset") ?? Number.NaN);
/** The id of the file. */
export const idOf = (answer: Answer) => answer.headers.get("Content-Location")?.split("/").at(-1) ?? "";
