import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

export interface Received {
  headers: Record<string, string>;
  body: string;
}

interface Response {
  status: number;
  body: string;
  headers?: Record<string, string>;
}

/** Starts a webhook endpoint for one test. Its response can be changed at any time. */
export async function openEndpoint() {
  const endpoint = { url: "", received: [] as Received[], response: { status: 200, body: "thanks" } as Response };
  const server = createServer(async (request, reply) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    endpoint.received.push({
      headers: request.headers as Record<string, string>,
      body: Buffer.concat(chunks).toString(),
    });
    const { status, headers, body } = endpoint.response;
    reply.writeHead(status, { "Content-Type": "text/html", ...headers }).end(body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  endpoint.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  return endpoint;
}
