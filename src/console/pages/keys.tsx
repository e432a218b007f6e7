import { useState } from "preact/hooks";
import type { ApiKey } from "../../client/stowage.ts";
import { MissingScopes, scopeLabel } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { Filters, SearchField } from "../parts/filters.tsx";
import { mask } from "../parts/format.ts";
import { ListTable } from "../parts/list-table.tsx";
import { Menu } from "../parts/menu.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { query } from "../router.ts";
import { can, client, session } from "../session.ts";
import { useAskedForm } from "../shortcuts.ts";
import { useList } from "../store.ts";
import { accessOf, EditKey, NewKey, RotateKey } from "./key-forms.tsx";

const SOON_MILLISECONDS = 7 * 86_400_000;

/** The team's keys. The operator sees those of the team in the URL. */
export function Keys() {
  const isOperator = session.value?.team === null;
  const teamId = (isOperator && query.value.get("team")) || undefined;
  const [isCreating, setCreating] = useState(false);
  useAskedForm("key", () => setCreating(true));
  const create = can("keys:write") && (
    <button type="button" class="button primary" onClick={() => setCreating(true)}>
      Create key
    </button>
  );
  return (
    <Page title="Keys" actions={create} call={{ path: "/auth/v1/apikeys", query: { teamId } }}>
      <MissingScopes scopes={["keys:write"]} />
      {isOperator && <Filters names={["team"]} search={<SearchField name="team" label="Team ID" />} />}
      {isOperator && !teamId ? (
        <>
          <Empty title="Choose a team">
            <p>Enter a team ID to see its keys, or open the team.</p>
          </Empty>
          {isCreating && (
            <NewKey
              teamId={undefined}
              isOperator={true}
              onCreated={() => undefined}
              onClose={() => setCreating(false)}
            />
          )}
        </>
      ) : (
        <KeyList teamId={teamId} isCreating={isCreating} onCreate={setCreating} />
      )}
    </Page>
  );
}

interface KeyListProps {
  teamId: string | undefined;
  isCreating: boolean;
  onCreate: (isCreating: boolean) => void;
}

/** The keys of a team with their actions, and the form for a new one. */
export function KeyList({ teamId, isCreating, onCreate }: KeyListProps) {
  const isOperator = session.value?.team === null;
  const keys = useList(`keys ${teamId}`, (signal) => client.value.keys.list({ teamId }, { signal }), {
    on: ({ subject }) => subject.kind === "apikey",
  });
  const [changed, setChanged] = useState<{ type: "edit" | "rotate"; apiKey: ApiKey } | null>(null);
  useNames();
  const columns = columnsFor(isOperator);
  const keyOf = ({ id }: ApiKey) => id;
  const live = keys.items?.filter((key) => leftOf(key) > 0);
  const expired = keys.items?.filter((key) => leftOf(key) <= 0) ?? [];
  const byEnd = live && [...live].sort((a, b) => Number(isSoon(a)) - Number(isSoon(b)));
  const close = () => {
    setChanged(null);
    onCreate(false);
  };
  const revoke = ({ id, name }: ApiKey) =>
    confirmFirst({
      title: `Revoke “${name}”?`,
      text: "Apps and sessions using this key stop working immediately, and their unfinished uploads are canceled. This can't be undone.",
      action: "Revoke key",
      onConfirm: async () => {
        await client.value.keys.delete(id);
        announce(`Revoked “${name}”`);
        keys.reload();
      },
    });
  const menu = (apiKey: ApiKey) =>
    can("keys:write") && (
      <Menu
        label={`Actions for ${apiKey.name}`}
        items={[
          { label: "Edit", icon: "edit", onSelect: () => setChanged({ type: "edit", apiKey }) },
          { label: "Rotate", icon: "refresh", onSelect: () => setChanged({ type: "rotate", apiKey }) },
          { label: "Revoke", icon: "trash", isDangerous: true, onSelect: () => revoke(apiKey) },
        ]}
      />
    );
  return (
    <>
      <ListTable
        of={{ ...keys, items: byEnd }}
        empty={
          <Empty title="No keys">
            <p>Secret keys act for your team. Public keys can only upload and are safe in browser code.</p>
          </Empty>
        }
        label="Keys"
        keyOf={keyOf}
        columns={columns}
        menu={menu}
      />
      {expired.length > 0 && (
        <details>
          <summary>Expired ({expired.length})</summary>
          <Table rows={expired} label="Expired keys" keyOf={keyOf} columns={columns} menu={menu} />
        </details>
      )}
      {isCreating && <NewKey teamId={teamId} isOperator={isOperator} onCreated={keys.reload} onClose={close} />}
      {changed?.type === "edit" && <EditKey apiKey={changed.apiKey} onChanged={keys.reload} onClose={close} />}
      {changed?.type === "rotate" && <RotateKey apiKey={changed.apiKey} onChanged={keys.reload} onClose={close} />}
    </>
  );
}

/** The milliseconds until a key expires. */
const leftOf = ({ expiresAt }: ApiKey) => Date.parse(expiresAt) - Date.now();
const isSoon = (key: ApiKey) => leftOf(key) < SOON_MILLISECONDS;

const columnsFor = (isOperator: boolean): Column<ApiKey>[] => [
  {
    id: "name",
    label: "Name",
    width: "minmax(0, 2.4fr)",
    cell: ({ name, key }) => (
      <div class="two-lines">
        <bdi title={name}>{name}</bdi>
        <span class="quiet wide-only">
          <code>{mask(key)}</code>
        </span>
      </div>
    ),
  },
  {
    id: "access",
    label: "Access",
    width: "minmax(0, 2.8fr)",
    card: "note",
    cell: (key) => (
      <span title={key.isPublic ? accessOf(key) : key.scopes.map(scopeLabel).join(", ")}>
        <span class={`badge ${key.isPublic ? "busy" : ""}`}>{key.isPublic ? "Public" : "Secret"}</span> {accessOf(key)}
      </span>
    ),
  },
  {
    id: "created",
    label: "Created",
    width: "minmax(0, 2.2fr)",
    card: "hidden",
    cell: ({ createdBy, createdAt }) => (
      <div class="two-lines">
        {isOperator ? null : createdBy ? <NameOf {...createdBy} isFirst /> : <bdi>Operator</bdi>}
        <span class="quiet">
          <Time at={createdAt} isRelative />
        </span>
      </div>
    ),
  },
  {
    id: "used",
    label: "Last used",
    width: "minmax(6.5rem, 1.1fr)",
    cell: ({ lastUsedAt }) => (lastUsedAt ? <Time at={lastUsedAt} isRelative /> : "Never"),
  },
  {
    id: "expires",
    label: "Expires",
    width: "minmax(6.5rem, 1.1fr)",
    card: "end",
    cell: (key) => (
      <span class={isSoon(key) && leftOf(key) > 0 ? "soon" : ""}>
        <span class="narrow-only">Expires </span>
        <Time at={key.expiresAt} isRelative />
      </span>
    ),
  },
];
