import { useState } from "preact/hooks";
import type { User } from "../../client/index.ts";
import { fold } from "../../folding.ts";
import { query } from "../framework/router.ts";
import { can, client, me } from "../framework/session.ts";
import { useData, useList } from "../framework/store.ts";
import { SearchInput, setQuery } from "../parts/filters.tsx";
import { Popover } from "../parts/popover.tsx";

const MAX_SHOWN = 20;
/** The API rejects other texts as an email, such as one that is still being typed. */
const WHOLE_EMAIL = /^[^\s@]+@([a-z0-9-]+\.)+[a-z0-9-]*[a-z0-9]$/i;

export const nameOfUser = ({ firstName, lastName, email }: Pick<User, "firstName" | "lastName" | "email">): string =>
  `${firstName} ${lastName}`.trim() || email;

/**
 * The users that match a search. The API finds whole emails, and the start of names; if it lists all users on one page,
 * every part of both is found here.
 */
export function useUsers(search: string, isUsed = true) {
  const isAllowed = isUsed && can("users:read");
  const all = useList(
    [isAllowed ? "users" : "unused"],
    isAllowed ? (signal) => client.value.users.list({}, { signal }) : null,
    {
      of: ["user"],
    },
  );
  const isComplete = all.items !== undefined && !all.more;
  const isEmail = search.includes("@");
  const isSearchable = search !== "" && !isComplete && (!isEmail || WHOLE_EMAIL.test(search));
  const filters = !isSearchable ? null : isEmail ? { email: search } : { name: search };
  const found = useList(
    ["users", JSON.stringify(filters)],
    isAllowed && filters ? (signal) => client.value.users.list(filters, { signal }) : null,
    { of: ["user"] },
  );
  const users = filters ? found : all;
  const wanted = fold(search);
  const items = users.items?.filter((user) => filters || fold(`${nameOfUser(user)} ${user.email}`).includes(wanted));
  const hint =
    search && !isComplete ? "Enter a full email address, or the start of a name, with the same capital letters." : "";
  return { ...users, items, hint };
}

/** A filter for one user of the team, who is found by typing. Without `users:read`, only for the own user. */
export function UserChoice({ name, label, all }: { name: string; label: string; all: string }) {
  const chosen = query.value.get(name) ?? "";
  const own = me.value?.userId;
  const isNamed = chosen !== "" && chosen !== own && can("users:read");
  const user = useData(["chosen-user", isNamed ? chosen : undefined], async (signal) =>
    isNamed ? client.value.users.get(chosen, { signal }) : null,
  ).value;
  if (!can("users:read") && !own && !chosen) return null;
  const shown = chosen === own ? "Me" : user?._id === chosen ? nameOfUser(user) : "One user or key";
  return (
    <Popover
      label={`${label}: ${chosen ? shown : all}`}
      button={chosen ? shown : all}
      class={`chip ${chosen ? "active" : ""}`}
    >
      {(close) => (
        <UserList
          all={all}
          onPick={(id) => {
            close();
            setQuery({ [name]: id });
          }}
        />
      )}
    </Popover>
  );
}

function UserList({ all, onPick }: { all: string; onPick: (id: string) => void }) {
  const [search, setSearch] = useState("");
  const own = me.value?.userId;
  const users = useUsers(search);
  const others = (users.items ?? []).filter(({ _id }) => _id !== own);
  return (
    <div class="stack">
      {can("users:read") && <SearchInput label="Find a user" applied={search} onSearch={setSearch} />}
      <div class="menu">
        {!search && (
          <button type="button" onClick={() => onPick("")}>
            {all}
          </button>
        )}
        {own && !search && (
          <button type="button" onClick={() => onPick(own)}>
            Me
          </button>
        )}
        {others.slice(0, MAX_SHOWN).map((user) => (
          <button key={user._id} type="button" title={user.email} onClick={() => onPick(user._id)}>
            <bdi>{nameOfUser(user)}</bdi>
          </button>
        ))}
      </div>
      <p role="status" class="quiet">
        {users.error
          ? "Couldn't load users"
          : search && users.items?.length === 0
            ? ["No matches", users.hint].filter(Boolean).join(". ")
            : (others.length > MAX_SHOWN || users.more) && "Type to find others"}
      </p>
    </div>
  );
}
