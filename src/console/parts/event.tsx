import { signal } from "@preact/signals";
import { type Event, isFileEvent } from "../../client/stowage.ts";
import { href } from "../router.ts";
import { can, client, me, session } from "../session.ts";
import { useData } from "../store.ts";
import { EVENT_LABELS } from "./event-types.ts";
import { RequestId } from "./failure.tsx";
import { CopyButton } from "./values.tsx";

/** The names of keys, users, and webhooks by id, since events contain only ids. Deleted ones keep their name in this tab. */
const names = signal<ReadonlyMap<string, string>>(new Map());

/** Loads the names that a page of events needs, as far as the session may read them. */
export function useNames(): void {
  const load = async (signal: AbortSignal) => {
    // The operator reads no names.
    if (!session.value?.team) return null;
    const { keys, sessions, users, webhooks } = client.value;
    const none = { items: [] };
    const [latestKeys, latestSessions, firstUsers, allWebhooks] = await Promise.all([
      can("keys:read") ? keys.list({}, { signal }).page() : none,
      can("keys:read") ? sessions.list({}, { signal }).page() : none,
      can("users:read") ? users.list({}, { signal }).page() : none,
      can("webhooks:read") ? webhooks.list({ signal }).toArray() : [],
    ]);
    const known = new Map([
      ...names.value,
      ...latestKeys.items.map(({ id, name }) => [id, name] as const),
      ...firstUsers.items.map(({ _id, email }) => [_id, email] as const),
      // Without the path of the URL, which may contain a secret.
      ...allWebhooks.map(({ _id, url, description }) => [_id, description || new URL(url).host] as const),
    ]);
    // A session has the name of its user, or of the key that created it.
    for (const { _id, userId, createdBy } of latestSessions.items) {
      const name = known.get(userId ?? createdBy?.keyId ?? "");
      if (name) known.set(_id, name);
    }
    names.value = known;
    return null;
  };
  useData("names", load, {
    on: ({ type }) => /^(apikey|session|user|webhook)\.(cre|upd)ated$|logged_in$/.test(type),
  });
}

/** A title for each field of a file that can change. */
const FIELD_LABELS: Record<string, string> = {
  name: "File renamed",
  folder: "File moved",
  tags: "Tags changed",
  reference: "Reference changed",
  metadata: "Metadata changed",
  deleteAfter: "Time of deletion changed",
};

/** The title of an event. */
export function titleOf(event: Event): string {
  const [field, ...others] = (isFileEvent(event) && event.type === "file.updated" && event.data.fields) || [];
  return (others.length === 0 && FIELD_LABELS[field ?? ""]) || (EVENT_LABELS[event.type] ?? event.type);
}

/** The resource of an event, with a link if the console has a page for it. The operator has none. */
export function Subject({ event, isPlain = false }: { event: Event; isPlain?: boolean }) {
  const { type, subject } = event;
  const { kind, id } = subject;
  const knownName = names.value.get(id);
  // A link has no name, and leads to its file.
  const name = isFileEvent(event) ? event.data.originalName : kind === "link" ? "Link to a file" : knownName;
  const shown = name ? <bdi title={name}>{name}</bdi> : <code>{id}</code>;
  if (isPlain || kind === "team" || kind === "session" || /deleted|revoked/.test(type)) return shown;
  const pages = {
    file: href(`/files/${id}`),
    link: href(`/files/${event.data.fileId}`),
    webhook: href(`/webhooks/${id}`),
    apikey: href("/keys"),
    user: href("/users", { search: knownName }),
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
  const own = userId && userId === me.value?.userId ? session.value?.team?.name : undefined;
  const name = names.value.get(id) ?? own;
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
