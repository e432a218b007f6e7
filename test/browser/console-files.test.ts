import type { Page } from "@playwright/test";
import { describe } from "vitest";
import type { Stowage } from "../../src/client/stowage.ts";
import { newTeam, sample, type Team, upload } from "../support/team.ts";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "./looks.ts";
import { openConsole } from "./signed-in.ts";
import { expect, screenshot, test } from "./support.ts";

const tone = sample("tone-vbr.mp3");

async function uploadNamed(team: Team, ...names: string[]): Promise<string[]> {
  const ids: string[] = [];
  for (const name of names) ids.push(await upload(team, name, name.endsWith(".txt") ? `Text of ${name}` : tone));
  return ids;
}

const namesOf = async (stowage: Stowage) => (await stowage.files.list().page()).items.map((file) => file.originalName);
const row = (page: Page, name: string) => page.getByRole("row").filter({ has: page.getByRole("link", { name }) });
const rowNames = (page: Page) => page.getByRole("rowheader").allTextContents();
const dialog = (page: Page) => page.getByRole("dialog");

describe("The list of files", () => {
  const NAMES = [
    "plain.mp3",
    "Интервью, часть первая.mp3",
    "🎧 late night.mp3",
    "مقابلة.mp3",
    `${"long".repeat(40)}.txt`,
  ];

  test("It shows each file with its status, type, size and time, newest first.", async ({ openPage }) => {
    const team = await newTeam();
    await uploadNamed(team, ...NAMES);
    for (const theme of ["light", "dark"] as const) {
      const { page } = await openConsole(openPage, { path: "/files", team, theme });
      await expect(page.getByRole("rowheader")).toHaveText([...NAMES].reverse());
      await expect(row(page, "plain.mp3").getByRole("cell")).toContainText([
        "",
        "completed",
        "audio file",
        "9.3 kB",
        "20",
      ]);
      await expectAccessible(page);
      await screenshot(page, "files");
      await page.setViewportSize({ width: 320, height: 640 });
      await expectNoSidewaysScroll(page);
      await screenshot(page, "files");
    }
  });

  test("A team without files reads what to do.", async ({ openPage }) => {
    const { page } = await openConsole(openPage, { path: "/files" });
    await expect(page.getByRole("heading", { name: "No files yet." })).toBeVisible();
    await expect(page.getByText("Drop files here or choose them")).toBeVisible();
    await expectAccessible(page);
  });

  test("Filters narrow it, stay in the address, and can be cleared.", async ({ openPage }) => {
    const team = await newTeam();
    await uploadNamed(team, "song.mp3", "notes.txt", "Other.txt");
    const { page } = await openConsole(openPage, { path: "/files?type=text+file", team });
    await expect(page.getByRole("rowheader")).toHaveText(["Other.txt", "notes.txt"]);
    await page.getByLabel("Name begins with").fill("no");
    await expect(page.getByRole("rowheader")).toHaveText(["notes.txt"]);
    await expect(page).toHaveURL(/\/console\/files\?type=text\+file&name=no$/);
    await page.getByLabel("Status").selectOption("failed");
    await expect(page.getByRole("heading", { name: "No file is like that." })).toBeVisible();
    const clear = page.getByRole("main").getByRole("link", { name: "Clear filters" }).first();
    await clear.click();
    await expect(page.getByRole("rowheader")).toHaveText(["Other.txt", "notes.txt", "song.mp3"]);
    await expect(page.getByLabel("Name begins with")).toHaveValue("");
    await expect(page).toHaveURL(/\/console\/files$/);
    const day = await page.evaluate(() => new Date().toLocaleDateString("sv"));
    await page.getByLabel("Created from").fill(day);
    await page.getByLabel("Created until").fill(day);
    await expect(page).toHaveURL(new RegExp(`from=${day}&until=${day}$`));
    await expect(page.getByRole("rowheader")).toHaveCount(3);
    await page.getByLabel("Created until").fill("2020-02-02");
    await expect(page.getByRole("heading", { name: "No file is like that." })).toBeVisible();
    // What is typed while the address changes is not lost.
    const field = page.getByLabel("Name begins with");
    await field.fill("x");
    await expect(page).toHaveURL(/name=x$/);
    await field.evaluate(
      (input: HTMLInputElement, link) => {
        (link as HTMLElement).click();
        input.value = "son";
        input.dispatchEvent(new InputEvent("input", { bubbles: true }));
      },
      await clear.elementHandle(),
    );
    await expect(page).toHaveURL(/\/console\/files\?name=son$/);
    await expect(page.getByRole("rowheader")).toHaveText(["song.mp3"]);
    await expect(field).toHaveValue("son");
  });

  test("It follows what others do, and keeps the focus where its row goes.", async ({ openPage }) => {
    const team = await newTeam();
    const { stowage } = team;
    const [first = "", second = ""] = await uploadNamed(team, "first.mp3", "second.mp3");
    const { page } = await openConsole(openPage, { path: "/files", team });
    await expect(page.getByRole("rowheader")).toHaveText(["second.mp3", "first.mp3"]);
    await page.getByRole("link", { name: "second.mp3" }).focus();
    await uploadNamed(team, "third.mp3");
    await expect(row(page, "third.mp3")).toContainText("completed");
    expect(await rowNames(page)).toEqual(["third.mp3", "second.mp3", "first.mp3"]);
    await stowage.files.delete(second);
    await expect(page.getByRole("rowheader")).toHaveText(["third.mp3", "first.mp3"]);
    await expect(page.getByRole("link", { name: "first.mp3" })).toBeFocused();
    await stowage.files.reprocess(first);
    await expect.poll(async () => (await stowage.files.get(first)).status).toBe("completed");
    await expect(row(page, "first.mp3")).toContainText("completed");
  });

  test("A file comes into a filtered list, and leaves it, as its status changes.", async ({ openPage }) => {
    const team = await newTeam();
    const { page } = await openConsole(openPage, { path: "/files?status=completed&name=a", team });
    const none = page.getByRole("heading", { name: "No file is like that." });
    await expect(none).toBeVisible();
    // That the team has none is said once it is known.
    const held: (() => Promise<void>)[] = [];
    await page.route(/\/docs\/v1\/uploads\?/, (route) => {
      held.push(() => route.continue());
    });
    await page.getByRole("link", { name: "Clear filters" }).first().click();
    await expect.poll(() => held.length).toBe(1);
    await expect(page.getByRole("heading", { name: "No files yet." })).toHaveCount(0);
    await expect(none).toBeVisible();
    await held[0]?.();
    await expect(page.getByRole("heading", { name: "No files yet." })).toBeVisible();
    await page.unroute(/\/docs\/v1\/uploads\?/);
    await page.goBack();
    await expect(none).toBeVisible();
    await uploadNamed(team, "a.mp3", "b.mp3", "aa.mp3");
    await expect(page.getByRole("rowheader")).toHaveText(["a.mp3", "aa.mp3"]);
  });

  test("Further pages are shown when asked for, and again when one comes back from a file.", async ({ openPage }) => {
    const team = await newTeam();
    await uploadNamed(team, "1.txt", "2.txt", "3.txt", "4.txt", "5.txt");
    const { page } = await openConsole(openPage, { path: "/usage", team });
    // Two files on each page.
    await page.route(/\/docs\/v1\/uploads\?/, (route) =>
      route.continue({ url: route.request().url().replace("limit=100", "limit=2") }),
    );
    await page.getByRole("link", { name: "Files" }).click();
    await expect(page.getByRole("rowheader")).toHaveText(["5.txt", "4.txt"]);
    const more = page.getByRole("button", { name: "Show more" });
    await tabTo(more);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("rowheader")).toHaveText(["5.txt", "4.txt", "3.txt", "2.txt"]);
    await expect(more).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(more).toHaveCount(0);
    await expect(page.getByRole("link", { name: "1.txt" })).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(page.getByRole("heading", { level: 1, name: "1.txt" })).toBeFocused();
    await page.goBack();
    await expect(page.getByRole("rowheader")).toHaveCount(5);
    await expect(page.getByRole("link", { name: "1.txt" })).toBeFocused();
  });

  test("A further page that is still to come keeps nobody from leaving.", async ({ openPage }) => {
    const team = await newTeam();
    await uploadNamed(team, "1.txt", "2.txt");
    const { page } = await openConsole(openPage, { path: "/usage", team });
    await page.route(/\/docs\/v1\/uploads\?/, (route) => {
      const asked = route.request().url().replace("limit=100", "limit=1");
      // The second page never comes.
      return asked.includes("cursor=") ? undefined : route.continue({ url: asked });
    });
    await page.getByRole("link", { name: "Files" }).click();
    const asking = page.waitForRequest(/cursor=/);
    await page.getByRole("button", { name: "Show more" }).click();
    await asking;
    const ended = page.waitForEvent("requestfailed", (request) => request.url().includes("cursor="));
    await page.getByRole("link", { name: "Users" }).click();
    await ended;
    await page.evaluate(() => new Promise(requestAnimationFrame));
    await expect(page).toHaveURL(/\/console\/users$/);
    await expect(page.getByRole("heading", { level: 1, name: "Users" })).toBeVisible();
  });

  test("Two thousand files scroll, are reached by keyboard, and are chosen at once.", async ({ openPage }) => {
    const { page, teamId } = await openConsole(openPage, { path: "/usage" });
    const files = Array.from({ length: 2000 }, (_, place) => ({
      _id: (0x01a2_0000_0000 + 2000 - place).toString(16).padStart(12, "0").padEnd(24, "0"),
      teamId,
      originalName: `Recording ${2000 - place}.mp3`,
      fileType: "audio file",
      status: "completed",
      createdAt: new Date(1_780_000_000_000 - place * 60_000).toISOString(),
      updatedAt: new Date(1_780_000_000_000).toISOString(),
      __v: 2,
      filename: "",
      path: "",
    }));
    await page.route(/\/docs\/v1\/uploads\?/, (route) => route.fulfill({ json: { message: "", data: files } }));
    await page.getByRole("link", { name: "Files" }).click();
    await expect(page.getByRole("rowheader")).toHaveCount(2000);
    const last = page.getByRole("link", { name: "Recording 1.mp3" });
    await last.focus();
    await expect(last).toBeInViewport();
    await page.keyboard.press("Shift+Tab");
    await expect(page.getByRole("checkbox", { name: "Select Recording 1.mp3" })).toBeFocused();
    await page.keyboard.press("Space");
    await expect(page.getByRole("button", { name: "Delete 1 file" })).toBeInViewport();
    await page.getByRole("checkbox", { name: "Select all shown" }).check();
    await expect(page.getByRole("button", { name: "Delete 2,000 files" })).toBeVisible();
    await page.getByRole("button", { name: "Delete 2,000 files" }).click();
    await expect(dialog(page)).toContainText("and 1,995 more");
    await page.keyboard.press("Escape");
    await expect(page.getByRole("button", { name: "Delete 2,000 files" })).toBeFocused();
  });
});

describe("Deleting files", () => {
  test("It asks first, by keyboard too, and deletes the chosen ones alone.", async ({ openPage }) => {
    const team = await newTeam();
    await uploadNamed(team, "keep.txt", "one.txt", "two.txt");
    const { page } = await openConsole(openPage, { path: "/files", team });
    for (const name of ["two.txt", "one.txt"]) {
      await tabTo(page.getByRole("checkbox", { name: `Select ${name}` }));
      await page.keyboard.press("Space");
    }
    await tabTo(page.getByRole("button", { name: "Delete 2 files" }), "Shift+Tab");
    await page.keyboard.press("Enter");
    await expect(dialog(page)).toHaveAccessibleName("Delete 2 files?");
    await expect(dialog(page).getByRole("listitem")).toHaveText(["two.txt", "one.txt"]);
    await expectAccessible(page);
    await page.keyboard.press("Escape");
    await expect(page.getByRole("button", { name: "Delete 2 files" })).toBeFocused();
    expect(await namesOf(team.stowage)).toHaveLength(3);
    await page.keyboard.press("Enter");
    await tabTo(dialog(page).getByRole("button", { name: "Delete 2 files" }));
    await page.keyboard.press("Enter");
    await expect(page.getByRole("status").filter({ hasText: "Deleted 2 files." })).toBeVisible();
    await expect(page.getByRole("rowheader")).toHaveText(["keep.txt"]);
    await expect(page.getByRole("heading", { level: 1 })).toBeFocused();
    expect(await namesOf(team.stowage)).toEqual(["keep.txt"]);
  });

  test("What could not be deleted is said, stays chosen, and can be tried again.", async ({ openPage, problems }) => {
    problems.allow(/40[34].*uploads/);
    const team = await newTeam();
    const [gone = "", refused = ""] = await uploadNamed(team, "gone.txt", "refused.txt", "fine.txt");
    const { page } = await openConsole(openPage, { path: "/files", team });
    await page.getByRole("checkbox", { name: "Select all shown" }).check();
    await page.getByRole("button", { name: "Delete 3 files" }).click();
    await team.stowage.files.delete(gone);
    await page.route(`**/${refused}`, (route) =>
      route.fulfill({
        status: 403,
        headers: { "X-Request-Id": "the-request" },
        json: { status: false, code: "forbidden", message: "Not you." },
      }),
    );
    await dialog(page).getByRole("button", { name: "Delete 3 files" }).click();
    const told = dialog(page).getByRole("alert");
    await expect(told).toContainText("2 files of 3 are gone, 1 file still there.");
    await expect(told.getByRole("listitem").filter({ hasText: "refused.txt" })).toHaveText(
      "refused.txt: Not you.Request the-request",
    );
    await expect(told.getByRole("listitem").filter({ hasText: "gone.txt" })).toContainText("Request");
    expect(await namesOf(team.stowage)).toEqual(["refused.txt"]);
    await dialog(page).getByRole("button", { name: "Close" }).click();
    await expect(page.getByRole("rowheader")).toHaveText(["refused.txt"]);
    await expect(page.getByRole("checkbox", { name: "Select refused.txt" })).toBeChecked();
    await page.unroute(`**/${refused}`);
    await page.getByRole("button", { name: "Delete 1 file" }).click();
    await dialog(page).getByRole("button", { name: "Delete 1 file" }).click();
    await expect(page.getByRole("heading", { name: "No files yet." })).toBeVisible();
    expect(await namesOf(team.stowage)).toEqual([]);
  });

  test("Four are deleted at once, and it can be stopped.", async ({ openPage }) => {
    const team = await newTeam();
    await uploadNamed(team, ...Array.from({ length: 7 }, (_, place) => `${place}.txt`));
    const { page } = await openConsole(openPage, { path: "/files", team });
    await page.getByRole("checkbox", { name: "Select all shown" }).check();
    await page.getByRole("button", { name: "Delete 7 files" }).click();
    const held: (() => Promise<void>)[] = [];
    await page.route(/uploads\/\w+$/, (route) => {
      held.push(() => route.continue());
    });
    await dialog(page).getByRole("button", { name: "Delete 7 files" }).click();
    await expect.poll(() => held.length).toBe(4);
    await expect(dialog(page).getByRole("progressbar", { name: "Deleting: 0 of 7" })).toBeVisible();
    await dialog(page).getByRole("button", { name: "Stop" }).click();
    for (const release of held) await release();
    await expect(dialog(page).getByRole("alert")).toContainText("4 files of 7 are gone, 3 files still there.");
    expect(await namesOf(team.stowage)).toHaveLength(3);
    await page.unroute(/uploads\/\w+$/);
    await dialog(page).getByRole("button", { name: "Try again" }).click();
    await expect(page.getByRole("heading", { name: "No files yet." })).toBeVisible();
  });
});
