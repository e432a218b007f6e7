import type { Page } from "@playwright/test";
import { newTeam } from "../client/support.ts";
import { expect, type PageOptions } from "./support.ts";

type Team = Awaited<ReturnType<typeof newTeam>>;

/** Opens the console at `path`, such as `/files`, and signs in with the key of a team; of a new one where none is given. */
export async function openConsole(
  openPage: (options: PageOptions) => Promise<Page>,
  { path, team, ...options }: PageOptions & { path: string; team?: Team },
) {
  const signedIn = team ?? (await newTeam());
  const page = await openPage({ ...options, path: `/console${path}` });
  await page.getByLabel("Secret key").fill(signedIn.key);
  await page.getByRole("button", { name: "Sign in" }).click();
  await expect(page.getByRole("button", { name: "Sign out" })).toBeVisible();
  return { page, ...signedIn };
}
