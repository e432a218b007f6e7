import { useState } from "preact/hooks";
import type { ApiKey } from "../../client/stowage.ts";
import { MissingScopes } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { Failure } from "../parts/failure.tsx";
import { FilterForm, TextField, textOf } from "../parts/form.tsx";
import { mask } from "../parts/format.ts";
import { useEvents, useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { href, navigate, query } from "../router.ts";
import { can, client, session } from "../session.ts";
import { accessOf, EditKey, NewKey, RotateKey } from "./key-forms.tsx";

type Dialog = { type: "create" } | { type: "edit" | "rotate"; apiKey: ApiKey };

/** The team's keys. The operator sees the keys of all teams, or of the team in the URL. */
export function Keys() {
  const isOperator = session.value?.team === null;
  const teamId = (isOperator && query.value.get("team")) || undefined;
  const keys = useListing((signal) => client.value.keys.list({ teamId }, { signal }), [teamId]);
  const [dialog, setDialog] = useState<Dialog | null>(null);
  const close = () => setDialog(null);
  useEvents(({ subject }) => subject.kind === "apikey", keys.reload);
  useNames();
  const create = can("keys:write") && (
    <button type="button" class="button primary" onClick={() => setDialog({ type: "create" })}>
      Create key
    </button>
  );
  return (
    <Page title="Keys" actions={create} call={{ path: "/auth/v1/apikeys", query: { teamId } }}>
      <MissingScopes scopes={["keys:write"]} />
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
          <p>Secret keys act for your team. Public keys can only upload and are safe in browser code.</p>
          {create}
        </Empty>
      )}
      {keys.items && keys.items.length > 0 && (
        <Table
          columns={[
            isOperator ? "Name and team" : "Name",
            "Access",
            "Key",
            ...(isOperator ? [] : ["Created by"]),
            "Last used",
            "Expires",
          ]}
          buttons="Actions"
        >
          {keys.items.map((key) => (
            <Row key={key.id} apiKey={key} isOperator={isOperator} onDialog={setDialog} onRevoked={keys.reload} />
          ))}
        </Table>
      )}
      <More of={keys} />
      {dialog?.type === "create" && (
        <NewKey teamId={teamId} isOperator={isOperator} onCreated={keys.reload} onClose={close} />
      )}
      {dialog?.type === "edit" && <EditKey apiKey={dialog.apiKey} onChanged={keys.reload} onClose={close} />}
      {dialog?.type === "rotate" && <RotateKey apiKey={dialog.apiKey} onChanged={keys.reload} onClose={close} />}
    </Page>
  );
}

interface RowProps {
  apiKey: ApiKey;
  isOperator: boolean;
  onDialog: (dialog: Dialog) => void;
  onRevoked: () => void;
}

function Row({ apiKey, isOperator, onDialog, onRevoked }: RowProps) {
  const { id, name, key, teamId, createdAt, createdBy, lastUsedAt, expiresAt } = apiKey;
  const isExpired = Date.parse(expiresAt) <= Date.now();
  const revoke = () =>
    confirmFirst({
      title: `Revoke “${name}”?`,
      text: "Apps and sessions using this key stop working immediately, and their unfinished uploads are canceled. This can't be undone.",
      action: "Revoke key",
      onConfirm: async () => {
        await client.value.keys.delete(id);
        announce(`Revoked “${name}”`);
        onRevoked();
      },
    });
  return (
    <tr>
      <th scope="row">
        <bdi>{name}</bdi>
        {isOperator && (
          <p class="quiet">
            <a href={href("/keys", { team: teamId })}>
              <code>{teamId}</code>
            </a>
          </p>
        )}
      </th>
      <td data-label="Access">{accessOf(apiKey)}</td>
      <td data-label="Key">
        <code>{mask(key)}</code>
      </td>
      {!isOperator && (
        <td data-label="Created by">
          <span>
            {createdBy ? <NameOf {...createdBy} /> : <bdi>Operator</bdi>} <Time at={createdAt} isRelative />
          </span>
        </td>
      )}
      <td data-label="Last used">{lastUsedAt ? <Time at={lastUsedAt} isRelative /> : "Never"}</td>
      <td data-label="Expires">
        {isExpired ? <span class="badge bad">Expired</span> : <Time at={expiresAt} isRelative />}
      </td>
      <td class="number">
        {can("keys:write") && (
          <div class="actions">
            {(["edit", "rotate"] as const).map((type) => (
              <button
                key={type}
                type="button"
                class="button small"
                onClick={() => onDialog({ type, apiKey })}
                aria-label={`${type === "edit" ? "Edit" : "Rotate"} ${name}`}
              >
                {type === "edit" ? "Edit" : "Rotate"}
              </button>
            ))}
            <button type="button" class="button small danger" onClick={revoke} aria-label={`Revoke ${name}`}>
              Revoke
            </button>
          </div>
        )}
      </td>
    </tr>
  );
}
