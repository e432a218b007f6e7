import { createHash } from "node:crypto";
import type { Page } from "@playwright/test";

import { Stowage } from "../../../src/client/index.ts";
import type { SavedSession } from "../../../src/console/framework/token.ts";
import { newTeam, sample, type Team, upload } from "../team.ts";
import { isExhaustive } from "../tiers.ts";
import { tone } from "./sounds.ts";
import { test as base, expect, type OpenPage, type PageOptions, untilEffects } from "./support.ts";

/* Pages of the console. */

export const PASSWORD = "correct horse battery";

/** Submits a key that may be rejected. */
export async function submitKey(page: Page, key: string): Promise<void> {
  await page.getByText("API key", { exact: true }).click();
  await page.getByLabel("Secret key").fill(key);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

/** Signs in by the form, as a user does. */
export async function signIn(page: Page, key: string): Promise<void> {
  await submitKey(page, key);
  await expect(page.getByRole("navigation", { name: "Sections" })).toBeVisible();
}

/** Creates what the console saves in the tab after a sign-in with a secret key, or as a user of the team. */
async function createSession({ key, teamId, stowage: { url } }: Team, email?: string): Promise<SavedSession> {
  const client = new Stowage({ url, key });
  const created = email ? await client.logIn({ teamId, email, password: PASSWORD }) : await client.sessions.create();
  const { id: keyId, name, createdAt, expiresAt } = created;
  const lifetime = Date.parse(expiresAt) - Date.parse(createdAt);
  return {
    id: created.teamId,
    key: created.key,
    keyId,
    name,
    owner: createHash("sha256")
      .update(email ? `${teamId} ${email}` : key)
      .digest("base64"),
    expiresAt: new Date(Date.now() + lifetime).toISOString(),
    me: await new Stowage({ url, key: created.key }).me(),
  };
}

/** The content of a file: a tone of 2 seconds, one of 65 seconds, or a text. */
const contentOf = (name: string): BlobPart =>
  name.endsWith(".mp3") ? sample("tone-vbr.mp3") : name.endsWith(".wav") ? tone(65) : `Text of ${name}`;

/** Uploads files one after another. @returns their ids */
export const uploadNamed = (team: Team, ...names: string[]): Promise<string[]> =>
  uploadAll(team, Object.fromEntries(names.map((name) => [name, contentOf(name)])));

/** Uploads files by name. @returns their ids */
async function uploadAll(team: Team, files: Record<string, BlobPart>): Promise<string[]> {
  const ids: string[] = [];
  for (const [name, content] of Object.entries(files)) ids.push(await upload(team, name, content));
  return ids;
}

export interface ConsoleOptions extends PageOptions {
  /** A new team if none is given. The key signs in. */
  team?: Team;
  /** Signs in a new user with this role instead. */
  role?: "admin" | "member" | "contributor" | "viewer";
  /** The names of files that the team gets first, one after another, or their contents by name. */
  files?: string[] | Record<string, BlobPart>;
}

/**
 * Opens the console at a path, such as `/files`, signed in. `:id` in the path is the first of the files. The session is
 * not begun by the form, which has separate tests and takes longer than most of the others.
 */
const openerOf =
  (openPage: OpenPage) =>
  async (path: string, options: ConsoleOptions = {}) => {
    const { team = await newTeam(), role, files = [], ...others } = options;
    const ids = await (Array.isArray(files) ? uploadNamed(team, ...files) : uploadAll(team, files));
    const [id = ""] = ids;
    const email = role && `${role}@example.com`;
    const user = email
      ? await team.stowage.users.create({ firstName: "Ada", lastName: role, email, password: PASSWORD, role })
      : null;
    const session = await createSession(team, email);
    // A page may reach the service through a proxy. A team knows the URL of its service.
    const page = await openPage({
      baseURL: team.stowage.url,
      ...others,
      path: `/console${path.replace(":id", id)}`,
      session,
    });
    await expect(page.getByRole("navigation", { name: "Sections" })).toBeVisible();
    // Only once the first page has loaded is another one reached by navigation.
    await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
    await untilEffects(page);
    return { page, team, stowage: team.stowage, ids, id, userId: user?._id ?? "", session };
  };

export type At = ReturnType<typeof openerOf>;

/** `at` opens the console, signed in. */
export const test = base.extend("at", ({ openPage }) => openerOf(openPage));
/** See `exhaustive` of support.ts. */
export const exhaustive = test.runIf(isExhaustive);

/** Starts to choose files for an upload, by the button that adds them. */
export async function startUpload(page: Page, action = "Upload files"): Promise<void> {
  await chooseAction(page, "Add", action);
}

/** Chooses an action from the menu of a record: "Revoke" from "Actions for Web player". */
export async function chooseAction(page: Page, menu: string, action: string): Promise<void> {
  await page.getByRole("button", { name: menu, exact: true }).click();
  await page.getByRole("menuitem", { name: action, exact: true }).click();
}
