import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { onTestFinished } from "vitest";

export interface Received {
  headers: Record<string, string>;
  body: string;
}

/** A receiver of webhooks on this machine, for one test. It answers by `answer`, which may be changed. */
export async function openReceiver() {
  const receiver = { url: "", received: [] as Received[], answer: { status: 200, body: "thanks" } };
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk);
    receiver.received.push({
      headers: request.headers as Record<string, string>,
      body: Buffer.concat(chunks).toString(),
    });
    response.writeHead(receiver.answer.status, { "Content-Type": "text/html" }).end(receiver.answer.body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  onTestFinished(() => {
    server.closeAllConnections();
    server.close();
  });
  receiver.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  return receiver;
}
