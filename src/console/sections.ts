import { Files } from "./files/files.tsx";
import type { Action } from "./framework/action.tsx";
import { lazy, type PageProps, type View } from "./framework/lazy.tsx";
import { can, hasTrash, type Scope, session } from "./framework/session.ts";
import type { IconName } from "./parts/icon.tsx";
import { uploadFiles } from "./uploads/drop-zone.tsx";

/* The sections of the console: a row makes the pages, the entry in the sidebar, those of the palette, and the key. */

export interface Section {
  label: string;
  icon: IconName;
  /** The heading in the sidebar under which it is listed. Without it, other pages and the palette lead there. */
  group?: "Library" | "Team" | "Developers" | "Service";
  /** After G, it opens the section. */
  key?: string;
  /** Sessions without it don't see the section. */
  scope?: Scope;
  /** The list, and the page of one of its records. They are loaded when they are first shown. */
  pages: View<PageProps>[];
  /** Adds a record: the button of the list, and a command of the palette. Its form comes with the list. */
  create?: Action;
}

const KEYS: Section = {
  label: "Keys",
  icon: "key",
  group: "Developers",
  key: "k",
  scope: "keys:read",
  pages: [lazy(() => import("./accounts/keys.tsx").then((module) => module.Keys))],
  create: {
    label: "Create key",
    icon: "key",
    scope: "keys:write",
    run: () => import("./accounts/key-forms.tsx").then((module) => module.createKey()),
  },
};

/** The sections by the first segment of the path. */
const TEAM_SECTIONS: Record<string, Section> = {
  files: {
    label: "Files",
    icon: "folder",
    group: "Library",
    key: "f",
    scope: "files:read",
    create: uploadFiles,
    pages: [Files, lazy(() => import("./files/file.tsx").then((module) => module.FilePage))],
  },
  usage: {
    label: "Usage",
    icon: "gauge",
    group: "Library",
    key: "u",
    scope: "files:read",
    pages: [lazy(() => import("./uploads/usage.tsx").then((module) => module.Usage))],
  },
  events: {
    label: "Events",
    icon: "activity",
    group: "Library",
    key: "e",
    scope: "events:read",
    pages: [
      lazy(() => import("./events/events.tsx").then((module) => module.Events)),
      lazy(() => import("./events/event.tsx").then((module) => module.EventPage)),
    ],
  },
  trash: {
    label: "Trash",
    icon: "trash",
    group: "Library",
    scope: "files:delete",
    pages: [lazy(() => import("./trash/trash.tsx").then((module) => module.Trash))],
  },
  users: {
    label: "Users",
    icon: "users",
    group: "Team",
    scope: "users:read",
    pages: [lazy(() => import("./accounts/users.tsx").then((module) => module.Users))],
    create: {
      label: "Invite user",
      icon: "users",
      scope: "users:write",
      run: () => import("./accounts/users.tsx").then((module) => module.invite(null)),
    },
  },
  keys: KEYS,
  webhooks: {
    label: "Webhooks",
    icon: "webhook",
    group: "Developers",
    key: "w",
    scope: "webhooks:read",
    pages: [
      lazy(() => import("./webhooks/webhooks.tsx").then((module) => module.Webhooks)),
      lazy(() => import("./webhooks/webhook.tsx").then((module) => module.WebhookPage)),
    ],
    create: {
      label: "Create webhook",
      icon: "webhook",
      scope: "webhooks:write",
      run: () => import("./webhooks/webhook-forms.tsx").then((module) => module.createWebhook()),
    },
  },
  session: {
    label: "Your session",
    icon: "users",
    pages: [lazy(() => import("./accounts/account.tsx").then((module) => module.Account))],
  },
};
const OPERATOR_SECTIONS: Record<string, Section> = {
  teams: {
    label: "Teams",
    icon: "users",
    group: "Service",
    key: "t",
    pages: [
      lazy(() => import("./accounts/teams.tsx").then((module) => module.Teams)),
      lazy(() => import("./accounts/team.tsx").then((module) => module.TeamPage)),
    ],
    create: {
      label: "Create team",
      icon: "users",
      run: () => import("./accounts/teams.tsx").then((module) => module.createTeam()),
    },
  },
  keys: { ...KEYS, group: "Service" },
};

/** The sections of a team, or those of the operator, by the first segment of their paths. */
export const allSections = (): Record<string, Section> => (session.value?.team ? TEAM_SECTIONS : OPERATOR_SECTIONS);

/** The sections that the session may see. */
export const visibleSections = (): [string, Section][] =>
  Object.entries(allSections()).filter(([step, { scope }]) => (step === "trash" ? hasTrash() : !scope || can(scope)));
