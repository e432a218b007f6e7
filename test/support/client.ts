import { expect, vi } from "vitest";
import { expectDocumented } from "./contract.ts";

/*
 * The HTTP client of the tests. It calls a Worker in the same process, one whose bindings fail, or a server over HTTP.
 * Every response must match the OpenAPI document.
 */

export const PASSWORD = "correct horse battery";

export interface CallOptions {
  token?: string | undefined;
  json?: unknown;
  body?: BodyInit | ReadableStream<Uint8Array>;
  headers?: Record<string, string>;
  /** The client IP, by which rate limits count. */
  address?: string | undefined;
}

export interface Answer {
  status: number;
  headers: Headers;
  text: string;
  // biome-ignore lint/suspicious/noExplicitAny: tests read bodies of every shape.
  body: any;
  /** The error code, if it is an error. */
  code: string | undefined;
  /** The id in `Location`, or an empty string. */
  id: string;
}

export type Call = (method: string, path: string, options?: CallOptions) => Promise<Answer>;
export type Send = (request: Request) => Promise<Response>;

export const ORIGIN = "https://stowage.test";

export function buildRequest(
  method: string,
  path: string,
  { token, json, body, headers = {}, address = randomAddress() }: CallOptions = {},
  origin = ORIGIN,
): Request {
  return new Request(new URL(path, origin), {
    method,
    headers: {
      ...(token !== undefined && { Authorization: `Bearer ${token}` }),
      ...(json !== undefined && { "Content-Type": "application/json" }),
      "CF-Connecting-IP": address,
      ...headers,
    },
    ...(json !== undefined && { body: JSON.stringify(json) }),
    // Node requires `duplex` if the body is a stream.
    ...(body !== undefined && { body: body as BodyInit, duplex: "half" }),
  });
}

export function createCall(send: Send, origin = ORIGIN): Call {
  return async (method, path, options) => {
    const response = await send(buildRequest(method, path, options, origin));
    const text = await response.text();
    if (method !== "HEAD" && method !== "OPTIONS") expectDocumented(method, new URL(path, origin), response, text);
    const body = parse(text) as Answer["body"];
    const id = response.headers.get("Location")?.split("/").at(-1) ?? "";
    return { status: response.status, headers: response.headers, text, body, code: body?.code, id };
  };
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

export function randomAddress(): string {
  return `10.${[...crypto.getRandomValues(new Uint8Array(3))].join(".")}`;
}

export interface Team {
  teamId: string;
  /** A secret key's token. */
  token: string;
  keyId: string;
  /** Sends the secret key unless another token is given. */
  call: Call;
}

/** Creates a team for one test, by the operator token, in the database with this number. */
export async function foundTeam(call: Call, operatorToken: string, database?: number): Promise<Team> {
  const json = { name: "test", database };
  const { status, body, text } = await call("POST", "/auth/v1/teams", { token: operatorToken, json });
  expect(status, text).toBe(200);
  const { teamId, key: token, id: keyId } = body.apiKey;
  const address = randomAddress();
  return {
    teamId,
    token,
    keyId,
    call: (method, path, options) => call(method, path, { token, address, ...options }),
  };
}

export function form(name: string, bytes: Uint8Array | string, part = "file"): FormData {
  const data = new FormData();
  data.append(part, new File([bytes as Uint8Array<ArrayBuffer>], name));
  return data;
}

/** Uploads a file. @returns its id */
export async function upload(team: Team, name: string, bytes: Uint8Array | string): Promise<string> {
  const { status, id, text } = await team.call("POST", "/docs/v1/uploads", { body: form(name, bytes) });
  expect(status, text).toBe(200);
  return id;
}

/** Waits until the file has been processed. @returns its metadata */
export async function processed(team: Team, id: string) {
  return vi.waitFor(
    async () => {
      const { body } = await team.call("GET", `/docs/v1/uploads/${id}/metadata`);
      expect(["completed", "failed"]).toContain(body.data?.status);
      return body.data;
    },
    { timeout: 100_000, interval: 50 },
  );
}
