import { inject } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { expectGoodLooks } from "../support/browser/appearance.ts";
import { chooseAction, exhaustive, signIn, test } from "../support/browser/console.ts";
import { respond } from "../support/browser/fakes.ts";
import { button, dialog, rows } from "../support/browser/locators.ts";
import { expect, type OpenPage } from "../support/browser/support.ts";
import { url } from "../support/team.ts";

/* The operator's page of teams. */

/** Opens the page of teams, filtered to those that start with a unique name. */
async function openTeams(openPage: OpenPage) {
  const name = `Radio ${crypto.randomUUID()}`;
  const page = await openPage({ path: `/console/teams?name=${encodeURIComponent(name)}` });
  await signIn(page, inject("operatorToken"));
  await expect(page.getByRole("heading", { name: "No matching teams" })).toBeVisible();
  return { page, name };
}

exhaustive("asks an operator without teams to create the first one, and shows its key", async ({ openPage }) => {
  const page = await openPage({ path: "/console" });
  // The server of the tests has teams.
  await page.route(/\/auth\/v1\/teams(\?|$)/, (route) =>
    route.request().method() === "GET" ? respond(route, { data: [] }) : route.continue(),
  );
  await signIn(page, inject("operatorToken"));
  await expect(page.getByRole("heading", { name: "Create the first team" })).toBeVisible();
  await button(page, "Create team").click();
  await dialog(page).getByLabel("Name").fill("First");
  await dialog(page).getByRole("button", { name: "Create team" }).click();
  await expect(dialog(page)).toContainText("The console won't show it again.");
  await expect(dialog(page).getByRole("code").first()).toContainText("stow_sk_");
});

test("creates a team with limits, shows its first key once, and edits the limits", async ({ openPage }) => {
  const { page, name } = await openTeams(openPage);
  await button(page, "Create team").click();
  await dialog(page).getByLabel("Name").fill(name);
  await dialog(page).getByLabel("Storage limit in GB").fill("1.5");
  await dialog(page).getByRole("button", { name: "Create team" }).click();
  await expect(dialog(page)).toContainText("The console won't show it again.");
  const [key, teamId = ""] = await dialog(page).getByRole("code").allTextContents();
  await button(page, "Done").click();
  await new Stowage({ url, key }).files.upload(new File([new Uint8Array(2000)], "zeros.bin"));
  await page.reload();
  await signIn(page, inject("operatorToken"));
  await expect(page.getByRole("cell")).toContainText(["Active", "2 kB of 1.5 GB", "1"]);

  await chooseAction(page, `Actions for ${name}`, "Edit");
  await dialog(page).getByLabel("Storage limit in GB").fill("");
  await dialog(page).getByLabel("File limit").fill("10");
  await dialog(page).getByRole("button", { name: "Save" }).click();
  await expect(page.getByRole("cell")).toContainText(["Active", /^2 kB$/, "1 of 10"]);
  await expectGoodLooks(page, "teams");
  await page.getByRole("link", { name }).click();
  await expect(page).toHaveURL(`${url}/console/teams/${teamId}`);
  await expect(page.getByRole("definition").filter({ hasText: teamId })).toBeVisible();
  await expect(rows(page)).toContainText(["First key"]);
  await expect(page.getByRole("listitem").filter({ hasText: "uploaded" })).toBeVisible();
  await expectGoodLooks(page, "team");
});

test("suspends and resumes a team, and deletes it after its name is entered", async ({ openPage }) => {
  const { page, name } = await openTeams(openPage);
  const operator = new Stowage({ url, key: inject("operatorToken") });
  const { apiKey } = await operator.teams.create({ name });
  const team = new Stowage({ url, key: apiKey.key });
  await page.reload();
  await signIn(page, inject("operatorToken"));
  await chooseAction(page, `Actions for ${name}`, "Suspend");
  await dialog(page).getByRole("button", { name: "Suspend team" }).click();
  await expect(page.getByRole("cell").first()).toHaveText("Suspended");
  await expect(team.usage()).rejects.toMatchObject({ code: "team_suspended" });
  await chooseAction(page, `Actions for ${name}`, "Resume");
  await dialog(page).getByRole("button", { name: "Resume team" }).click();
  await expect(page.getByRole("cell").first()).toHaveText("Active");
  await team.usage();

  await chooseAction(page, `Actions for ${name}`, "Delete");
  const confirmation = dialog(page).getByRole("textbox");
  await confirmation.fill(name.slice(1));
  await page.keyboard.press("Enter");
  await expect(page.getByRole("alert")).toContainText("That isn't the name of the team.");
  await team.usage();
  await confirmation.fill(name);
  await page.keyboard.press("Enter");
  await expect(page.getByRole("cell").first()).toHaveText("Deleting");
  await expect(page.getByRole("cell").getByRole("button")).toHaveCount(0);
  await expect(team.usage()).rejects.toMatchObject({ code: "token_invalid" });
});
