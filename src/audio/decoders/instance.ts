// biome-ignore-all lint/style/noRestrictedGlobals: The modules are compiled when the Worker is deployed.
import { NAMES } from "./names.ts";

/* Loads a decoder, which is WebAssembly. What its C code asks of a system, it gets no answer to: it has only its memory. */

type Name = keyof typeof NAMES;
type Exports<N extends Name> = Record<keyof (typeof NAMES)[N]["exports"], (...values: number[]) => number>;

/** The error code "function not implemented". */
const NOT_IMPLEMENTED = 52;

function importOf(name: string): (...values: number[]) => number {
  if (name.startsWith("emscripten_math_")) return Math[name.slice("emscripten_math_".length) as "cos"];
  if (name.startsWith("fd_")) return () => NOT_IMPLEMENTED;
  if (name === "abort_js" || name === "proc_exit") {
    return () => {
      throw new Error("The decoder aborted.");
    };
  }
  return () => 0;
}

/** The memory and the functions of a decoder. The module is new, so nothing of an earlier file is left in it. */
export class Instance<N extends Name> {
  readonly call: Exports<N>;
  readonly #memory: ArrayBuffer;

  constructor(name: N, module: WebAssembly.Module) {
    const { imports, exports: exported } = NAMES[name] as Record<"imports" | "exports", Record<string, string>>;
    const functions = Object.entries(imports).map(([import_, letter]) => [letter, importOf(import_)]);
    const found = new WebAssembly.Instance(module, { a: Object.fromEntries(functions) }).exports;
    this.call = Object.fromEntries(Object.entries(exported).map(([key, letter]) => [key, found[letter]])) as Exports<N>;
    // It never grows.
    this.#memory = (found[exported.memory ?? ""] as WebAssembly.Memory).buffer as ArrayBuffer;
    (this.call as Record<string, () => void>).initialize?.();
  }

  /** Reserves memory. @throws Error if there is none left */
  allocate(bytes: number): number {
    const at = (this.call as Record<"malloc", (bytes: number) => number>).malloc(bytes);
    if (at === 0) throw new Error("The decoder has no memory left.");
    return at;
  }

  write(at: number, bytes: Uint8Array): void {
    new Uint8Array(this.#memory).set(bytes, at);
  }

  word(at: number): number {
    return new DataView(this.#memory).getInt32(at, true);
  }

  /** A view that the next call may change. */
  words(at: number, length: number): Int32Array {
    return new Int32Array(this.#memory, at, length);
  }

  /** Like `words`. */
  floats(at: number, length: number): Float32Array {
    return new Float32Array(this.#memory, at, length);
  }
}
