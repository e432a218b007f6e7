import { useState } from "preact/hooks";
import type { User } from "../../client/stowage.ts";
import { MissingScopes, ROLE_LABELS, type Role } from "../parts/access.tsx";
import { announce } from "../parts/announce.tsx";
import { confirmFirst, TaskDialog } from "../parts/dialog.tsx";
import { Failure } from "../parts/failure.tsx";
import { FilterForm, SelectField, TextField, textOf } from "../parts/form.tsx";
import { useEvents, useListing } from "../parts/loading.ts";
import { More } from "../parts/more.tsx";
import { Empty, Page } from "../parts/page.tsx";
import { Table } from "../parts/table.tsx";
import { Time } from "../parts/values.tsx";
import { href, navigate, query } from "../router.ts";
import { can, client } from "../session.ts";

const ROLES: Record<Role, string> = {
  admin: "Admin: everything, including users and keys",
  member: "Member: all actions on files, and events",
  viewer: "Viewer: view and download files, and view events",
};

const nameOf = ({ firstName, lastName, email }: User): string => `${firstName} ${lastName}`.trim() || email;

export function Users() {
  const name = query.value.get("name") || undefined;
  const email = query.value.get("email") || undefined;
  const users = useListing((signal) => client.value.users.list({ name, email }, { signal }), [name, email]);
  /** The user in the dialog: null for a new one, undefined if the dialog is closed. */
  const [edited, setEdited] = useState<User | null | undefined>();
  useEvents(({ subject }) => subject.kind === "user", users.reload);
  const remove = (user: User) =>
    confirmFirst({
      title: `Delete ${nameOf(user)}?`,
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
        announce(`Deleted ${nameOf(user)}`);
        users.reload();
      },
    });
  const filter = (form: HTMLFormElement) =>
    navigate(href("/users", { name: textOf(form, "name"), email: textOf(form, "email") }), { replace: true });
  const create = can("users:write") && (
    <button type="button" class="button primary" onClick={() => setEdited(null)}>
      Create user
    </button>
  );
  return (
    <Page title="Users" actions={create} call={{ path: "/auth/v1/users", query: { name, email } }}>
      <MissingScopes scopes={["users:write"]} />
      <FilterForm values={[name, email]} onFilter={filter}>
        <TextField label="Name starts with" name="name" type="search" defaultValue={name ?? ""} />
        <TextField label="Email" name="email" type="search" defaultValue={email ?? ""} />
        <button type="submit" class="button">
          Filter
        </button>
        {(name || email) && <a href={href("/users")}>Clear filters</a>}
      </FilterForm>
      <Failure error={users.error} onRetry={users.reload} />
      {users.items?.length === 0 &&
        (name || email ? (
          <Empty title="No matching users">
            <p>Enter a full email address, or the start of a name.</p>
          </Empty>
        ) : (
          <Empty title="No users yet">
            <p>Add people who can sign in with an email and password.</p>
            {create}
          </Empty>
        ))}
      {users.items && users.items.length > 0 && (
        <Table columns={["Name", "Email", "Role", "Created"]} buttons="Actions">
          {users.items.map((user) => (
            <tr key={user._id}>
              <th scope="row">
                <bdi>{nameOf(user)}</bdi>
              </th>
              <td data-label="Email">
                <bdi>{user.email}</bdi>
              </td>
              <td data-label="Role">{ROLE_LABELS[user.role]}</td>
              <td data-label="Created">
                <Time at={user.createdAt} />
              </td>
              <td class="number">
                {can("users:write") && (
                  <div class="actions">
                    <button
                      type="button"
                      class="button small"
                      onClick={() => setEdited(user)}
                      aria-label={`Edit ${nameOf(user)}`}
                    >
                      Edit
                    </button>
                    <button
                      type="button"
                      class="button small danger"
                      onClick={() => remove(user)}
                      aria-label={`Delete ${nameOf(user)}`}
                    >
                      Delete
                    </button>
                  </div>
                )}
              </td>
            </tr>
          ))}
        </Table>
      )}
      <More of={users} />
      {edited !== undefined && <UserForm user={edited} onSaved={users.reload} onClose={() => setEdited(undefined)} />}
    </Page>
  );
}

interface UserFormProps {
  user: User | null;
  onSaved: () => void;
  onClose: () => void;
}

/** Creates or edits a user. Never overwrites another person's edit. */
function UserForm({ user, onSaved, onClose }: UserFormProps) {
  const save = async (form: HTMLFormElement) => {
    const [firstName, lastName, email] = [textOf(form, "firstName"), textOf(form, "lastName"), textOf(form, "email")];
    const role = textOf(form, "role") as Role;
    const password = String(new FormData(form).get("password"));
    if (user) {
      const changes = { firstName, lastName, email, role, ...(password && { password }) };
      await client.value.users.update(user._id, changes, { version: user.__v });
    } else {
      await client.value.users.create({ firstName, lastName, email, password, role });
    }
    announce(user ? "User updated" : `Created ${email}`);
    onSaved();
    onClose();
  };
  return (
    <TaskDialog
      title={user ? "Edit user" : "Create user"}
      action={user ? "Save" : "Create user"}
      onRun={save}
      onClose={onClose}
    >
      <TextField label="First name" name="firstName" defaultValue={user?.firstName ?? ""} maxLength={100} />
      <TextField label="Last name" name="lastName" defaultValue={user?.lastName ?? ""} maxLength={100} />
      <TextField label="Email" name="email" type="email" defaultValue={user?.email ?? ""} required />
      <SelectField label="Role" name="role">
        {Object.entries(ROLES).map(([role, text]) => (
          <option key={role} value={role} selected={role === (user?.role ?? "member")}>
            {text}
          </option>
        ))}
      </SelectField>
      <TextField
        label={user ? "New password" : "Password"}
        name="password"
        type="password"
        autocomplete="new-password"
        required={!user}
        hint={user ? "Leave blank to keep the current password." : "At least 8 characters."}
      />
    </TaskDialog>
  );
}
