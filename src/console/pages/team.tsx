import { useState } from "preact/hooks";
import { Sentence } from "../parts/event.tsx";
import { FactCard } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { formatBytes, formatCount } from "../parts/format.ts";
import { Menu } from "../parts/menu.tsx";
import { More } from "../parts/more.tsx";
import { Breadcrumbs, Page } from "../parts/page.tsx";
import { isMissing, Unloaded } from "../parts/unloaded.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { client } from "../session.ts";
import { useData, useList } from "../store.ts";
import { KeyList } from "./keys.tsx";
import { TeamForm, TeamStatus, teamActions, Used } from "./teams.tsx";

const LATEST_EVENTS = 20;

/** A team with its usage, keys, and latest events, for the operator. */
export function TeamPage({ id }: { id: string }) {
  const loaded = useData(`team ${id}`, (signal) => client.value.teams.get(id, { signal }));
  const { value: team, error, reload } = loaded;
  const [dialog, setDialog] = useState<"edit" | "key" | null>(null);
  if (!team || isMissing(error))
    return <Unloaded noun="Team" of={loaded} back={<a href={href("/teams")}>Back to teams</a>} />;
  const { name, status, usage, maxBytes, maxFiles, database, createdAt } = team;
  return (
    <Page
      title={name}
      back={<Breadcrumbs links={[{ href: href("/teams"), label: "Teams" }]} />}
      call={{ path: `/auth/v1/teams/${id}` }}
      actions={
        status !== "deleting" && (
          <>
            <Menu label={`Actions for ${name}`} items={teamActions(team, reload)} />
            <button type="button" class="button" onClick={() => setDialog("edit")}>
              Edit
            </button>
            <button type="button" class="button primary" onClick={() => setDialog("key")}>
              Create key
            </button>
          </>
        )
      }
    >
      <Failure error={error} onRetry={reload} />
      <FactCard
        title="Team"
        facts={{
          Status: <TeamStatus status={status} />,
          Storage: <Used used={usage.bytes} limit={maxBytes} format={formatBytes} />,
          Files: <Used used={usage.files} limit={maxFiles} format={formatCount} />,
          Database: String(database),
          "Team ID": <Copyable text={id} label="team ID" />,
          Created: <Time at={createdAt} />,
        }}
      />
      <h2>Keys</h2>
      <KeyList teamId={id} isCreating={dialog === "key"} onCreate={() => setDialog(null)} />
      <TeamEvents teamId={id} />
      {dialog === "edit" && (
        <TeamForm
          team={team}
          onSaved={() => {
            setDialog(null);
            reload();
          }}
          onClose={() => setDialog(null)}
        />
      )}
    </Page>
  );
}

function TeamEvents({ teamId }: { teamId: string }) {
  const events = useList(`team-events ${teamId}`, (signal) =>
    client.value.events.list({ teamId, limit: LATEST_EVENTS }, { signal }),
  );
  return (
    <>
      <h2>Events</h2>
      <Failure error={events.error} onRetry={events.reload} />
      <ul class="activity card">
        {events.items?.map((event) => (
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
