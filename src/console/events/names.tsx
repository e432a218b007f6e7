import { signal } from "@preact/signals";
import { nameOfUser } from "../accounts/user-choice.tsx";
import { can, client, me, session } from "../framework/session.ts";
import { useData } from "../framework/store.ts";

/** The names of users and keys by id, of the first page of each list. Deleted ones keep their name in this tab. */
export const names = signal<ReadonlyMap<string, string>>(new Map());

/** Loads the names for records that have only the ids of users and keys, as far as the session may read them. Events have theirs. */
export function useNames(): void {
  const load = async (signal: AbortSignal) => {
    // The operator reads no names.
    if (!session.value?.team) return null;
    const { keys, users, sessions } = client.value;
    const [ofKeys, ofUsers, ofSessions] = await Promise.all([
      can("keys:read") ? keys.list({}, { signal }).page() : null,
      can("users:read") ? users.list({}, { signal }).page() : null,
      can("keys:read") ? sessions.list({}, { signal }).page() : null,
    ]);
    const known = new Map([
      ...names.value,
      ...(ofKeys?.items ?? []).map(({ id, name }) => [id, name] as const),
      ...(ofUsers?.items ?? []).map((user) => [user._id, nameOfUser(user)] as const),
    ]);
    // A session has the name of its user, or of the key that created it.
    for (const { _id, userId, createdBy } of ofSessions?.items ?? []) {
      const owner = known.get(userId ?? createdBy?.keyId ?? "");
      if (owner !== undefined) known.set(_id, owner);
    }
    names.value = known;
    return null;
  };
  useData(["names"], load, { on: ({ type }) => /^(apikey|user)\.(created|updated)$/.test(type) });
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
  const name = given ?? names.value.get(id) ?? own;
  return name ? (
    <bdi title={name}>{name}</bdi>
  ) : (
    <span title={id}>{`${isFirst ? "A" : "a"} ${userId ? "user" : "key"}`}</span>
  );
}
