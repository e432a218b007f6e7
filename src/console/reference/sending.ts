import { Refusal } from "../refusal.ts";
import { type Call, jsonText } from "./call.ts";

/** More would make the page slow, and be read by nobody. */
const MAX_SHOWN_BYTES = 200_000;

export interface Answer {
  status: number;
  milliseconds: number;
  headers: [name: string, value: string][];
  bytes: number;
  /** Absent where it is long, or no text. */
  text: string | undefined;
  requestId: string | null;
  /** What the service says of a failure. */
  message: string | undefined;
}

/** @throws Error where no answer comes; as `fetch` does where the request was stopped */
export async function reach(address: string | URL, request: RequestInit = {}): Promise<Response> {
  try {
    return await fetch(address, request);
  } catch (error) {
    if (request.signal?.aborted) throw error;
    throw new Refusal("The service can't be reached.", { cause: error });
  }
}

/** Sends the call to the service that the page comes from, and to no other. @throws as `reach` */
export async function send(call: Call, token: string, signal: AbortSignal): Promise<Answer> {
  const { method, path, headers, needsToken, body } = call;
  const url = new URL(path, location.origin);
  if (url.origin !== location.origin) throw new Refusal("A token is sent to this service alone.");
  const start = performance.now();
  const response = await reach(url, {
    method,
    headers: { ...headers, ...(needsToken && { Authorization: `Bearer ${token}` }) },
    body: bodyOf(body),
    redirect: "error",
    credentials: "omit",
    signal,
  });
  const { bytes, text } = await read(response);
  const isText = /json|^text\//.test(response.headers.get("Content-Type") ?? "");
  const failure = response.ok ? undefined : (parsed(text) as { message?: string } | undefined);
  return {
    status: response.status,
    milliseconds: Math.round(performance.now() - start),
    headers: [...response.headers],
    bytes,
    text: isText && text !== undefined ? formatted(text) : undefined,
    requestId: response.headers.get("X-Request-Id"),
    message: failure?.message,
  };
}

function bodyOf(body: Call["body"]): BodyInit | null {
  if (body?.kind === "json") return body.text;
  if (!body?.file) return null;
  if (body.kind === "bytes") return body.file;
  const form = new FormData();
  form.append("file", body.file);
  return form;
}

/** Counts all of it, and keeps it where it is short. */
async function read(response: Response): Promise<{ bytes: number; text: string | undefined }> {
  const decoder = new TextDecoder();
  const reader = response.body?.getReader();
  let bytes = 0;
  let text = "";
  for (let piece = await reader?.read(); piece && !piece.done; piece = await reader?.read()) {
    bytes += piece.value.length;
    if (bytes <= MAX_SHOWN_BYTES) text += decoder.decode(piece.value, { stream: true });
  }
  return { bytes, text: bytes <= MAX_SHOWN_BYTES ? text : undefined };
}

function parsed(text = ""): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function formatted(text: string): string {
  const value = parsed(text);
  return value === undefined ? text : jsonText(value);
}
