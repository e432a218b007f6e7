import { useState } from "preact/hooks";
import type { Session } from "../../client/stowage.ts";
import { leave } from "../leaving.tsx";
import { MissingScopes, ROLE_LABELS, SCOPE_LABELS, SCOPES } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst, TaskDialog } from "../parts/dialog.tsx";
import { NameOf, useNames } from "../parts/event.tsx";
import { FactCard } from "../parts/facts.tsx";
import { Failure } from "../parts/failure.tsx";
import { TextField } from "../parts/form.tsx";
import { useEvents, useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Page } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { Copyable, Time } from "../parts/values.tsx";
import { can, client, me, session } from "../session.ts";

/** The owner and the scopes of this session, and the other sessions of the team. */
export function Account() {
  const team = session.value?.team;
  const [isChanging, setChanging] = useState(false);
  const role = me.value?.role;
  if (!team) return null;
  return (
    <Page title="Your session" call={{ path: "/auth/v1/me" }}>
      <FactCard
        title={team.name}
        facts={{
          "Signed in": role ? `As a user with the role ${ROLE_LABELS[role]}` : "With an API key",
          "You may": SCOPES.filter(can)
            .map((scope) => SCOPE_LABELS[scope])
            .join(", "),
          Expires: <Time at={team.expiresAt} />,
          "Team ID": <Copyable text={team.id} label="team ID" />,
        }}
      />
      {role && (
        <p>
          <button type="button" class="button" onClick={() => setChanging(true)}>
            Change password
          </button>
        </p>
      )}
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
  const sessions = useListing((signal) => client.value.sessions.list({ signal }), []);
  useEvents(({ subject, type }) => subject.kind === "session" || type === "user.logged_in", sessions.reload);
  useNames();
  const end = ({ _id }: Session) => {
    const labels = { title: "End this session?", action: "End session" };
    if (_id === session.peek()?.team?.keyId)
      return leave({ ...labels, text: "This is your session. You'll be signed out." });
    confirmFirst({
      ...labels,
      text: "It stops working immediately, and its unfinished uploads are canceled.",
      onConfirm: async () => {
        await client.value.sessions.delete(_id);
        announce("Session ended");
        sessions.reload();
      },
    });
  };
  return (
    <section class="stack" aria-labelledby="sessions">
      <h2 id="sessions">Sessions</h2>
      <Failure error={sessions.error} onRetry={sessions.reload} />
      {sessions.items && sessions.items.length > 0 && (
        <Table columns={["User or key", "Started", "Last used", "Expires"]} buttons="Actions">
          {sessions.items.map((one) => (
            <tr key={one._id}>
              <th scope="row">
                <NameOf keyId={one.createdBy?.keyId ?? one._id} userId={one.userId} />{" "}
                {one._id === session.value?.team?.keyId && <span class="badge good">This session</span>}
              </th>
              <td data-label="Started">
                <Time at={one.createdAt} isRelative />
              </td>
              <td data-label="Last used">{one.lastUsedAt ? <Time at={one.lastUsedAt} isRelative /> : "–"}</td>
              <td data-label="Expires">
                <Time at={one.expiresAt} isRelative />
              </td>
              <td class="number">
                {can("keys:write") && (
                  <button type="button" class="button small danger" onClick={() => end(one)}>
                    End<span class="visually-hidden"> session</span>
                  </button>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <More of={sessions} />
    </section>
  );
}
