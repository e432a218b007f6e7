import { useState } from "preact/hooks";
import type { User } from "../../client/index.ts";
import { ActionButton, type Actions } from "../framework/action.tsx";
import { announce } from "../framework/announce.tsx";
import { ask, Dialog, open, removeRecord, TaskDialog } from "../framework/dialog.tsx";
import { query } from "../framework/router.ts";
import type { PageProps } from "../framework/script.tsx";
import { client, sendsEmail, session } from "../framework/session.ts";
import { useTask } from "../framework/task.ts";
import { ROLE_LABELS, type Role } from "../parts/access.tsx";
import { CopyButton, copy } from "../parts/copy.tsx";
import { Failure } from "../parts/failure.tsx";
import { Filters, SearchField } from "../parts/filters.tsx";
import { passwordOf, SelectField, saveChanges, TextField, textOf } from "../parts/form.tsx";
import { ListPage } from "../parts/list-page.tsx";
import { Empty } from "../parts/page.tsx";
import { Time } from "../parts/values.tsx";
import { signInUrl } from "./account.tsx";
import { showSessions } from "./sessions.tsx";
import { nameOfUser, useUsers } from "./user-choice.tsx";

const ROLES: Record<Role, string> = {
  admin: "Admin – everything, including users and keys",
  member: "Member – all actions on files, and events",
  contributor: "Contributor – all actions on their own files",
  viewer: "Viewer – view and download files, and view events",
};
/** Without characters that look alike. */
const PASSWORD_LETTERS = "abcdefghijkmnpqrstuvwxyz23456789";
const PASSWORD_GROUPS = 4;

/** A random password of four groups of five letters, about 100 bits. */
function newPassword(): string {
  const letters = crypto.getRandomValues(new Uint8Array(PASSWORD_GROUPS * 5));
  const text = [...letters].map((letter) => PASSWORD_LETTERS[letter % PASSWORD_LETTERS.length]).join("");
  return (text.match(/.{5}/g) ?? []).join("-");
}

const removeUser = (user: User) =>
  removeRecord({
    id: user._id,
    title: `Delete ${nameOfUser(user)}?`,
    text: (
      <>
        <p>
          They're signed out immediately. The API keys they created are revoked, and their unfinished uploads are
          canceled.
        </p>
        <label>
          <input type="checkbox" name="keepKeys" /> Keep the API keys they created
        </label>
      </>
    ),
    action: "Delete user",
    run: (form) => client.value.users.delete(user._id, { keepKeys: new FormData(form).has("keepKeys") }),
    done: `Deleted “${nameOfUser(user)}”`,
  });

export const invite = (user: User | null) => open((close) => <Invite user={user} onClose={() => close()} />);

const actionsOf = (user: User): Actions => [
  { label: "Edit", icon: "edit", scope: "users:write", run: () => editUser(user) },
  {
    label: user.hasPassword ? "Reset password" : "Invite again",
    icon: "key",
    scope: "users:write",
    run: () => invite(user),
  },
  {
    label: "Sessions",
    icon: "users",
    scope: "keys:read",
    run: () => showSessions({ id: user._id, name: nameOfUser(user) }),
  },
  { label: "Delete", icon: "trash", scope: "users:write", isDangerous: true, run: () => removeUser(user) },
];

export function Users({ create }: PageProps) {
  const search = query.value.get("search") ?? "";
  const users = useUsers(search);
  return (
    <ListPage
      title="Users"
      main={create}
      scopes={["users:write"]}
      filters={<Filters names={["search"]} search={<SearchField name="search" label="Search users" />} />}
      of={users}
      empty={
        search ? (
          <Empty title="No matching users">
            <p>{users.hint}</p>
          </Empty>
        ) : (
          <Empty title="No users yet">
            <p>Add people who can sign in with an email and password.</p>
            {create && <ActionButton action={create} class="primary" />}
          </Empty>
        )
      }
      keyOf={({ _id }) => _id}
      nameOf={nameOfUser}
      actions={actionsOf}
      columns={[
        {
          id: "name",
          label: "User",
          width: "minmax(0, 3fr)",
          cell: (user) => (
            <div class="two-lines">
              <bdi title={nameOfUser(user)}>{nameOfUser(user)}</bdi>
              {nameOfUser(user) !== user.email && (
                <span class="quiet">
                  <bdi title={user.email}>{user.email}</bdi>
                </span>
              )}
              {!user.hasPassword && <span class="badge busy">No password yet</span>}
            </div>
          ),
        },
        {
          id: "role",
          label: "Role",
          width: "minmax(0, 1.5fr)",
          card: "end",
          cell: ({ role }) => ROLE_LABELS[role],
        },
        {
          id: "created",
          label: "Created",
          width: "minmax(0, 1fr)",
          card: "hidden",
          cell: ({ createdAt }) => <Time at={createdAt} isRelative />,
        },
      ]}
    />
  );
}

/** Edits a user. Never overwrites another person's edit. */
const editUser = (user: User) =>
  ask({
    title: "Edit user",
    action: "Save",
    text: (
      <>
        <UserFields user={user} />
        <PasswordField label="New password" hint="Leave blank to keep the current password." />
      </>
    ),
    run: (form) => {
      const password = passwordOf(form);
      const changes = { ...fieldsOf(form), ...(password && { password }) };
      return saveChanges<object>(user, changes, (changed) =>
        client.value.users.update(user._id, changed, { version: user.__v }),
      );
    },
    done: "User updated",
  });

const fieldsOf = (form: HTMLFormElement) => ({
  firstName: textOf(form, "firstName"),
  lastName: textOf(form, "lastName"),
  email: textOf(form, "email"),
  role: textOf(form, "role") as Role,
});

const UserFields = ({ user }: { user: User | null }) => (
  <>
    <TextField label="Email" name="email" type="email" defaultValue={user?.email ?? ""} required />
    <SelectField label="Role" name="role" options={ROLES} chosen={user?.role ?? "viewer"} />
    <TextField label="First name (optional)" name="firstName" defaultValue={user?.firstName ?? ""} maxLength={100} />
    <TextField label="Last name (optional)" name="lastName" defaultValue={user?.lastName ?? ""} maxLength={100} />
  </>
);

function PasswordField({ label, hint, required }: { label: string; hint: string; required?: boolean }) {
  const [password, setPassword] = useState("");
  return (
    <div class="stack">
      <TextField
        label={label}
        name="password"
        type="text"
        spellcheck={false}
        value={password}
        onInput={({ currentTarget }) => setPassword(currentTarget.value)}
        hint={hint}
        required={required}
      />
      <button type="button" class="button start" onClick={() => setPassword(newPassword())}>
        Generate password
      </button>
    </div>
  );
}

interface InviteProps {
  /** Null to create the user first. */
  user: User | null;
  onClose: () => void;
}

/** Gets a new user signed in, or lets a user choose another password: with a link, or with a password that an admin sets. */
function Invite({ user: existing, onClose }: InviteProps) {
  // A new user is kept if only the link fails, so that the next attempt creates only the link.
  const [user, setUser] = useState<Pick<User, "_id" | "firstName" | "lastName" | "email"> | null>(existing);
  const [hasPassword, setHasPassword] = useState(false);
  const [message, setMessage] = useState<{ text: string; url?: string; expiresAt?: string } | null>(null);
  const sending = useTask();
  const isReset = existing?.hasPassword === true;
  const name = user && nameOfUser(user);
  const title = isReset ? `Reset password of ${name}` : name ? `Invite ${name}` : "Invite user";
  const create = async (form: HTMLFormElement) => {
    const password = passwordOf(form) || undefined;
    const add = async () => user ?? (await client.value.users.create({ ...fieldsOf(form), password }));
    const emailOf = ({ email }: { email: string }) => `Email: ${email}`;
    if (password) {
      const added = await add();
      setUser(added);
      const signIn = `Sign in: ${signInUrl(session.value?.team?.id ?? "")}`;
      return setMessage({ text: `${signIn}\n${emailOf(added)}\nPassword: ${password}` });
    }
    const invite = async () => {
      const invited = await add();
      // Until there is a link or an error, the form stays as it is.
      const { url, expiresAt } = await client.value.users.invite(invited._id).finally(() => setUser(invited));
      const later = `Sign in later: ${signInUrl(session.value?.team?.id ?? "")}`;
      const text = `${isReset ? "Reset your password" : "Choose a password"}: ${url}\n${emailOf(invited)}\n${later}`;
      setMessage({ text, url, expiresAt });
      return text;
    };
    await copy(invite(), "invitation");
  };
  const send = () =>
    sending.run(async () => {
      if (!user) return;
      await client.value.users.invite(user._id, { email: true });
      announce(`Sent an email to ${user.email}`);
      onClose();
    });
  if (!message)
    return (
      <TaskDialog
        title={title}
        action={hasPassword ? "Create user" : "Create and copy link"}
        onRun={create}
        onClose={onClose}
      >
        {user ? (
          <p>
            With a link, {name} {isReset ? "sets a new password" : "chooses a password"} and signs in. It works once,
            for 24 hours, and replaces any earlier one.{isReset && " Their current password works until then."}
          </p>
        ) : (
          <>
            <UserFields user={null} />
            {hasPassword && <PasswordField label="Password" hint="At least 8 characters." required />}
            <button type="button" class="button ghost start" onClick={() => setHasPassword(!hasPassword)}>
              {hasPassword ? "Let them choose a password" : "Set a password instead"}
            </button>
          </>
        )}
      </TaskDialog>
    );
  return (
    <Dialog title={title} onClose={onClose}>
      <div class="stack">
        <p>
          Send this to them.{" "}
          {message.expiresAt && (
            <>
              The link works once, until <Time at={message.expiresAt} />.{" "}
            </>
          )}
          The console won't show it again.
        </p>
        {message.url ? (
          <div class="field">
            <span>{isReset ? "Link to set a new password" : "Invitation link"}</span>
            <code class="json invitation" title={message.url}>
              {message.url}
            </code>
          </div>
        ) : (
          <pre class="json">{message.text}</pre>
        )}
        <Failure error={sending.error} />
        <div class="actions">
          {message.expiresAt && sendsEmail.value && (
            <button type="button" class="button" aria-disabled={sending.isRunning} onClick={send}>
              Send email instead
            </button>
          )}
          <button type="button" class="button" onClick={onClose}>
            Done
          </button>
          <CopyButton text={message.text} label="invitation" class="primary">
            Copy invitation
          </CopyButton>
        </div>
      </div>
    </Dialog>
  );
}
