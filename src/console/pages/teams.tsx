import { useState } from "preact/hooks";
import type { ApiKey, Team } from "../../client/stowage.ts";
import { announce } from "../parts/announce.tsx";
import { confirmFirst, TaskDialog } from "../parts/dialog.tsx";
import { Failure } from "../parts/failure.tsx";
import { FilterForm, SelectField, TextField, textOf } from "../parts/form.tsx";
import { formatBytes, formatCount } from "../parts/format.ts";
import { useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Secret } from "../parts/secret.tsx";
import { Table } from "../parts/table.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { href, navigate, query } from "../router.ts";
import { client } from "../session.ts";
import { UserError } from "../user-error.ts";

const GIGABYTE = 1_000_000_000;
const STATUSES: Record<Team["status"], { label: string; badge: string }> = {
  active: { label: "Active", badge: "good" },
  suspended: { label: "Suspended", badge: "busy" },
  deleting: { label: "Deleting", badge: "bad" },
};
type Status = keyof typeof STATUSES;

/** The teams of the service, for the operator. */
export function Teams() {
  const name = query.value.get("name") || undefined;
  const status = (query.value.get("status") as Status | null) || undefined;
  const teams = useListing((signal) => client.value.teams.list({ name, status }, { signal }), [name, status]);
  /** The team in the dialog: null for a new one, undefined if the dialog is closed. */
  const [edited, setEdited] = useState<Team | null | undefined>();
  const [created, setCreated] = useState<ApiKey | null>(null);
  const filter = (filters: Record<string, string | undefined>) =>
    navigate(href("/teams", { name, status, ...filters }), { replace: true });
  const create = (
    <button type="button" class="button primary" onClick={() => setEdited(null)}>
      Create team
    </button>
  );
  return (
    <Page title="Teams" actions={create} call={{ path: "/auth/v1/teams", query: { name, status } }}>
      <FilterForm values={[name, status]} onFilter={(form) => filter({ name: textOf(form, "name") })}>
        <TextField label="Name starts with" name="name" type="search" defaultValue={name ?? ""} />
        <SelectField
          label="Status"
          name="status"
          value={status ?? ""}
          onChange={(chosen) => filter({ status: chosen })}
        >
          <option value="">All statuses</option>
          {Object.entries(STATUSES).map(([value, { label }]) => (
            <option key={value} value={value}>
              {label}
            </option>
          ))}
        </SelectField>
        <button type="submit" class="button">
          Filter
        </button>
        {(name || status) && <a href={href("/teams")}>Clear filters</a>}
      </FilterForm>
      <Failure error={teams.error} onRetry={teams.reload} />
      {teams.items?.length === 0 && (
        <Empty title={name || status ? "No matching teams" : "No teams yet"}>
          <p>A team has its own files, users, and keys. Its first key is created with it.</p>
        </Empty>
      )}
      {teams.items && teams.items.length > 0 && (
        <Table columns={["Name", "Status", "Storage", "Files", "Created"]} buttons="Actions">
          {teams.items.map((team) => (
            <Row key={team._id} team={team} onEdit={() => setEdited(team)} onChanged={teams.reload} />
          ))}
        </Table>
      )}
      <More of={teams} />
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

const ofLimit = (used: number, limit: number | null, format: (value: number) => string) =>
  limit === null ? format(used) : `${format(used)} of ${format(limit)}`;

function Row({ team, onEdit, onChanged }: { team: Team; onEdit: () => void; onChanged: () => void }) {
  const { _id, name, status, maxBytes, maxFiles, usage, createdAt } = team;
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
  const actions = { [isSuspended ? "Resume" : "Suspend"]: toggle, Delete: remove };
  return (
    <tr>
      <th scope="row">
        <a href={href("/keys", { team: _id })}>
          <bdi>{name}</bdi>
        </a>
      </th>
      <td data-label="Status">
        <span class={`badge ${STATUSES[status].badge}`}>{STATUSES[status].label}</span>
      </td>
      <td data-label="Storage">{ofLimit(usage.bytes, maxBytes, formatBytes)}</td>
      <td data-label="Files">{ofLimit(usage.files, maxFiles, formatCount)}</td>
      <td data-label="Created">
        <Time at={createdAt} />
      </td>
      <td class="number">
        {status !== "deleting" && (
          <div class="actions">
            <button type="button" class="button small" onClick={onEdit} aria-label={`Edit ${name}`}>
              Edit
            </button>
            {Object.entries(actions).map(([label, act]) => (
              <button
                key={label}
                type="button"
                class={`button small ${label === "Resume" ? "" : "danger"}`}
                onClick={act}
                aria-label={`${label} ${name}`}
              >
                {label}
              </button>
            ))}
          </div>
        )}
      </td>
    </tr>
  );
}

interface TeamFormProps {
  team: Team | null;
  /** Called with the first key of a new team, or null. */
  onSaved: (apiKey: ApiKey | null) => void;
  onClose: () => void;
}

function TeamForm({ team, onSaved, onClose }: TeamFormProps) {
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
    <TaskDialog
      title={team ? "Edit team" : "Create team"}
      action={team ? "Save" : "Create team"}
      onRun={save}
      onClose={onClose}
    >
      <TextField label="Name" name="name" required maxLength={100} defaultValue={team?.name ?? ""} />
      <TextField
        label="Storage limit in GB"
        name="maxBytes"
        type="number"
        min={0}
        step="any"
        defaultValue={team?.maxBytes == null ? "" : String(team.maxBytes / GIGABYTE)}
        hint="Leave blank for the limit of the service."
      />
      <TextField
        label="File limit"
        name="maxFiles"
        type="number"
        min={0}
        defaultValue={team?.maxFiles == null ? "" : String(team.maxFiles)}
        hint="Leave blank for the limit of the service."
      />
    </TaskDialog>
  );
}
