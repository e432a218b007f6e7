import { useState } from "preact/hooks";
import type { ApiKey } from "../../client/stowage.ts";
import { leave } from "../leaving.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst, TaskDialog } from "../parts/dialog.tsx";
import { Failure } from "../parts/failure.tsx";
import { FilterForm, SelectField, TextField, textOf } from "../parts/form.tsx";
import { mask } from "../parts/format.ts";
import { useEvents, useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { href, linkedTeam, navigate, query } from "../router.ts";
import { client, session } from "../session.ts";

const DAY_MILLISECONDS = 86_400_000;
/** In days. The API allows at most ten years. */
const LIFETIMES_DAYS = { "1 day": 1, "30 days": 30, "90 days": 90, "1 year": 365, "10 years": 3650 };

/** The team's keys. The operator sees the keys of all teams, or of the team in the URL. */
export function Keys() {
  const isOperator = session.value?.team === null;
  const teamId = (isOperator && query.value.get("team")) || undefined;
  const keys = useListing((signal) => client.value.keys.list({ teamId }, { signal }), [teamId]);
  const [isCreating, setCreating] = useState(false);
  useEvents(({ subject }) => subject.kind === "apikey", keys.reload);
  const create = (
    <button type="button" class="button primary" onClick={() => setCreating(true)}>
      Create key
    </button>
  );
  return (
    <Page title="Keys" actions={create} call={{ path: "/auth/v1/apikeys", query: { teamId } }}>
      {isOperator && (
        <FilterForm
          values={[teamId]}
          onFilter={(form) => navigate(href("/keys", { team: textOf(form, "team") }), { replace: true })}
        >
          <TextField label="Team ID" name="team" type="search" defaultValue={teamId ?? ""} spellcheck={false} />
          <button type="submit" class="button">
            Filter
          </button>
          {teamId && <a href={href("/keys")}>Clear filter</a>}
        </FilterForm>
      )}
      <Failure error={keys.error} onRetry={keys.reload} />
      {keys.items?.length === 0 && (
        <Empty title="No keys">
          <p>Secret keys have full access to your team. Public keys can only upload and are safe in browser code.</p>
          {create}
        </Empty>
      )}
      {keys.items && keys.items.length > 0 && (
        <Table
          columns={["Name", "Type", "Key", ...(isOperator ? ["Team"] : []), "Created", "Expires"]}
          buttons="Actions"
        >
          {keys.items.map((key) => (
            <Row key={key.id} apiKey={key} isOperator={isOperator} onRevoked={keys.reload} />
          ))}
        </Table>
      )}
      <More of={keys} />
      {isCreating && (
        <NewKey teamId={teamId} isOperator={isOperator} onCreated={keys.reload} onClose={() => setCreating(false)} />
      )}
    </Page>
  );
}

function Row({ apiKey, isOperator, onRevoked }: { apiKey: ApiKey; isOperator: boolean; onRevoked: () => void }) {
  const { id, name, key, isPublic, teamId, createdAt, expiresAt } = apiKey;
  const isOwn = session.value?.team?.keyId === id;
  const isExpired = Date.parse(expiresAt) <= Date.now();
  const labels = { title: `Revoke “${name}”?`, action: "Revoke key" };
  const revoke = () => {
    if (isOwn)
      return leave({
        ...labels,
        text: "You're signed in with this key. Revoking it signs you out and cancels its unfinished uploads.",
      });
    confirmFirst({
      ...labels,
      text: "Apps using this key stop working immediately, and its unfinished uploads are canceled. This can't be undone.",
      onConfirm: async () => {
        await client.value.keys.delete(id);
        announce(`Revoked “${name}”`);
        onRevoked();
      },
    });
  };
  return (
    <tr>
      <th scope="row">
        <bdi>{name}</bdi> {isOwn && <span class="badge good">This session</span>}
      </th>
      <td data-label="Type">{isPublic ? "Public" : "Secret"}</td>
      <td data-label="Key">
        <code>{mask(key)}</code>
      </td>
      {isOperator && (
        <td data-label="Team ID">
          <a href={href("/keys", { team: teamId })}>
            <code>{teamId}</code>
          </a>
        </td>
      )}
      <td data-label="Created">
        <Time at={createdAt} />
      </td>
      <td data-label="Expires">{isExpired ? <span class="badge bad">Expired</span> : <Time at={expiresAt} />}</td>
      <td class="number">
        <button type="button" class="button small danger" onClick={revoke} aria-label={`Revoke ${name}`}>
          Revoke
        </button>
      </td>
    </tr>
  );
}

interface NewKeyProps {
  teamId: string | undefined;
  isOperator: boolean;
  onCreated: () => void;
  onClose: () => void;
}

function NewKey({ teamId, isOperator, onCreated, onClose }: NewKeyProps) {
  const [created, setCreatedKey] = useState<ApiKey | null>(null);
  // A malicious link could make the operator create a key for the wrong team.
  const isLinked = teamId !== undefined && teamId === linkedTeam;
  const create = async (form: HTMLFormElement) => {
    const days = Number(textOf(form, "expiresAt"));
    const chosenTeam = isOperator ? textOf(form, "teamId") || undefined : undefined;
    const key = await client.value.keys.create({
      name: textOf(form, "name"),
      isPublic: textOf(form, "type") === "public",
      // One minute less, because clocks differ and ten years are the limit.
      expiresAt: new Date(Date.now() + days * DAY_MILLISECONDS - 60_000).toISOString(),
      teamId: chosenTeam,
    });
    setCreatedKey(key);
    onCreated();
  };
  if (created) {
    return (
      <Secret title={`Key “${created.name}”`} noun="key" secret={created.key} onClose={onClose}>
        {isOperator && (
          <p>
            Team ID: <code>{created.teamId}</code>
          </p>
        )}
      </Secret>
    );
  }
  return (
    <TaskDialog title="Create key" action="Create key" onRun={create} onClose={onClose}>
      <TextField label="Name" name="name" required maxLength={100} hint="For example, “Web player”" />
      <SelectField label="Type" name="type">
        <option value="secret">Secret: full access. Keep it on your server.</option>
        <option value="public">Public: upload only. Safe to use in a browser.</option>
      </SelectField>
      <SelectField label="Expires in" name="expiresAt">
        {Object.entries(LIFETIMES_DAYS).map(([label, days]) => (
          <option key={label} value={days} selected={days === 365}>
            {label}
          </option>
        ))}
      </SelectField>
      {isOperator && (
        <TextField
          label="Team ID"
          name="teamId"
          defaultValue={isLinked ? "" : teamId}
          spellcheck={false}
          hint={
            isLinked
              ? `Leave blank to create a new team. You followed a link for team ${teamId}. Make sure it's the right one.`
              : "Leave blank to create a new team."
          }
        />
      )}
    </TaskDialog>
  );
}
