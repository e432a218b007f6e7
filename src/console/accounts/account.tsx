import { ActionButton } from "../framework/action.tsx";
import { ask } from "../framework/dialog.tsx";
import { href } from "../framework/router.ts";
import { can, client, me, session } from "../framework/session.ts";
import { leave } from "../leaving.tsx";
import { MissingScopes, ROLE_LABELS } from "../parts/access.tsx";
import { Copyable } from "../parts/copy.tsx";
import { FactCard } from "../parts/facts.tsx";
import { passwordOf, TextField } from "../parts/form.tsx";
import { Page } from "../parts/page.tsx";
import { Time } from "../parts/values.tsx";
import { Sessions } from "./sessions.tsx";

/** The link for members of a team who sign in with email and password. */
export const signInUrl = (teamId: string) => location.origin + href("/sign-in", { team: teamId });

/** The owner of this session, and the other sessions of this user or key. */
export function Account() {
  const team = session.value?.team;
  const role = me.value?.role;
  if (!team) return null;
  return (
    <Page
      title="Account"
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
          Expires: <Time at={team.expiresAt} />,
          "Team ID": <Copyable text={team.id} label="team ID" />,
          "Sign-in link": <Copyable text={signInUrl(team.id)} label="sign-in link" />,
        }}
      />
      <MissingScopes scopes={["keys:read"]} />
      {can("keys:read") && (
        <section class="stack" aria-labelledby="sessions">
          <h2 id="sessions">Sessions</h2>
          <Sessions />
        </section>
      )}
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
