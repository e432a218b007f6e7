// biome-ignore-all lint/style/noRestrictedGlobals: The modules are compiled when the Worker is deployed.
import { NAMES } from "./names.ts";

/* Loads a decoder, which is WebAssembly. What its C code asks of a system, it gets no answer to: it has only its memory. */

type Name = keyof typeof NAMES;
type Exports<N extends Name> = Record<keyof (typeof NAMES)[N]["exports"], (...values: number[]) => number>;

/** The error code "function not implemented". */
const NOT_IMPLEMENTED = 52;

type Import = { [N in Name]: keyof (typeof NAMES)[N]["imports"] }[Name];

const fail = () => NOT_IMPLEMENTED;
const ignore = () => 0;
const abort = () => {
  throw new Error("The decoder aborted.");
};

const IMPORTS: Record<Import, (...values: number[]) => number> = {
  emscripten_math_atan: Math.atan,
  emscripten_math_cos: Math.cos,
  emscripten_math_exp: Math.exp,
  emscripten_math_log: Math.log,
  emscripten_math_pow: Math.pow,
  emscripten_math_sin: Math.sin,
  fd_close: fail,
  fd_read: fail,
  fd_seek: fail,
  fd_write: fail,
  abort_js: abort,
  proc_exit: abort,
  INT123_compat_close: ignore,
  emscripten_resize_heap: ignore,
  emscripten_runtime_keepalive_clear: ignore,
  setitimer_js: ignore,
};

/** The memory and the functions of a decoder. The module is new, so nothing of an earlier file is left in it. */
export class Instance<N extends Name> {
  readonly call: Exports<N>;
  readonly #memory: ArrayBuffer;

  constructor(name: N, module: WebAssembly.Module) {
    const exported: Record<string, string> = NAMES[name].exports;
    const letters = Object.entries(NAMES[name].imports) as [Import, string][];
    const functions = letters.map(([imported, letter]) => [letter, IMPORTS[imported]]);
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
