import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { type Event, isFileEvent, type List, type RecordedEvent } from "../../client/stowage.ts";
import { nameOfUser } from "../accounts/user-choice.tsx";
import { CopyButton } from "../parts/copy.tsx";
import { RequestId } from "../parts/failure.tsx";
import { href } from "../router.ts";
import { can, client, me, session } from "../session.ts";
import { useData } from "../store.ts";
import { EVENT_LABELS, type EventType } from "./event-types.ts";

interface Name {
  name: string;
  /** Only users have one. */
  email?: string;
}

/**
 * The names of keys, users, webhooks, and files by id, since events contain only the ids of others. Deleted ones keep their
 * name in this tab.
 */
const names = signal<ReadonlyMap<string, Name>>(new Map());

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
      // Without the path of the URL, which may contain a secret.
      ...allWebhooks.map(({ _id, url, description }) => [_id, { name: description || new URL(url).host }] as const),
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
export function titleOf(event: RecordedEvent): string {
  const [field, ...others] = (isFileEvent(event) && event.type === "file.updated" && event.data.fields) || [];
  return (others.length === 0 && FIELD_LABELS[field ?? ""]) || (EVENT_LABELS[event.type] ?? event.type);
}

/** The words of an event's sentence before its resource, and after it. An update names the changed fields instead. */
const PHRASES: Record<Exclude<EventType, `${string}.updated`>, [string, string?]> = {
  "file.uploaded": ["uploaded"],
  "file.completed": ["processed"],
  "file.failed": ["couldn't process"],
  "file.deleted": ["deleted"],
  "file.trashed": ["moved", "to the trash"],
  "file.restored": ["restored"],
  "file.held": ["put", "on hold"],
  "file.released": ["released", "from its hold"],
  "file.reprocessed": ["requeued"],
  "link.created": ["created"],
  "link.revoked": ["revoked"],
  "user.created": ["created"],
  "user.deleted": ["deleted"],
  // Also a reset that the user has asked for.
  "user.invited": ["created a password link for"],
  "user.logged_in": ["signed in"],
  "apikey.created": ["created"],
  "apikey.rotated": ["rotated"],
  "apikey.revealed": ["revealed"],
  "apikey.revoked": ["revoked"],
  "session.created": ["started a session"],
  "session.revoked": ["ended"],
  "team.created": ["created"],
  "team.suspended": ["suspended"],
  "team.deleted": ["deleted"],
  "webhook.created": ["created"],
  "webhook.deleted": ["deleted"],
  "webhook.disabled": ["disabled"],
};
const FILE_CHANGES: Record<string, string> = { name: "renamed", folder: "moved", tags: "tagged" };
/** Words for fields whose names in the API are not plain words. */
const FIELD_NAMES: Record<string, string> = {
  firstName: "name",
  lastName: "name",
  scopes: "permissions",
  expiresAt: "expiry",
  url: "URL",
  types: "events",
  maxBytes: "limits",
  maxFiles: "limits",
};
const listFormat = new Intl.ListFormat("en");

function phraseOf({ type, data }: Event, isOwn: boolean): [string, string?] {
  if (type in PHRASES) return PHRASES[type as keyof typeof PHRASES];
  const { fields = [] } = "fields" in data ? data : {};
  const [change] = fields.length === 1 && type === "file.updated" ? fields.map((field) => FILE_CHANGES[field]) : [];
  if (change) return [change];
  const changed = listFormat.format(new Set(fields.map((field) => FIELD_NAMES[field] ?? field)));
  return [isOwn ? `changed their own ${changed}` : changed ? `changed the ${changed} of` : "changed"];
}

/** Whether a session of the team starts, or ends itself. Most events of many teams are these, and say least. */
export const isSignIn = ({ type, actor, subject }: Event): boolean =>
  type === "session.created" || type === "user.logged_in" || (type === "session.revoked" && actor.keyId === subject.id);

/** An event as a sentence: its actor, what happened, and the resource. `isOnPage` of the file that it is about. */
export function Sentence({ event, isOnPage = false }: { event: Event; isOnPage?: boolean }) {
  const { type, actor, subject } = event;
  const isSignOut = type === "session.revoked" && isSignIn(event);
  const isOwn = type === "user.updated" && actor.userId === subject.id;
  const [verb, after] = isSignOut ? ["signed out"] : phraseOf(event, isOwn);
  return (
    <span class="sentence">
      <Actor event={event} isFirst /> {verb}{" "}
      {isOnPage
        ? subject.kind === "link"
          ? "a link"
          : "this file"
        : !isOwn && !isSignIn(event) && <Subject event={event} />}
      {after && ` ${after}`}
    </span>
  );
}

/** The words for a resource without a known name, and before a name. */
const NOUNS: Record<Event["subject"]["kind"], [string, string?]> = {
  file: ["a file"],
  link: ["a link to a file", "a link to "],
  user: ["a user", "the user "],
  apikey: ["a key", "the key "],
  session: ["a session", "a session of "],
  team: ["the team"],
  webhook: ["a webhook", "the webhook "],
};

/** The resource of an event, with a link if the console has a page for it. `isPlain` shows only the name. */
export function Subject({ event, isPlain = false }: { event: RecordedEvent; isPlain?: boolean }) {
  const { type, subject } = event;
  const { kind, id } = subject;
  const fileId = "fileId" in event.data ? String(event.data.fileId) : "";
  const known = names.value.get(kind === "link" ? fileId : id);
  const name = isFileEvent(event) ? event.data.originalName : known?.name;
  const [noun, before] = NOUNS[kind];
  const shown = name ? <bdi title={name}>{name}</bdi> : <span title={kind === "link" ? undefined : id}>{noun}</span>;
  const pages: Partial<Record<typeof kind, string>> = {
    file: href(`/files/${id}`),
    link: href(`/files/${fileId}`),
    webhook: href(`/webhooks/${id}`),
    apikey: href("/keys"),
    user: href("/users", { search: known?.email }),
  };
  if (isPlain) return shown;
  // The operator has none of these pages.
  const url = session.value?.team && !/deleted|revoked/.test(type) ? pages[kind] : undefined;
  return (
    <>
      {name && before}
      {url ? <a href={url}>{shown}</a> : shown}
    </>
  );
}

export function Actor({ event: { actor }, isFirst = false }: { event: Event; isFirst?: boolean }) {
  if (actor.kind === "system") return <>Stowage</>;
  if (actor.kind === "operator") return <>{isFirst ? "The operator" : "the operator"}</>;
  return <NameOf {...actor} isFirst={isFirst} />;
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

/** The ids to include in a support request, the data of the event, and the ways to similar ones. */
export function EventDetails({ event: { _id, actor, subject, data } }: { event: Event }) {
  const by = actor.userId ?? actor.keyId;
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
      {session.value?.team && (
        <p class="actions">
          <a class="button" href={href("/events", { subject: subject.id })}>
            More of this {subject.kind === "apikey" ? "key" : subject.kind}
          </a>
          {by && (
            <a class="button" href={href("/events", { actor: by })}>
              More by this {actor.userId ? "user" : "key"}
            </a>
          )}
        </p>
      )}
      <pre class="json">{JSON.stringify(data, null, 2)}</pre>
    </div>
  );
}
