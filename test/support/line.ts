import { once } from "node:events";
import { connect, createServer, type Server, type Socket } from "node:net";

/** A network fault on one connection. */
export type Fault = "none" | "cut" | "stall" | "drop the answer" | "double";

export type Plan = (connection: number) => { fault: Fault; afterBytes: number };

/**
 * A TCP proxy between a client and a server. It applies the fault that `plan` returns for each connection, once the given
 * number of the client's bytes has passed. It also records the offsets in responses and the number of bytes sent.
 */
export class Line {
  /** The `Upload-Offset` of each response, in order. */
  readonly offsets: number[] = [];
  sentBytes = 0;
  connections = 0;
  faults = 0;
  #isReliable = false;
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  readonly #target: URL;
  readonly #plan: Plan;
  readonly #maxFaults: number;

  private constructor(target: URL, plan: Plan, maxFaults: number) {
    this.#target = target;
    this.#plan = plan;
    this.#maxFaults = maxFaults;
    this.#server = createServer((client) => this.#join(client));
  }

  /** After `maxFaults` faults, all connections work. Unused connections don't count, because a client may open some. */
  static async open(target: string, plan: Plan, maxFaults = Number.POSITIVE_INFINITY): Promise<Line> {
    const line = new Line(new URL(target), plan, maxFaults);
    line.#server.listen(0, "localhost");
    await once(line.#server, "listening");
    return line;
  }

  get url(): string {
    return `http://localhost:${(this.#server.address() as { port: number }).port}`;
  }

  /** Stops faults on all connections. A connection that has stalled stays stalled. */
  stopFaults(): void {
    this.#isReliable = true;
  }

  /** Breaks all connections. */
  disconnect(): void {
    for (const socket of this.#sockets) socket.destroy();
  }

  async close(): Promise<void> {
    this.disconnect();
    this.#server.close();
    await once(this.#server, "close");
  }

  get #hasFaults(): boolean {
    return !this.#isReliable && this.faults < this.#maxFaults;
  }

  #open(): Socket {
    const socket = connect(Number(this.#target.port), this.#target.hostname);
    this.#watch(socket);
    return socket;
  }

  #watch(socket: Socket): void {
    this.#sockets.add(socket);
    socket.setNoDelay(true);
    socket.on("error", () => undefined);
    socket.on("close", () => this.#sockets.delete(socket));
  }

  #join(client: Socket): void {
    this.#watch(client);
    const { fault, afterBytes } = this.#plan(this.connections++);
    const server = this.#open();
    const other = fault === "double" ? this.#open() : undefined;
    other?.resume();
    let passed = 0;
    let isStalled = false;
    const end = () => {
      for (const socket of [client, server, other]) socket?.destroy();
    };
    client.on("data", (bytes: Buffer) => {
      this.sentBytes += bytes.length;
      if (isStalled) return;
      const isLimited = this.#hasFaults && (fault === "cut" || fault === "stall");
      const left = isLimited ? Math.max(0, afterBytes - passed) : bytes.length;
      const part = bytes.subarray(0, left);
      passed += part.length;
      other?.write(part);
      if (part.length > 0 && !server.write(part)) {
        client.pause();
        server.once("drain", () => client.resume());
      }
      if (part.length === bytes.length) return;
      this.faults += 1;
      isStalled = true;
      // Both sides see the disconnect. The server still receives the bytes sent before it.
      if (fault === "cut") {
        server.end(end);
        client.destroy();
      }
    });
    server.on("data", (bytes: Buffer) => {
      // A stalled client never sees a response.
      if (isStalled) return end();
      if (this.#hasFaults && fault === "drop the answer" && passed >= afterBytes) {
        this.faults += 1;
        return end();
      }
      for (const [, offset] of bytes.toString("latin1").matchAll(/upload-offset: (\d+)/gi))
        this.offsets.push(Number(offset));
      client.write(bytes);
    });
    client.on("close", () => {
      if (!isStalled || fault !== "cut") server.destroy();
      other?.end();
    });
    server.on("close", () => client.destroy());
  }
}
