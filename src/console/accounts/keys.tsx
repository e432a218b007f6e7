import type { ApiKey } from "../../client/index.ts";
import { useKeys } from "../data.ts";
import { NameOf } from "../events/names.tsx";
import { ActionButton, type Actions } from "../framework/action.tsx";
import { removeRecord } from "../framework/dialog.tsx";
import { query } from "../framework/router.ts";
import type { PageProps } from "../framework/script.tsx";
import { client, session } from "../framework/session.ts";
import { MissingScopes, scopeLabel } from "../parts/access.tsx";
import { Filters, SearchField } from "../parts/filters.tsx";
import { mask } from "../parts/format.ts";
import { ListTable } from "../parts/list-page.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { type Column, Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { isSoon, leftOf } from "./key-expiry.ts";
import { accessOf, createKey, editKey, rotateKey } from "./key-forms.tsx";
import { showSessions } from "./sessions.tsx";

/** The team's keys. The operator sees those of the team in the URL. */
export function Keys({ create }: PageProps) {
  const isOperator = session.value?.team === null;
  const teamId = (isOperator && query.value.get("team")) || undefined;
  return (
    <Page
      title="Keys"
      actions={create && <ActionButton action={{ ...create, run: () => createKey(teamId) }} class="primary" />}
    >
      <MissingScopes scopes={["keys:write"]} />
      {isOperator && <Filters names={["team"]} search={<SearchField name="team" label="Team ID" />} />}
      {isOperator && !teamId ? (
        <Empty title="Choose a team">
          <p>Enter a team ID to see its keys, or open the team.</p>
        </Empty>
      ) : (
        <KeyList teamId={teamId} />
      )}
    </Page>
  );
}

const revoke = ({ id, name }: ApiKey) =>
  removeRecord({
    id,
    title: `Revoke “${name}”?`,
    text: "Apps and sessions using this key stop working immediately, and their unfinished uploads are canceled. This can't be undone.",
    action: "Revoke key",
    run: () => client.value.keys.delete(id),
    done: `Revoked “${name}”`,
  });

const actionsOf = (key: ApiKey): Actions => [
  { label: "Edit", icon: "edit", scope: "keys:write", run: () => editKey(key) },
  { label: "Rotate", icon: "refresh", scope: "keys:write", run: () => rotateKey(key) },
  // The operator has no list of the sessions of a team.
  session.peek()?.team !== null &&
    !key.isPublic && {
      label: "Sessions",
      icon: "users",
      scope: "keys:read",
      run: () => showSessions({ id: key.id, name: key.name }),
    },
  { label: "Revoke", icon: "trash", scope: "keys:write", isDangerous: true, run: () => revoke(key) },
];

/** The keys of a team, those that expire soon last, and the expired ones folded. */
export function KeyList({ teamId }: { teamId: string | undefined }) {
  const keys = useKeys(teamId);
  const table = {
    keyOf: ({ id }: ApiKey) => id,
    nameOf: ({ name }: ApiKey) => name,
    columns: columnsFor(session.value?.team === null),
    actions: actionsOf,
  };
  const live = keys.items?.filter((key) => leftOf(key) > 0);
  const expired = keys.items?.filter((key) => leftOf(key) <= 0) ?? [];
  return (
    <>
      <ListTable
        of={{ ...keys, items: live?.sort((a, b) => Number(isSoon(a)) - Number(isSoon(b))) }}
        empty={
          <Empty title="No keys">
            <p>Secret keys act for your team. Public keys can only upload and are safe in browser code.</p>
          </Empty>
        }
        label="Keys"
        {...table}
      />
      {expired.length > 0 && (
        <details>
          <summary>Expired ({expired.length})</summary>
          <Table rows={expired} label="Expired keys" {...table} />
        </details>
      )}
    </>
  );
}

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
    card: "hidden",
    cell: ({ lastUsedAt }) => (lastUsedAt ? <Time at={lastUsedAt} isRelative /> : "Never"),
  },
  {
    id: "expires",
    label: "Expires",
    width: "minmax(6.5rem, 1.1fr)",
    cell: (key) => (
      <span class={isSoon(key) && leftOf(key) > 0 ? "soon" : ""}>
        <Time at={key.expiresAt} isRelative />
      </span>
    ),
  },
];
