import type { ComponentChildren } from "preact";
import { useEffect, useState } from "preact/hooks";
import type { Invitation as InvitationLink, User } from "../../client/stowage.ts";
import { MissingScopes, ROLE_LABELS, type Role } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst, Dialog, RecordDialog } from "../parts/dialog.tsx";
import { Failure } from "../parts/failure.tsx";
import { Filters, SearchField } from "../parts/filters.tsx";
import { SelectField, TextField, textOf } from "../parts/form.tsx";
import { ListTable } from "../parts/list-table.tsx";
import { Menu } from "../parts/menu.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { useTask } from "../parts/task.ts";
import { nameOfUser, useUsers } from "../parts/user-choice.tsx";
import { CopyButton, Time } from "../parts/values.tsx";
import { query } from "../router.ts";
import { can, client, session } from "../session.ts";
import { useAskedForm } from "../shortcuts.ts";
import { signInUrl } from "./account.tsx";

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

interface Invited extends Pick<User, "_id" | "firstName" | "lastName" | "email"> {
  /** The password that an admin has just chosen. If it is null, the user gets a link to choose one. */
  password: string | null;
  /** A new user needs a link, so it is created and copied at once. */
  isNew?: boolean;
}

export function Users() {
  const search = query.value.get("search") ?? "";
  const users = useUsers(search);
  /** The user in the dialog: null for a new one, undefined if the dialog is closed. */
  const [edited, setEdited] = useState<User | null | undefined>();
  const [invited, setInvited] = useState<Invited | null>(null);
  useAskedForm("user", () => setEdited(null));
  const remove = (user: User) =>
    confirmFirst({
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
      onConfirm: async (form) => {
        await client.value.users.delete(user._id, { keepKeys: new FormData(form).has("keepKeys") });
        announce(`Deleted ${nameOfUser(user)}`);
        users.reload();
      },
    });
  const create = can("users:write") && (
    <button type="button" class="button primary" onClick={() => setEdited(null)}>
      Create user
    </button>
  );
  return (
    <Page title="Users" actions={create} call={{ path: "/auth/v1/users" }}>
      <MissingScopes scopes={["users:write"]} />
      <Filters names={["search"]} search={<SearchField name="search" label="Search users" />} />
      <ListTable
        of={users}
        empty={
          search ? (
            <Empty title="No matching users">
              <p>{users.isByApi && "Enter a full email address, or the start of a name."}</p>
            </Empty>
          ) : (
            <Empty title="No users yet">
              <p>Add people who can sign in with an email and password.</p>
              {create}
            </Empty>
          )
        }
        label="Users"
        keyOf={({ _id }) => _id}
        columns={[
          {
            id: "name",
            label: "Name",
            width: "minmax(0, 2fr)",
            cell: (user) => <bdi title={nameOfUser(user)}>{nameOfUser(user)}</bdi>,
          },
          {
            id: "email",
            label: "Email",
            width: "minmax(0, 3fr)",
            card: "note",
            cell: ({ email }) => <bdi title={email}>{email}</bdi>,
          },
          { id: "role", label: "Role", width: "minmax(0, 1fr)", card: "bare", cell: ({ role }) => ROLE_LABELS[role] },
          {
            id: "created",
            label: "Created",
            width: "minmax(0, 1fr)",
            card: "hidden",
            cell: ({ createdAt }) => <Time at={createdAt} isRelative />,
          },
        ]}
        menu={(user) =>
          can("users:write") && (
            <Menu
              label={`Actions for ${nameOfUser(user)}`}
              items={[
                { label: "Edit", icon: "edit", onSelect: () => setEdited(user) },
                {
                  label: "Invite or reset password",
                  icon: "link",
                  onSelect: () => setInvited({ ...user, password: null }),
                },
                { label: "Delete", icon: "trash", isDangerous: true, onSelect: () => remove(user) },
              ]}
            />
          )
        }
      />
      {edited !== undefined && (
        <UserForm
          user={edited}
          onSaved={(created) => {
            users.reload();
            setEdited(undefined);
            setInvited(created);
          }}
          onClose={() => setEdited(undefined)}
        />
      )}
      {invited && <Invitation user={invited} onClose={() => setInvited(null)} />}
    </Page>
  );
}

interface UserFormProps {
  user: User | null;
  /** Called with a new user, or null after an edit. */
  onSaved: (created: Invited | null) => void;
  onClose: () => void;
}

/** Creates or edits a user. Never overwrites another person's edit. */
function UserForm({ user, onSaved, onClose }: UserFormProps) {
  const [password, setPassword] = useState("");
  const save = async (form: HTMLFormElement) => {
    const [firstName, lastName, email] = [textOf(form, "firstName"), textOf(form, "lastName"), textOf(form, "email")];
    const role = textOf(form, "role") as Role;
    if (user) {
      const changes = { firstName, lastName, email, role, ...(password && { password }) };
      await client.value.users.update(user._id, changes, { version: user.__v });
      announce("User updated");
    } else {
      const { _id } = await client.value.users.create({
        firstName,
        lastName,
        email,
        role,
        ...(password && { password }),
      });
      announce(`Created ${email}`);
      return onSaved({ _id, firstName, lastName, email, password: password || null, isNew: true });
    }
    onSaved(null);
  };
  return (
    <RecordDialog noun="user" isNew={!user} onRun={save} onClose={onClose}>
      <TextField label="First name" name="firstName" defaultValue={user?.firstName ?? ""} maxLength={100} />
      <TextField label="Last name" name="lastName" defaultValue={user?.lastName ?? ""} maxLength={100} />
      <TextField label="Email" name="email" type="email" defaultValue={user?.email ?? ""} required />
      <SelectField label="Role" name="role">
        {Object.entries(ROLES).map(([role, text]) => (
          <option key={role} value={role} selected={role === (user?.role ?? "viewer")}>
            {text}
          </option>
        ))}
      </SelectField>
      <div class="stack">
        <TextField
          label={user ? "New password" : "Password (optional)"}
          name="password"
          type="text"
          autocomplete="off"
          spellcheck={false}
          value={password}
          onInput={({ currentTarget }) => setPassword(currentTarget.value)}
          hint={
            user
              ? "Leave blank to keep the current password."
              : "Leave blank to invite them with a link, with which they choose one. Otherwise at least 8 characters."
          }
        />
        <button type="button" class="button start" onClick={() => setPassword(newPassword())}>
          Generate password
        </button>
      </div>
    </RecordDialog>
  );
}

interface InvitationProps {
  user: Invited;
  onClose: () => void;
}

/** Gets a new user signed in, or lets a user set a new password. */
const Invitation = ({ user, onClose }: InvitationProps) =>
  user.password === null ? (
    <LinkInvitation user={user} onClose={onClose} />
  ) : (
    <Dialog title={`Invite ${nameOfUser(user)}`} onClose={onClose}>
      <CopiedInvitation
        text={`Sign in: ${signInUrl(session.value?.team?.id ?? "")}\nEmail: ${user.email}\nPassword: ${user.password}`}
        onClose={onClose}
      >
        <p>Send this to them. You won't be able to see the password again.</p>
      </CopiedInvitation>
    </Dialog>
  );

/** Creates a link with which the user sets a password, or lets the service send it. */
function LinkInvitation({ user, onClose }: InvitationProps) {
  const [link, setLink] = useState<InvitationLink | null>(null);
  const { run, isRunning, error } = useTask();
  const name = nameOfUser(user);
  const messageOf = ({ url }: InvitationLink) => `Set your password: ${url}\nEmail: ${user.email}`;
  const create = () =>
    run(async () => {
      const created = await client.value.users.invite(user._id);
      setLink(created);
      await navigator.clipboard.writeText(messageOf(created)).then(
        () => announce("Copied invitation"),
        () => {},
      );
    });
  useEffect(() => {
    if (user.isNew) void create();
  }, []);
  const send = () =>
    run(async () => {
      await client.value.users.invite(user._id, { email: true });
      announce(`Sent an email to ${user.email}`);
      onClose();
    });
  return (
    <Dialog title={`Invite ${name}`} onClose={onClose}>
      {link ? (
        <CopiedInvitation text={messageOf(link)} onClose={onClose}>
          <p>
            Send this to them. The link works once, until <Time at={link.expiresAt} />. You won't be able to see it
            again.
          </p>
          <Failure error={error} />
          <button type="button" class="button start" aria-disabled={isRunning} onClick={send}>
            Send email instead
          </button>
        </CopiedInvitation>
      ) : (
        <div class="stack">
          <p>
            With a link, {name} sets a new password and signs in. It works once, for 24 hours, and replaces any earlier
            one. Their current password works until then.
          </p>
          <Failure error={error} />
          <div class="actions">
            <button type="button" class="button" onClick={onClose}>
              Cancel
            </button>
            <button type="button" class="button" aria-disabled={isRunning} onClick={send}>
              Send email
            </button>
            <button type="button" class="button primary" aria-disabled={isRunning} onClick={create}>
              Create link
            </button>
          </div>
        </div>
      )}
    </Dialog>
  );
}

/** A message to copy. */
function CopiedInvitation({
  text,
  onClose,
  children,
}: {
  text: string;
  onClose: () => void;
  children: ComponentChildren;
}) {
  return (
    <div class="stack">
      {children}
      <pre class="json">{text}</pre>
      <div class="actions">
        <button type="button" class="button" onClick={onClose}>
          Done
        </button>
        <CopyButton text={text} label="invitation" class="primary">
          Copy invitation
        </CopyButton>
      </div>
    </div>
  );
}
