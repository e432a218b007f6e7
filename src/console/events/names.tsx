import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Event, isFileEvent, type List, type Webhook } from "../../client/stowage.ts";
import { nameOfUser } from "../accounts/user-choice.tsx";
import { can, client, me, session } from "../session.ts";
import { useData } from "../store.ts";

/** Without the path of the URL, which may contain a secret. */
export const nameOfWebhook = ({ description, url }: Pick<Webhook, "description" | "url">): string =>
  description || new URL(url).host;

interface Name {
  name: string;
  /** Only users have one. */
  email?: string;
}

/**
 * The names of keys, users, webhooks, and files by id, since events contain only the ids of others. Deleted ones keep their
 * name in this tab.
 */
export const names = signal<ReadonlyMap<string, Name>>(new Map());

/** Records beyond the first page of a list keep their general name. */
const firstPage = async <T,>(list: List<T>): Promise<T[]> => (await list.page()).items;

/** Loads the names that a page of events needs, as far as the session may read them. Those of files are in `events`. */
export function useNames(events?: Event[]): void {
  useEffect(() => {
    const files = events?.filter(isFileEvent).filter(({ subject }) => !names.value.has(subject.id)) ?? [];
    if (files.length > 0)
      names.value = new Map([
        ...names.value,
        ...files.map(({ subject, data }) => [subject.id, { name: data.originalName }] as const),
      ]);
  }, [events]);
  const load = async (signal: AbortSignal) => {
    // The operator reads no names.
    if (!session.value?.team) return null;
    const { keys, sessions, users, webhooks } = client.value;
    const [latestKeys, latestSessions, firstUsers, allWebhooks] = await Promise.all([
      can("keys:read") ? firstPage(keys.list({}, { signal })) : [],
      can("keys:read") ? firstPage(sessions.list({}, { signal })) : [],
      can("users:read") ? firstPage(users.list({}, { signal })) : [],
      can("webhooks:read") ? firstPage(webhooks.list({ signal })) : [],
    ]);
    const known = new Map<string, Name>([
      ...names.value,
      ...latestKeys.map(({ id, name }) => [id, { name }] as const),
      ...firstUsers.map((user) => [user._id, { name: nameOfUser(user), email: user.email }] as const),
      ...allWebhooks.map((webhook) => [webhook._id, { name: nameOfWebhook(webhook) }] as const),
    ]);
    // A session has the name of its user, or of the key that created it.
    for (const { _id, userId, createdBy } of latestSessions) {
      const owner = known.get(userId ?? createdBy?.keyId ?? "");
      if (owner) known.set(_id, owner);
    }
    names.value = known;
    return null;
  };
  useData("names", load, {
    // Not after each sign-in: a product may start sessions for all its visitors.
    on: ({ type }) => /^(apikey|user|webhook)\.(created|updated)$/.test(type),
  });
}

interface NameOfProps {
  keyId: string | null;
  userId: string | null;
  /** The name, if the API has given it. */
  name?: string | null;
  /** Whether it begins a sentence or a cell. */
  isFirst?: boolean;
}

/** The user if there is one, otherwise the key. */
export function NameOf({ keyId, userId, name: given, isFirst = false }: NameOfProps) {
  const id = userId ?? keyId ?? "";
  const own = userId && userId === me.value?.userId ? session.value?.team?.name : undefined;
  const name = given ?? names.value.get(id)?.name ?? own;
  return name ? (
    <bdi title={name}>{name}</bdi>
  ) : (
    <span title={id}>{`${isFirst ? "A" : "a"} ${userId ? "user" : "key"}`}</span>
  );
}
