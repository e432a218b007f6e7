import { useRef, useState } from "preact/hooks";
import type { Event } from "../../client/stowage.ts";
import { Actor, EventDetails, Subject, useNames } from "../parts/event.tsx";
import { EVENT_LABELS, EVENT_TYPES, type EventType } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { SelectField } from "../parts/form.tsx";
import { countOf } from "../parts/format.ts";
import { useEvents, useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { href, navigate, query } from "../router.ts";
import { client } from "../session.ts";
import { mergeEvents } from "./event-list.ts";

const PAGE_EVENTS = 50;

interface Filters {
  type?: EventType | undefined;
  /** Ids of events. */
  after?: string | undefined;
  before?: string | undefined;
}

/** The event log of the team, newest first. */
export function Events() {
  const { type, after, before }: Filters = Object.fromEntries(query.value);
  const filters = { type: type || undefined, after: after || undefined, before: before || undefined };
  return (
    <Page title="Events" call={{ path: "/auth/v1/events", query: { ...filters } }}>
      <form class="filters">
        <SelectField
          label="Type"
          name="type"
          value={type ?? ""}
          onChange={(chosen) => navigate(href("/events", { after, before, type: chosen }), { replace: true })}
        >
          <option value="">All events</option>
          {EVENT_TYPES.map((name) => (
            <option key={name} value={name}>
              {EVENT_LABELS[name]}
            </option>
          ))}
        </SelectField>
        {query.value.size > 0 && <a href={href("/events")}>Clear filters</a>}
      </form>
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
      <EventLog key={query.value.toString()} {...filters} />
    </Page>
  );
}

const isReading = () => scrollY > 0 || document.querySelector("tbody :focus, tbody [aria-expanded=true]") !== null;

/** New events appear on top. If the user is reading further down, a button announces them instead. */
function EventLog(filters: Filters) {
  const { type, before } = filters;
  const list = (signal: AbortSignal) => client.value.events.list({ ...filters, limit: PAGE_EVENTS }, { signal });
  const events = useListing(list, [], { rows: type ? PAGE_EVENTS : 0 });
  useNames();
  const [, redraw] = useState({});
  const newestShown = useRef<string | undefined>(undefined);
  const isComplete = !events.more;
  useEvents(
    (event) => !before && (!type || event.type === type),
    (arrived) => events.change((items) => mergeEvents(items, arrived, isComplete)),
  );
  const items = events.items ?? [];
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
        {events.items?.length === 0 && (
          <Empty title={events.more ? "No matches so far" : isFiltered ? "No matching events" : "No events"}>
            <p>
              {events.more ? "Older events may match." : "Activity shows up here in real time and is kept for 30 days."}
            </p>
          </Empty>
        )}
        {shown.length > 0 && (
          <Table class="events-table" columns={["Event", "Resource", "Actor", "Time"]} buttons="Details">
            {shown.map((event) => (
              <Row key={event._id} event={event} />
            ))}
          </Table>
        )}
      </div>
      <More of={events} />
    </>
  );
}

function Row({ event }: { event: Event }) {
  const [isOpen, setOpen] = useState(false);
  const { _id, type, createdAt } = event;
  return (
    <>
      <tr>
        <th scope="row">{EVENT_LABELS[type] ?? type}</th>
        <td data-label="Resource">
          <Subject event={event} />
        </td>
        <td data-label="Actor">
          <Actor event={event} />
        </td>
        <td data-label="Time">
          <Time at={createdAt} />
        </td>
        <td class="number">
          <button
            type="button"
            class="button small"
            aria-expanded={isOpen}
            aria-controls={isOpen ? _id : undefined}
            aria-label={`Details of ${EVENT_LABELS[type] ?? type}`}
            onClick={() => setOpen(!isOpen)}
          >
            Details
          </button>
        </td>
      </tr>
      {isOpen && (
        <tr id={_id}>
          <td colSpan={5}>
            <EventDetails event={event} />
          </td>
        </tr>
      )}
    </>
  );
}
