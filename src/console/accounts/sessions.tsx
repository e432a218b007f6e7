import type { Session } from "../../client/index.ts";
import { Dialog, open, removeRecord } from "../framework/dialog.tsx";
import { client, me, session } from "../framework/session.ts";
import { useList } from "../framework/store.ts";
import { leave } from "../leaving.tsx";
import { ListTable } from "../parts/list-page.tsx";
import { Time } from "../parts/values.tsx";
import { describeDevice } from "./device.ts";

/* The sessions of one user or key. The API lists those of the team, newest first. */

/** The pages of sessions that are read at once. Few teams have more. */
const MAX_PAGES = 5;

/** A user, or a key that has created sessions. */
interface Owner {
  id: string;
  name: string;
}

const ownerOf = ({ userId, createdBy }: Session): string | undefined => userId ?? createdBy?.keyId;

const endSession = (one: Session) => {
  const labels = { title: "Sign out this session?", action: "Sign out" };
  if (one._id === session.peek()?.team?.keyId)
    return leave({ ...labels, text: "This is your session. You'll be signed out." });
  return removeRecord({
    ...labels,
    id: one._id,
    text: "It stops working immediately, and its unfinished uploads are canceled.",
    run: () => client.value.sessions.delete(one._id),
    done: "Session signed out",
  });
};

/** The sessions of an owner, or of that of this session, each with a button that ends it. */
export function Sessions({ of }: { of?: Owner }) {
  const sessions = useList(["sessions"], (signal) => client.value.sessions.list({}, { signal }), {
    of: ["session"],
    on: ({ subject, type }) => subject.kind === "session" || type === "user.logged_in",
    pages: MAX_PAGES,
  });
  const current = session.value?.team?.keyId;
  const own = sessions.items?.find(({ _id }) => _id === current);
  const owner = of?.id ?? me.value?.userId ?? (own && ownerOf(own));
  const items = sessions.items?.filter((one) => ownerOf(one) === owner);
  return (
    <ListTable
      of={{ ...sessions, items }}
      label="Sessions"
      empty={<p class="quiet">{sessions.more ? "None among the newest sessions of the team" : "No sessions"}</p>}
      keyOf={({ _id }) => _id}
      columns={[
        {
          id: "device",
          label: "Device",
          width: "minmax(0, 1fr)",
          cell: (one) => (
            // The device gives way to the badge.
            <span class="name">
              <bdi title={one.userAgent ?? undefined}>{describeDevice(one.userAgent)}</bdi>{" "}
              {one._id === current && <span class="badge good">This session</span>}
            </span>
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
  );
}

/** Shows the sessions of a user or a key. */
export const showSessions = (of: Owner) =>
  open((close) => (
    <Dialog title={`Sessions of ${of.name}`} class="wide" onClose={() => close()}>
      <div class="stack">
        <Sessions of={of} />
        <div class="actions">
          <button type="button" class="button" onClick={() => close()}>
            Done
          </button>
        </div>
      </div>
    </Dialog>
  ));
