import { Actor, EventDetails, Subject, useNames } from "../parts/event.tsx";
import { EVENT_WORDS } from "../parts/event-types.ts";
import { FactList } from "../parts/facts.tsx";
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
  if (!event) return <Unloaded what="Event" of={loaded} back={<a href={href("/events")}>All events</a>} />;
  const { type, createdAt } = event;
  return (
    <Page title={EVENT_WORDS[type] ?? type}>
      <p class="actions">
        <a href={href("/events", { after: id })}>Later events</a>
        <a href={href("/events", { before: id })}>Earlier events</a>
      </p>
      <FactList
        title="What happened"
        facts={{
          "Of what": <Subject event={event} />,
          "By whom": <Actor event={event} />,
          When: <Time at={createdAt} />,
          Type: <code>{type}</code>,
        }}
      />
      <EventDetails event={event} />
    </Page>
  );
}
