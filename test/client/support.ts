import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { onTestFinished } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { type Fault, Line } from "../support/line.ts";
import { url as serverUrl } from "../support/team.ts";

export type Step = (request: IncomingMessage, response: ServerResponse) => void;

/** A proxy to the server whose connections have a fault, up to `maxFaults` times. The test's end closes it. */
export async function openLine(fault: Fault, afterBytes = 0, maxFaults?: number): Promise<Line> {
  const line = await Line.open(serverUrl, () => ({ fault, afterBytes }), maxFaults);
  onTestFinished(() => line.close());
  return line;
}

/** A service that responds by a script, for what a real one never does. The last step repeats. The test's end closes it. */
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
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://localhost:${port}`;
  return { url, requests, stowage: new Stowage({ url, key: null }) };
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

/** A response whose body is interrupted. */
export const cutShort =
  (status: number): Step =>
  (_, response) => {
    response.writeHead(status, { "Content-Length": "100" });
    response.write("{", () => response.destroy());
  };
