import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type CallOptions, type Event, isFileEvent, type List, type Webhook } from "../../client/stowage.ts";
import { nameOfUser } from "../accounts/user-choice.tsx";
import type { Noun } from "../nouns.ts";
import { can, client, me, type Scope, session } from "../session.ts";
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

interface NamedList {
  scope: Scope;
  /** Records beyond the first page of a list keep their general name. */
  load(options: CallOptions): Promise<[id: string, Name][]>;
}

const firstOf = async <T,>(list: List<T>, nameOf: (record: T) => [id: string, Name]) =>
  (await list.page()).items.map(nameOf);

/** The lists of the kinds of records whose events lack a name. A kind that the API gains does not compile until it is here. */
const LISTS: Record<Noun, NamedList | null> = {
  apikey: {
    scope: "keys:read",
    load: (options) => firstOf(client.value.keys.list({}, options), ({ id, name }) => [id, { name }]),
  },
  user: {
    scope: "users:read",
    load: (options) =>
      firstOf(client.value.users.list({}, options), (user) => [
        user._id,
        { name: nameOfUser(user), email: user.email },
      ]),
  },
  webhook: {
    scope: "webhooks:read",
    load: (options) =>
      firstOf(client.value.webhooks.list(options), (webhook) => [webhook._id, { name: nameOfWebhook(webhook) }]),
  },
  // It has the name of its user, or of the key that created it.
  session: null,
  file: null,
  link: null,
  team: null,
};

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
    const [sessions, ...loaded] = await Promise.all([
      can("keys:read") ? client.value.sessions.list({}, { signal }).page() : null,
      ...Object.values(LISTS).flatMap((list) => (list && can(list.scope) ? [list.load({ signal })] : [])),
    ]);
    const known = new Map([...names.value, ...loaded.flat()]);
    for (const { _id, userId, createdBy } of sessions?.items ?? []) {
      const owner = known.get(userId ?? createdBy?.keyId ?? "");
      if (owner) known.set(_id, owner);
    }
    names.value = known;
    return null;
  };
  useData("names", load, {
    // Not after each sign-in: a product may start sessions for all its visitors.
    on: ({ type, subject }) => LISTS[subject.kind] !== null && /\.(created|updated)$/.test(type),
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
