import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { inject } from "vitest";
import { Stowage } from "../../src/client/stowage.ts";

export const url = inject("url");

export interface Team {
  key: string;
  teamId: string;
  stowage: Stowage;
}

/** A team of the test's own, founded by the operator. */
export async function newTeam(): Promise<Team> {
  const operator = new Stowage({ url, key: inject("operatorToken") });
  const { key, teamId } = await operator.keys.create({ name: "test" });
  return { key, teamId, stowage: new Stowage({ url, key }) };
}

/** By chance they might begin as an MP3 does, and fail as one. */
export const bytesOf = (size: number) => Buffer.concat([Buffer.alloc(1), randomBytes(size - 1)]);

export async function collect<T>(items: AsyncIterable<T>, count = Number.POSITIVE_INFINITY): Promise<T[]> {
  const found: T[] = [];
  for await (const item of items) {
    found.push(item);
    if (found.length === count) break;
  }
  return found;
}

export type Step = (request: IncomingMessage, response: ServerResponse) => void;

/** A service that takes requests by a script, its last step for all that follow: what a real one can't be made to do. */
export async function scripted(...steps: Step[]) {
  const requests: { method: string; url: string; headers: IncomingMessage["headers"]; at: number }[] = [];
  const server = createServer((request, response) => {
    const step = steps[Math.min(requests.length, steps.length - 1)];
    const { method = "", url = "", headers } = request;
    requests.push({ method, url, headers, at: performance.now() });
    request.resume();
    request.on("end", () => step?.(request, response));
  });
  server.listen(0, "localhost");
  await once(server, "listening");
  const { port } = server.address() as { port: number };
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { url: `http://localhost:${port}`, requests, close };
}

export const json =
  (status: number, body: unknown, headers: Record<string, string> = {}): Step =>
  (_, response) => {
    response.writeHead(status, { "Content-Type": "application/json", "X-Request-Id": "request-1", ...headers });
    response.end(JSON.stringify(body));
  };

export const refusal = (status: number, code: string, headers: Record<string, string> = {}) =>
  json(status, { status: false, message: `Refused: ${code}.`, code, requestId: "request-1" }, headers);

export const hangUp: Step = (_, response) => void response.destroy();

/** An answer whose body breaks off. */
export const cutShort =
  (status: number): Step =>
  (_, response) => {
    response.writeHead(status, { "Content-Length": "100" });
    response.write("{", () => response.destroy());
  };
