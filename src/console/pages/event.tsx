import { EventDetails, Sentence, titleOf, useNames } from "../parts/event.tsx";
import { FactCard } from "../parts/facts.tsx";
import { Breadcrumbs, Page } from "../parts/page.tsx";
import { Unloaded } from "../parts/unloaded.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { client } from "../session.ts";
import { useData } from "../store.ts";

export function EventPage({ id }: { id: string }) {
  const loaded = useData(`event ${id}`, (signal) => client.value.events.get(id, {}, { signal }));
  useNames();
  const event = loaded.value;
  if (!event) return <Unloaded noun="Event" of={loaded} back={<a href={href("/events")}>Back to events</a>} />;
  const { type, subject, createdAt } = event;
  return (
    <Page
      title={titleOf(event)}
      subtitle={<Sentence event={event} />}
      back={<Breadcrumbs links={[{ href: href("/events"), label: "Events" }]} />}
      call={{ path: `/auth/v1/events/${id}` }}
      actions={
        <>
          <a class="button" href={href("/events", { before: id })}>
            ← Older
          </a>
          <a class="button" href={href("/events", { after: id })}>
            Newer →
          </a>
        </>
      }
    >
      <FactCard
        title="Details"
        facts={{
          "Resource ID": <Copyable text={subject.id} label="resource ID" />,
          Time: <Time at={createdAt} />,
          Type: <code>{type}</code>,
        }}
      />
      <EventDetails event={event} />
    </Page>
  );
}
