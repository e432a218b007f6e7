import { useState } from "preact/hooks";
import type { Session } from "../../client/stowage.ts";
import { leave } from "../leaving.tsx";
import { MissingScopes, ROLE_LABELS, SCOPES, scopeLabel } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst, TaskDialog } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { FactCard } from "../parts/facts.tsx";
import { TextField } from "../parts/form.tsx";
import { ListTable } from "../parts/list-table.tsx";
import { Menu } from "../parts/menu.tsx";
import { Page } from "../parts/page.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { href } from "../router.ts";
import { can, client, me, session } from "../session.ts";
import { useList } from "../store.ts";

/** The link for members of a team who sign in with email and password. */
export const signInUrl = (teamId: string) => location.origin + href("/sign-in", { team: teamId });

/** The owner and the scopes of this session, and the other sessions of the team. */
export function Account() {
  const team = session.value?.team;
  const [isChanging, setChanging] = useState(false);
  const role = me.value?.role;
  if (!team) return null;
  return (
    <Page
      title="Your session"
      call={{ path: "/auth/v1/me" }}
      actions={
        <>
          {role && (
            <button type="button" class="button" onClick={() => setChanging(true)}>
              Change password
            </button>
          )}
          <button type="button" class="button" onClick={() => leave()}>
            Sign out
          </button>
        </>
      }
    >
      <FactCard
        title={team.name}
        facts={{
          "Signed in": role ? `As a user with the role ${ROLE_LABELS[role]}` : "With an API key",
          Permissions: SCOPES.filter(can).map(scopeLabel).join(", "),
          Expires: <Time at={team.expiresAt} />,
          "Team ID": <Copyable text={team.id} label="team ID" />,
          "Sign-in link": <Copyable text={signInUrl(team.id)} label="sign-in link" />,
        }}
      />
      {can("keys:read") ? <Sessions /> : <MissingScopes scopes={["keys:read"]} />}
      {isChanging && <ChangePassword onClose={() => setChanging(false)} />}
    </Page>
  );
}

function ChangePassword({ onClose }: { onClose: () => void }) {
  const change = async (form: HTMLFormElement) => {
    const { currentPassword, newPassword } = Object.fromEntries(new FormData(form)) as Record<string, string>;
    await client.value.changePassword({ currentPassword: currentPassword ?? "", newPassword: newPassword ?? "" });
    announce("Password changed. Your other sessions have ended.");
    onClose();
  };
  return (
    <TaskDialog title="Change password" action="Change password" onRun={change} onClose={onClose}>
      <TextField
        label="Current password"
        name="currentPassword"
        type="password"
        autocomplete="current-password"
        required
      />
      <TextField
        label="New password"
        name="newPassword"
        type="password"
        autocomplete="new-password"
        required
        hint="At least 8 characters."
      />
    </TaskDialog>
  );
}

/** The sessions of the team, with a button that ends each. */
function Sessions() {
  const sessions = useList("sessions", (signal) => client.value.sessions.list({}, { signal }), {
    on: ({ subject, type }) => subject.kind === "session" || type === "user.logged_in",
  });
  useNames();
  const end = ({ _id }: Session) => {
    const labels = { title: "Sign out this session?", action: "Sign out" };
    if (_id === session.peek()?.team?.keyId)
      return leave({ ...labels, text: "This is your session. You'll be signed out." });
    confirmFirst({
      ...labels,
      text: "It stops working immediately, and its unfinished uploads are canceled.",
      onConfirm: async () => {
        await client.value.sessions.delete(_id);
        announce("Session signed out");
        sessions.reload();
      },
    });
  };
  return (
    <section class="stack" aria-labelledby="sessions">
      <h2 id="sessions">Sessions</h2>
      <ListTable
        of={sessions}
        label="Sessions"
        keyOf={({ _id }) => _id}
        columns={[
          {
            id: "name",
            label: "User or key",
            width: "minmax(0, 1fr)",
            cell: (one) => (
              <>
                <NameOf keyId={one.createdBy?.keyId ?? one._id} userId={one.userId} isFirst />{" "}
                {one._id === session.value?.team?.keyId && <span class="badge good">This session</span>}
              </>
            ),
          },
          {
            id: "started",
            label: "Started",
            width: "9rem",
            cell: ({ createdAt }) => <Time at={createdAt} isRelative />,
          },
          {
            id: "used",
            label: "Last used",
            width: "9rem",
            cell: ({ lastUsedAt }) => (lastUsedAt ? <Time at={lastUsedAt} isRelative /> : "–"),
          },
          {
            id: "expires",
            label: "Expires",
            width: "9rem",
            cell: ({ expiresAt }) => <Time at={expiresAt} isRelative />,
          },
        ]}
        menu={(one) =>
          can("keys:write") && (
            <Menu
              label="Actions for this session"
              items={[{ label: "Sign out", isDangerous: true, onSelect: () => end(one) }]}
            />
          )
        }
      />
    </section>
  );
}
