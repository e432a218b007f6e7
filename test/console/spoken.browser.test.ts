import type { Locator } from "@playwright/test";
import { describe } from "vitest";
import { expectGoodLooks, expectNoSidewaysScroll } from "../support/browser/appearance.ts";
import { test } from "../support/browser/console.ts";
import { respond } from "../support/browser/fakes.ts";
import { button, heading, player, row, secondsOf } from "../support/browser/locators.ts";
import { silence } from "../support/browser/sounds.ts";
import { expect } from "../support/browser/support.ts";
import { newTeam, type Team, upload } from "../support/team.ts";

/* The search for what is said in recordings: in the list of files, and in the palette. */

const cueOf = (at: number, text: string) => `00:00:${at}.000 --> 00:00:${at + 1}.000\n${text}\n`;
const SAID = [
  "WEBVTT\n",
  cueOf(10, "<v Ada>The lock opens at half past four."),
  cueOf(20, "<v Ben>Until then, the café is open."),
  // Each is a place of its own, because they are far apart.
  ...[45, 50, 55].map((at) => cueOf(at, `<v Ada>The lock is closed at ${at}.`)),
].join("\n");

/** Uploads a recording, and waits until what is said in it is found. */
async function recordingOf(team: Team) {
  const id = await upload(team, "night shift.wav", silence(65));
  await team.stowage.files.setTranscript(id, SAID, { language: "en" });
  await expect.poll(async () => (await team.stowage.files.searchTranscripts("lock")).items.length).toBe(1);
  return id;
}

const matches = (group: Locator) => group.getByRole("listitem").getByRole("listitem").getByRole("link");

describe("The search for what is said", () => {
  test("plays a recording from the sentence that it finds, by keyboard alone", async ({ at }) => {
    const team = await newTeam();
    const id = await recordingOf(team);
    const { page } = await at("/files", { team });
    await page.getByLabel("Search files").fill("CAFE open");
    const group = page.getByRole("region", { name: "In transcripts" });
    const match = group.getByRole("link", { name: "0:20 Ben: Until then, the café is open." });
    await expect(match.locator("mark")).toHaveText(["café", "open"]);
    await expect(match.locator("[lang=en]")).toHaveText("Until then, the café is open.");
    await expect(group).toContainText("night shift.wav");
    await page.getByLabel("Search files").fill("half until");
    const turns = "0:10 Ada: The lock opens at half past four. Ben: Until then, the café is open.";
    await expect(group.getByRole("link", { name: turns })).toBeVisible();
    await page.getByLabel("Search files").fill("lock");
    await expect(matches(group)).toHaveCount(3);
    await expect(group.getByRole("status")).toHaveText("4 places in 1 recording");
    await expect(group.getByRole("heading", { name: "night shift.wav" }).getByRole("link")).toHaveAttribute(
      "href",
      `/console/files/${id}`,
    );
    await expectGoodLooks(page, "files-spoken");
    const more = group.getByRole("button", { name: "More in night shift.wav (1)" });
    await more.focus();
    await page.keyboard.press("Enter");
    await expect(matches(group)).toHaveCount(4);
    await expect(matches(group).last()).toBeFocused();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
    await expect(group.getByRole("link", { name: /^0:45/ })).toBeFocused();
    await page.keyboard.press("Escape");
    await expect(page.getByLabel("Search files")).toBeFocused();
    await page.keyboard.press("ArrowDown");
    await expect(matches(group).first()).toBeFocused();
    await group.getByRole("link", { name: /^0:45/ }).focus();
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(new RegExp(`/files/${id}\\?t=45&q=lock$`));
    await expect(heading(page, "night shift.wav")).toBeVisible();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(45);
    await expect(player(page).getByRole("button", { name: "Pause night shift.wav" })).toBeVisible();
    await expect(page.getByLabel("Find in transcript")).toHaveValue("lock");
    await expect(page.locator("[data-match=true]")).toContainText("The lock is closed at 45.");
  });

  test("is in the palette, too", async ({ at }) => {
    const team = await newTeam();
    const id = await recordingOf(team);
    const { page } = await at("/usage", { team });
    await page.keyboard.press("Control+k");
    await page.keyboard.type("cafe");
    const group = page.getByRole("group", { name: "In transcripts" });
    await expect(group.getByRole("option")).toHaveText(["Ben: Until then, the café is open.night shift.wav0:20"]);
    await expect(group.locator("[lang=en]")).toHaveText("Until then, the café is open.");
    await expectGoodLooks(page, "palette-spoken");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(new RegExp(`/files/${id}\\?t=20&q=cafe$`));
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(20);
    // Enter waits for what is found.
    await page.keyboard.press("Control+k");
    await page.keyboard.type("lock opens");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(new RegExp(`/files/${id}\\?t=10&q=lock\\+opens$`));
    await page.keyboard.press("Control+k");
    await page.keyboard.type("lock");
    await group.getByRole("option", { name: "More in this recording" }).click();
    await expect(page).toHaveURL(new RegExp(`/files/${id}\\?q=lock$`));
  });

  test("keeps what it found, as such, while it searches for other words, and says where it searches", async ({
    at,
  }) => {
    const team = await newTeam();
    const id = await recordingOf(team);
    await team.stowage.files.update(id, { folder: "nights" });
    const { page } = await at("/files?folder=nights", { team });
    const group = page.getByRole("region", { name: "In transcripts in this folder" });
    await page.getByLabel("Search files").fill("lock");
    await expect(matches(group)).toHaveCount(3);
    let proceed = () => {};
    const held = new Promise<void>((resolve) => {
      proceed = resolve;
    });
    await page.route("**/docs/v1/transcripts?**", async (route) => {
      await held;
      await route.continue();
    });
    await page.getByLabel("Search files").fill("cafe");
    await expect(group.getByRole("status")).toHaveText("Searching transcripts…");
    await expect(group).toHaveAttribute("aria-busy", "true");
    await expect(matches(group).first()).toHaveAttribute("href", /q=lock$/);
    proceed();
    await expect(group.getByRole("status")).toHaveText("1 place in 1 recording");
    await expect(matches(group)).toHaveAttribute("href", /\?t=20&q=cafe$/);
    await expect(page.getByText("No files found by name")).toBeVisible();
    await expect(page.getByRole("heading", { name: /^No files found/ })).toHaveCount(0);
    await group.getByRole("link", { name: "Search all files" }).click();
    await expect(page).toHaveURL(/\/files\?search=cafe$/);
    const all = page.getByRole("region", { name: "In transcripts", exact: true });
    // Recordings are audio. Another filter hides them, and says so.
    await page.getByRole("combobox", { name: "Type" }).selectOption("Audio");
    await expect(matches(all)).toHaveCount(1);
    await page.getByRole("combobox", { name: "Type" }).selectOption("Text");
    await expect(all).toContainText("Transcripts aren't searched while filters are on.");
    await all.getByRole("link", { name: "Clear them" }).click();
    await expect(matches(all)).toHaveCount(1);
    await page.getByLabel("Search files").fill('"no line at all"');
    await expect(page.getByRole("heading", { name: "No files found for “no line at all”" })).toBeVisible();
    await expect(all.getByRole("status")).toHaveText("Nobody says “no line at all” in a transcript.");
  });

  test("says on a phone that it searches, that nobody says so, that it can't know yet, or why not", async ({
    at,
    problems,
  }) => {
    problems.allow(503);
    const { page } = await at("/files", { files: ["notes.txt"], width: 390, height: 844 });
    const group = page.getByRole("region", { name: "In transcripts" });
    let proceed = () => {};
    const held = new Promise<void>((resolve) => {
      proceed = resolve;
    });
    await page.route("**/docs/v1/transcripts?**", async (route) => {
      await held;
      await route.continue();
    });
    await page.getByLabel("Search files").fill("note");
    await expect(group.getByRole("status")).toHaveText("Searching transcripts…");
    proceed();
    // The file that is found is enough.
    await expect(group).toHaveCount(0);
    await expect(row(page, "notes.txt")).toBeVisible();
    await page.unroute("**/docs/v1/transcripts?**");
    await page.route("**/docs/v1/transcripts?**", (route) => respond(route, { code: "unavailable" }));
    await page.getByLabel("Search files").fill("nobody");
    await expect(group.getByRole("alert")).toBeVisible();
    await page.unroute("**/docs/v1/transcripts?**");
    await page.route(
      "**/docs/v1/transcripts?**",
      (route) => respond(route, { data: [], isComplete: false, isFull: false }),
      { times: 1 },
    );
    await button(page, "Try again").click();
    await expect(group.getByRole("status")).toHaveText("Nothing yet: transcripts are still being indexed.");
    // It asks again until the index is complete.
    await expect(group.getByRole("status")).toHaveText("Nobody says “nobody” in a transcript.");
    await page.route("**/docs/v1/transcripts?**", (route) =>
      respond(route, { data: [], isComplete: false, isFull: true }),
    );
    await page.getByLabel("Search files").fill("no one");
    await expect(group.getByRole("status")).toHaveText(
      "The search has only the transcripts of the newest files: there are more than it holds.",
    );
    await expectNoSidewaysScroll(page);
  });
});
