/** Builds a value when it is first needed, and keeps it: an isolate that starts builds only what its first request needs. */
export function lazy<T>(build: () => T): () => T {
  let built: T | undefined;
  return () => {
    built ??= build();
    return built;
  };
}
