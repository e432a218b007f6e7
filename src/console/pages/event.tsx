import { Actor, EventDetails, Subject, useNames } from "../parts/event.tsx";
import { EVENT_LABELS } from "../parts/event-types.ts";
import { FactCard } from "../parts/facts.tsx";
import { useLoaded } from "../parts/loading.ts";
import { Page } from "../parts/page.tsx";
import { Unloaded } from "../parts/unloaded.tsx";
import { Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { client } from "../session.ts";

export function EventPage({ id }: { id: string }) {
  const loaded = useLoaded((signal) => client.value.events.get(id, { signal }), [id]);
  useNames();
  const event = loaded.value;
  if (!event) return <Unloaded noun="Event" of={loaded} back={<a href={href("/events")}>Back to events</a>} />;
  const { type, createdAt } = event;
  return (
    <Page title={EVENT_LABELS[type] ?? type} call={{ path: `/auth/v1/events/${id}` }}>
      <p class="actions">
        <a href={href("/events", { before: id })}>← Older</a>
        <a href={href("/events", { after: id })}>Newer →</a>
      </p>
      <FactCard
        title="Details"
        facts={{
          Resource: <Subject event={event} />,
          Actor: <Actor event={event} />,
          Time: <Time at={createdAt} />,
          Type: <code>{type}</code>,
        }}
      />
      <EventDetails event={event} />
    </Page>
  );
}
