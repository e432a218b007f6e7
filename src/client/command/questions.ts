import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import { Failure } from "./failures.ts";
import { complain } from "./output.ts";

/** A line from the terminal, which shows nothing of a secret one; without a terminal, the next line of stdin. */
export class Questions {
  readonly #isTerminal = process.stdin.isTTY === true;
  readonly #reader;
  readonly #lines: AsyncIterator<string>;
  readonly #signal: AbortSignal;
  #isMuted = false;

  constructor(signal: AbortSignal) {
    this.#signal = signal;
    const output = new Writable({
      write: (chunk, _, done) => {
        if (!this.#isMuted) process.stderr.write(chunk);
        done();
      },
    });
    this.#reader = createInterface({ input: process.stdin, output, terminal: this.#isTerminal });
    // Node's reader takes Ctrl-C for itself.
    this.#reader.on("SIGINT", () => process.kill(process.pid, "SIGINT"));
    signal.addEventListener("abort", () => this.#reader.close());
    this.#lines = this.#reader[Symbol.asyncIterator]();
  }

  async ask(question: string, { isSecret = false } = {}): Promise<string> {
    if (this.#isTerminal) process.stderr.write(`${question}: `);
    this.#isMuted = isSecret;
    const { value, done } = await this.#lines.next();
    this.#isMuted = false;
    if (this.#isTerminal && isSecret) process.stderr.write("\n");
    this.#signal.throwIfAborted();
    if (done || value === "") throw new Failure("usage", `${question}: nothing was given.`);
    return value;
  }

  /** Tells of a danger. On a terminal it asks whether to go on. @throws `failed` where the answer is no */
  async warn(danger: string): Promise<void> {
    complain(danger);
    if (!this.#isTerminal) return;
    const answer = await this.ask("Go on all the same (y/n)");
    if (!/^y(es)?$/i.test(answer.trim())) throw new Failure("failed", "Nothing was sent.");
  }

  close(): void {
    this.#reader.close();
  }
}
