/* Bodies that arrive as a stream. */

/** A body that arrives in these chunks. */
export const streamOf = (...chunks: Uint8Array[]) =>
  new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of chunks) controller.enqueue(chunk);
      controller.close();
    },
  });

/** A body whose last chunk is sent once `whilePaused` is done. */
export function pausedStream(chunks: (string | Uint8Array)[], whilePaused: () => Promise<unknown>) {
  const left = chunks.map((chunk) => new Uint8Array(Buffer.from(chunk)));
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        if (left.length === 1) await whilePaused();
        const chunk = left.shift();
        if (chunk) controller.enqueue(chunk);
        else controller.close();
      },
    },
    { highWaterMark: 0 },
  );
}

/** A body of a client that sends these bytes and disconnects. */
export function brokenStream(bytes: string | Uint8Array) {
  let hasSent = false;
  return new ReadableStream<Uint8Array>({
    pull(controller) {
      if (hasSent) controller.error(new Error("Network connection lost."));
      else controller.enqueue(new Uint8Array(Buffer.from(bytes)));
      hasSent = true;
    },
  });
}
