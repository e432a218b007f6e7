import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { expectGoodLooks, tabTo } from "../support/browser/appearance.ts";
import { chooseAction, exhaustive, PASSWORD, startUpload, test } from "../support/browser/console.ts";
import { hold } from "../support/browser/fakes.ts";
import { button, dialog, heading, link } from "../support/browser/locators.ts";
import { chooseFiles, expect, expectAnnounced } from "../support/browser/support.ts";
import { collect, url } from "../support/team.ts";

/* The console shows only actions that the session's scopes allow. The API checks each request itself. */

const sections = (page: Page) => page.getByRole("navigation", { name: "Sections" }).getByRole("link");

describe("Viewer", () => {
  test("sees only what the role allows, with the reason", async ({ at }) => {
    const { page } = await at("/files", { role: "viewer", files: ["song.txt"] });
    await expect(sections(page)).toHaveText(["Files", "Usage", "Events"]);
    await expect(
      page.getByText("Your role (Viewer) doesn't allow you to upload files, edit files, or erase"),
    ).toBeVisible();
    await expect(link(page, "song.txt")).toBeVisible();
    await expect(page.getByRole("main").getByRole("button", { name: /^(Add|Upload .*)$|folder/ })).toHaveCount(0);
    await page.getByRole("checkbox", { name: "Select song.txt" }).check();
    await expect(page.getByRole("region", { name: "Selected files" }).getByRole("button")).toHaveText(["Download", ""]);
    await expect(page.getByRole("main").getByRole("button", { name: /Move|tags|Rename|Delete/ })).toHaveCount(0);
    await expectGoodLooks(page, "files-viewer");
    await link(page, "song.txt").click();
    await expect(button(page, "Download")).toBeVisible();
    await expect(button(page, "Copy link")).toBeVisible();
    await expect(page.getByRole("button", { name: /Reprocess|Rename|Delete/ })).toHaveCount(0);
    // The log names the key. The list of keys is not the viewer's to read.
    await expect(page.getByRole("region", { name: "Activity" })).toContainText("test uploaded this file");
  });

  test("reads the reason once the page knows whether a deletion erases", async ({ at }) => {
    const { page } = await at("/files", { role: "viewer", files: ["song.txt"] });
    const reason = page.getByText(/^Your role \(Viewer\) doesn't allow you to .* or erase files\.$/);
    await expect(reason).toBeVisible();
    const { release, isHeld } = await hold(page, "GET", /\/auth\/v1\/teams\/\w+$/);
    await page.reload();
    await isHeld;
    await expect(link(page, "song.txt")).toBeVisible();
    await expect(page.getByText("doesn't allow you")).toHaveCount(0);
    release();
    await expect(reason).toBeVisible();
  });

  exhaustive("sees no section by its URL without the scope, and more after a change of the role", async ({ at }) => {
    const { page, team, userId } = await at("/users", { role: "viewer" });
    await expect(heading(page, "No access")).toBeVisible();
    await expect(page.getByRole("main")).toContainText("Your role (Viewer) doesn't allow you to view users.");
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    await team.stowage.users.update(userId, { role: "admin" });
    await expect(heading(page, "Users")).toBeVisible();
    await expect(page.getByRole("cell", { name: "Admin" })).toBeVisible();
    await expect(sections(page)).toHaveCount(7);
    await page.reload();
    await expect(sections(page)).toHaveCount(7);
  });
});

describe("Contributor", () => {
  test("sees only their own files and sections, and no request of a page is rejected", async ({ at, problems }) => {
    const { page, id } = await at("/files", { role: "contributor", files: ["theirs.txt"] });
    await expect(sections(page)).toHaveText(["Files", "Usage"]);
    await expect(page.getByText("You see only your own files.")).toBeVisible();
    // Without keys, there is nothing to do in code.
    await expect(page.getByRole("heading", { name: "No files yet" })).toBeVisible();
    await expect(page.getByRole("main").getByRole("listitem")).toHaveCount(0);
    const mine = { name: "mine.txt", mimeType: "text/plain", buffer: Buffer.from("mine") };
    await chooseFiles(page, () => startUpload(page), mine);
    await expect(page.getByRole("rowheader")).toHaveText(["mine.txt"]);
    await expectGoodLooks(page, "files-contributor");
    await link(page, "mine.txt").click();
    await expect(heading(page, "mine.txt")).toBeVisible();
    await expect(button(page, "Copy link")).toBeVisible();
    await expect(page.getByRole("region", { name: "Activity" })).toHaveCount(0);
    await button(page, "Actions for this file").click();
    await expect(page.getByRole("menuitem", { name: "Reprocess" })).toBeVisible();
    await expect(page.getByRole("menuitem", { name: "Hold" })).toHaveCount(0);
    await page.keyboard.press("Escape");
    problems.allow(404);
    await page.goto(`/console/files/${id}`);
    await expect(page.getByText("It may have been deleted, or it isn't yours.")).toBeVisible();
    await sections(page).filter({ hasText: "Usage" }).click();
    await expect(page.getByText("Your own files. The limits are those of your team.")).toBeVisible();
    await expect(page.getByRole("region", { name: "Files" })).toContainText("1 of");
    await page.getByRole("link", { name: /Contributor/ }).click();
    await expect(page.getByRole("main")).toContainText("As a user with the role Contributor");
  });
});

exhaustive("a phone has the sections of every day as tabs, and the others behind a button", async ({ at }) => {
  const { page } = await at("/files", { width: 390 });
  const tabs = ["Files", "Events", "Webhooks"];
  await expect(sections(page)).toHaveText(tabs);
  await button(page, "More").click();
  await expect(sections(page)).toHaveText([...tabs, "Usage", "Users", "Keys", /API reference/]);
});

describe("Session page", () => {
  test("shows the user, changes the password, and ends other sessions", async ({ at, problems }) => {
    problems.allow(401);
    const { page: member, team } = await at("/session", { role: "member" });
    await expect(heading(member, "Account")).toBeVisible();
    await expect(member.getByRole("main")).toContainText("As a user with the role Member");
    await expect(member.getByRole("main")).toContainText("doesn't allow you to view keys and sessions");
    await button(member, "Change password").click();
    await dialog(member).getByLabel("Current password").fill(PASSWORD);
    await dialog(member).getByLabel("New password").fill(`${PASSWORD} 2`);
    await dialog(member).getByRole("button", { name: "Change password" }).click();
    await expectAnnounced(member, "Password changed.");
    await new Stowage({ url, key: null }).logIn({
      teamId: team.teamId,
      email: "member@example.com",
      password: `${PASSWORD} 2`,
    });

    const { page } = await at("/usage", { team });
    await link(page, "test API key").click();
    await expect(heading(page, "Account")).toBeFocused();
    const rows = page.getByRole("row").filter({ has: page.getByRole("rowheader") });
    // The sessions of others are in their own menus.
    await expect(rows).toHaveCount(1);
    await expect(rows).toContainText("node This session");
    // A long name of a device gives way to what says that it is this one.
    const device = rows.getByText("node", { exact: true });
    await device.evaluate((name) => {
      name.textContent = "Chrome 153 on a computer with a very long name";
    });
    await page.setViewportSize({ width: 320, height: 640 });
    const badge = rows.getByText("This session");
    await expect(badge).toBeInViewport({ ratio: 1 });
    expect(await badge.evaluate(({ clientWidth, scrollWidth }) => scrollWidth - clientWidth)).toBe(0);
    const [cell, mark] = await Promise.all([rows.getByRole("rowheader").boundingBox(), badge.boundingBox()]);
    expect((mark?.x ?? 0) + (mark?.width ?? 0)).toBeLessThanOrEqual((cell?.x ?? 0) + (cell?.width ?? 0) + 0.5);
    await page.setViewportSize({ width: 1280, height: 800 });
    await expect(page.getByRole("definition").filter({ hasText: "View files" })).toHaveCount(0);
    await expectGoodLooks(page, "session");
    const end = async (row: ReturnType<typeof page.locator>) => {
      await row.getByRole("button", { name: "Actions for this session" }).click();
      await page.getByRole("menuitem", { name: "Sign out" }).click();
    };
    await link(page, "Users").click();
    await chooseAction(page, "Actions for Ada member", "Sessions");
    const list = page.getByRole("dialog", { name: "Sessions of Ada member" });
    const theirs = list.getByRole("row").filter({ has: page.getByRole("rowheader") });
    await expect(theirs).toHaveCount(2);
    await expectGoodLooks(page, "sessions-of-user");
    await end(theirs.last());
    await page
      .getByRole("dialog", { name: "Sign out this session?" })
      .getByRole("button", { name: "Sign out" })
      .click();
    await expect(theirs).toHaveCount(1);
    await expect(heading(member, "Sign in")).toBeVisible();
    await list.getByRole("button", { name: "Done" }).click();

    await link(page, "test API key").click();
    await end(rows.filter({ hasText: "This session" }));
    await expect(dialog(page)).toContainText("You'll be signed out.");
    await dialog(page).getByRole("button", { name: "Sign out" }).click();
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect.poll(async () => (await collect(team.stowage.sessions.list())).length).toBe(1);
  });
});

describe("Key", () => {
  exhaustive("has chosen permissions, loses some, is rotated, and has limits if it is public", async ({ at }) => {
    const { page, team } = await at("/keys");
    const box = (name: string) => dialog(page).getByRole("checkbox", { name, exact: true });
    const row = (name: string) => page.getByRole("row").filter({ hasText: name });
    const find = async (name: string) => (await collect(team.stowage.keys.list())).find((key) => key.name === name);
    const startKey = async (name: string, type: string) => {
      await button(page, "Create key").click();
      await dialog(page).getByLabel("Name").fill(name);
      await dialog(page).locator(`[value="${type}"]`).check();
    };
    const finishKey = async () => {
      await dialog(page).getByRole("button", { name: "Create key" }).click();
      await button(page, "Done").click();
    };
    await startKey("Editor", "custom");
    // A line for each resource.
    await expect(dialog(page).getByRole("group", { name: "Permissions" })).toContainText(
      /Files:.*Users:.*Keys and sessions:.*Events:.*Webhooks:/s,
    );
    const placeOf = async (name: string) => (await box(name).boundingBox()) ?? { x: 0, y: 0 };
    const [view, manage] = [await placeOf("View users"), await placeOf("Manage users")];
    expect([manage.y, manage.x > view.x]).toEqual([view.y, true]);
    // The buttons stay visible below a form that is longer than the window, and hide no box that the keyboard reaches.
    await page.setViewportSize({ width: 1280, height: 500 });
    const create = dialog(page).getByRole("button", { name: "Create key" });
    await expect(create).toBeInViewport({ ratio: 1 });
    await dialog(page).getByLabel("Name").focus();
    await tabTo(box("Erase files"));
    const { y = 0, height = 0 } = (await box("Erase files").boundingBox()) ?? {};
    expect(y + height).toBeLessThan((await create.boundingBox())?.y ?? 0);
    await page.setViewportSize({ width: 1280, height: 800 });
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    await expect(page.getByRole("alert")).toHaveText("Select at least one permission.");
    for (const name of ["View files", "Download and share files", "Edit files"]) await box(name).check();
    await finishKey();
    await expect(row("Editor")).toContainText("Secret View, download, and edit files");
    await expect(page.getByTitle("View files, Download and share files, Edit files", { exact: true })).toBeVisible();
    expect(await find("Editor")).toMatchObject({ scopes: ["files:read", "files:download", "files:write"] });

    await chooseAction(page, "Actions for Editor", "Edit");
    await expect(dialog(page).getByRole("checkbox")).toHaveCount(3);
    await box("Edit files").uncheck();
    await dialog(page).getByLabel("Name").fill("Reader");
    await expectGoodLooks(page, "keys-edit");
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await expect(row("Reader")).toContainText("View and download files");
    expect(await find("Reader")).toMatchObject({ scopes: ["files:read", "files:download"] });

    const { id: oldId } = (await find("Reader")) ?? { id: "" };
    await chooseAction(page, "Actions for Reader", "Rotate");
    await dialog(page).getByLabel("The old key stops working").selectOption("In 1 hour");
    await dialog(page).getByRole("button", { name: "Rotate key" }).click();
    await expect(dialog(page)).toContainText("The old key works until");
    const rotated = (await dialog(page).getByRole("code").textContent()) ?? "";
    await button(page, "Done").click();
    await expect(row("Reader")).toHaveCount(2);
    await new Stowage({ url, key: rotated }).files.list();
    const left = Date.parse((await team.stowage.keys.get(oldId)).expiresAt) - Date.now();
    expect(Math.abs(left - 3_600_000)).toBeLessThan(60_000);

    await startKey("Contest", "public");
    await dialog(page).getByText("Limits", { exact: true }).click();
    await dialog(page).getByLabel("Largest file in MB").fill("1.5");
    await box("Audio").check();
    await expectGoodLooks(page, "keys-public");
    await finishKey();
    await expect(row("Contest")).toContainText("Upload only: 1.5 MB each, Audio");
    const limits = { maxFileBytes: 1_500_000, fileTypes: ["audio file"] };
    expect(await find("Contest")).toMatchObject({ limits });
  });
});
