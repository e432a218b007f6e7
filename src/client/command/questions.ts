import { createInterface } from "node:readline";
import { Writable } from "node:stream";
import type { Io } from "./context.ts";
import { Failure } from "./failures.ts";
import { complain } from "./output.ts";
import { plain } from "./text.ts";

/** Asks on the terminal, hiding secret input. Without a terminal, each answer is the next line of stdin. */
export class Questions {
  readonly #io: Io;
  readonly #isTerminal: boolean;
  readonly #reader;
  readonly #lines: AsyncIterator<string>;
  #isMuted = false;

  constructor(io: Io) {
    this.#io = io;
    this.#isTerminal = io.stdin.isTTY === true;
    const output = new Writable({
      write: (chunk, _, done) => {
        if (!this.#isMuted) io.stderr.write(chunk);
        done();
      },
    });
    this.#reader = createInterface({ input: io.stdin, output, terminal: this.#isTerminal });
    // On a terminal, Node's reader swallows Ctrl-C.
    this.#reader.on("SIGINT", () => process.kill(process.pid, "SIGINT"));
    io.signal.addEventListener("abort", () => this.#reader.close());
    this.#lines = this.#reader[Symbol.asyncIterator]();
  }

  async ask(question: string, { isSecret = false } = {}): Promise<string> {
    if (this.#isTerminal) this.#io.stderr.write(`${plain(question)}: `);
    this.#isMuted = isSecret;
    const { value, done } = await this.#lines.next();
    this.#isMuted = false;
    if (this.#isTerminal && isSecret) this.#io.stderr.write("\n");
    this.#io.signal.throwIfAborted();
    if (done || value === "") throw new Failure("usage", `${question}: no input.`);
    return value;
  }

  /** Warns, and on a terminal asks whether to continue. @throws `failed` if the user declines */
  async warn(danger: string): Promise<void> {
    complain(this.#io.stderr, danger);
    if (!this.#isTerminal) return;
    const answer = await this.ask("Continue anyway? (y/n)");
    if (!/^y(es)?$/i.test(answer.trim())) throw new Failure("failed", "Canceled. Nothing was sent.");
  }

  close(): void {
    this.#reader.close();
  }
}
