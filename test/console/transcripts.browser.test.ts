import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { expectGoodLooks, expectNoSidewaysScroll } from "../support/browser/appearance.ts";
import { chooseAction, exhaustive as exhaustiveInConsole, test as testInConsole } from "../support/browser/console.ts";
import { button, dialog, position } from "../support/browser/locators.ts";
import { silence } from "../support/browser/sounds.ts";
import { copyBy, exhaustive, expect, nextCopied, test } from "../support/browser/support.ts";
import { newTeam, type Team, upload } from "../support/team.ts";

/* The transcript below the player, on the page of a link and of a file. */

const timeOf = (seconds: number) =>
  `00:${String(Math.floor(seconds / 60)).padStart(2, "0")}:${(seconds % 60).toFixed(3).padStart(6, "0")}`;
const cueOf = (start: number, end: number, text: string) => `${timeOf(start)} --> ${timeOf(end)}\n${text}\n`;
const vttOf = (...cues: string[]) => ["WEBVTT\n", ...cues].join("\n");

const SAID = vttOf(
  cueOf(0, 10, "<v Ada>Good evening, and welcome."),
  cueOf(10, 20, "The lock opens at half past four."),
  cueOf(20, 30, "<script>alert(1)</script> &lt;b&gt;"),
  cueOf(30, 40, "Until then, the café is open."),
);
/** Many cues of a recording of a minute. */
const LONG = vttOf(
  ...Array.from({ length: 10_000 }, (_, at) => cueOf(at * 0.006, at * 0.006 + 0.006, `Sentence number ${at}.`)),
);

async function recordingOf(team: Team, vtt: string) {
  const id = await upload(team, "night shift.wav", silence(65));
  await team.stowage.files.setTranscript(id, vtt, { language: "en" });
  const { pathname } = new URL((await team.stowage.links.create(id)).pageUrl);
  return { id, pathname };
}

const transcript = (page: Page) => page.getByRole("region", { name: "Transcript" });
const cue = (page: Page, text: string | RegExp) => transcript(page).locator("[data-cue]").filter({ hasText: text });
const timeOfCue = (page: Page, text: string | RegExp) => cue(page, text).getByRole("button", { name: /^Go to/ });

/** Drags from the start of one text to the end of another. */
async function selectText(page: Page, from: string, to: string) {
  const [start, end] = [cue(page, from).locator("p"), cue(page, to).locator("p")];
  const places = await Promise.all(
    [start, end].map((text) =>
      text.evaluate((element) => {
        const range = document.createRange();
        range.selectNodeContents(element);
        const { left, right, top, height } = range.getBoundingClientRect();
        return { left: left + 1, right: right + 2, y: top + height / 2 };
      }),
    ),
  );
  const [first, last] = places as [(typeof places)[0], (typeof places)[0]];
  await page.mouse.move(first.left, first.y);
  await page.mouse.down();
  await page.mouse.move(last.right - 5, last.y, { steps: 4 });
  await page.mouse.move(last.right, last.y);
  await page.mouse.up();
}

const spoken = (page: Page) => transcript(page).locator("[aria-current=true]");
const place = (page: Page) => position(page);

describe("The transcript on the page of a link", () => {
  test("marks the spoken cue, seeks by a click, and finds words", async ({ openPage }) => {
    // Only a text that is read in linear time can be shown.
    const { pathname } = await recordingOf(await newTeam(), `${SAID}\n${cueOf(50, 60, `<v${" ".repeat(300_000)}`)}`);
    const page = await openPage({ path: `${pathname}#t=12` });
    await expect(spoken(page)).toHaveText("0:10The lock opens at half past four.");
    // Markup that is not of WebVTT is left out, and a reference is text.
    await expect(cue(page, "alert(1) <b>")).toBeVisible();
    await expect(cue(page, "Good evening, and welcome.").locator("strong")).toHaveText("Ada");
    await cue(page, /café/).click();
    await expect(place(page)).toHaveAttribute("aria-valuetext", "0:30 of 1:05");
    await expect(spoken(page)).toHaveText("0:30Until then, the café is open.");
    const find = page.getByLabel("Find in transcript");
    await find.fill("CAFE open");
    await expect(transcript(page).getByRole("status")).toHaveText("1 of 1");
    await expect(transcript(page).locator("mark")).toHaveText(["café", "open"]);
    // A sentence that crosses cues, and a phrase.
    await find.fill("four until then");
    await expect(transcript(page).getByRole("status")).toHaveText("1 of 1");
    await expect(transcript(page).locator("[data-match=true] mark")).toHaveText(["four", "Until", "then"]);
    await find.fill('"lock opens at"');
    await expect(transcript(page).locator("mark")).toHaveText(["lock opens at"]);
    await find.fill("nobody said this");
    await expect(transcript(page).getByRole("status")).toHaveText("No matches");
    await expectGoodLooks(page, "share-transcript");
  });

  test("has the text that the browser reads in each cue, and a line for each voice", async ({ openPage }) => {
    const TEXTS = [
      "I&#39;m &quot;here&quot;, caf&eacute;",
      "&#xe9; &eacute &ampx &notit; &unknown; &amp;lt; R&B &#146; &NotEqualTilde;",
      "<font color=red>a</font> <B>b</B> <c.x>c</c> <00:00.500>d <lang en>e</lang> <f",
      "<ruby>漢<rt>kan</rt>字<rt>ji</ruby>. 3 < 4 > 2 >> 1",
      "<v ->Text</v>",
    ];
    const voices = "<v.loud Ann &amp; Co>Hi.</v>\n<v Ben>שלום.</v>\n<v ->Hm.";
    const vtt = vttOf(...[...TEXTS, voices].map((text, at) => cueOf(at, at + 1, text)));
    const { pathname } = await recordingOf(await newTeam(), vtt);
    const page = await openPage({ path: pathname });
    const texts = transcript(page).locator("[data-cue] [dir]");
    const expected = await page.evaluate(
      (all) => all.map((text) => new VTTCue(0, 1, text).getCueAsHTML().textContent ?? ""),
      TEXTS,
    );
    await expect(texts).toHaveText([...expected, "Ann & Co", "Hi.", "Ben", "שלום.", "Hm."]);
    // A voice can be searched for.
    await page.getByLabel("Find in transcript").fill("cafe");
    await expect(transcript(page).locator("mark")).toHaveText(["café"]);
    await page.getByLabel("Find in transcript").fill("ben");
    await expect(transcript(page).locator("mark")).toHaveText(["Ben"]);
  });

  test("is text: a selection is copied without times, and marks the clip in which it is said", async ({ openPage }) => {
    const { pathname } = await recordingOf(await newTeam(), SAID);
    const page = await openPage({ path: pathname });
    await selectText(page, "The lock opens", "café is open.");
    expect(await page.evaluate(() => getSelection()?.toString().replaceAll(/\n+/g, "\n"))).toBe(
      "The lock opens at half past four.\nalert(1) <b>\nUntil then, the café is open.",
    );
    await expect(page.getByText("Plays 0:10 – 0:40")).toBeVisible();
    await expect(place(page)).toHaveAttribute("aria-valuetext", "0:10 of 1:05");
    const chip = transcript(page).getByRole("button", { name: "Copy link to 0:10 – 0:40" });
    await expectGoodLooks(page, "share-transcript-selected");
    const link = await copyBy(chip, "#t=10,40");
    // The link plays this clip, until somebody clicks elsewhere in the text.
    const visited = await openPage({ path: new URL(link).pathname + new URL(link).hash });
    await expect(visited.getByText("Plays 0:10 – 0:40")).toBeVisible();
    await cue(page, /Good evening/).click();
    await expect(place(page)).toHaveAttribute("aria-valuetext", "0:00 of 1:05");
    await expect(page.getByText(/^Plays/)).toHaveCount(0);
    await expect(chip).toHaveCount(0);
  });

  test("plays on while a word is selected, which offers a link, and marks its clip once that is copied", async ({
    openPage,
  }) => {
    const { pathname } = await recordingOf(await newTeam(), SAID);
    const page = await openPage({ path: `${pathname}#t=30` });
    await expect(spoken(page)).toHaveText(/café/);
    await button(page, "Play night shift.wav").click();
    await expect(button(page, "Pause night shift.wav")).toBeVisible();
    const word = cue(page, "The lock opens").locator("p");
    await word.dblclick({ position: { x: 40, y: 10 } });
    const chip = transcript(page).getByRole("button", { name: "Copy link to 0:10 – 0:20" });
    await expect(chip).toBeVisible();
    await expect(page.getByText(/^Plays/)).toHaveCount(0);
    await expect(button(page, "Pause night shift.wav")).toBeVisible();
    await expect(place(page)).toHaveAttribute("aria-valuetext", /^0:3/);
    await page.keyboard.press("Escape");
    await expect(chip).toHaveCount(0);
    await selectText(page, "Good evening", "The lock opens");
    await copyBy(transcript(page).getByRole("button", { name: "Copy link to 0:00 – 0:20" }), "#t=0,20");
    await expect(transcript(page).getByRole("button", { name: "Copied" })).toBeVisible();
    await expect(page.getByText("Plays 0:00 – 0:20")).toBeVisible();
  });

  test("is selected by keyboard, with Shift and the arrow keys", async ({ openPage }) => {
    const { pathname } = await recordingOf(await newTeam(), SAID);
    const page = await openPage({ path: pathname });
    await timeOfCue(page, /Good evening/).focus();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Shift+ArrowDown");
    const chip = transcript(page).getByRole("button", { name: "Copy link to 0:10 – 0:30" });
    await expect(chip).toBeVisible();
    await page.keyboard.press("Tab");
    await expect(chip).toBeFocused();
  });

  test("opens with the search of its URL, on a phone, too", async ({ openPage }) => {
    const { pathname } = await recordingOf(await newTeam(), LONG);
    const page = await openPage({ path: `${pathname}?q=number+4321.`, width: 390, height: 844 });
    await expect(page.getByLabel("Find in transcript")).toHaveValue("number 4321.");
    await expect(transcript(page).getByRole("status")).toHaveText("1 of 1");
    await expect(cue(page, "Sentence number 4321.").locator("mark")).toHaveText(["number", "4321"]);
    await expectNoSidewaysScroll(page);
    await expect(cue(page, "Sentence number 4321.")).toBeInViewport();
    // It plays from there, and the keyboard reaches it.
    await expect(place(page)).toHaveAttribute("aria-valuetext", "0:25 of 1:05");
    await expect(timeOfCue(page, "Sentence number 4321.")).toHaveAttribute("tabindex", "0");
    const title = await transcript(page).getByRole("heading", { name: "Transcript" }).boundingBox();
    expect(title?.height).toBeLessThan(30);
    // No line is cut at the top of the list, and one in full length is still at the match.
    const cuts = await page
      .locator(".transcript-cues")
      .evaluate(
        (list) =>
          [...list.querySelectorAll<HTMLElement>("[data-cue]")].filter(
            ({ offsetTop, offsetHeight }) => offsetTop < list.scrollTop && offsetTop + offsetHeight > list.scrollTop,
          ).length,
      );
    expect(cuts).toBe(0);
    await button(page, "Show all").click();
    await expect(button(page, "Show less")).toHaveCount(1);
    await expect(cue(page, "Sentence number 4321.")).toBeInViewport();
  });

  exhaustive("of 10,000 cues has only those near the visible part in the page", async ({ openPage }) => {
    const { pathname } = await recordingOf(await newTeam(), LONG);
    const page = await openPage({ path: pathname });
    await expect(cue(page, "Sentence number 0.")).toBeVisible();
    const cues = transcript(page).locator("[data-cue]");
    const most = 1000;
    expect(await cues.count()).toBeLessThan(most);
    // A moment near the end, a search, and the keyboard reach cues that were not in the page.
    await place(page).focus();
    await page.keyboard.press("End");
    await expect(spoken(page)).toHaveCount(0);
    await page.keyboard.press("PageDown");
    await page.keyboard.press("ArrowRight");
    await expect(spoken(page)).toBeInViewport();
    await page.getByLabel("Find in transcript").fill("number 4321.");
    await expect(cue(page, "Sentence number 4321.")).toBeInViewport();
    await cue(page, "Sentence number 4321.").click();
    await expect(spoken(page)).toHaveText(/Sentence number 4321\.$/);
    await timeOfCue(page, "Sentence number 4321.").focus();
    await page.keyboard.press("End");
    await expect(timeOfCue(page, "Sentence number 9999.")).toBeFocused();
    await expect(cue(page, "Sentence number 9999.")).toBeInViewport();
    expect(await cues.count()).toBeLessThan(2 * most);
  });

  exhaustive(
    "of 10,000 cues changes two when the recording moves, and the stop of the Tab key",
    async ({ openPage }) => {
      const { pathname } = await recordingOf(await newTeam(), LONG);
      const page = await openPage({ path: `${pathname}#t=0.012` });
      await expect(spoken(page)).toHaveText(/number 2\.$/);
      await page.evaluate(() => {
        const changed = new Set<Node>();
        Reflect.set(window, "changed", changed);
        const observer = new MutationObserver((records) => {
          for (const { target } of records) changed.add(target);
        });
        const list = document.querySelector(".transcript-cues") as Element;
        observer.observe(list, { subtree: true, childList: true, attributes: true, characterData: true });
      });
      await cue(page, "Sentence number 20.").click();
      await expect(spoken(page)).toHaveText(/number 20\.$/);
      const changed = await page.evaluate(() => (Reflect.get(window, "changed") as Set<Element>).size);
      expect(changed).toBeLessThanOrEqual(4);
    },
  );

  exhaustive(
    "follows the recording, unless the reader has scrolled away, and never scrolls the page",
    async ({ openPage }) => {
      const { pathname } = await recordingOf(await newTeam(), LONG);
      const page = await openPage({ path: pathname, width: 390, height: 700 });
      const list = page.locator(".transcript-cues");
      const scrolled = () => list.evaluate(({ scrollTop }) => scrollTop);
      await expect(cue(page, "Sentence number 0.")).toBeVisible();
      const forward = page.getByRole("button", { name: "Forward 30 seconds" });
      // Keys play and pause, because a click would scroll the page to the button.
      await page.keyboard.press(" ");
      // So far that the spoken cue is not among those that a desktop shows at the top.
      await expect.poll(scrolled).toBeGreaterThan(1000);
      await page.keyboard.press(" ");
      expect(await page.evaluate(() => scrollY)).toBe(0);
      await page.setViewportSize({ width: 1280, height: 700 });
      await list.hover();
      await page.mouse.wheel(0, -100_000);
      await expect.poll(scrolled).toBe(0);
      await forward.click();
      await expect(place(page)).toHaveAttribute("aria-valuetext", /^0:[345]\d/);
      expect(await scrolled()).toBe(0);
    },
  );

  test("is short on a phone, and scrolls with the page once all of it is shown", async ({ openPage }) => {
    const { pathname } = await recordingOf(await newTeam(), LONG);
    const page = await openPage({ path: pathname, width: 390, height: 700 });
    const list = page.locator(".transcript-cues");
    const height = () => list.evaluate(({ clientHeight }) => clientHeight);
    await expect(cue(page, "Sentence number 0.")).toBeVisible();
    expect(await height()).toBeLessThan(250);
    await button(page, "Show all").click();
    await expect.poll(height).toBeGreaterThan(100_000);
    // Only the cues near the window are in the page, and a search moves the page to a match.
    await page.getByLabel("Find in transcript").fill("number 4321.");
    await expect(cue(page, "Sentence number 4321.")).toBeInViewport();
    expect(await transcript(page).locator("[data-cue]").count()).toBeLessThan(1000);
    await page.getByLabel("Find in transcript").fill("number 0.");
    await button(page, "Show less").click();
    await expect.poll(height).toBeLessThan(250);
  });

  exhaustive("is below the player, in one column", async ({ openPage }) => {
    const { pathname } = await recordingOf(await newTeam(), SAID);
    for (const width of [390, 1280]) {
      const page = await openPage({ path: pathname, width });
      await expect(transcript(page)).toBeVisible();
      const [player, text] = [
        await page.getByRole("region", { name: "Player" }).boundingBox(),
        await transcript(page).boundingBox(),
      ];
      if (!player || !text) throw new Error("There is no player, or no transcript.");
      expect(text.y).toBeGreaterThanOrEqual(player.y + player.height);
      expect(text.width).toBe(player.width);
      await expectGoodLooks(page, "share-transcript");
    }
  });

  exhaustive("is one stop of the Tab key, with arrows between cues and Enter to seek", async ({ openPage }) => {
    const { pathname } = await recordingOf(await newTeam(), SAID);
    const page = await openPage({ path: pathname });
    await page.getByLabel("Find in transcript").focus();
    await page.keyboard.press("Tab");
    await expect(timeOfCue(page, /Good evening/)).toBeFocused();
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await expect(place(page)).toHaveAttribute("aria-valuetext", "0:10 of 1:05");
    await page.keyboard.press("End");
    await expect(timeOfCue(page, /café/)).toBeFocused();
    await page.keyboard.press("Home");
    await expect(timeOfCue(page, /Good evening/)).toBeFocused();
    await page.keyboard.press("Tab");
    await expect(transcript(page).locator(":focus")).toHaveCount(0);
  });

  exhaustive("is absent in a frame, and if there is none", async ({ openPage }) => {
    const team = await newTeam();
    const { pathname, id } = await recordingOf(team, SAID);
    const framed = await openPage({ path: pathname.replace("/share/", "/embed/") });
    await expect(place(framed)).toBeVisible();
    await expect(transcript(framed)).toHaveCount(0);
    await team.stowage.files.deleteTranscript(id);
    const page = await openPage({ path: pathname });
    await expect(place(page)).toBeVisible();
    await expect(transcript(page)).toHaveCount(0);
  });
});

describe("The transcript on the page of a file", () => {
  exhaustiveInConsole("is below the player, and follows changes by others", async ({ at }) => {
    const team = await newTeam();
    const { id } = await recordingOf(team, SAID);
    const { page } = await at(`/files/${id}`, { team });
    await cue(page, /The lock opens/).click();
    await expect(place(page)).toHaveAttribute("aria-valuetext", "0:10 of 1:05");
    await expectGoodLooks(page, "file-transcript");
    await team.stowage.files.setTranscript(id, vttOf(cueOf(0, 60, "Corrected.")));
    await expect(cue(page, "Corrected.")).toBeVisible();
    await team.stowage.files.deleteTranscript(id);
    await expect(button(page, "Add transcript")).toBeVisible();
    await expect(place(page)).toBeVisible();
  });

  testInConsole("is added from a file, replaced, saved, and removed, which can be undone", async ({ at, problems }) => {
    problems.allow(400);
    const team = await newTeam();
    const id = await upload(team, "night shift.wav", silence(65));
    const { page } = await at(`/files/${id}`, { team });
    const [corrected, stored] = [vttOf(cueOf(0, 60, "Corrected.")), () => team.stowage.files.getTranscript(id)];
    const choose = (text: string | Buffer) =>
      dialog(page)
        .getByLabel("Transcript file")
        .setInputFiles({ name: "said.vtt", mimeType: "text/vtt", buffer: Buffer.from(text) });
    await button(page, "Add transcript").click();
    // What is not WebVTT is explained, and the dialog stays.
    for (const [wrong, explanation] of [
      [Buffer.from([0xff, 0xfe]), "This file isn't text in UTF-8."],
      [Buffer.alloc(2 * 1024 * 1024 + 1), "A transcript can have at most 2 MiB."],
      ["no WebVTT", "WEBVTT"],
    ] as const) {
      await choose(wrong as string);
      await dialog(page).getByRole("button", { name: "Add transcript" }).click();
      await expect(dialog(page).getByRole("alert")).toContainText(explanation);
    }
    await expectGoodLooks(page, "file-transcript-add");
    await choose(SAID);
    await dialog(page).getByLabel("Language").fill("en");
    await dialog(page).getByRole("button", { name: "Add transcript" }).click();
    await expect(cue(page, /The lock opens/)).toBeVisible();
    expect((await team.stowage.files.get(id)).transcript?.language).toBe("en");
    await chooseAction(page, "Actions for the transcript", "Replace transcript");
    await choose(corrected);
    await dialog(page).getByRole("button", { name: "Replace transcript" }).click();
    await expect(cue(page, "Corrected.")).toBeVisible();
    const saving = page.waitForEvent("download");
    await chooseAction(page, "Actions for the transcript", "Download transcript");
    const download = await saving;
    expect(download.suggestedFilename()).toBe("night shift.vtt");
    expect(Buffer.concat(await (await download.createReadStream()).toArray()).toString()).toBe(corrected);
    await chooseAction(page, "Actions for the transcript", "Remove transcript");
    await expect(button(page, "Add transcript")).toBeVisible();
    expect(await stored()).toBe(null);
    await page
      .getByRole("status")
      .filter({ hasText: "Transcript removed" })
      .getByRole("button", { name: "Undo" })
      .last()
      .click();
    await expect(cue(page, "Corrected.")).toBeVisible();
    expect(await stored()).toBe(corrected);
    expect((await team.stowage.files.get(id)).transcript?.language).toBe("en");
    await expect(page.getByRole("region", { name: "Activity" })).toContainText("test set the transcript of this file");
  });

  testInConsole("has the clip of the selected text in the link that the page shares", async ({ at }) => {
    const team = await newTeam();
    const { id } = await recordingOf(team, SAID);
    const { page } = await at(`/files/${id}`, { team });
    await expect(cue(page, /The lock opens/)).toBeVisible();
    await selectText(page, "The lock opens", "alert(1)");
    await expect(page.getByRole("slider", { name: "End of clip" })).toHaveAttribute("aria-valuetext", "0:30");
    const copied = nextCopied(page);
    await transcript(page).getByRole("button", { name: "Copy link to 0:10 – 0:30" }).click();
    expect(await copied).toMatch(/\/share\/.*#t=10,30$/);
    const { items } = await team.stowage.links.list(id);
    expect(items.map(({ startSeconds, endSeconds }) => [startSeconds, endSeconds])).toContainEqual([10, 30]);
    // The transcript has the main column, and sharing is next to it.
    const box = await transcript(page).boundingBox();
    expect(box?.width).toBeGreaterThan((await page.getByRole("region", { name: "Share" }).boundingBox())?.width ?? 0);
  });

  exhaustiveInConsole("can't be added by a viewer", async ({ at }) => {
    const { page } = await at("/files/:id", { role: "viewer", files: ["minute.wav"] });
    await expect(place(page)).toBeVisible();
    await expect(page.getByRole("heading", { name: "Transcript" })).toHaveCount(0);
    await button(page, "Actions for this file").click();
    await expect(page.getByRole("menuitem", { name: "Copy ID" })).toBeVisible();
    await expect(page.getByRole("menuitem", { name: /transcript/ })).toHaveCount(0);
  });
});
