import { nameOfUser } from "../accounts/user-choice.tsx";
import { can, client, me, session } from "../framework/session.ts";
import { useData } from "../framework/store.ts";

type Names = ReadonlyMap<string, string>;

const NO_NAMES: Names = new Map();

/** Loads the names of users and keys, of the first page of each list, as far as the session may read them. */
async function loadNames(signal: AbortSignal, before = NO_NAMES): Promise<Names> {
  // The operator reads no names.
  if (!session.value?.team) return NO_NAMES;
  const { keys, users, sessions } = client.value;
  const [ofKeys, ofUsers, ofSessions] = await Promise.all([
    can("keys:read") ? keys.list({}, { signal }) : null,
    can("users:read") ? users.list({}, { signal }) : null,
    can("keys:read") ? sessions.list({}, { signal }) : null,
  ]);
  const names = new Map([
    // Deleted ones keep their names.
    ...before,
    ...(ofKeys?.items ?? []).map(({ id, name }) => [id, name] as const),
    ...(ofUsers?.items ?? []).map((user) => [user._id, nameOfUser(user)] as const),
  ]);
  // A session has the name of its user, or of the key that created it.
  for (const { _id, userId, createdBy } of ofSessions?.items ?? []) {
    const owner = names.get(userId ?? createdBy?.keyId ?? "");
    if (owner !== undefined) names.set(_id, owner);
  }
  return names;
}

/** The names of users and keys by id, for records that have only their ids. Events of the log have the names themselves. */
export function useNames(): Names {
  const { value = NO_NAMES } = useData(["names"], loadNames, {
    on: ({ type }) => /^(apikey|user)\.(created|updated)$/.test(type),
  });
  return value;
}

interface NameOfProps {
  keyId: string | null;
  userId: string | null;
  /** Whether it begins a sentence or a cell. */
  isFirst?: boolean;
}

/** The user if there is one, otherwise the key. */
export function NameOf(of: NameOfProps) {
  const names = useNames();
  return <Named {...of} name={names.get(of.userId ?? of.keyId ?? "")} />;
}

/** A user or key with the name that the API has given, if there is one. */
export function Named({
  keyId,
  userId,
  name: given,
  isFirst = false,
}: NameOfProps & { name: string | null | undefined }) {
  const own = userId && userId === me.value?.userId ? session.value?.team?.name : undefined;
  const name = given ?? own;
  return name ? (
    <bdi title={name}>{name}</bdi>
  ) : (
    <span title={userId ?? keyId ?? ""}>{`${isFirst ? "A" : "a"} ${userId ? "user" : "key"}`}</span>
  );
}
