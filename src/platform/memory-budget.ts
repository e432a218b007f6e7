/** Every upload can use this much memory without counting it. */
export const FIRST_BYTES = 64 * 1024;
/** The isolate has 128 MB. The rest is for read buffers and everything else. */
const MAX_HELD_BYTES = 48 * 1024 * 1024;

/** Counts the memory that the parts of an isolate hold. If an invocation is killed, garbage collection frees its memory. */
export class MemoryBudget {
  #leftBytes: number;
  readonly #collected = new FinalizationRegistry<number>((bytes) => {
    this.#leftBytes += bytes;
  });

  constructor(bytes = MAX_HELD_BYTES) {
    this.#leftBytes = bytes;
  }

  /** Returns undefined if the budget is used up. */
  allocate(bytes: number): Uint8Array<ArrayBuffer> | undefined {
    if (bytes <= FIRST_BYTES) return new Uint8Array(bytes);
    if (bytes > this.#leftBytes) return undefined;
    const memory = new Uint8Array(bytes);
    this.#leftBytes -= bytes;
    this.#collected.register(memory, bytes, memory);
    return memory;
  }

  free(memory: Uint8Array): void {
    if (this.#collected.unregister(memory)) this.#leftBytes += memory.length;
  }
}
