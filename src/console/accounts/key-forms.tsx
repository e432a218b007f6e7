import { useState } from "preact/hooks";
import type { ApiKey } from "../../client/index.ts";
import { ask, open, TaskDialog } from "../framework/dialog.tsx";
import { UserError } from "../framework/errors.ts";
import { linkedTeam } from "../framework/router.ts";
import { can, client, type Scope, session } from "../framework/session.ts";
import { SCOPE_LABELS } from "../nouns.ts";
import { capitalized, SCOPES } from "../parts/access.tsx";
import { SelectField, saveChanges, TextField, textOf } from "../parts/form.tsx";
import { formatBytes, TYPE_LABELS } from "../parts/format.ts";
import { showSecret } from "../parts/secret.tsx";
import { Time } from "../parts/values.tsx";
import { DAY_MILLISECONDS } from "./key-expiry.ts";

/* The forms that create, edit, and rotate API keys. */

const MEGABYTE = 1_000_000;
/** In days. The API allows at most ten years. */
const LIFETIMES_DAYS = { 1: "1 day", 30: "30 days", 90: "90 days", 365: "1 year", 3650: "10 years" };
/** In seconds. */
const OVERLAPS = { 0: "Immediately", 3600: "In 1 hour", 86400: "In 1 day", 604800: "In 7 days", 2592000: "In 30 days" };
const DEFAULT_OVERLAP = "86400";

/** The scopes of common keys. A key with all scopes of its creator sends none. */
const PRESETS: Record<"files" | "read", Scope[]> = {
  files: ["files:upload", "files:read", "files:download", "files:write", "files:delete", "files:erase"],
  read: ["files:read", "files:download"],
};
/** The kinds of key and what each can do, the least first. */
const TYPES = {
  public: ["Upload only", "Can upload, can't see files. Safe in a web page or an app, where anyone can read it."],
  read: ["View and download files", "Changes nothing. Only for your server."],
  files: ["All actions on files", "Also adds, edits, shares, and deletes them. Only for your server."],
  full: ["Full access", "Also manages users, keys, and webhooks. Whoever has it has the whole team."],
  custom: ["Choose permissions", "Only what you select."],
};

/** Describes the scopes and limits of a key in a few words. */
export function accessOf({ isPublic, scopes, limits }: ApiKey): string {
  if (isPublic) {
    const { maxFileBytes, fileTypes } = limits ?? {};
    const parts = [
      maxFileBytes && `${formatBytes(maxFileBytes)} each`,
      fileTypes?.map((type) => TYPE_LABELS[type]).join(" or "),
    ].filter(Boolean);
    return parts.length > 0 ? `Upload only: ${parts.join(", ")}` : "Upload only";
  }
  return nameOfScopes(scopes);
}

function nameOfScopes(scopes: Scope[]): string {
  if (scopes.length === SCOPES.length) return "Full access";
  const isSame = (preset: Scope[]) => preset.length === scopes.length && preset.every((one) => scopes.includes(one));
  if (isSame(PRESETS.files)) return "All actions on files";
  if (isSame(PRESETS.read)) return "View and download files";
  return describeScopes(scopes);
}

/** The action in its verb and its resource: "view" and "keys and sessions". */
function partsOf(scope: Scope): { verb: string; noun: string } {
  const [, verb = "", noun = ""] = /^(.*?) (keys and sessions|\w+)$/.exec(SCOPE_LABELS[scope]) ?? [];
  return { verb, noun };
}
const list = new Intl.ListFormat("en");

/** The actions in a few words, each resource once: "View and download files, view users and events". */
function describeScopes(scopes: Scope[]): string {
  const verbsOf = (noun: string) =>
    list.format(scopes.map(partsOf).flatMap((one) => (one.noun === noun ? one.verb.replace(" and share", "") : [])));
  const nouns = [...new Set(scopes.map((scope) => partsOf(scope).noun))];
  const phrases = [...Map.groupBy(nouns, verbsOf)].map(([verbs, nouns]) => `${verbs} ${list.format(nouns)}`);
  return capitalized(phrases.join(", "));
}

/** A box for each scope, in a line for each resource. */
function ScopeBoxes({ scopes, checked }: { scopes: Scope[]; checked: Scope[] }) {
  const lines = Map.groupBy(scopes, (scope) => partsOf(scope).noun);
  return (
    <fieldset class="key-values">
      <legend>Permissions</legend>
      {[...lines].map(([noun, members]) => (
        <div key={noun} class="fact-row">
          <span class="quiet" aria-hidden="true">
            {capitalized(noun)}:
          </span>
          {members.map((scope) => (
            <label key={scope}>
              <input type="checkbox" name="scopes" value={scope} defaultChecked={checked.includes(scope)} />{" "}
              <span>
                {capitalized(partsOf(scope).verb)}
                <span class="visually-hidden"> {noun}</span>
              </span>
            </label>
          ))}
        </div>
      ))}
    </fieldset>
  );
}

function chosenScopes(form: HTMLFormElement): Scope[] {
  const scopes = new FormData(form).getAll("scopes") as Scope[];
  if (scopes.length === 0) throw new UserError("Select at least one permission.");
  return scopes;
}

function LimitFields() {
  return (
    <details>
      <summary>Limits</summary>
      <TextField
        label="Largest file in MB"
        name="maxFileBytes"
        type="number"
        min={0}
        step="any"
        hint="Default: 5,000 MB."
      />
      <fieldset class="choices">
        <legend>File types (all if none is selected)</legend>
        {Object.entries(TYPE_LABELS).map(([type, label]) => (
          <label key={type}>
            <input type="checkbox" name="fileTypes" value={type} /> {label}
          </label>
        ))}
      </fieldset>
    </details>
  );
}

function chosenLimits(form: HTMLFormElement): ApiKey["limits"] | undefined {
  const megabytes = textOf(form, "maxFileBytes");
  const fileTypes = new FormData(form).getAll("fileTypes") as NonNullable<NonNullable<ApiKey["limits"]>["fileTypes"]>;
  const limits = {
    ...(megabytes && { maxFileBytes: Math.round(Number(megabytes) * MEGABYTE) }),
    ...(fileTypes.length > 0 && { fileTypes }),
  };
  return Object.keys(limits).length > 0 ? limits : undefined;
}

/** Creates a key of the team, or, for the operator, of another one. */
export async function createKey(teamId?: string): Promise<void> {
  const isOperator = session.peek()?.team === null;
  const created = await open<ApiKey>((close) => <NewKey teamId={teamId} isOperator={isOperator} onClose={close} />);
  if (!created) return;
  const { name, key, teamId: owner } = created;
  const text = isOperator && (
    <p>
      Team ID: <code>{owner}</code>
    </p>
  );
  return showSecret({ title: `Key “${name}”`, noun: "key", secret: key, apiKey: created, text });
}

interface NewKeyProps {
  teamId: string | undefined;
  isOperator: boolean;
  onClose: (created?: ApiKey) => void;
}

function NewKey({ teamId, isOperator, onClose }: NewKeyProps) {
  // The operator's key may be the first of a new team, which creates its others.
  const [type, setType] = useState<keyof typeof TYPES>(isOperator ? "full" : can("files:upload") ? "public" : "custom");
  // A malicious link could make the operator create a key for the wrong team.
  const isLinked = teamId !== undefined && teamId === linkedTeam;
  const create = async (form: HTMLFormElement) => {
    const days = Number(textOf(form, "expiresAt"));
    const key = await client.value.keys.create({
      name: textOf(form, "name"),
      isPublic: type === "public",
      scopes: type === "custom" ? chosenScopes(form) : type === "files" || type === "read" ? PRESETS[type] : undefined,
      limits: type === "public" ? (chosenLimits(form) ?? undefined) : undefined,
      // One minute less, because clocks differ and ten years are the limit.
      expiresAt: new Date(Date.now() + days * DAY_MILLISECONDS - 60_000).toISOString(),
      teamId: isOperator ? textOf(form, "teamId") || undefined : undefined,
    });
    onClose(key);
  };
  return (
    <TaskDialog title="Create key" action="Create key" onRun={create} onClose={() => onClose()}>
      <TextField label="Name" name="name" required maxLength={100} hint="For example, “Web player”" />
      <fieldset class="key-values types">
        <legend>What it can do</legend>
        {Object.entries(TYPES).map(([value, [label, text]]) => (
          <label key={value} class="card">
            <input
              type="radio"
              name="type"
              value={value}
              checked={type === value}
              onChange={() => setType(value as keyof typeof TYPES)}
            />
            <span>
              {label}
              <br />
              <span class="quiet">{text}</span>
            </span>
          </label>
        ))}
      </fieldset>
      {type === "custom" && <ScopeBoxes scopes={SCOPES.filter(can)} checked={[]} />}
      {type === "public" && <LimitFields />}
      <SelectField label="Expires in" name="expiresAt" options={LIFETIMES_DAYS} chosen="365" />
      {isOperator && (
        <TextField
          label="Team ID"
          name="teamId"
          defaultValue={isLinked ? "" : teamId}
          spellcheck={false}
          hint={
            isLinked
              ? `Leave blank to create a new team. You followed a link for team ${teamId}. Make sure it's the right one.`
              : "Leave blank to create a new team."
          }
        />
      )}
    </TaskDialog>
  );
}

/** Renames a key, and removes permissions from it. */
export const editKey = ({ id, isPublic, name, scopes }: ApiKey) =>
  ask({
    title: "Edit key",
    action: "Save",
    text: (
      <>
        <TextField label="Name" name="name" required maxLength={100} defaultValue={name} />
        {!isPublic && (
          <>
            <ScopeBoxes scopes={scopes} checked={scopes} />
            <p class="quiet">You can remove permissions. To add some, create another key.</p>
          </>
        )}
      </>
    ),
    run: (form) =>
      saveChanges<{ name: string; scopes?: Scope[] }>(
        { name, scopes },
        { name: textOf(form, "name"), ...(!isPublic && { scopes: chosenScopes(form) }) },
        (changes) => client.value.keys.update(id, changes),
      ),
    done: "Key updated",
  });

/** Replaces a key with a new one. Both work until the old one expires. */
export async function rotateKey({ id, name, expiresAt }: ApiKey): Promise<void> {
  const rotated = await ask({
    title: `Rotate “${name}”?`,
    action: "Rotate key",
    text: (
      <>
        <p>Creates a new key with the same name, permissions, and limits.</p>
        <SelectField label="The old key stops working" name="overlap" options={OVERLAPS} chosen={DEFAULT_OVERLAP} />
      </>
    ),
    run: async (form) => {
      const overlapSeconds = Number(textOf(form, "overlap"));
      const end = new Date(Date.now() + overlapSeconds * 1000).toISOString();
      const { key } = await client.value.keys.rotate(id, { overlapSeconds });
      return { key, oldExpiresAt: end < expiresAt ? end : expiresAt };
    },
  });
  if (!rotated) return;
  const text = (
    <p>
      The old key works until <Time at={rotated.oldExpiresAt} />. Update your apps before then.
    </p>
  );
  await showSecret({ title: `New key “${name}”`, noun: "key", secret: rotated.key, text });
}
