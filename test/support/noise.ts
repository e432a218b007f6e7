/**
 * What the local runtime prints when a client disconnects in the middle of a body, which many tests do on purpose. Dozens of
 * these would hide real trouble.
 */
const NOISE = "pump canceled";

/** Leaves out such messages of what is written to the stream. @returns how to undo it */
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
