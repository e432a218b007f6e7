import { describe } from "vitest";
import { test } from "../support/browser/console.ts";
import { dropFiles } from "../support/browser/dragging.ts";
import { button, dialog, heading, link, player, rows, secondsOf } from "../support/browser/locators.ts";
import { reloadHolding, reloadWithout } from "../support/browser/scripts.ts";
import { chooseFiles, expect, untilEffects } from "../support/browser/support.ts";
import { collect } from "../support/team.ts";

/* The scripts that the console loads after its first one: nothing is lost before they are there, or if they can't be loaded. */

describe("Until its later scripts are loaded, the console", () => {
  test("keeps what is chosen and dropped, and uploads it then", async ({ at }) => {
    const { page, stowage } = await at("/files");
    const release = await reloadHolding(page);
    await expect(heading(page, "Files")).toBeVisible();
    await untilEffects(page);
    const three = { name: "three.txt", mimeType: "", buffer: Buffer.from("3") };
    await chooseFiles(page, () => page.keyboard.press("u"), three);
    await dropFiles(page.locator("main"), { "album/one.txt": Buffer.from("1"), "album/two.txt": Buffer.from("2") });
    expect(await collect(stowage.files.list())).toEqual([]);
    release();
    const card = page.getByRole("region", { name: "Uploads" });
    await expect(card.getByText(/^3 of 3 uploaded/)).toBeVisible();
    const files = await collect(stowage.files.list());
    expect(files.map(({ folder, name }) => `${folder}/${name}`).sort()).toEqual([
      "/three.txt",
      "album/one.txt",
      "album/two.txt",
    ]);
  });

  test("keeps what should be played, and the keys of the player", async ({ at }) => {
    const { page } = await at("/files", { files: ["first.wav", "second.wav"] });
    const release = await reloadHolding(page);
    await button(page, "Play second.wav").click();
    await expect(button(page, "Pause second.wav")).toBeVisible();
    await page.keyboard.press("n");
    await expect(button(page, "Pause first.wav")).toBeVisible();
    await page.keyboard.press("Shift+ArrowRight");
    release();
    await expect(player(page).getByRole("button", { name: "Pause first.wav" })).toBeVisible();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(30);
  });

  test("does not move when they come", async ({ at }) => {
    const { page } = await at("/files", { files: ["one.wav", "two.txt"] });
    const release = await reloadHolding(page);
    await expect(rows(page)).toHaveCount(2);
    await page.evaluate(() => {
      const moves: unknown[] = [];
      const note = (entries: PerformanceEntry[]) => moves.push(...entries.map((entry) => entry.toJSON()));
      const observer = new PerformanceObserver((list) => note(list.getEntries()));
      observer.observe({ type: "layout-shift" });
      Reflect.set(window, "takeMoves", () => {
        note(observer.takeRecords());
        return moves;
      });
    });
    const scripts = [/uploading-/, /player-/, /palette-results-/, /sharing-/].map((name) => page.waitForResponse(name));
    release();
    for (const script of scripts) await (await script).finished();
    const drawn = () => new Promise((resolve) => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    await page.evaluate(drawn);
    expect(await page.evaluate(() => (Reflect.get(window, "takeMoves") as () => unknown[])())).toEqual([]);
  });
});

describe("If its later scripts can't be loaded, the console", () => {
  test("shows it in place of a page, and loads the page by a button", async ({ at, problems }) => {
    const { page } = await at("/files");
    const restore = await reloadWithout(page, problems);
    await link(page, "Usage").click();
    await expect(page.getByRole("alert")).toContainText("A part of this page couldn't be loaded.");
    await button(page, "Try again").click();
    await expect(page.getByRole("alert")).toContainText("A part of this page couldn't be loaded.");
    await restore();
    await button(page, "Try again").click();
    await expect(page.getByRole("meter")).toHaveCount(2);
  });

  test("keeps dropped files, and uploads them by a button", async ({ at, problems }) => {
    const { page, stowage } = await at("/files");
    const restore = await reloadWithout(page, problems);
    await expect(heading(page, "Files")).toBeVisible();
    await dropFiles(page.locator("main"), { "one.txt": Buffer.from("1") });
    const failure = page.locator(".announcements").filter({ hasText: "A part of this page couldn't be loaded." });
    await expect(failure).toBeVisible();
    await restore();
    await failure.getByRole("button", { name: "Try again" }).click();
    await expect(page.getByRole("region", { name: "Uploads" }).getByText(/^1 of 1 uploaded/)).toBeVisible();
    await expect(failure).toHaveCount(0);
    expect((await collect(stowage.files.list())).map(({ name }) => name)).toEqual(["one.txt"]);
  });

  test("shows it in place of the player, which then plays by a button", async ({ at, problems }) => {
    const { page } = await at("/files", { files: ["one.wav"] });
    const restore = await reloadWithout(page, problems);
    await button(page, "Play one.wav").click();
    await expect(player(page).getByRole("alert")).toContainText("A part of this page couldn't be loaded.");
    await restore();
    await player(page).getByRole("button", { name: "Try again" }).click();
    await expect(player(page).getByRole("button", { name: "Pause one.wav" })).toBeVisible();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(0);
  });

  test("shows it in the palette, which keeps what was typed", async ({ at, problems }) => {
    const { page } = await at("/files");
    const restore = await reloadWithout(page, problems);
    await expect(heading(page, "Files")).toBeVisible();
    await untilEffects(page);
    await page.keyboard.press("Control+k");
    await page.keyboard.type("usage");
    await expect(dialog(page).getByRole("alert")).toContainText("A part of this page couldn't be loaded.");
    await restore();
    await button(page, "Try again").click();
    await expect(dialog(page).getByRole("option", { selected: true })).toContainText("Usage");
    await dialog(page).getByRole("combobox").press("Enter");
    await expect(page.getByRole("meter")).toHaveCount(2);
  });

  test("shows it above the page if an action needs them, and starts the action by a button", async ({
    at,
    problems,
  }) => {
    const { page } = await at("/files", { files: ["one.txt"] });
    const restore = await reloadWithout(page, problems);
    await link(page, "one.txt").focus();
    await page.keyboard.press("Delete");
    const failure = page.locator(".announcements").filter({ hasText: "A part of this page couldn't be loaded." });
    await expect(failure).toBeVisible();
    await restore();
    await failure.getByRole("button", { name: "Try again" }).click();
    await button(page, "Delete 1 file").click();
    await expect(rows(page)).toHaveCount(0);
  });
});
