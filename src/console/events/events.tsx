import type { ComponentChildren } from "preact";
import { useRef, useState } from "preact/hooks";
import type { Event, EventFilters } from "../../client/index.ts";
import { UserChoice } from "../accounts/user-choice.tsx";
import { href, query } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useEvents, useList } from "../framework/store.ts";
import { NOUNS } from "../nouns.ts";
import type { InUrl } from "../parts/curl.tsx";
import { Failure } from "../parts/failure.tsx";
import { ChoiceFilter, DateFilter, Filters } from "../parts/filters.tsx";
import { countOf } from "../parts/format.ts";
import { Icon, type IconName } from "../parts/icon.tsx";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Day, Time } from "../parts/values.tsx";
import {
  ALL,
  DELETED,
  filtersFrom,
  groupBursts,
  groupByDay,
  isListed,
  isOfType,
  mergeEvents,
  verbOfMany,
} from "./event-list.ts";
import { EVENT_TYPES, labelOf } from "./event-types.ts";
import { Actor, EventDetails, isRoutine, Sentence, Subject, titleOf } from "./sentence.tsx";

const PAGE_EVENTS = 50;
const TYPES = Object.fromEntries([
  [ALL, "All events"],
  ...Object.entries(NOUNS).map(([noun, { plural }]) => [noun, plural]),
  [DELETED, "Files deleted (trash or erased)"],
  ...EVENT_TYPES.map((type) => [type, labelOf(type)]),
]);

/** The event log of the team, newest first. */
export function Events() {
  const filters = filtersFrom(query.value);
  const { type, subject, after, before } = filters;
  const chosen = query.value.get("type") ?? "";
  const isShown = (event: Event): boolean =>
    type ? isOfType(event, chosen) : subject !== undefined || chosen === ALL || !isRoutine(event);
  return (
    <Page title="Events">
      <Filters names={["type", "actor", "subject", "from", "until", "after", "before"]}>
        <ChoiceFilter name="type" label="Type" all="Main events" options={TYPES} />
        <UserChoice name="actor" label="Actor" all="All actors" />
        <DateFilter from="After" until="Before" />
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
      <EventLog key={query.value.toString()} filters={filters} isShown={isShown} />
    </Page>
  );
}

/** Whether new events on top would move what the user reads or uses. */
const isReading = () => scrollY > 0 || document.querySelector(".timeline :is(:focus, [aria-expanded=true])") !== null;

interface EventLogProps {
  filters: InUrl<EventFilters>;
  isShown: (event: Event) => boolean;
}

/** New events appear on top. While the user is reading, they wait behind a button that shows them. */
function EventLog({ filters, isShown }: EventLogProps) {
  const isFiltered = Object.keys(filters).length > 0;
  const events = useList(
    ["events", JSON.stringify(filters)],
    (signal) => client.value.events.list({ ...filters, limit: PAGE_EVENTS }, { signal }),
    // The other filters select a range of the log, whose pages are full.
    { rows: filters.type || filters.actor || filters.subject ? PAGE_EVENTS : 0 },
  );
  const [, redraw] = useState({});
  const newestShown = useRef<string | undefined>(undefined);
  const isComplete = !events.more;
  useEvents(
    (event) => isListed(event, filters),
    (arrived) => events.change((items) => mergeEvents(items, arrived, isComplete)),
  );
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
  const [first] = items;
  return (
    <>
      {filters.subject && first && (
        <p class="quiet">
          Showing events of <Subject event={first} />
        </p>
      )}
      <Failure error={events.error} onRetry={events.reload} />
      <div class="timeline">
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
        {groupByDay(shown).map((day) => {
          const [{ createdAt } = { createdAt: "" }] = day;
          return (
            <section key={new Date(createdAt).toDateString()}>
              <h2>
                <Day at={createdAt} />
              </h2>
              <ol>
                {groupBursts(day).map((group) => {
                  // The oldest one stays, when newer ones join the burst.
                  const oldest = group.at(-1) as Event;
                  return group.length === 1 ? (
                    <EventRow key={oldest._id} event={oldest} />
                  ) : (
                    <Burst key={oldest._id} events={group} />
                  );
                })}
              </ol>
            </section>
          );
        })}
      </div>
      <More of={events} />
    </>
  );
}

interface RowProps {
  icon: IconName;
  sentence: ComponentChildren;
  at: string;
  /** The label of the button. */
  label: string;
  children: ComponentChildren;
}

/** A row of the log, with a button that shows the rest. */
function Row({ icon, sentence, at, label, children }: RowProps) {
  const [isOpen, setOpen] = useState(false);
  return (
    <li>
      <div class="event">
        <Icon name={icon} />
        {sentence}
        <Time at={at} isRelative />
        <button
          type="button"
          class="button ghost chevron"
          aria-expanded={isOpen}
          aria-label={label}
          onClick={() => setOpen(!isOpen)}
        >
          <Icon name="chevron" />
        </button>
      </div>
      {isOpen && children}
    </li>
  );
}

/** Uploads or moves that followed each other. */
function Burst({ events }: { events: Event[] }) {
  const [latest] = events as [Event];
  const count = countOf(events.length, "file");
  const sentence = (
    <span class="sentence">
      <Actor event={latest} isFirst /> {verbOfMany(latest)} {count}
    </span>
  );
  return (
    <Row icon={NOUNS.file.icon} sentence={sentence} at={latest.createdAt} label={`Each of the ${count}`}>
      <ol>
        {events.map((event) => (
          <EventRow key={event._id} event={event} />
        ))}
      </ol>
    </Row>
  );
}

function EventRow({ event }: { event: Event }) {
  return (
    <Row
      icon={NOUNS[event.subject.kind]?.icon ?? "activity"}
      sentence={<Sentence event={event} />}
      at={event.createdAt}
      label={`Details of ${titleOf(event)}`}
    >
      <EventDetails event={event} />
    </Row>
  );
}
