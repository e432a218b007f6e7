import { Agent, request } from "node:http";

/** One HTTP request, and the status that its response must have (200 by default). */
export interface Call {
  method: "GET" | "HEAD" | "POST" | "PUT" | "PATCH" | "DELETE";
  path: string;
  headers?: Record<string, string>;
  body?: Uint8Array[];
  status?: number;
}

export interface Reply {
  location: string;
  text: string;
}

/** A request whose body is being written. */
export interface OpenCall {
  /** Resolves when the bytes have left this process. */
  write(bytes: Uint8Array): Promise<void>;
  end(): void;
  reply: Promise<Reply>;
}

/** Sends requests over keep-alive connections. */
export class Load {
  readonly #base: URL;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(base: URL) {
    this.#base = base;
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Resolves once the response body has arrived. `keepText: false` drops the body of a success. */
  send(call: Call, keepText = true): Promise<Reply> {
    const { write, end, reply } = this.open(call, keepText);
    for (const part of call.body ?? []) write(part);
    end();
    return reply;
  }

  /** Opens a request whose body the caller writes; `body` of the call only sets its length. */
  open({ method, path, headers, body = [], status = 200 }: Call, keepText = true): OpenCall {
    const length = body.reduce((sum, part) => sum + part.length, 0);
    const outgoing = request(new URL(path, this.#base).href, {
      method,
      agent: this.#agent,
      headers: { ...headers, ...(body.length > 0 && { "Content-Length": length }) },
    });
    const reply = new Promise<Reply>((resolve, reject) => {
      outgoing.on("error", reject).on("response", (incoming) => {
        const isExpected = incoming.statusCode === status;
        let text = "";
        if (keepText || !isExpected) incoming.setEncoding("utf8").on("data", (chunk) => (text += chunk));
        else incoming.resume();
        incoming.on("error", reject).on("end", () => {
          if (isExpected) resolve({ location: incoming.headers.location ?? "", text });
          else reject(new Error(`${method} ${path}: ${incoming.statusCode} ${text}`));
        });
      });
    });
    return {
      write: (bytes) => new Promise((resolve) => outgoing.write(bytes, () => resolve())),
      end: () => outgoing.end(),
      reply,
    };
  }

  /** Runs work on `connections` at once until the time or the count is used up. @returns runs per second */
  async run(
    work: () => Promise<unknown>,
    { connections, seconds = Number.POSITIVE_INFINITY, count = Number.POSITIVE_INFINITY }: Volume,
  ): Promise<number> {
    const startedAt = performance.now();
    let started = 0;
    let done = 0;
    const worker = async () => {
      while (started < count && performance.now() - startedAt < seconds * 1000) {
        started += 1;
        await work();
        done += 1;
      }
    };
    await Promise.all(Array.from({ length: connections }, worker));
    return done / ((performance.now() - startedAt) / 1000);
  }
}

interface Volume {
  connections: number;
  seconds?: number;
  count?: number;
}

/** Runs work `times` times, at most `concurrency` at once. @returns the results in order */
export async function repeat<T>(times: number, concurrency: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < times; index = next++) results[index] = await work(index);
  };
  await Promise.all(Array.from({ length: Math.min(times, concurrency) }, worker));
  return results;
}
