import { Agent, request } from "node:http";

export interface Shot {
  method: "GET" | "HEAD" | "POST" | "PATCH" | "DELETE";
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
  /** How many bytes a resumable upload has; NaN in other answers. */
  offsetBytes: number;
  text: string;
}

/** A request whose body is on its way. */
export interface Sending {
  /** Settles when the bytes are out of this process, or nobody takes them any more. */
  write(bytes: Uint8Array): Promise<void>;
  end(): void;
  answer: Promise<Reply>;
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
  send(shot: Shot, keep = true): Promise<Reply> {
    const { write, end, answer } = this.open(shot, keep);
    for (const part of shot.body ?? []) write(part);
    end();
    return answer;
  }

  /** The same, but for the body, which the caller writes. */
  open({ method, path, headers, body = [], status = 200 }: Shot, keep = true): Sending {
    const length = body.reduce((sum, part) => sum + part.length, 0);
    const outgoing = request(new URL(path, this.#base).href, {
      method,
      agent: this.#agent,
      headers: { ...headers, ...(body.length > 0 && { "Content-Length": length }) },
    });
    const answer = new Promise<Reply>((resolve, reject) => {
      outgoing.on("error", reject).on("response", (incoming) => {
        const isRight = incoming.statusCode === status;
        let text = "";
        if (keep || !isRight) incoming.setEncoding("utf8").on("data", (chunk) => (text += chunk));
        else incoming.resume();
        incoming.on("error", reject).on("end", () => {
          const link = /^<(.*)>/.exec(String(incoming.headers.link ?? ""))?.[1];
          const { pathname, search } = new URL(link ?? "", this.#base);
          const offsetBytes = Number(incoming.headers["upload-offset"] ?? Number.NaN);
          const location = incoming.headers.location ?? "";
          if (isRight) resolve({ location, next: pathname + search, offsetBytes, text });
          else reject(new Error(`${method} ${path}: ${incoming.statusCode} ${text}`));
        });
      });
    });
    return {
      write: (bytes) => new Promise((settle) => outgoing.write(bytes, () => settle())),
      end: () => outgoing.end(),
      answer,
    };
  }

  /** Does so much at once until the time, or the number of times, is used up. */
  async run(
    work: () => Promise<unknown>,
    { connections, seconds = Number.POSITIVE_INFINITY, count = Number.POSITIVE_INFINITY }: Volume,
  ): Promise<{ done: number; perSecond: number }> {
    const startedAt = performance.now();
    let started = 0;
    let done = 0;
    const fire = async () => {
      while (started < count && performance.now() - startedAt < seconds * 1000) {
        started += 1;
        await work();
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
