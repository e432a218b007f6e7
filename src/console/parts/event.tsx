import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Event, isFileEvent } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { href } from "../router.ts";
import { client } from "../session.ts";
import { RequestId } from "./failure.tsx";
import { useLoaded } from "./loading.ts";
import { CopyButton } from "./values.tsx";

/** Names of keys and emails of users by their ids: events hold ids alone. What is deleted keeps its name in this tab. */
const names = signal<ReadonlyMap<string, string>>(new Map());

/** Learns the names of what a page of events tells of. */
export function useNames(): void {
  const { reload } = useLoaded(async (signal) => {
    const { keys, users } = client.value;
    const [latestKeys, firstUsers] = await Promise.all([
      keys.list({}, { signal }).page(),
      users.list({}, { signal }).page(),
    ]);
    names.value = new Map([
      ...names.value,
      ...latestKeys.items.map(({ id, name }) => [id, name] as const),
      ...firstUsers.items.map(({ _id, email }) => [_id, email] as const),
    ]);
  }, []);
  useEffect(() => onEvent(({ type }) => /^(apikey|user)\.(cre|upd)ated$/.test(type) && reload()), [reload]);
}

/** The thing that it happened to, with a link where the console has a page of it. */
export function Subject({ event }: { event: Event }) {
  const { type, subject } = event;
  const { kind, id } = subject;
  const known = names.value.get(id);
  const name = isFileEvent(event) ? event.data.originalName : known;
  const shown = name ? <bdi>{name}</bdi> : <code>{id}</code>;
  if (/deleted|revoked/.test(type)) return shown;
  const pages = {
    file: href(`/files/${id}`),
    webhook: href(`/webhooks/${id}`),
    apikey: href("/keys"),
    user: href("/users", { email: known }),
  };
  return <a href={pages[kind]}>{shown}</a>;
}

export function Actor({ event: { actor } }: { event: Event }) {
  const { kind, keyId, userId } = actor;
  if (kind === "system") return <>Stowage</>;
  if (kind === "operator") return <>The operator</>;
  const id = userId ?? keyId ?? "";
  const name = names.value.get(id);
  return name ? (
    <bdi>{name}</bdi>
  ) : (
    <span>
      {userId ? "User" : "Key"} <code>{id}</code>
    </span>
  );
}

/** What whoever asks the service's operator, or a program's log, has to name; and what the event says. */
export function EventDetails({ event: { _id, actor, data } }: { event: Event }) {
  return (
    <div class="stack">
      <p class="quiet">
        Event{" "}
        <a href={href(`/events/${_id}`)}>
          <code>{_id}</code>
        </a>{" "}
        <CopyButton text={_id} what="id of the event" />
      </p>
      <RequestId of={actor} />
      <pre class="json">{JSON.stringify(data, null, 2)}</pre>
    </div>
  );
}
