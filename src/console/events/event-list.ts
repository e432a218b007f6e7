import type { Event, EventFilters } from "../../client/index.ts";
import { startOfDay } from "../files/file-rows.ts";
import type { InUrl } from "../parts/curl.tsx";

/** The choice that finds files that were moved to the trash, and erased ones. The API has no filter for both. */
export const DELETED = "deleted";

/** The choice that also shows sign-ins and the results of processing. */
export const ALL = "all";

/** Whether an event of a list is shown if the query of the URL selects a type. */
export const isOfType = ({ type }: Pick<Event, "type">, chosen: string): boolean =>
  chosen !== DELETED || type === "file.trashed" || type === "file.deleted";

/** The filters that the query of the URL selects. Both the first and the last day are included. */
export function filtersFrom(query: URLSearchParams): InUrl<EventFilters> {
  const from = startOfDay(query.get("from"));
  const until = startOfDay(query.get("until"), 1);
  const type = query.get("type");
  const given = {
    type: type === DELETED ? "file" : type === ALL ? null : type,
    actor: query.get("actor"),
    subject: query.get("subject"),
    after: query.get("after"),
    before: query.get("before"),
    createdAfter: from && new Date(from - 1).toISOString(),
    createdBefore: until && new Date(until).toISOString(),
  };
  return Object.fromEntries(Object.entries(given).filter(([, value]) => value)) as InUrl<EventFilters>;
}

/** Whether a new event belongs to a filtered list. */
export const isListed = (
  { type, subject, actor, createdAt }: Pick<Event, "type" | "subject" | "actor" | "createdAt">,
  filters: InUrl<EventFilters>,
): boolean =>
  !filters.before &&
  (!filters.createdBefore || createdAt < filters.createdBefore) &&
  (!filters.createdAfter || createdAt > filters.createdAfter) &&
  (!filters.type || filters.type === type || filters.type === subject.kind) &&
  (!filters.subject || filters.subject === subject.id) &&
  (!filters.actor || filters.actor === actor.userId || filters.actor === actor.keyId);

/** Groups a list by the days of the reader's calendar. */
export const groupByDay = <E extends { createdAt: string }>(list: E[]): E[][] => [
  ...Map.groupBy(list, ({ createdAt }) => new Date(createdAt).toDateString()).values(),
];

/** This many uploads or moves in a row are one row of the log. */
const MIN_BURST = 3;

/** An action that often concerns many files. Undefined for any other event. */
export function verbOfMany({ type, data }: Pick<Event, "type" | "data">): "uploaded" | "moved" | undefined {
  if (type === "file.uploaded") return "uploaded";
  const isMove = type === "file.updated" && "fields" in data && String(data.fields) === "folder";
  return isMove ? "moved" : undefined;
}

/** Groups uploads, or moves, that follow each other and have the same actor. Any other event is a separate group. */
export function groupBursts<E extends Pick<Event, "type" | "actor" | "data">>(list: E[]): E[][] {
  const groups: E[][] = [];
  for (const event of list) {
    const [first] = groups.at(-1) ?? [];
    const verb = verbOfMany(event);
    if (first && verb && verb === verbOfMany(first) && event.actor.keyId === first.actor.keyId)
      groups.at(-1)?.push(event);
    else groups.push([event]);
  }
  return groups.flatMap((group) => (group.length < MIN_BURST ? group.map((event) => [event]) : [group]));
}

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
