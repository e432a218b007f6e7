import { RATE_LIMIT_SECONDS } from "../rate-limits.ts";
import type { Log } from "./log.ts";
import { Lru } from "./lru.ts";
import type { System } from "./system.ts";

/** About 2 MB. Anyone can make up counters to fill the memory. A forgotten counter only asks the platform again. */
const MAX_COUNTERS = 10_000;

/** Remembers a value per counter for some minutes. */
export class MinuteMemory<T> {
  readonly #system: System;
  readonly #minutes: number;
  readonly #entries: Lru<{ value: T; window: number }>;

  constructor(system: System, minutes = 1, maxEntries = MAX_COUNTERS) {
    this.#system = system;
    this.#minutes = minutes;
    this.#entries = new Lru(maxEntries);
  }

  get window(): number {
    return Math.floor(this.#system.now() / (RATE_LIMIT_SECONDS * 1000));
  }

  get(counter: string): T | undefined {
    const found = this.#entries.get(counter);
    return found && this.window - found.window < this.#minutes ? found.value : undefined;
  }

  set(counter: string, value: T): void {
    this.#entries.set(counter, { value, window: this.window });
  }

  delete(counter: string): void {
    this.#entries.delete(counter);
  }
}

/** One limit in an isolate. If the binding fails, the limiter fails open: it protects the service, and no data. */
export class Limit {
  readonly #binding: RateLimit;
  readonly #blocked: MinuteMemory<true>;
  readonly #log: Log;

  constructor(binding: RateLimit, system: System, log: Log) {
    this.#binding = binding;
    this.#blocked = new MinuteMemory(system);
    this.#log = log;
  }

  isBlocked(counter: string): boolean {
    return this.#blocked.get(counter) !== undefined;
  }

  /** Counts a request that takes this number of places. @returns false if the binding rejected the counter in this minute */
  async count(counter: string, places = 1): Promise<boolean> {
    if (this.isBlocked(counter)) return false;
    const { window } = this.#blocked;
    const answers = await Promise.all(Array.from({ length: places }, () => this.#ask(counter)));
    const isAllowed = answers.every(Boolean);
    // A rejection must not block the next minute.
    if (!isAllowed && window === this.#blocked.window) this.#blocked.set(counter, true);
    return isAllowed;
  }

  async #ask(key: string): Promise<boolean> {
    try {
      return (await this.#binding.limit({ key })).success;
    } catch (cause) {
      this.#log("warn", "rate_limit_failed", { cause });
      return true;
    }
  }
}
