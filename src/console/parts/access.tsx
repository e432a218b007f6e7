import { can, me, type Scope, trashDays } from "../framework/session.ts";
import { SCOPE_LABELS } from "../nouns.ts";

export const capitalized = (text: string): string => text.replace(/^./, (letter) => letter.toUpperCase());
/** The action as a separate label, such as "View files". */
export const scopeLabel = (scope: Scope): string => capitalized(SCOPE_LABELS[scope]);

export const SCOPES = Object.keys(SCOPE_LABELS) as Scope[];

export const ROLE_LABELS = { admin: "Admin", member: "Member", contributor: "Contributor", viewer: "Viewer" };
export type Role = keyof typeof ROLE_LABELS;

const inWords = new Intl.ListFormat("en", { type: "disjunction" });

/** Why actions are hidden. Nothing if the session has all of the scopes. */
export function MissingScopes({ scopes }: { scopes: Scope[] }) {
  const missing = scopes.filter((scope) => !can(scope));
  // Only with the team is it known which scope a deletion needs.
  if (missing.length === 0 || (trashDays.value === undefined && missing.includes("files:erase"))) return null;
  const role = me.value?.role;
  const who = role ? `Your role (${ROLE_LABELS[role]})` : "The key of this session";
  const labels = missing.map((scope) => SCOPE_LABELS[scope]);
  return (
    <p class="quiet">
      {who} doesn't allow you to {inWords.format(labels)}.
    </p>
  );
}
