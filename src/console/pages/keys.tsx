import { useEffect, useState } from "preact/hooks";
import type { ApiKey } from "../../client/stowage.ts";
import { leave } from "../leaving.tsx";
import { onEvent } from "../live.ts";
import { announce } from "../parts/announce.tsx";
import { askFirst, TaskDialog } from "../parts/dialog.tsx";
import { Failure } from "../parts/failure.tsx";
import { FilterForm, SelectField, TextField, textOf } from "../parts/form.tsx";
import { useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { Table } from "../parts/table.tsx";
import { mask, Time } from "../parts/values.tsx";
import { href, linkedTeam, navigate, query } from "../router.ts";
import { client, session } from "../session.ts";

const DAY_MILLISECONDS = 86_400_000;
/** In days. A key lives for ten years at most. */
const LIVES = { "1 day": 1, "30 days": 30, "90 days": 90, "1 year": 365, "10 years": 3650 };

/** The team's keys; for the operator those of all teams, or of the one that the address names. */
export function Keys() {
  const isOperator = session.value?.team === null;
  const teamId = (isOperator && query.value.get("team")) || undefined;
  const keys = useListing((signal) => client.value.keys.list({ teamId }, { signal }), [teamId]);
  const [isMaking, setMaking] = useState(false);
  useEffect(() => onEvent(({ subject }) => subject.kind === "apikey" && keys.reload()), [keys.reload]);
  return (
    <Page
      title="Keys"
      actions={
        <button type="button" class="button primary" onClick={() => setMaking(true)}>
          Create key
        </button>
      }
    >
      {isOperator && (
        <FilterForm
          values={[teamId]}
          onFilter={(form) => navigate(href("/keys", { team: textOf(form, "team") }), { replace: true })}
        >
          <TextField label="Team" name="team" type="search" defaultValue={teamId ?? ""} spellcheck={false} />
          <button type="submit" class="button">
            Show its keys
          </button>
          {teamId && <a href={href("/keys")}>All teams</a>}
        </FilterForm>
      )}
      <Failure error={keys.error} onRetry={keys.reload} />
      {keys.items?.length === 0 && (
        <Empty title="No keys">
          <p>A secret key acts for its team; a public one may ship in a web page, and only uploads.</p>
        </Empty>
      )}
      {keys.items && keys.items.length > 0 && (
        <Table columns={["Name", "Kind", "Key", ...(isOperator ? ["Team"] : []), "Created", "Ends"]} buttons="Actions">
          {keys.items.map((key) => (
            <Row key={key.id} apiKey={key} isOperator={isOperator} onRevoked={keys.reload} />
          ))}
        </Table>
      )}
      <More of={keys} />
      {isMaking && (
        <NewKey teamId={teamId} isOperator={isOperator} onMade={keys.reload} onClose={() => setMaking(false)} />
      )}
    </Page>
  );
}

function Row({ apiKey, isOperator, onRevoked }: { apiKey: ApiKey; isOperator: boolean; onRevoked: () => void }) {
  const { id, name, key, isPublic, teamId, createdAt, expiresAt } = apiKey;
  const isOurs = session.value?.team?.keyId === id;
  const hasEnded = Date.parse(expiresAt) <= Date.now();
  const asked = { title: `Revoke “${name}”?`, action: "Revoke key" };
  const revoke = () => {
    if (isOurs) return leave({ ...asked, text: "This console uses this key: you will be signed out." });
    askFirst({
      ...asked,
      text: "Whoever uses it is refused from the next request on. It can't be brought back.",
      onConfirm: async () => {
        await client.value.keys.delete(id);
        announce(`Revoked “${name}”.`);
        onRevoked();
      },
    });
  };
  return (
    <tr>
      <th scope="row">
        <bdi>{name}</bdi> {isOurs && <span class="badge good">This console</span>}
      </th>
      <td data-label="Kind">{isPublic ? "Public" : "Secret"}</td>
      <td data-label="Key">
        <code>{mask(key)}</code>
      </td>
      {isOperator && (
        <td data-label="Team">
          <a href={href("/keys", { team: teamId })}>
            <code>{teamId}</code>
          </a>
        </td>
      )}
      <td data-label="Created">
        <Time at={createdAt} />
      </td>
      <td data-label="Ends">{hasEnded ? <span class="badge bad">Ended</span> : <Time at={expiresAt} />}</td>
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
  onMade: () => void;
  onClose: () => void;
}

function NewKey({ teamId, isOperator, onMade, onClose }: NewKeyProps) {
  const [made, setMade] = useState<ApiKey | null>(null);
  // A key for another's team, handed out by mistake, is what such a link may be after.
  const isLinked = teamId !== undefined && teamId === linkedTeam;
  const make = async (form: HTMLFormElement) => {
    const days = Number(textOf(form, "expiresAt"));
    const named = isOperator ? textOf(form, "teamId") || undefined : undefined;
    const key = await client.value.keys.create({
      name: textOf(form, "name"),
      isPublic: textOf(form, "kind") === "public",
      // A minute less: ten years are the limit, and clocks differ.
      expiresAt: new Date(Date.now() + days * DAY_MILLISECONDS - 60_000).toISOString(),
      teamId: named,
    });
    setMade(key);
    onMade();
  };
  if (made) {
    return (
      <Secret title={`Key “${made.name}”`} what="key" secret={made.key} onClose={onClose}>
        {isOperator && (
          <p>
            Its team is <code>{made.teamId}</code>
          </p>
        )}
      </Secret>
    );
  }
  return (
    <TaskDialog title="Create key" action="Create key" onRun={make} onClose={onClose}>
      <TextField label="Name" name="name" required maxLength={100} hint="What it is for, such as “Web player”." />
      <SelectField label="Kind" name="kind">
        <option value="secret">Secret: acts for the team</option>
        <option value="public">Public: only uploads</option>
      </SelectField>
      <SelectField label="Ends after" name="expiresAt">
        {Object.entries(LIVES).map(([label, days]) => (
          <option key={label} value={days} selected={days === 365}>
            {label}
          </option>
        ))}
      </SelectField>
      {isOperator && (
        <TextField
          label="Team"
          name="teamId"
          defaultValue={isLinked ? "" : teamId}
          spellcheck={false}
          hint={
            isLinked
              ? `Empty to found a new one. A link brought you to ${teamId}: is it the one?`
              : "Empty to found a new one."
          }
        />
      )}
    </TaskDialog>
  );
}
