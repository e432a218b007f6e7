import { RATE_LIMIT_SECONDS } from "../rate-limits.ts";
import type { Log } from "./log.ts";
import { Lru } from "./lru.ts";
import type { System } from "./system.ts";

/** About 2 MB. Anyone can make up counters to fill the memory. A forgotten counter only asks for a permit again. */
const MAX_COUNTERS = 10_000;

/** Remembers a value per counter for some minutes. */
export class MinuteMemory<T> {
  readonly #system: System;
  readonly #minutes: number;
  readonly #entries = new Lru<{ value: T; window: number }>(MAX_COUNTERS);

  constructor(system: System, minutes = 1) {
    this.#system = system;
    this.#minutes = minutes;
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

/** A request that has been counted. */
export interface Permit {
  /** Doesn't count the request after all: another one of this isolate can use its place until the minute ends. */
  giveBack(): void;
}

/** One limit in an isolate. If the binding fails, the limiter fails open: it protects the service, and no data. */
export class Limit {
  readonly #binding: RateLimit;
  readonly #requestsPerPermit: number;
  /** Requests that are paid for. 0 if the binding rejected the counter. */
  readonly #memory: MinuteMemory<number>;
  readonly #log: Log;

  constructor(binding: RateLimit, requestsPerPermit: number, system: System, log: Log) {
    this.#binding = binding;
    this.#requestsPerPermit = requestsPerPermit;
    this.#memory = new MinuteMemory(system);
    this.#log = log;
  }

  isBlocked(counter: string): boolean {
    return this.#memory.get(counter) === 0;
  }

  /** @returns false if the binding rejected the counter in this minute. The requests before are used up */
  async count(counter: string, requests = 1): Promise<boolean> {
    for (let counted = 0; counted < requests; counted += 1) {
      if (!(await this.#countOne(counter))) return false;
    }
    return true;
  }

  /** Counts a request that may turn out not to count. @returns null as `count` returns false */
  async take(counter: string): Promise<Permit | null> {
    const { window } = this.#memory;
    if (!(await this.#countOne(counter))) return null;
    const giveBack = () => {
      if (window === this.#memory.window) this.#memory.set(counter, (this.#memory.get(counter) ?? 0) + 1);
    };
    return { giveBack };
  }

  async #countOne(counter: string): Promise<boolean> {
    if (this.isBlocked(counter)) return false;
    if (this.#spend(counter)) return true;
    const { window } = this.#memory;
    const isGranted = await this.#requestPermit(counter);
    // Don't carry permits into the next minute.
    if (window !== this.#memory.window) return isGranted;
    if (isGranted) {
      const paidFor = (this.#memory.get(counter) ?? 0) + this.#requestsPerPermit - 1;
      if (paidFor > 0) this.#memory.set(counter, paidFor);
    } else if (!this.#spend(counter)) {
      this.#memory.set(counter, 0);
      return false;
    }
    return true;
  }

  #spend(counter: string): boolean {
    const paidFor = this.#memory.get(counter) ?? 0;
    if (paidFor > 1) this.#memory.set(counter, paidFor - 1);
    if (paidFor === 1) this.#memory.delete(counter);
    return paidFor > 0;
  }

  async #requestPermit(key: string): Promise<boolean> {
    try {
      return (await this.#binding.limit({ key })).success;
    } catch (cause) {
      this.#log("warn", "rate_limit_failed", { cause });
      return true;
    }
  }
}
