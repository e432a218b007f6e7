/**
 * Printed by the local runtime when a client disconnects in the middle of a body, which many tests do on purpose, and by Vite for a
 * package without its sources. Dozens of these messages would hide real trouble.
 */
const NOISE = ["pump canceled", "points to missing source files"];

/** Filters these messages out of the stream. @returns a function that ends it */
export function hideRuntimeNoise(stream: Pick<NodeJS.WriteStream, "write"> = process.stderr): () => void {
  const { write } = stream;
  const filtered = (chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
    if (!NOISE.some((text) => String(chunk).includes(text))) return Reflect.apply(write, stream, [chunk, ...rest]);
    const callback = rest.find((one) => typeof one === "function");
    callback?.();
    return true;
  };
  stream.write = filtered as typeof write;
  return () => {
    stream.write = write;
  };
}
