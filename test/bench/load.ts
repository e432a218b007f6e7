import { Agent, request } from "node:http";

export interface Shot {
  method: "GET" | "POST" | "PATCH" | "DELETE";
  path: string;
  headers?: Record<string, string>;
  body?: Uint8Array[];
  /** The status of its answer, unless 200. */
  status?: number;
}

export interface Reply {
  location: string;
  /** Path and query of the `Link` to the next page. */
  next: string;
  text: string;
}

/** Sends requests over connections that are kept open. */
export class Load {
  readonly #base: URL;
  readonly #agent = new Agent({ keepAlive: true });

  constructor(base: URL) {
    this.#base = base;
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Answers once the body has arrived; `keep` says whether to hold its text. */
  send({ method, path, headers, body = [], status = 200 }: Shot, keep = true): Promise<Reply> {
    const length = body.reduce((sum, part) => sum + part.length, 0);
    return new Promise((resolve, reject) => {
      const outgoing = request(
        new URL(path, this.#base).href,
        { method, agent: this.#agent, headers: { ...headers, ...(body.length > 0 && { "Content-Length": length }) } },
        (incoming) => {
          const isRight = incoming.statusCode === status;
          let text = "";
          if (keep || !isRight) incoming.setEncoding("utf8").on("data", (chunk) => (text += chunk));
          else incoming.resume();
          incoming.on("error", reject).on("end", () => {
            const link = /^<(.*)>/.exec(String(incoming.headers.link ?? ""))?.[1];
            const { pathname, search } = new URL(link ?? "", this.#base);
            if (isRight) resolve({ location: incoming.headers.location ?? "", next: pathname + search, text });
            else reject(new Error(`${method} ${path}: ${incoming.statusCode} ${text}`));
          });
        },
      );
      outgoing.on("error", reject);
      for (const part of body) outgoing.write(part);
      outgoing.end();
    });
  }

  /** Keeps so many connections busy until the time, or the number of requests, is used up. */
  async run(
    nextShot: () => Shot,
    { connections, seconds = Number.POSITIVE_INFINITY, count = Number.POSITIVE_INFINITY }: Volume,
  ): Promise<{ done: number; perSecond: number }> {
    const startedAt = performance.now();
    let started = 0;
    let done = 0;
    const fire = async () => {
      while (started < count && performance.now() - startedAt < seconds * 1000) {
        started += 1;
        await this.send(nextShot(), false);
        done += 1;
      }
    };
    await Promise.all(Array.from({ length: connections }, fire));
    return { done, perSecond: done / ((performance.now() - startedAt) / 1000) };
  }
}

/** Runs work so many times, some of it at once. */
export async function repeat<T>(times: number, atOnce: number, work: (index: number) => Promise<T>): Promise<T[]> {
  const results: T[] = [];
  let next = 0;
  const worker = async () => {
    for (let index = next++; index < times; index = next++) results[index] = await work(index);
  };
  await Promise.all(Array.from({ length: Math.min(times, atOnce) }, worker));
  return results;
}

export interface Volume {
  connections: number;
  seconds?: number;
  count?: number;
}
