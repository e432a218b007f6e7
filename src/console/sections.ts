import type { IconName } from "./parts/icon.tsx";
import { can, type Scope, session, trashDays } from "./session.ts";

/* The sections of the console. shell.tsx has their pages. */

export interface Section {
  label: string;
  icon: IconName;
  /** The heading in the sidebar under which it is listed. Without it, other pages and the palette lead there. */
  group?: "Library" | "Team" | "Developers" | "Service";
  /** Sessions without it don't see the section. */
  scope?: Scope;
}

/** The sections by the first segment of the path. */
const TEAM_SECTIONS: Record<string, Section> = {
  files: { label: "Files", icon: "folder", group: "Library", scope: "files:read" },
  usage: { label: "Usage", icon: "gauge", group: "Library", scope: "files:read" },
  events: { label: "Events", icon: "activity", group: "Library", scope: "events:read" },
  trash: { label: "Trash", icon: "trash", group: "Library", scope: "files:delete" },
  users: { label: "Users", icon: "users", group: "Team", scope: "users:read" },
  keys: { label: "Keys", icon: "key", group: "Developers", scope: "keys:read" },
  webhooks: { label: "Webhooks", icon: "webhook", group: "Developers", scope: "webhooks:read" },
};
const OPERATOR_SECTIONS: Record<string, Section> = {
  teams: { label: "Teams", icon: "users", group: "Service" },
  keys: { label: "Keys", icon: "key", group: "Service" },
};

/** The sections of a team, or those of the operator, by the first segment of their paths. */
export const allSections = (): Record<string, Section> => (session.value?.team ? TEAM_SECTIONS : OPERATOR_SECTIONS);

/** Whether deleted files go to a trash that the session may see. */
export const hasTrash = (): boolean => (trashDays.value ?? 0) > 0 && can("files:delete");

/** The sections that the session may see. */
export const visibleSections = (): [string, Section][] =>
  Object.entries(allSections()).filter(([step, { scope }]) => (step === "trash" ? hasTrash() : !scope || can(scope)));
