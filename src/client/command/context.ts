import { type Readable, Writable } from "node:stream";
import { type CallOptions, Stowage, StowageError } from "../index.ts";
import { loadConfig } from "./config.ts";
import { debugFetch } from "./debug.ts";
import { complainOf, EXIT_CODES, Failure, failureOf, isDiskFull } from "./failures.ts";
import { complain, Results } from "./output.ts";
import { Progress } from "./progress.ts";

const DEFAULT_RETRY_SECONDS = 300;
/** The library's own retries, which take about 3 s: shorter outages are not worth a message. */
const UNREPORTED_RETRIES = 4;
/** Parallel transfers meet the same outage. */
const RETRY_MESSAGE_MILLISECONDS = 60_000;

type Output = Writable & { isTTY?: boolean; columns?: number };

/** The streams and settings of the process that runs a command. */
export interface Io {
  stdin: Readable & { isTTY?: boolean };
  stdout: Output;
  stderr: Output;
  env: Record<string, string | undefined>;
  /** The folder that relative paths start from. */
  cwd: string;
  /** Aborts when the user interrupts the command. */
  signal: AbortSignal;
}

/** The options that every command takes. */
export interface GlobalOptions {
  json?: boolean;
  quiet?: boolean;
  debug?: boolean;
  url?: string;
  key?: string;
  profile?: string;
}

export type Client = Stowage & { key: string };

/** Longer than any outage that somebody waits for. */
const MAX_RETRY_SECONDS = 7 * 24 * 3600;

/** @throws `usage` if the variable is no such number */
function retrySecondsOf({ STOWAGE_RETRY_SECONDS: given }: Io["env"]): number {
  if (!given) return DEFAULT_RETRY_SECONDS;
  const seconds = /^\d{1,9}(\.\d{1,9})?$/.test(given) ? Number(given) : Number.NaN;
  if (seconds <= MAX_RETRY_SECONDS) return seconds;
  throw new Failure("usage", `STOWAGE_RETRY_SECONDS must be a number of seconds from 0 to ${MAX_RETRY_SECONDS}.`);
}

/** Returns the number of retries that take at least these seconds with the library's backoff. */
function retriesFor(seconds: number): number {
  let retries = 0;
  for (let waited = 0; waited < seconds; retries++) waited += 0.75 * Math.min(8, 0.25 * 2 ** retries);
  return retries;
}

/** Gives one command its input, output, and client. */
export class Context {
  readonly io: Io;
  readonly signal: AbortSignal;
  /** The options of each call of the client. */
  readonly call: CallOptions;
  readonly results: Results;
  readonly options: GlobalOptions;
  exitCode = 0;
  #progress: Progress | undefined;
  #client: Client | undefined;
  #lastMessageAt = Number.NEGATIVE_INFINITY;

  constructor(io: Io, options: GlobalOptions) {
    this.io = io;
    this.signal = io.signal;
    this.call = { signal: io.signal };
    this.options = options;
    this.results = new Results(io.stdout, options.json === true);
  }

  /** Draws progress bars if stderr is a terminal. */
  startProgress(totalBytes?: number): Progress {
    this.#progress = new Progress(this.options.quiet ? new Writable() : this.io.stderr, totalBytes);
    return this.#progress;
  }

  /** Prints above the progress bars. */
  above(print: () => void): void {
    if (this.#progress) this.#progress.above(print);
    else print();
  }

  complain(message: string): void {
    complain(this.io.stderr, message, this.options.json ? { notice: message } : undefined);
  }

  /** Reports the failure of one of several records. Failures of different kinds have no common exit code. */
  fail(failure: Failure): void {
    let code = 0;
    this.above(() => {
      code = complainOf(this.io.stderr, failure, this.options.json);
    });
    this.exitCode = this.exitCode === 0 || this.exitCode === code ? code : EXIT_CODES.failed;
  }

  /** Prints a notice, which --quiet hides. */
  notify(message: string): void {
    if (!this.options.quiet) this.above(() => this.complain(message));
  }

  /** @throws `usage` if neither the options nor the environment nor the config file have URL and key */
  get stowage(): Client {
    this.#client ??= this.#connect();
    return this.#client;
  }

  #connect(): Client {
    const config = loadConfig(this.io.env, this.options);
    const seconds = retrySecondsOf(this.io.env);
    const onRetry = (error: Error, attempt: number) => {
      const now = performance.now();
      if (attempt < UNREPORTED_RETRIES || now - this.#lastMessageAt < RETRY_MESSAGE_MILLISECONDS) return;
      this.#lastMessageAt = now;
      this.notify(`${error.message} Retrying for up to ${seconds} s. Press Ctrl-C to stop.`);
    };
    const debug = this.options.debug && { fetch: debugFetch((line) => this.above(() => this.complain(line))) };
    const stowage = new Stowage({ ...config, maxRetries: retriesFor(seconds), onRetry, ...debug });
    return Object.assign(stowage, { key: config.key });
  }

  /** Reports the failure of one of several records. @throws it if the others would fail in the same way */
  async continueAfter(error: unknown, subject: string): Promise<void> {
    this.signal.throwIfAborted();
    const failure = await this.explain(failureOf(error, subject));
    if (failure.kind === "rejected" || failure.kind === "unreachable" || isDiskFull(failure)) throw failure;
    this.fail(failure);
  }

  /** Explains a failure of the operator token, of which the service only says that it is not allowed. */
  async explain(failure: Failure): Promise<Failure> {
    const { cause } = failure;
    if (!(cause instanceof StowageError) || cause.code !== "forbidden") return failure;
    const me = await this.#client?.me(this.call).catch(() => undefined);
    if (me?.kind !== "operator") return failure;
    return new Failure(
      "rejected",
      "This command needs the API key of a team. The operator token works with `teams`, `keys`, and `events --team`.",
    );
  }
}
