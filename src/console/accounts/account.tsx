import type { Session } from "../../client/index.ts";
import { NameOf } from "../events/names.tsx";
import { ActionButton } from "../framework/action.tsx";
import { ask, removeRecord } from "../framework/dialog.tsx";
import { href } from "../framework/router.ts";
import { can, client, me, session } from "../framework/session.ts";
import { useList } from "../framework/store.ts";
import { leave } from "../leaving.tsx";
import { MissingScopes, ROLE_LABELS, SCOPES, scopeLabel } from "../parts/access.tsx";
import { Copyable } from "../parts/copy.tsx";
import { FactCard } from "../parts/facts.tsx";
import { passwordOf, TextField } from "../parts/form.tsx";
import { ListTable } from "../parts/list-page.tsx";
import { Page } from "../parts/page.tsx";
import { Time } from "../parts/values.tsx";

/** The link for members of a team who sign in with email and password. */
export const signInUrl = (teamId: string) => location.origin + href("/sign-in", { team: teamId });

/** The owner and the scopes of this session, and the other sessions of the team. */
export function Account() {
  const team = session.value?.team;
  const role = me.value?.role;
  if (!team) return null;
  return (
    <Page
      title="Your session"
      call={{ path: "/auth/v1/me" }}
      actions={
        <>
          {role && <ActionButton action={{ label: "Change password", run: changePassword }} />}
          <ActionButton action={{ label: "Sign out", run: () => leave() }} />
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
    </Page>
  );
}

const changePassword = () =>
  ask({
    title: "Change password",
    action: "Change password",
    text: (
      <>
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
      </>
    ),
    run: (form) =>
      client.value.changePassword({
        currentPassword: passwordOf(form, "currentPassword"),
        newPassword: passwordOf(form, "newPassword"),
      }),
    done: "Password changed. Your other sessions have ended.",
  });

const endSession = ({ _id }: Session) => {
  const labels = { title: "Sign out this session?", action: "Sign out" };
  if (_id === session.peek()?.team?.keyId)
    return leave({ ...labels, text: "This is your session. You'll be signed out." });
  return removeRecord({
    ...labels,
    id: _id,
    text: "It stops working immediately, and its unfinished uploads are canceled.",
    run: () => client.value.sessions.delete(_id),
    done: "Session signed out",
  });
};

/** The sessions of the team, with a button that ends each. */
function Sessions() {
  const sessions = useList(["sessions"], (signal) => client.value.sessions.list({}, { signal }), {
    of: ["session"],
    on: ({ subject, type }) => subject.kind === "session" || type === "user.logged_in",
  });
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
        nameOf={() => "this session"}
        actions={(one) => [{ label: "Sign out", scope: "keys:write", isDangerous: true, run: () => endSession(one) }]}
      />
    </section>
  );
}
