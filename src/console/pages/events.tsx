import { useEffect, useRef, useState } from "preact/hooks";
import type { Event } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { Actor, EventDetails, Subject, useNames } from "../parts/event.tsx";
import { EVENT_TYPES, EVENT_WORDS, type EventType } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { SelectField } from "../parts/form.tsx";
import { useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { href, navigate, query } from "../router.ts";
import { client } from "../session.ts";

const PAGE_EVENTS = 50;

interface Filters {
  type?: EventType | undefined;
  /** Ids of events. */
  after?: string | undefined;
  before?: string | undefined;
}

/** What happened in the team, newest first. */
export function Events() {
  const { type, after, before }: Filters = Object.fromEntries(query.value);
  const filters = { type: type || undefined, after: after || undefined, before: before || undefined };
  return (
    <Page title="Events">
      <form class="filters">
        <SelectField
          label="Type"
          name="type"
          value={type ?? ""}
          onChange={(chosen) => navigate(href("/events", { after, before, type: chosen }), { replace: true })}
        >
          <option value="">All</option>
          {EVENT_TYPES.map((one) => (
            <option key={one} value={one}>
              {EVENT_WORDS[one]}
            </option>
          ))}
        </SelectField>
        {query.value.size > 0 && <a href={href("/events")}>Clear filters</a>}
      </form>
      {[after, before].map(
        (id) =>
          id && (
            <p key={id} class="quiet">
              Only what happened {id === after ? "after" : "before"}{" "}
              <a href={href(`/events/${id}`)}>
                event <code>{id}</code>
              </a>
            </p>
          ),
      )}
      <Trail key={query.value.toString()} {...filters} />
    </Page>
  );
}

const isReading = () => scrollY > 0 || document.querySelector("tbody :focus, tbody [aria-expanded=true]") !== null;

/** What is new appears on top by itself, but for whoever is reading further down, whom a button tells of it. */
function Trail(filters: Filters) {
  const { type, before } = filters;
  const events = useListing((signal) => client.value.events.list({ ...filters, limit: PAGE_EVENTS }, { signal }), []);
  useNames();
  const [, redraw] = useState({});
  const newestShown = useRef<string | undefined>(undefined);
  useEffect(
    () =>
      onEvent((event) => {
        if (before || (type && event.type !== type)) return;
        events.change((items) => (items.some(({ _id }) => _id === event._id) ? items : [event, ...items]));
      }),
    [events.change],
  );
  const items = events.items ?? [];
  const newest = items[0]?._id;
  if (newestShown.current === undefined || !isReading()) newestShown.current = newest;
  // Ids ascend with time.
  const shown = items.filter(({ _id }) => _id <= (newestShown.current ?? ""));
  const waiting = items.length - shown.length;
  const show = () => {
    newestShown.current = newest;
    redraw({});
    scrollTo(0, 0);
    document.querySelector("h1")?.focus({ preventScroll: true });
  };
  return (
    <>
      <Failure error={events.error} onRetry={events.reload} />
      <div>
        <div class="fresh" role="status">
          {waiting > 0 && (
            <button type="button" class="button primary" onClick={show}>
              {waiting === 1 ? "1 new event" : `${waiting} new events`}
            </button>
          )}
        </div>
        {events.items?.length === 0 && (
          <Empty
            title={
              events.more ? "None among the latest" : type || filters.after || before ? "No such event" : "No events"
            }
          >
            <p>
              {events.more
                ? "There may be older ones."
                : "What happens in the team from now on appears here by itself, and is kept for some weeks."}
            </p>
          </Empty>
        )}
        {shown.length > 0 && (
          <Table columns={["What", "Of what", "By whom", "When"]} buttons="Details">
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
        <th scope="row">{EVENT_WORDS[type] ?? type}</th>
        <td data-label="Of what">
          <Subject event={event} />
        </td>
        <td data-label="By whom">
          <Actor event={event} />
        </td>
        <td data-label="When">
          <Time at={createdAt} />
        </td>
        <td class="number">
          <button
            type="button"
            class="button small"
            aria-expanded={isOpen}
            aria-controls={isOpen ? _id : undefined}
            aria-label={`Details of ${EVENT_WORDS[type] ?? type}`}
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
