import { useEffect, useState } from "preact/hooks";
import type { Event, Stowage } from "../../client/stowage.ts";
import { onEvent } from "../live.ts";
import { EVENT_TYPES, EVENT_WORDS, type EventType } from "../parts/event-types.ts";
import { Failure } from "../parts/failure.tsx";
import { SelectField } from "../parts/form.tsx";
import { useListing, useLoaded } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Time } from "../parts/values.tsx";
import { href, navigate, query } from "../router.ts";
import { client } from "../session.ts";

type Names = Map<string, string>;

/** Names of keys and users, for the latest of each: events themselves hold ids alone. */
async function loadNames({ keys, users }: Stowage, signal: AbortSignal): Promise<Names> {
  const [firstKeys, firstUsers] = await Promise.all([
    keys.list({}, { signal }).page(),
    users.list({ limit: 100 }, { signal }).page(),
  ]);
  return new Map([
    ...firstKeys.items.map(({ id, name }) => [id, name] as const),
    ...firstUsers.items.map(({ _id, email }) => [_id, email] as const),
  ]);
}

/** What happened in the team, newest first. What is new appears on top by itself. */
export function Events() {
  const type = (query.value.get("type") || undefined) as EventType | undefined;
  const events = useListing((signal) => client.value.events.list({ type }, { signal }), [type]);
  const names = useLoaded((signal) => loadNames(client.value, signal), []);
  useEffect(
    () =>
      onEvent((event) => {
        if (!type || event.type === type)
          events.change((items) => (items.some(({ _id }) => _id === event._id) ? items : [event, ...items]));
        if (event.type === "apikey.created" || event.type === "user.created") names.reload();
      }),
    [type, events.change, names.reload],
  );
  return (
    <Page title="Events">
      <form class="filters">
        <SelectField
          label="Type"
          name="type"
          value={type ?? ""}
          onChange={(chosen) => navigate(href("/events", { type: chosen }), { replace: true })}
        >
          <option value="">All</option>
          {EVENT_TYPES.map((one) => (
            <option key={one} value={one}>
              {EVENT_WORDS[one]}
            </option>
          ))}
        </SelectField>
      </form>
      <Failure error={events.error} onRetry={events.reload} />
      {events.items?.length === 0 && (
        <Empty title={type ? "No such event" : "No events"}>
          <p>What happens in the team from now on appears here by itself, and is kept for some weeks.</p>
        </Empty>
      )}
      {events.items && events.items.length > 0 && (
        <table class="table">
          <thead>
            <tr>
              <th scope="col">What</th>
              <th scope="col">Of what</th>
              <th scope="col">By whom</th>
              <th scope="col">When</th>
              <th scope="col">
                <span class="visually-hidden">Details</span>
              </th>
            </tr>
          </thead>
          <tbody>
            {events.items.map((event) => (
              <Row key={event._id} event={event} names={names.value ?? new Map()} />
            ))}
          </tbody>
        </table>
      )}
      <More of={events} />
    </Page>
  );
}

function Row({ event, names }: { event: Event; names: Names }) {
  const [isOpen, setOpen] = useState(false);
  const { _id, type, createdAt, actor } = event;
  const detailsId = `details-${_id}`;
  return (
    <>
      <tr>
        <th scope="row">{EVENT_WORDS[type] ?? type}</th>
        <td data-label="Of what">
          <Subject event={event} names={names} />
        </td>
        <td data-label="By whom">
          <Actor actor={actor} names={names} />
        </td>
        <td data-label="When">
          <Time at={createdAt} />
        </td>
        <td class="number">
          <button
            type="button"
            class="button small"
            aria-expanded={isOpen}
            aria-controls={isOpen ? detailsId : undefined}
            aria-label={`Details of ${EVENT_WORDS[type] ?? type}`}
            onClick={() => setOpen(!isOpen)}
          >
            Details
          </button>
        </td>
      </tr>
      {isOpen && (
        <tr id={detailsId}>
          <td colSpan={5}>
            <pre class="json">{JSON.stringify(event, null, 2)}</pre>
          </td>
        </tr>
      )}
    </>
  );
}

/** The thing that it happened to, with a link where the console has a page of it. */
function Subject({ event: { type, subject, data }, names }: { event: Event; names: Names }) {
  const name = String(data.originalName ?? names.get(subject.id) ?? subject.id);
  const hasPage = (subject.kind === "file" || subject.kind === "webhook") && !type.endsWith(".deleted");
  return hasPage ? <a href={href(`/${subject.kind}s/${subject.id}`)}>{name}</a> : <>{name}</>;
}

function Actor({ actor: { kind, keyId, userId }, names }: { actor: Event["actor"]; names: Names }) {
  if (kind === "system") return <>Stowage</>;
  if (kind === "operator") return <>The operator</>;
  if (userId) return <>{names.get(userId) ?? `User ${userId}`}</>;
  return <>{(keyId && names.get(keyId)) ?? `Key ${keyId}`}</>;
}
