import { useRef, useState } from "preact/hooks";
import type { Event } from "../../client/stowage.ts";
import { Actor, EventDetails, Subject, titleOf, useNames } from "../parts/event.tsx";
import { EVENT_LABELS, EVENT_TYPES, type EventType } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { Choice, Filters } from "../parts/filters.tsx";
import { countOf } from "../parts/format.ts";
import { Icon, type IconName } from "../parts/icon.tsx";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { href, query } from "../router.ts";
import { client } from "../session.ts";
import { useEvents, useList } from "../store.ts";
import { mergeEvents } from "./event-list.ts";

const PAGE_EVENTS = 50;
const TYPES = Object.fromEntries(EVENT_TYPES.map((type) => [type, EVENT_LABELS[type]]));
/** Most events of many teams are these, and say least. */
const SIGN_INS: EventType[] = ["session.created", "user.logged_in"];
const ICONS: Record<Event["subject"]["kind"], IconName> = {
  file: "document",
  link: "link",
  user: "users",
  apikey: "key",
  session: "key",
  team: "users",
  webhook: "webhook",
};

interface EventFilters {
  type?: EventType | undefined;
  /** Ids of events. */
  after?: string | undefined;
  before?: string | undefined;
}

/** The event log of the team, newest first. */
export function Events() {
  const { type, after, before }: EventFilters = Object.fromEntries(query.value);
  const filters = { type: type || undefined, after: after || undefined, before: before || undefined };
  return (
    <Page title="Events" call={{ path: "/auth/v1/events", query: { ...filters } }}>
      <Filters names={["type", "signins", "after", "before"]}>
        <Choice name="type" label="Type" all="All events" options={TYPES} />
        {!type && (
          <Choice name="signins" label="Sign-ins" all="Without sign-ins" options={{ shown: "With sign-ins" }} />
        )}
      </Filters>
      {[after, before].map(
        (id) =>
          id && (
            <p key={id} class="quiet">
              Showing events {id === after ? "after" : "before"}{" "}
              <a href={href(`/events/${id}`)}>
                <code>{id}</code>
              </a>
            </p>
          ),
      )}
      <EventLog key={query.value.toString()} {...filters} hasSignIns={query.value.has("signins")} />
    </Page>
  );
}

const isReading = () => scrollY > 0 || document.querySelector("tbody :focus, tbody [aria-expanded=true]") !== null;

/** New events appear on top. If the user is reading further down, a button announces them instead. */
function EventLog({ hasSignIns, ...filters }: EventFilters & { hasSignIns: boolean }) {
  const { type, before } = filters;
  const events = useList(
    `events ${JSON.stringify(filters)}`,
    (signal) => client.value.events.list({ ...filters, limit: PAGE_EVENTS }, { signal }),
    { rows: type ? PAGE_EVENTS : 0 },
  );
  useNames();
  const [, redraw] = useState({});
  const [open, setOpen] = useState<ReadonlySet<string>>(new Set());
  const newestShown = useRef<string | undefined>(undefined);
  const isComplete = !events.more;
  useEvents(
    (event) => !before && (!type || event.type === type),
    (arrived) => events.change((items) => mergeEvents(items, arrived, isComplete)),
  );
  const isShown = (event: Event) => type || hasSignIns || !SIGN_INS.includes(event.type);
  const items = (events.items ?? []).filter(isShown);
  const newest = items[0]?._id;
  if (newestShown.current === undefined || !isReading()) newestShown.current = newest;
  const shown = items.filter(({ _id }) => _id <= (newestShown.current ?? ""));
  const waiting = items.length - shown.length;
  const show = () => {
    newestShown.current = newest;
    redraw({});
    scrollTo(0, 0);
    document.querySelector("h1")?.focus({ preventScroll: true });
  };
  const isFiltered = type || filters.after || before;
  const toggle = (id: string) => {
    const next = new Set(open);
    if (!next.delete(id)) next.add(id);
    setOpen(next);
  };
  const columns: Column<Event>[] = [
    {
      id: "event",
      label: "Event",
      width: "minmax(0, 2.4fr)",
      cell: (event) => (
        <span class="with-icon">
          <Icon name={ICONS[event.subject.kind] ?? "activity"} />
          <span>{titleOf(event)}</span>
        </span>
      ),
    },
    { id: "resource", label: "Resource", width: "minmax(0, 3.4fr)", cell: (event) => <Subject event={event} /> },
    { id: "actor", label: "Actor", width: "minmax(0, 1.9fr)", cell: (event) => <Actor event={event} /> },
    {
      id: "time",
      label: "Time",
      width: "minmax(0, 1.5fr)",
      card: "bare",
      cell: ({ createdAt }) => <Time at={createdAt} isRelative />,
    },
  ];
  return (
    <>
      <Failure error={events.error} onRetry={events.reload} />
      <div>
        <div class="fresh" role="status">
          {waiting > 0 && (
            <button type="button" class="button primary" onClick={show}>
              {countOf(waiting, "new event")}
            </button>
          )}
        </div>
        {events.items && items.length === 0 && (
          <Empty title={events.more ? "No matches so far" : isFiltered ? "No matching events" : "No events"}>
            <p>{events.more ? "Older events may match." : "Activity shows up here in real time."}</p>
          </Empty>
        )}
        {shown.length > 0 && (
          <Table
            label="Events"
            rows={shown}
            keyOf={({ _id }) => _id}
            columns={columns}
            menu={(event) => (
              <button
                type="button"
                class="button ghost chevron"
                aria-expanded={open.has(event._id)}
                aria-label={`Details of ${titleOf(event)}`}
                onClick={() => toggle(event._id)}
              >
                <Icon name="chevron" />
              </button>
            )}
            detail={(event) => open.has(event._id) && <EventDetails event={event} />}
          />
        )}
      </div>
      <More of={events} />
    </>
  );
}
