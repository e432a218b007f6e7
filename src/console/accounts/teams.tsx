import type { Team } from "../../client/index.ts";
import { type Action, ActionButton } from "../framework/action.tsx";
import { ask, confirm } from "../framework/dialog.tsx";
import { UserError } from "../framework/errors.ts";
import { href, query } from "../framework/router.ts";
import type { PageProps } from "../framework/script.tsx";
import { client } from "../framework/session.ts";
import { useList } from "../framework/store.ts";
import { Copyable } from "../parts/copy.tsx";
import { ChoiceFilter, Filters, SearchField } from "../parts/filters.tsx";
import { saveChanges, TextField, textOf } from "../parts/form.tsx";
import { formatBytes, formatCount } from "../parts/format.ts";
import { ListPage } from "../parts/list-page.tsx";
import { Empty } from "../parts/page.tsx";
import { showSecret } from "../parts/secret.tsx";
import { Time } from "../parts/values.tsx";

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
export function Teams({ create }: PageProps) {
  const name = query.value.get("name") || undefined;
  const status = (query.value.get("status") as Status | null) || undefined;
  const teams = useList(["teams", name, status], (signal) => client.value.teams.list({ name, status }, { signal }), {
    of: ["team"],
  });
  const isFirst = teams.items?.length === 0 && !name && !status;
  return (
    <ListPage
      title="Teams"
      main={!isFirst && create}
      filters={
        <Filters names={["name", "status"]} search={<SearchField name="name" label="Name starts with" />}>
          <ChoiceFilter
            name="status"
            label="Status"
            all="All statuses"
            options={Object.fromEntries(Object.entries(STATUSES).map(([value, { label }]) => [value, label]))}
          />
        </Filters>
      }
      of={teams}
      empty={
        <Empty title={isFirst ? "Create the first team" : "No matching teams"}>
          <p>A team has its own files, users, and keys. Its first key is created with it.</p>
          {isFirst && create && <ActionButton action={create} class="primary" />}
        </Empty>
      }
      keyOf={({ _id }) => _id}
      nameOf={({ name }) => name}
      actions={teamActions}
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
    />
  );
}

/** Edits a team, and suspends, resumes, or deletes it after a confirmation. */
export function teamActions(team: Team): Action[] {
  const { _id, name, status } = team;
  if (status === "deleting") return [];
  const isSuspended = status === "suspended";
  const toggle = () =>
    confirm({
      title: isSuspended ? `Resume “${name}”?` : `Suspend “${name}”?`,
      text: isSuspended
        ? "The team's keys, sessions, and links work again."
        : "The team's keys, sessions, and links stop working immediately, until you resume the team. Nothing is deleted.",
      action: isSuspended ? "Resume team" : "Suspend team",
      isDangerous: !isSuspended,
      run: () => client.value.teams.update(_id, { status: isSuspended ? "active" : "suspended" }),
      done: isSuspended ? `Resumed “${name}”` : `Suspended “${name}”`,
    });
  const remove = () =>
    confirm({
      title: `Delete “${name}”?`,
      text: (
        <>
          <p>Deletes the team's files, users, keys, webhooks, and events. This can't be undone.</p>
          <TextField label={`Enter “${name}” to confirm`} name="confirmation" required spellcheck={false} />
        </>
      ),
      action: "Delete team",
      run: async (form) => {
        if (textOf(form, "confirmation") !== name) throw new UserError("That isn't the name of the team.");
        await client.value.teams.delete(_id);
      },
      done: `Deleting “${name}”`,
    });
  return [
    { label: "Edit", icon: "edit", run: () => editTeam(team) },
    { label: isSuspended ? "Resume" : "Suspend", run: toggle },
    { label: "Delete", icon: "trash", isDangerous: true, run: remove },
  ];
}

const TeamFields = ({ team }: { team?: Team }) => (
  <>
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
    <TextField
      label="Email for notices"
      name="notificationEmail"
      type="email"
      defaultValue={team?.notificationEmail ?? ""}
      hint="Gets an email if a key expires soon, or a webhook is disabled."
    />
  </>
);

function fieldsOf(form: HTMLFormElement) {
  const [name, gigabytes, files] = [textOf(form, "name"), textOf(form, "maxBytes"), textOf(form, "maxFiles")];
  return {
    name,
    maxBytes: gigabytes === "" ? null : Math.round(Number(gigabytes) * GIGABYTE),
    maxFiles: files === "" ? null : Number(files),
    notificationEmail: textOf(form, "notificationEmail") || null,
  };
}

const editTeam = (team: Team) =>
  ask({
    title: "Edit team",
    action: "Save",
    text: <TeamFields team={team} />,
    run: (form) => saveChanges(team, fieldsOf(form), (changes) => client.value.teams.update(team._id, changes)),
    done: "Team updated",
  });

export async function createTeam(): Promise<void> {
  const created = await ask({
    title: "Create team",
    action: "Create team",
    text: <TeamFields />,
    run: async (form) => (await client.value.teams.create(fieldsOf(form))).apiKey,
  });
  if (!created) return;
  const { name, key, teamId } = created;
  const text = (
    <p>
      Team ID: <Copyable text={teamId} label="team ID" />
    </p>
  );
  await showSecret({ title: `First key of “${name}”`, noun: "key", secret: key, apiKey: created, text });
}
