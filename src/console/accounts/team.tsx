import { useTeam } from "../data.ts";
import { isRoutine, Sentence } from "../events/sentence.tsx";
import { href } from "../framework/router.ts";
import { client } from "../framework/session.ts";
import { useList } from "../framework/store.ts";
import { Copyable } from "../parts/copy.tsx";
import { FactCard } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { formatBytes, formatCount } from "../parts/format.ts";
import { More } from "../parts/more.tsx";
import { RecordPage } from "../parts/record-page.tsx";
import { Time } from "../parts/values.tsx";
import { createKey } from "./key-forms.tsx";
import { KeyList } from "./keys.tsx";
import { TeamStatus, teamActions, Used } from "./teams.tsx";

const LATEST_EVENTS = 20;

/** A team with its usage, keys, and latest events, for the operator. */
export function TeamPage({ id }: { id: string }) {
  const loaded = useTeam(id);
  return (
    <RecordPage
      noun="Team"
      list={{ href: href("/teams"), label: "Teams" }}
      of={loaded}
      titleOf={({ name }) => name}
      actions={teamActions}
      main={(team) => team.status !== "deleting" && { label: "Create key", run: () => createKey(id) }}
    >
      {({ status, usage, maxBytes, maxFiles, database, createdAt }) => (
        <>
          <FactCard
            title="Team"
            facts={{
              Status: <TeamStatus status={status} />,
              Storage: <Used used={usage.bytes} limit={maxBytes} format={formatBytes} />,
              Files: <Used used={usage.files} limit={maxFiles} format={formatCount} />,
              "Team ID": <Copyable text={id} label="team ID" />,
              Created: <Time at={createdAt} />,
              // In a service with one database, it says nothing.
              "Database number": database > 0 && String(database),
            }}
          />
          <h2>Keys</h2>
          <KeyList teamId={id} />
          <TeamEvents teamId={id} />
        </>
      )}
    </RecordPage>
  );
}

function TeamEvents({ teamId }: { teamId: string }) {
  const events = useList(["team-events", teamId], (signal) =>
    client.value.events.list({ teamId, limit: LATEST_EVENTS }, { signal }),
  );
  const shown = (events.items ?? []).filter((event) => !isRoutine(event));
  return (
    <>
      <h2>Events</h2>
      <Failure error={events.error} onRetry={events.reload} />
      <ul class="activity card">
        {shown.map((event) => (
          <li key={event._id}>
            <Sentence event={event} />{" "}
            <span class="quiet">
              · <Time at={event.createdAt} isRelative />
            </span>
          </li>
        ))}
      </ul>
      <More of={events} />
    </>
  );
}
