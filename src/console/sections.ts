import { Files } from "./files/files.tsx";
import type { Action } from "./framework/action.tsx";
import { type PageProps, script, type View } from "./framework/script.tsx";
import { can, hasTrash, type Scope, session } from "./framework/session.ts";
import type { IconName } from "./parts/icon.tsx";
import { uploadFiles } from "./uploads/drop-zone.tsx";

/* The sections of the console: a row makes the pages, the entry in the sidebar, those of the palette, and the key. */

export interface Section {
  label: string;
  icon: IconName;
  /** The heading in the sidebar under which it is listed. Without it, other pages and the palette lead there. */
  group?: "Library" | "Team" | "Developers" | "Service";
  /** Whether it is a tab at the bottom of a phone, and not behind "More". */
  isTab?: boolean;
  /** After G, it opens the section. */
  key?: string;
  /** Sessions without it don't see the section. */
  scope?: Scope;
  /** The list, and the page of one of its records. They are loaded when they are first shown. */
  pages: View<PageProps>[];
  /** Adds a record: the button of the list, and a command of the palette. Its form comes with the list. */
  create?: Action;
}

const keyForms = script(() => import("./accounts/key-forms.tsx"));
const users = script(() => import("./accounts/users.tsx"));
const webhookForms = script(() => import("./webhooks/webhook-forms.tsx"));
const teams = script(() => import("./accounts/teams.tsx"));

const KEYS: Section = {
  label: "Keys",
  icon: "key",
  group: "Developers",
  key: "k",
  scope: "keys:read",
  pages: [script(() => import("./accounts/keys.tsx")).view(({ Keys }) => Keys)],
  create: {
    label: "Create key",
    icon: "key",
    scope: "keys:write",
    run: () => keyForms.load().then((exports) => exports.createKey()),
  },
};

/** The sections by the first segment of the path. */
const TEAM_SECTIONS: Record<string, Section> = {
  files: {
    label: "Files",
    icon: "folder",
    group: "Library",
    isTab: true,
    key: "f",
    scope: "files:read",
    create: uploadFiles,
    pages: [Files, script(() => import("./files/file.tsx")).view(({ FilePage }) => FilePage)],
  },
  usage: {
    label: "Usage",
    icon: "gauge",
    group: "Library",
    key: "u",
    scope: "files:read",
    pages: [script(() => import("./uploads/usage.tsx")).view(({ Usage }) => Usage)],
  },
  events: {
    label: "Events",
    icon: "activity",
    group: "Library",
    isTab: true,
    key: "e",
    scope: "events:read",
    pages: [
      script(() => import("./events/events.tsx")).view(({ Events }) => Events),
      script(() => import("./events/event.tsx")).view(({ EventPage }) => EventPage),
    ],
  },
  trash: {
    label: "Trash",
    icon: "trash",
    group: "Library",
    isTab: true,
    scope: "files:delete",
    pages: [script(() => import("./trash/trash.tsx")).view(({ Trash }) => Trash)],
  },
  users: {
    label: "Users",
    icon: "users",
    group: "Team",
    scope: "users:read",
    pages: [users.view(({ Users }) => Users)],
    create: {
      label: "Invite user",
      icon: "users",
      scope: "users:write",
      run: () => users.load().then((exports) => exports.invite(null)),
    },
  },
  keys: KEYS,
  webhooks: {
    label: "Webhooks",
    icon: "webhook",
    group: "Developers",
    isTab: true,
    key: "w",
    scope: "webhooks:read",
    pages: [
      script(() => import("./webhooks/webhooks.tsx")).view(({ Webhooks }) => Webhooks),
      script(() => import("./webhooks/webhook.tsx")).view(({ WebhookPage }) => WebhookPage),
    ],
    create: {
      label: "Create webhook",
      icon: "webhook",
      scope: "webhooks:write",
      run: () => webhookForms.load().then((exports) => exports.createWebhook()),
    },
  },
  session: {
    label: "Account",
    icon: "users",
    pages: [script(() => import("./accounts/account.tsx")).view(({ Account }) => Account)],
  },
};
const OPERATOR_SECTIONS: Record<string, Section> = {
  teams: {
    label: "Teams",
    icon: "users",
    group: "Service",
    isTab: true,
    key: "t",
    pages: [
      teams.view(({ Teams }) => Teams),
      script(() => import("./accounts/team.tsx")).view(({ TeamPage }) => TeamPage),
    ],
    create: {
      label: "Create team",
      icon: "users",
      run: () => teams.load().then((exports) => exports.createTeam()),
    },
  },
  keys: { ...KEYS, group: "Service", isTab: true },
};

/** The sections of a team, or those of the operator, by the first segment of their paths. */
export const allSections = (): Record<string, Section> => (session.value?.team ? TEAM_SECTIONS : OPERATOR_SECTIONS);

/** The sections that the session may see. */
export const visibleSections = (): [string, Section][] =>
  Object.entries(allSections()).filter(([step, { scope }]) => (step === "trash" ? hasTrash() : !scope || can(scope)));
