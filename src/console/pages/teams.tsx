import { useState } from "preact/hooks";
import type { ApiKey, Team } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { confirmFirst, RecordDialog } from "../parts/dialog.tsx";
import { Choice, Filters, SearchField } from "../parts/filters.tsx";
import { TextField, textOf } from "../parts/form.tsx";
import { formatBytes, formatCount } from "../parts/format.ts";
import { ListTable } from "../parts/list-table.tsx";
import { Menu, type MenuItem } from "../parts/menu.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { href, query } from "../router.ts";
import { client } from "../session.ts";
import { useList } from "../store.ts";
import { UserError } from "../user-error.ts";

const GIGABYTE = 1_000_000_000;
const STATUSES: Record<Team["status"], { label: string; badge: string }> = {
  active: { label: "Active", badge: "good" },
  suspended: { label: "Suspended", badge: "busy" },
  deleting: { label: "Deleting", badge: "bad" },
};
type Status = keyof typeof STATUSES;

export const TeamStatus = ({ status }: Pick<Team, "status">) => (
  <span class={`badge ${STATUSES[status].badge}`}>{STATUSES[status].label}</span>
);

/** How much of a limit is used; the limit of the service applies to teams without their own. */
export const Used = ({
  used,
  limit,
  format,
}: {
  used: number;
  limit: number | null;
  format: (n: number) => string;
}) => (
  <span class="used">
    {limit === null ? format(used) : `${format(used)} of ${format(limit)}`}
    {limit !== null && <meter min={0} max={limit} high={limit * 0.9} value={used} aria-hidden="true" />}
  </span>
);

/** The teams of the service, for the operator. */
export function Teams() {
  const name = query.value.get("name") || undefined;
  const status = (query.value.get("status") as Status | null) || undefined;
  const teams = useList(`teams ${name} ${status}`, (signal) => client.value.teams.list({ name, status }, { signal }));
  /** The team in the dialog: null for a new one, undefined if the dialog is closed. */
  const [edited, setEdited] = useState<Team | null | undefined>();
  const [created, setCreated] = useState<ApiKey | null>(null);
  const create = (
    <button type="button" class="button primary" onClick={() => setEdited(null)}>
      Create team
    </button>
  );
  const isFirst = teams.items?.length === 0 && !name && !status;
  return (
    <Page
      title="Teams"
      actions={isFirst ? undefined : create}
      call={{ path: "/auth/v1/teams", query: { name, status } }}
    >
      <Filters names={["name", "status"]} search={<SearchField name="name" label="Name starts with" />}>
        <Choice
          name="status"
          label="Status"
          all="All statuses"
          options={Object.fromEntries(Object.entries(STATUSES).map(([value, { label }]) => [value, label]))}
        />
      </Filters>
      <ListTable
        of={teams}
        empty={
          <Empty title={isFirst ? "Create the first team" : "No matching teams"}>
            <p>A team has its own files, users, and keys. Its first key is created with it.</p>
            {isFirst && create}
          </Empty>
        }
        label="Teams"
        keyOf={({ _id }) => _id}
        columns={[
          {
            id: "name",
            label: "Name",
            width: "minmax(0, 3fr)",
            cell: ({ _id, name }) => (
              <a href={href(`/teams/${_id}`)} title={name}>
                <bdi>{name}</bdi>
              </a>
            ),
          },
          { id: "status", label: "Status", width: "minmax(0, 1.2fr)", cell: (team) => <TeamStatus {...team} /> },
          {
            id: "storage",
            label: "Storage",
            width: "minmax(0, 2fr)",
            cell: ({ usage, maxBytes }) => <Used used={usage.bytes} limit={maxBytes} format={formatBytes} />,
          },
          {
            id: "files",
            label: "Files",
            width: "minmax(0, 1.4fr)",
            cell: ({ usage, maxFiles }) => <Used used={usage.files} limit={maxFiles} format={formatCount} />,
          },
          {
            id: "created",
            label: "Created",
            width: "minmax(0, 1.2fr)",
            cell: ({ createdAt }) => <Time at={createdAt} isRelative />,
          },
        ]}
        menu={(team) =>
          team.status !== "deleting" && (
            <Menu
              label={`Actions for ${team.name}`}
              items={[
                { label: "Edit", icon: "edit", onSelect: () => setEdited(team) },
                ...teamActions(team, teams.reload),
              ]}
            />
          )
        }
      />
      {edited !== undefined && (
        <TeamForm
          team={edited}
          onSaved={(apiKey) => {
            setEdited(undefined);
            setCreated(apiKey);
            teams.reload();
          }}
          onClose={() => setEdited(undefined)}
        />
      )}
      {created && (
        <Secret
          title={`First key of “${created.name}”`}
          noun="key"
          secret={created.key}
          apiKey={created}
          onClose={() => setCreated(null)}
        >
          <p>
            Team ID: <Copyable text={created.teamId} label="team ID" />
          </p>
        </Secret>
      )}
    </Page>
  );
}

/** Suspends, resumes, or deletes a team, after a confirmation. */
export function teamActions({ _id, name, status }: Team, onChanged: () => void): MenuItem[] {
  const isSuspended = status === "suspended";
  const toggle = () =>
    confirmFirst({
      title: isSuspended ? `Resume “${name}”?` : `Suspend “${name}”?`,
      text: isSuspended
        ? "The team's keys, sessions, and links work again."
        : "The team's keys, sessions, and links stop working immediately, until you resume the team. Nothing is deleted.",
      action: isSuspended ? "Resume team" : "Suspend team",
      isDangerous: !isSuspended,
      onConfirm: async () => {
        await client.value.teams.update(_id, { status: isSuspended ? "active" : "suspended" });
        announce(isSuspended ? `Resumed “${name}”` : `Suspended “${name}”`);
        onChanged();
      },
    });
  const remove = () =>
    confirmFirst({
      title: `Delete “${name}”?`,
      text: (
        <>
          <p>Deletes the team's files, users, keys, webhooks, and events. This can't be undone.</p>
          <TextField label={`Enter “${name}” to confirm`} name="confirmation" required spellcheck={false} />
        </>
      ),
      action: "Delete team",
      onConfirm: async (form) => {
        if (textOf(form, "confirmation") !== name) throw new UserError("That isn't the name of the team.");
        await client.value.teams.delete(_id);
        announce(`Deleting “${name}”`);
        onChanged();
      },
    });
  return [
    { label: isSuspended ? "Resume" : "Suspend", onSelect: toggle },
    { label: "Delete", icon: "trash", isDangerous: true, onSelect: remove },
  ];
}

interface TeamFormProps {
  team: Team | null;
  /** Called with the first key of a new team, or null. */
  onSaved: (apiKey: ApiKey | null) => void;
  onClose: () => void;
}

export function TeamForm({ team, onSaved, onClose }: TeamFormProps) {
  const save = async (form: HTMLFormElement) => {
    const [name, gigabytes, files] = [textOf(form, "name"), textOf(form, "maxBytes"), textOf(form, "maxFiles")];
    const limits = {
      maxBytes: gigabytes === "" ? null : Math.round(Number(gigabytes) * GIGABYTE),
      maxFiles: files === "" ? null : Number(files),
    };
    if (team) await client.value.teams.update(team._id, { name, ...limits });
    const apiKey = team ? null : (await client.value.teams.create({ name, ...limits })).apiKey;
    if (team) announce("Team updated");
    onSaved(apiKey);
  };
  return (
    <RecordDialog noun="team" isNew={!team} onRun={save} onClose={onClose}>
      <TextField label="Name" name="name" required maxLength={100} defaultValue={team?.name ?? ""} />
      <TextField
        label="Storage limit in GB"
        name="maxBytes"
        type="number"
        min={0}
        step="any"
        defaultValue={team?.maxBytes == null ? "" : String(team.maxBytes / GIGABYTE)}
        hint="Leave blank for the default of the service."
      />
      <TextField
        label="File limit"
        name="maxFiles"
        type="number"
        min={0}
        defaultValue={team?.maxFiles == null ? "" : String(team.maxFiles)}
        hint="Leave blank for the default of the service."
      />
    </RecordDialog>
  );
}
