/**
 * Adds `id` to each record, which the service names by `_id`.
 * @param value JSON. Fields of a team's own, `metadata`, stay as they are
 */
export function withIds<T>(value: T): T {
  if (value === null || typeof value !== "object") return value;
  for (const [name, inner] of Object.entries(value)) if (name !== "metadata") withIds(inner);
  if ("_id" in value) Object.assign(value, { id: value._id });
  return value;
}

/** The data of an event as the service sends them: without the `id` that `withIds` adds. */
export function asSent<T extends object>(data: T): T {
  const { id: _, ...sent } = data as T & { id?: unknown };
  return "_id" in data ? (sent as T) : data;
}
