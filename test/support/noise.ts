/**
 * Printed by the local runtime when a client disconnects in the middle of a body, which many tests do on purpose. Dozens of
 * these messages would hide real trouble.
 */
const NOISE = "pump canceled";

/** Filters these messages out of the stream. @returns a function that ends it */
export function hideRuntimeNoise(stream: Pick<NodeJS.WriteStream, "write"> = process.stderr): () => void {
  const { write } = stream;
  const filtered = (chunk: string | Uint8Array, ...rest: unknown[]): boolean => {
    if (!String(chunk).includes(NOISE)) return Reflect.apply(write, stream, [chunk, ...rest]);
    const callback = rest.find((one) => typeof one === "function");
    callback?.();
    return true;
  };
  stream.write = filtered as typeof write;
  return () => {
    stream.write = write;
  };
}
