import { once } from "node:events";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

/* Webhook endpoints on this machine. */

export interface Received {
  headers: Record<string, string>;
  body: string;
}

/** Responds to a request that has been read. */
export type Behavior = (response: ServerResponse, request: IncomingMessage) => void;

/** An endpoint that keeps every message, and responds as its test wants. */
export class Receiver {
  readonly received: Received[] = [];
  /** The number of requests that ended, by a response or because the sender timed out. */
  ended = 0;
  readonly #server: Server;

  private constructor(behavior: Behavior) {
    this.#server = createServer(async (request, response) => {
      const chunks: Buffer[] = [];
      for await (const chunk of request) chunks.push(chunk);
      this.received.push({
        headers: request.headers as Record<string, string>,
        body: Buffer.concat(chunks).toString(),
      });
      response.on("error", () => undefined);
      response.on("close", () => {
        this.ended += 1;
      });
      behavior(response, request);
    });
  }

  /** By default, it accepts every message. */
  static async open(behavior: Behavior = (response) => response.end("thanks")): Promise<Receiver> {
    const receiver = new Receiver(behavior);
    receiver.#server.listen(0, "127.0.0.1");
    await once(receiver.#server, "listening");
    return receiver;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}/hook`;
  }

  close(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }
}
