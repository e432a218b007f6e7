import type { Page } from "@playwright/test";
import { newTeam, type Team } from "../support/team.ts";
import { expect, type PageOptions } from "./support.ts";

/** Submits a key that may be rejected. */
export async function submitKey(page: Page, key: string): Promise<void> {
  await page.getByText("API key", { exact: true }).click();
  await page.getByLabel("Secret key").fill(key);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
}

export async function signIn(page: Page, key: string): Promise<void> {
  await submitKey(page, key);
  await expect(page.getByRole("navigation", { name: "Sections" })).toBeVisible();
}

/** Opens the console at a path, such as `/files`, and signs in to a team; to a new one if none is given. */
export async function openConsole(
  openPage: (options: PageOptions) => Promise<Page>,
  { path, team, ...options }: PageOptions & { path: string; team?: Team },
) {
  const signedIn = team ?? (await newTeam());
  const page = await openPage({ ...options, path: `/console${path}` });
  await signIn(page, signedIn.key);
  return { page, ...signedIn };
}

/** Chooses an action from the menu of a record: "Revoke" from "Actions for Web player". */
export async function chooseAction(page: Page, menu: string, action: string): Promise<void> {
  await page.getByRole("button", { name: menu, exact: true }).click();
  await page.getByRole("menuitem", { name: action, exact: true }).click();
}
