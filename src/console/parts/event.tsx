import { signal } from "@preact/signals";
import { type Event, isFileEvent } from "../../client/stowage.ts";
import { href } from "../router.ts";
import { can, client, session } from "../session.ts";
import { RequestId } from "./failure.tsx";
import { useEvents, useLoaded } from "./loading.ts";
import { CopyButton } from "./values.tsx";

/** Key names and user emails by id, since events contain only ids. Deleted ones keep their name in this tab. */
const names = signal<ReadonlyMap<string, string>>(new Map());

/** Loads the names that a page of events needs, as far as the session may read them. */
export function useNames(): void {
  const { reload } = useLoaded(async (signal) => {
    // The operator reads no names.
    if (!session.value?.team) return;
    const { keys, sessions, users } = client.value;
    const none = { items: [] };
    const [latestKeys, latestSessions, firstUsers] = await Promise.all([
      can("keys:read") ? keys.list({}, { signal }).page() : none,
      can("keys:read") ? sessions.list({ signal }).page() : none,
      can("users:read") ? users.list({}, { signal }).page() : none,
    ]);
    const known = new Map([
      ...names.value,
      ...latestKeys.items.map(({ id, name }) => [id, name] as const),
      ...firstUsers.items.map(({ _id, email }) => [_id, email] as const),
    ]);
    // A session has the name of its user, or of the key that created it.
    for (const { _id, userId, createdBy } of latestSessions.items) {
      const name = known.get(userId ?? createdBy?.keyId ?? "");
      if (name) known.set(_id, name);
    }
    names.value = known;
  }, []);
  useEvents(({ type }) => /^(apikey|session|user)\.(cre|upd)ated$|logged_in$/.test(type), reload);
}

/** The resource of an event, with a link if the console has a page for it. */
export function Subject({ event }: { event: Event }) {
  const { type, subject } = event;
  const { kind, id } = subject;
  const knownName = names.value.get(id);
  const name = isFileEvent(event) ? event.data.originalName : knownName;
  const shown = name ? <bdi>{name}</bdi> : <code>{id}</code>;
  if (kind === "team" || kind === "session" || /deleted|revoked/.test(type)) return shown;
  const pages = {
    file: href(`/files/${id}`),
    webhook: href(`/webhooks/${id}`),
    apikey: href("/keys"),
    user: href("/users", { email: knownName }),
  };
  return <a href={pages[kind]}>{shown}</a>;
}

export function Actor({ event: { actor } }: { event: Event }) {
  if (actor.kind === "system") return <>System</>;
  if (actor.kind === "operator") return <>Operator</>;
  return <NameOf {...actor} />;
}

/** The user if there is one, otherwise the key. */
export function NameOf({ keyId, userId }: { keyId: string | null; userId: string | null }) {
  const id = userId ?? keyId ?? "";
  const name = names.value.get(id);
  return name ? (
    <bdi title={name}>{name}</bdi>
  ) : (
    <span title={id}>
      {userId ? "User" : "Key"} <code>{id}</code>
    </span>
  );
}

/** The ids to include in a support request, and the data of the event. */
export function EventDetails({ event: { _id, actor, data } }: { event: Event }) {
  return (
    <div class="stack">
      <p class="quiet">
        Event ID:{" "}
        <a href={href(`/events/${_id}`)}>
          <code>{_id}</code>
        </a>{" "}
        <CopyButton text={_id} label="event ID" />
      </p>
      <RequestId of={actor} />
      <pre class="json">{JSON.stringify(data, null, 2)}</pre>
    </div>
  );
}
