/** Ids ascend with time, so they decide the order. */
interface Identified {
  _id: string;
}

/**
 * Merges events, in any order and possibly repeated, into a list that is newest first.
 * @param isComplete whether the list has no further page: otherwise an event older than its last one belongs to that page
 */
export function mergeEvents<E extends Identified>(list: E[], arrived: E[], isComplete: boolean): E[] {
  const known = new Set(list.map(({ _id }) => _id));
  const oldest = isComplete ? "" : (list.at(-1)?._id ?? "");
  const added = new Map(
    arrived.filter(({ _id }) => !known.has(_id) && _id > oldest).map((event) => [event._id, event]),
  );
  if (added.size === 0) return list;
  return [...list, ...added.values()].sort((one, other) => (one._id < other._id ? 1 : -1));
}
