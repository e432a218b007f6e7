import { href } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useData } from "../framework/store.ts";
import { Copyable } from "../parts/copy.tsx";
import { FactCard } from "../parts/facts.tsx";
import { RecordPage } from "../parts/record-page.tsx";
import { Time } from "../parts/values.tsx";
import { EventDetails, Sentence, titleOf } from "./sentence.tsx";

export function EventPage({ id }: { id: string }) {
  const loaded = useData(["event", id], (signal) => client.value.events.get(id, {}, { signal }));
  return (
    <RecordPage
      noun="Event"
      list={{ href: href("/events"), label: "Events" }}
      of={loaded}
      titleOf={titleOf}
      subtitle={(event) => <Sentence event={event} />}
      links={
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
      {(event) => (
        <>
          <FactCard
            title="Details"
            facts={{
              "Resource ID": <Copyable text={event.subject.id} label="resource ID" />,
              Time: <Time at={event.createdAt} />,
              Type: <code>{event.type}</code>,
            }}
          />
          <EventDetails event={event} />
        </>
      )}
    </RecordPage>
  );
}
