import { asSent } from "../../client/ids.ts";
import { type Event, isFileEvent, type RecordedEvent } from "../../client/index.ts";
import { href } from "../framework/router.ts";
import { session } from "../framework/session.ts";
import { NOUNS } from "../nouns.ts";
import { CopyButton } from "../parts/copy.tsx";
import { RequestId } from "../parts/failure.tsx";
import { FileName } from "../parts/file-name.tsx";
import { EVENTS, labelOf } from "./event-types.ts";
import { Named, useNames } from "./names.tsx";

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
  return (others.length === 0 && FIELD_LABELS[field ?? ""]) || labelOf(event.type);
}

const FILE_CHANGES: Record<string, string> = {
  name: "renamed",
  folder: "moved",
  tags: "tagged",
  waveform: "measured the waveform of",
  transcript: "set the transcript of",
};
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

function phraseOf({ type, data }: Event, isOwn: boolean): [string, string | undefined] | [string] {
  const [, before, after] = EVENTS[type] ?? [];
  if (before) return [before, after];
  const { fields = [] } = "fields" in data ? data : {};
  const [change] = fields.length === 1 && type === "file.updated" ? fields.map((field) => FILE_CHANGES[field]) : [];
  if (change) return [change];
  const changed = listFormat.format(new Set(fields.map((field) => FIELD_NAMES[field] ?? field)));
  return [isOwn ? `changed their own ${changed}` : changed ? `changed the ${changed} of` : "changed"];
}

/** Whether a session of the team starts, or ends itself. Most events of many teams are these, and say least. */
export const isSignIn = ({ type, actor, subject }: Event): boolean =>
  type === "session.created" || type === "user.logged_in" || (type === "session.revoked" && actor.keyId === subject.id);

/** Whether a waveform was measured, without a request. */
export const isWaveform = (event: Event): boolean =>
  event.type === "file.updated" && event.data.fields?.every((field) => field === "waveform") === true;

/** Whether an event is a sign-in or the result of processing, which follow other events and say least. */
export const isRoutine = (event: Event): boolean =>
  isSignIn(event) || event.type === "file.completed" || isWaveform(event);

/**
 * An event as a sentence: its actor, what happened, and the resource.
 * @param isOnPage says "this file" instead of its name, on the page of the file
 */
export function Sentence({ event, isOnPage = false }: { event: Event; isOnPage?: boolean }) {
  const { type, actor, subject } = event;
  const isSignOut = type === "session.revoked" && isSignIn(event);
  const isOwn = type === "user.updated" && actor.userId === subject.id;
  const [verb, after] = isSignOut ? ["signed out"] : phraseOf(event, isOwn);
  return (
    <span class="sentence">
      <Actor event={event} isFirst /> {verb}{" "}
      {isOnPage ? "this file" : !isOwn && !isSignIn(event) && <Subject event={event} />}
      {after && ` ${after}`}
    </span>
  );
}

interface SubjectProps {
  event: Event | RecordedEvent;
  /** Whether to show only the name. */
  isPlain?: boolean;
}

/** The resource of an event, with a link if the console has a page for it. */
export function Subject(props: SubjectProps) {
  const { event } = props;
  if ("name" in event.subject) return <NamedSubject {...props} name={event.subject.name} />;
  if (isFileEvent(event)) return <NamedSubject {...props} name={event.data.originalName} />;
  return <SubjectById {...props} />;
}

/** The resource of an event as a webhook gets it. */
function SubjectById(props: SubjectProps) {
  const names = useNames();
  return <NamedSubject {...props} name={names.get(props.event.subject.id)} />;
}

function NamedSubject({ event, isPlain = false, name: known }: SubjectProps & { name: string | null | undefined }) {
  const { type, subject } = event;
  const { kind, id } = subject;
  const fileId = "fileId" in event.data ? String(event.data.fileId) : "";
  // In the log of a team, its name says nothing.
  const isOwnTeam = kind === "team" && session.value?.team;
  const name = isOwnTeam ? null : known;
  const { one, named, page } = NOUNS[kind];
  const shown = name ? <FileName name={name} /> : <span title={kind === "link" ? undefined : id}>{one}</span>;
  if (isPlain) return shown;
  // The operator has none of these pages.
  const place = session.value?.team && !/deleted|revoked/.test(type) && page?.({ id, fileId, name });
  return (
    <>
      {name && type !== "user.invited" && named}
      {place ? (
        <a href={href(...place)} aria-label={name ?? undefined}>
          {shown}
        </a>
      ) : (
        shown
      )}
    </>
  );
}

export function Actor({ event: { actor }, isFirst = false }: { event: Event; isFirst?: boolean }) {
  if (actor.kind === "system") return <>Stowage</>;
  if (actor.kind === "operator") return <>{isFirst ? "The operator" : "the operator"}</>;
  return <Named {...actor} isFirst={isFirst} />;
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
      <pre class="json">{JSON.stringify(asSent(data), null, 2)}</pre>
    </div>
  );
}
