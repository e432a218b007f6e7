import { describe } from "vitest";
import { newTeam, type Team, upload } from "../support/team.ts";
import { expectGoodLooks, expectNoSidewaysScroll } from "./appearance.ts";
import { test } from "./console.ts";
import { respond } from "./fakes.ts";
import { button, heading, player, secondsOf } from "./locators.ts";
import { silence } from "./sounds.ts";
import { expect } from "./support.ts";

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
  await team.stowage.files.setTranscript(id, SAID);
  await expect.poll(async () => (await team.stowage.files.searchTranscripts("lock")).items.length).toBe(1);
  return id;
}

describe("The search for what is said", () => {
  test("plays a recording from the sentence that it finds, by keyboard alone", async ({ at }) => {
    const team = await newTeam();
    const id = await recordingOf(team);
    const { page } = await at("/files", { team });
    await page.getByLabel("Search files").fill("CAFE open");
    const group = page.getByRole("region", { name: "In transcripts" });
    const match = group.getByRole("link", { name: "0:20 Ben: Until then, the café is open." });
    await expect(match.locator("mark")).toHaveText(["café", "open"]);
    await expect(group).toContainText("night shift.wav");
    await page.getByLabel("Search files").fill("lock");
    await expect(group.getByRole("link")).toHaveCount(3);
    await expectGoodLooks(page, "files-spoken");
    const more = group.getByRole("button", { name: "More in this recording (1)" });
    await more.focus();
    await page.keyboard.press("Enter");
    await expect(group.getByRole("link")).toHaveCount(4);
    await expect(group.getByRole("link").last()).toBeFocused();
    await page.keyboard.press("Home");
    await page.keyboard.press("ArrowDown");
    await expect(group.getByRole("link", { name: /^0:45/ })).toBeFocused();
    await page.keyboard.press("Escape");
    await expect(page.getByLabel("Search files")).toBeFocused();
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
    await expectGoodLooks(page, "palette-spoken");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(new RegExp(`/files/${id}\\?t=20&q=cafe$`));
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(20);
  });

  test("says on a phone that it searches, that nobody says so, that it can't know yet, or why not", async ({
    at,
    problems,
  }) => {
    problems.allow(/status of 503/);
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
    await page.getByLabel("Search files").fill("notes");
    await expect(group.getByRole("status")).toHaveText("Searching transcripts…");
    proceed();
    await expect(group.getByRole("status")).toHaveText("Nobody says “notes” in a transcript.");
    await page.unroute("**/docs/v1/transcripts?**");
    await page.route("**/docs/v1/transcripts?**", (route) => respond(route, { code: "unavailable" }));
    await page.getByLabel("Search files").fill("note");
    await expect(group.getByRole("alert")).toBeVisible();
    await page.unroute("**/docs/v1/transcripts?**");
    await page.route(
      "**/docs/v1/transcripts?**",
      (route) => respond(route, { data: [], isComplete: false, isFull: false }),
      { times: 1 },
    );
    await button(page, "Try again").click();
    await expect(group.getByRole("status")).toHaveText("Transcripts are still being indexed, so there may be more.");
    // It asks again until the index is complete.
    await expect(group.getByRole("status")).toHaveText("Nobody says “note” in a transcript.");
    await expectNoSidewaysScroll(page);
  });
});
