import type { Page } from "@playwright/test";
import { describe } from "vitest";
import {
  expectAccessible,
  expectGoodLooks,
  expectLinkColor,
  expectNoSidewaysScroll,
  tabTo,
} from "../support/browser/appearance.ts";
import { type At, type ConsoleOptions, chooseAction, exhaustive, test } from "../support/browser/console.ts";
import { respond } from "../support/browser/fakes.ts";
import { button, dialog, fact, heading, player, position, rows, secondsOf } from "../support/browser/locators.ts";
import { tone } from "../support/browser/sounds.ts";
import { allowWritesInEvents, copyBy, expect, expectAnnounced, screenshot } from "../support/browser/support.ts";
import { collect, newTeam, sample, upload, url } from "../support/team.ts";

describe("File page", () => {
  test("shows the facts of the file and of its audio", async ({ at }) => {
    const team = await newTeam();
    const name = "Ночной эфир 🎧, часть первая.flac";
    const id = await upload(team, name, sample("tone.flac"));
    const file = await team.stowage.files.get(id);
    const { page } = await at(`/files/${id}`, { team });
    await expect(page.getByRole("heading", { level: 1, name })).toBeVisible();
    // For screen readers. The others see only an exception.
    await expect(fact(page, "Status")).toHaveText("Ready");
    await expect(fact(page, "Status").getByRole("status")).toHaveClass("visually-hidden");
    await expect(page.getByText(`${(file.audio?.sampleRate ?? 0) / 1000} kHz`)).toHaveText(
      /^FLAC · .* · Lossless · .* kB$/,
    );
    await expect(fact(page, "Duration")).toHaveText("0:02");
    // Its waveform may have been measured, too.
    const happened = page.getByRole("region", { name: "Activity" }).getByRole("listitem");
    await expect(happened.filter({ hasNotText: "waveform" })).toContainText([
      "Stowage processed this file",
      "test uploaded this file",
    ]);
    await page.getByText("Technical details").click();
    const technical = page.getByRole("group").filter({ hasText: "Technical details" });
    await expect(technical.getByRole("term")).toHaveText(["ID", "SHA-256", "Processed", "Last modified"]);
    for (const [label, text] of Object.entries({ ID: id, "SHA-256": file.sha256 })) {
      expect(await copyBy(page.getByRole("button", { name: `Copy ${label}` }), text ?? "")).toBe(text);
    }
    const curl = `curl -H "Authorization: Bearer $STOWAGE_KEY" '${url}/docs/v1/uploads/${id}/metadata'`;
    await button(page, "Actions for this file").click();
    expect(await copyBy(page.getByRole("menuitem", { name: "Copy as curl" }), curl)).toBe(curl);
    await expectGoodLooks(page, "file");
    const top = async (name: string) => (await page.getByRole("heading", { name, exact: true }).boundingBox())?.y ?? 0;
    // Sharing is beside the player, and the details are below it.
    expect(await top("Share")).toBeLessThan(await top("Details"));
    // On a phone, sharing follows the player, and precedes the details and the activity.
    await page.setViewportSize({ width: 375, height: 667 });
    await expect(page.getByRole("button", { name: "Download" })).toBeHidden();
    expect((await player(page).boundingBox())?.y).toBeLessThan(await top("Share"));
    expect(await top("Share")).toBeLessThan(667);
    expect(await top("Transcript")).toBeLessThan(await top("Details"));
    expect(await top("Details")).toBeLessThan(await top("Activity"));
  });

  exhaustive("shows tags as text, whatever they contain", async ({ at }) => {
    const { page, team, id } = await at("/files", { files: { "tagged.mp3": sample("tone-vbr.mp3") } });
    const { id: _, ...file } = await team.stowage.files.get(id);
    const tags = {
      title: "<img src=x onerror=alert(1)>",
      artist: "مطرب; Другой",
      comment: "la ".repeat(60) + "x".repeat(76),
      track: 1,
      ["__proto__"]: "safe",
    };
    await page.route(`**/${id}/metadata`, (route) =>
      respond(route, { data: { ...file, audio: { ...file.audio, tags } } }),
    );
    await page.getByRole("link", { name: "tagged.mp3" }).click();
    await expect(fact(page, "Title")).toHaveText(tags.title);
    await expect(fact(page, "Artist")).toHaveText(tags.artist);
    await expect(fact(page, "Comment")).toHaveText(tags.comment);
    await expect(fact(page, "Track")).toHaveText("1");
    await expect(fact(page, "__proto__")).toHaveText("safe");
    await expectAccessible(page);
    await page.setViewportSize({ width: 320, height: 640 });
    await expectNoSidewaysScroll(page);
    await screenshot(page, "file-tags");
  });

  exhaustive("renames the file in its title, without its extension, and cancels that", async ({ at }) => {
    const { page, team, id } = await at("/files/:id", { files: ["draft.txt"] });
    const title = page.getByRole("heading", { level: 1 });
    const nameField = page.getByLabel("New name of draft.txt");
    await title.getByRole("button", { name: "draft.txt" }).click();
    await page.keyboard.type("Episode 1");
    await expect(nameField).toHaveValue("Episode 1.txt");
    await expectGoodLooks(page, "file-rename");
    await page.keyboard.press("Escape");
    await expect(title).toHaveText("draft.txt");
    await expect(title).toBeFocused();
    for (const [key, name, before] of [
      ["e", "Episode 1.txt", "draft.txt"],
      ["F2", "Episode 2.txt", "Episode 1.txt"],
    ] as const) {
      await page.keyboard.press(key);
      await expect(page.getByLabel(`New name of ${before}`)).toBeFocused();
      await page.keyboard.type(name.slice(0, -4));
      await page.keyboard.press("Enter");
      await expect(title).toHaveText(name);
      await expect(title).toBeFocused();
      expect((await team.stowage.files.get(id)).name).toBe(name);
    }
  });

  test("explains a failure, and reprocesses the file", async ({ at }) => {
    const team = await newTeam();
    const broken = new Uint8Array(3000);
    broken.set(new TextEncoder().encode("fLaC"));
    const id = await upload(team, "broken.flac", broken);
    const { failure, __v } = await team.stowage.files.get(id);
    expect(failure?.code).toBe("audio_unreadable");
    const { page } = await at(`/files/${id}`, { team });
    await expect(fact(page, "Status")).toHaveText("Failed");
    await expect(page.getByText("We couldn't find any audio in this file.")).toBeVisible();
    await expect(page.getByText(failure?.message ?? "none")).toBeVisible();
    const menu = page.getByRole("button", { name: "Actions for this file" });
    await tabTo(menu);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("menuitem", { name: "Share" })).toBeFocused();
    // With its key.
    await expect(page.getByRole("menuitem", { name: "Share", exact: true })).toHaveText("ShareS");
    for (const _ of ["Download", "Rename", "Move", "Edit tags", "Reprocess"]) await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await expect(page.getByText("Reprocessing started")).toBeVisible();
    await expect(menu).toBeFocused();
    await expect.poll(async () => (await team.stowage.files.get(id)).status).toBe("failed");
    const { __v: latest } = await team.stowage.files.get(id);
    expect(latest).toBeGreaterThan(__v);
  });

  exhaustive("downloads the file under its name", async ({ at }) => {
    const { page } = await at("/files/:id", { files: ["Bericht – März.txt"] });
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download" }).click();
    const download = await saving;
    expect(download.suggestedFilename()).toBe("Bericht – März.txt");
    expect(Buffer.concat(await (await download.createReadStream()).toArray()).toString()).toBe(
      "Text of Bericht – März.txt",
    );
    await expect(heading(page, "Bericht – März.txt")).toBeVisible();
  });

  exhaustive("shows that a file has no audio despite its name", async ({ at }) => {
    const { page, team, id } = await at("/files", { files: { "take.mp3": "no audio at all" } });
    await expect(rows(page).getByText("No audio found")).toBeVisible();
    await page.getByRole("link", { name: "take.mp3" }).click();
    await expect(page.getByText("The name says audio, but the content isn't.")).toBeVisible();
    await expectAccessible(page);
    await team.stowage.files.update(id, { name: "take.txt" });
    await expect(heading(page, "take.txt")).toBeVisible();
    await expect(page.getByText("No audio found")).toHaveCount(0);
  });

  test("copies a link by one click, shows it once, lists it, and revokes it", async ({ at }) => {
    const { page, team, id } = await at("/files/:id", { files: { "tone.flac": sample("tone.flac") } });
    const share = page.getByRole("region", { name: "Share" });
    const copy = share.getByRole("button", { name: "Copy link" });
    await copy.click();
    // The page may not write to the clipboard, so it shows the link.
    const pageUrl = (await share.getByRole("status").getByRole("code").textContent()) ?? "";
    const listed = share.getByRole("list", { name: "Links" }).getByRole("listitem");
    await expect(listed).toHaveText(/Plays the recording · expires in 7 days/);
    await expect(listed).not.toContainText("Copied just now");
    expect(await copyBy(copy, pageUrl)).toBe(pageUrl);
    await expectAnnounced(page, "Copied link");
    await expect(listed).toContainText("Copied just now");
    const created = async () => collect(team.stowage.links.list(id));
    const lifetime = ({ expiresAt }: { expiresAt: string | null }) => Date.parse(expiresAt ?? "") - Date.now();
    const [first] = await created();
    expect(first?.disposition).toBe("inline");
    await page.getByRole("button", { name: "Actions for this link" }).click();
    expect(await copyBy(page.getByRole("menuitem", { name: "Copy ID" }), first?._id ?? "none")).toBe(first?._id);
    await expect(listed).toContainText("by test");
    expect(Math.abs(lifetime(first ?? { expiresAt: null }) - 7 * 86_400_000)).toBeLessThan(60_000);
    // The same link, embedded, and another one that downloads.
    await share.getByText("Options").click();
    await share.getByLabel("Copy as").selectOption("Embed code");
    const embed = pageUrl.replace("/share/", "/embed/");
    const code = await copyBy(share.getByRole("button", { name: "Copy embed code" }), embed);
    expect(code).toContain(`<iframe src="${embed}"`);
    for (const of of [pageUrl, embed]) expect((await fetch(of)).status).toBe(200);
    expect(await created()).toHaveLength(1);
    await team.stowage.links.delete(first?._id ?? "");
    await share.getByLabel("Expires in").selectOption("1 day");
    await share.getByLabel("Copy as").selectOption("Download link");
    await expect(share.getByRole("status")).toHaveCount(0);
    await share.getByRole("button", { name: "Copy download link" }).click();
    const link = (await share.getByRole("status").getByRole("code").textContent()) ?? "";
    const response = await fetch(link);
    expect(response.headers.get("Content-Disposition")).toMatch(/^attachment/);
    expect(Buffer.from(await response.arrayBuffer()).equals(sample("tone.flac"))).toBe(true);
    const [second] = await created();
    expect(Math.abs(lifetime(second ?? { expiresAt: null }) - 86_400_000)).toBeLessThan(60_000);

    await page.reload();
    await expect(listed).toHaveText(/Downloads the file · expires in 24 hours.*by test/);
    await expect(page.getByText(link)).toHaveCount(0);
    await expectGoodLooks(page, "file-links");
    await chooseAction(page, "Actions for this link", "Revoke link");
    await dialog(page).getByRole("button", { name: "Revoke link" }).click();
    await expect(listed).toHaveCount(0);
    for (const of of [link, pageUrl]) expect((await fetch(of)).status).toBe(404);
  });

  test("copies a new link also if a page may write to the clipboard only during a click", async ({ at, problems }) => {
    const { page } = await at("/files/:id", { files: { "tone.flac": sample("tone.flac") } });
    const share = page.getByRole("region", { name: "Share" });
    const copied = await allowWritesInEvents(page);
    await share.getByRole("button", { name: "Copy link" }).click();
    await expectAnnounced(page, "Copied link");
    expect(await copied()).toBe(await share.getByRole("status").getByRole("code").textContent());
    // Without a link, the browser has denied nothing.
    problems.allow(403);
    await page.route("**/links", (route) => respond(route, { code: "forbidden", message: "Not yours." }));
    await share.getByText("Options").click();
    await share.getByLabel("Expires in").selectOption("1 day");
    await share.getByRole("button", { name: "Copy link" }).click();
    await expect(share.getByRole("alert")).toBeVisible();
    await expect(page.getByText("Your browser denies it.")).toHaveCount(0);
  });

  exhaustive("shares a file from its row, by menu or key, from the present moment on", async ({ at }) => {
    const { page, team, id } = await at("/files/:id?t=42", { files: ["minute.wav"] });
    await expect(position(page)).toHaveAttribute("aria-valuetext", "0:42 of 1:05");
    await page.getByRole("link", { name: "Files" }).first().click();
    await chooseAction(page, "Actions for minute.wav", "Share");
    await expect(dialog(page)).toHaveAccessibleName("Share minute.wav");
    const pageUrl = await copyBy(dialog(page).getByRole("button", { name: "Copy link" }), "/share/");
    expect(pageUrl).not.toContain("#");
    // Only its name for screen readers does not follow the position.
    await expect(dialog(page).getByText("Start at 0:42")).toBeVisible();
    await dialog(page).getByRole("checkbox", { name: "Start at the present moment" }).check();
    await expect(dialog(page).getByRole("checkbox", { name: "Start at 0:42" })).toBeChecked();
    await expect(
      dialog(page)
        .getByRole("status")
        .filter({ hasText: `${pageUrl}#t=42` }),
    ).toBeVisible();
    await expectGoodLooks(page, "share-dialog");
    await dialog(page).getByRole("button", { name: "Done" }).click();
    await rows(page).getByRole("link", { name: "minute.wav" }).focus();
    await page.keyboard.press("s");
    await expect(dialog(page)).toHaveAccessibleName("Share minute.wav");
    await page.keyboard.press("Escape");
    await expect(dialog(page)).toHaveCount(0);
    expect(await collect(team.stowage.links.list(id))).toHaveLength(1);
    // A link for the team needs no secret.
    const moment = await copyBy(page.getByRole("button", { name: "Copy team link to this moment" }), "?t=42");
    expect(moment).toBe(`${url}/console/files/${id}?t=42`);
    await expectAnnounced(page, "Copied a link to 0:42, for your team only");
  });

  test("drops a link from its list once somebody else has revoked it", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "text");
    const links = [await team.stowage.links.create(id), await team.stowage.links.create(id)];
    const { page } = await at(`/files/${id}`, { team });
    const listed = page.getByRole("list", { name: "Links" }).getByRole("listitem");
    await expect(listed).toHaveCount(2);
    await team.stowage.links.delete(links[0]?._id ?? "");
    await expect(listed).toHaveCount(1);
  });

  test("shows the name and the part of each link of a file", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "minute.wav", tone(65));
    const { links } = team.stowage;
    await links.create(id, { disposition: "inline", name: "For the press", startSeconds: 10, endSeconds: 25.5 });
    await links.create(id, { startSeconds: 5.25 });
    await links.create(id, { endSeconds: 60 });
    const { page } = await at(`/files/${id}?t=20,30`, { team });
    const listed = page.getByRole("list", { name: "Links" }).getByRole("listitem");
    await expect(listed).toHaveText([
      /^For the press · Plays 0:10 – 0:25\.5 · never expires/,
      /^Downloads the file, and plays from 0:05\.3 · never expires/,
      /^Downloads the file, and plays 0:00 – 1:00 · never expires/,
    ]);
    const panel = page.getByRole("region", { name: "Share" });
    await copyBy(panel.getByRole("button", { name: "Copy link to 0:20 – 0:30" }), "#t=20,30");
    await expect(listed.filter({ hasText: "Plays 0:20 – 0:30 · expires" })).toHaveCount(1);
    // A link that has a part does not stand for the whole recording.
    await panel.getByRole("checkbox", { name: "Start at 0:20" }).uncheck();
    await copyBy(panel.getByRole("button", { name: "Copy link" }), "/share/");
    await expect(listed.filter({ hasText: "Plays the recording · expires" })).toHaveCount(1);
  });

  exhaustive("sends a link by the sheet of the device, if it has one", async ({ at }) => {
    const { page } = await at("/files/:id", { files: ["minute.wav"] });
    const panel = page.getByRole("region", { name: "Share" });
    await page.evaluate(() => {
      navigator.share = async (data) => void Reflect.set(window, "sent", data);
    });
    const copied = await copyBy(panel.getByRole("button", { name: "Copy link" }), "/share/");
    await panel.getByRole("button", { name: "Send" }).click();
    expect(await page.evaluate(() => Reflect.get(window, "sent"))).toEqual({ title: "minute.wav", url: copied });
  });

  exhaustive("deletes the file after a confirmation, and returns to the list", async ({ at }) => {
    const team = await newTeam();
    await upload(team, "stays.txt", "stays");
    const id = await upload(team, "goes.txt", "goes");
    const { page } = await at("/files?type=text+file", { team });
    await page.getByRole("link", { name: "goes.txt" }).click();
    await chooseAction(page, "Actions for this file", "Delete");
    await expect(dialog(page)).toHaveAccessibleName("Delete 1 file?");
    await tabTo(page.getByRole("button", { name: "Delete 1 file" }));
    await page.keyboard.press("Enter");
    await expect(rows(page)).toHaveText(["stays.txt"]);
    await expect(page).toHaveURL(/\/console\/files\?type=text\+file$/);
    await expect(heading(page, "Files")).toBeFocused();
    await expect(team.stowage.files.get(id)).rejects.toMatchObject({ code: "not_found" });
  });

  exhaustive("leads back to the list if the file does not exist", async ({ at, problems }) => {
    problems.allow(404);
    const { page, team, id } = await at("/files/0123456789abcdef01234567", { files: { "goes.txt": "goes" } });
    await expect(page.getByRole("heading", { name: "File not found" })).toBeVisible();
    await expectAccessible(page);
    await page.getByRole("link", { name: "Back to files" }).click();
    await page.getByRole("link", { name: "goes.txt" }).click();
    await page.getByRole("button", { name: "Download" }).focus();
    await team.stowage.files.delete(id);
    await expect(page.getByRole("heading", { name: "File not found" })).toBeVisible();
    await expect(page.getByRole("heading", { level: 1 })).toBeFocused();
  });
});

describe("Metadata of a file", () => {
  test("is shown and edited, and keeps the types of values", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "a");
    await team.stowage.files.update(id, { reference: "EP-1", metadata: { season: 2, note: "2", gone: true } });
    const { page } = await at(`/files/${id}`, { team });
    await expect(fact(page, "season")).toHaveText("2");
    await expect(fact(page, "Reference")).toHaveText("EP-1");
    const edit = page.getByRole("button", { name: "Edit details" });
    await expectLinkColor(edit);
    await edit.click();
    await dialog(page).getByLabel("Reference").fill("EP-2");
    await dialog(page).getByLabel("Name of field 3").fill("kept");
    await dialog(page).getByLabel("Value of field 3").fill('{"a": [1]}');
    await expectAccessible(page);
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await expect(fact(page, "Reference")).toHaveText("EP-2");
    const { reference, metadata } = await team.stowage.files.get(id);
    expect({ reference, metadata }).toEqual({
      reference: "EP-2",
      metadata: { season: 2, note: "2", kept: { a: [1] } },
    });
  });
});

describe("Player", () => {
  /** Measures the drawing: its highest and lowest column in device pixels, and its colors. */
  const drawn = (page: Page) =>
    position(page)
      .locator("canvas")
      .evaluate((canvas: HTMLCanvasElement) => {
        const { width, height } = canvas;
        const { data = [] } = canvas.getContext("2d")?.getImageData(0, 0, width, height) ?? {};
        const heights = new Array<number>(width).fill(0);
        const colors = new Set<string>();
        for (let at = 0; at < data.length; at += 4) {
          if (data[at + 3] === 0) continue;
          const column = (at / 4) % width;
          heights[column] = (heights[column] ?? 0) + 1;
          // A dimmed bar has less than its color.
          if (data[at + 3] !== 255) continue;
          colors.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
        }
        return {
          width,
          highest: Math.max(...heights),
          lowest: Math.min(...heights.filter(Boolean)),
          colors: [...colors],
        };
      });

  test("skips in its own file, also before that plays", async ({ at }) => {
    const { page } = await at("/files/:id", { files: ["minute.wav"] });
    await page.getByRole("button", { name: "Forward 30 seconds" }).click();
    await expect(position(page)).toHaveAttribute("aria-valuetext", "0:30 of 1:05");
  });

  test("plays, and seeks by keyboard and pointer", async ({ at }) => {
    const { page } = await at("/files/:id", { files: ["minute.wav"] });
    const place = position(page);
    await expect(place).toHaveAttribute("aria-valuetext", "0:00 of 1:05");
    await tabTo(place);
    const moves = [
      ["ArrowRight", "0:05"],
      ["ArrowUp", "0:10"],
      ["ArrowLeft", "0:05"],
      ["PageUp", "0:35"],
      ["ArrowDown", "0:30"],
      ["PageDown", "0:00"],
      ["End", "1:05"],
      ["Home", "0:00"],
    ] as const;
    for (const [key, at] of moves) {
      await page.keyboard.press(key);
      await expect(place).toHaveAttribute("aria-valuetext", `${at} of 1:05`);
    }
    await page.keyboard.press("PageUp");
    await page.getByRole("combobox", { name: "Speed" }).selectOption("2×");
    await page.getByRole("button", { name: "Sound" }).click();
    await page.getByRole("checkbox", { name: "Mute" }).check();
    await page.keyboard.press("Escape");
    await page.getByRole("button", { name: "Play" }).click();
    await expect.poll(async () => Number(await place.getAttribute("aria-valuenow"))).toBeGreaterThan(32);
    const sound = await page.locator("audio").evaluate(({ currentTime, muted, playbackRate }: HTMLAudioElement) => ({
      currentTime,
      muted,
      playbackRate,
    }));
    expect(sound).toMatchObject({ muted: true, playbackRate: 2 });
    expect(sound.currentTime).toBeGreaterThan(32);
    await page.getByRole("button", { name: "Pause" }).click();
    await expect(page.getByRole("button", { name: "Play" })).toBeVisible();
    const box = await place.boundingBox();
    if (!box) throw new Error("There is no bar.");
    await page.mouse.click(box.x + box.width * (10.5 / 65), box.y + box.height / 2);
    await expect(place).toHaveAttribute("aria-valuetext", "0:10 of 1:05");
    await expect(place.getByText("0:10")).toBeVisible();
    // The space bar plays, from the slider and from anywhere on the page.
    await page.keyboard.press("Space");
    await expect(page.getByRole("button", { name: "Pause" })).toBeVisible();
    await page.getByRole("heading", { level: 2, name: "Activity" }).click();
    await page.keyboard.press("Space");
    await expect(page.getByRole("button", { name: "Play" })).toBeVisible();
  });

  exhaustive("shows the progress of the next file of the list, and seeks from it", async ({ at }) => {
    const { page } = await at("/files", { files: ["second.wav", "first.wav"] });
    const place = position(page);
    await page.getByRole("button", { name: "Play first.wav" }).click();
    await expect(player(page).getByRole("link", { name: "first.wav" })).toBeVisible();
    await page.keyboard.press("n");
    await expect(player(page).getByRole("link", { name: "second.wav" })).toBeVisible();
    await player(page).getByRole("button", { name: "Pause second.wav" }).click();
    await place.focus();
    await page.keyboard.press("Home");
    await expect(place).toHaveAttribute("aria-valuetext", "0:00 of 1:05");
    const unplayed = (await drawn(page)).colors;
    for (const at of ["0:30", "0:35"]) {
      await page.keyboard.press(at === "0:30" ? "PageUp" : "ArrowRight");
      await expect(place).toHaveAttribute("aria-valuetext", `${at} of 1:05`);
    }
    // The played part has a different color.
    await expect.poll(async () => (await drawn(page)).colors).not.toEqual(unplayed);
  });

  test("asks for no waveform until there is one, which the player then draws", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "tone.aac", sample("tone.aac"));
    const { page } = await at("/files", { team });
    await page.getByRole("button", { name: "Play tone.aac" }).click();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(0);
    const { highest } = await drawn(page);
    await team.stowage.files.setWaveform(id, [Array.from({ length: 100 }, (_, at) => (at % 10) / 10)]);
    await expect.poll(async () => (await drawn(page)).highest).toBeGreaterThan(highest + 10);
    await player(page).getByRole("link", { name: "tone.aac" }).click();
    await expect(heading(page, "tone.aac")).toBeVisible();
    await expect(player(page)).toHaveAttribute("data-flat", "false");
  });

  test("copies a link to the open file by key while the next one of its list plays", async ({ at }) => {
    const team = await newTeam();
    await upload(team, "next.wav", tone(65));
    const id = await upload(team, "open.wav", tone(65));
    const { page } = await at("/files", { team });
    await page.getByRole("button", { name: "Play open.wav" }).click();
    await page.getByRole("link", { name: "open.wav" }).first().click();
    await expect(heading(page, "open.wav")).toBeVisible();
    await page.keyboard.press("n");
    await expect(player(page).getByRole("button", { name: "Pause next.wav" })).toBeVisible();
    await page.evaluate(() => {
      navigator.clipboard.writeText = async (text) => void Reflect.set(window, "copied", text);
    });
    await page.keyboard.press("c");
    await expectAnnounced(page, "for your team only");
    expect(await page.evaluate(() => Reflect.get(window, "copied"))).toContain(`/console/files/${id}?`);
  });

  exhaustive("copies a link to the start of a file while another one plays", async ({ at }) => {
    const team = await newTeam();
    await upload(team, "other.wav", tone(65));
    const id = await upload(team, "open.wav", tone(65));
    const { page } = await at("/files", { team });
    await page.getByRole("button", { name: "Play other.wav" }).click();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(1);
    await page.getByRole("link", { name: "open.wav" }).click();
    await expect(heading(page, "open.wav")).toBeVisible();
    const moment = page
      .getByRole("region", { name: "Player" })
      .first()
      .getByRole("button", { name: "Copy team link to this moment" });
    expect(await copyBy(moment, id)).toBe(`${url}/console/files/${id}?t=0`);
  });

  exhaustive("skips silence also in a tab that draws no frames", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "quiet.wav", tone(65));
    // All but the last second is silent.
    await team.stowage.files.setWaveform(id, [[...Array(64).fill(0), 0.9]]);
    const { page } = await at(`/files/${id}`, { team });
    await page.evaluate(() => localStorage.setItem("stowage.skip-silence", "true"));
    await page.reload();
    await expect(page.locator('.player[data-flat="false"]')).toBeVisible();
    await page.evaluate(() => {
      window.requestAnimationFrame = () => 0;
    });
    await page.locator(".player-controls").getByRole("button", { name: "Play quiet.wav" }).click();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(60);
  });

  /** The page of a recording of 65 seconds with a waveform, and its drags by the mouse from one second to another. */
  async function openRecording(at: At, options: ConsoleOptions = {}) {
    const team = await newTeam();
    const id = await upload(team, "minute.wav", tone(65));
    await team.stowage.files.setWaveform(id, [Array.from({ length: 130 }, (_, place) => (place < 65 ? 0.9 : 0.1))]);
    const { page } = await at(`/files/${id}`, { team, ...options });
    await expect(page.locator('.player[data-flat="false"]')).toBeVisible();
    const bar = async () => (await position(page).boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
    const xAt = async (seconds: number) => {
      const { x, width } = await bar();
      return x + (width * seconds) / 65;
    };
    const drag = async (from: number, to: number) => {
      const [{ y, height }, start, end] = [await bar(), await xAt(from), await xAt(to)];
      await page.mouse.move(start, y + height / 2);
      await page.mouse.down();
      await page.mouse.move(end, y + height / 2, { steps: 5 });
      await page.mouse.up();
    };
    const handle = (name: "Start" | "End") => page.getByRole("slider", { name: `${name} of clip` });
    const status = page.getByRole("region", { name: "Player" }).getByRole("status");
    return { page, team, id, place: position(page), status, handle, xAt, drag };
  }

  test("marks a clip, moves its end, and copies a link to it", async ({ at }) => {
    const { page, id, team, place, status, handle, drag } = await openRecording(at);
    await expect(status).toHaveText("Clip:");
    await expect(page.getByText("or Shift-drag", { exact: true })).toBeVisible();
    // Without Shift, the position follows the pointer.
    await drag(40, 50.5);
    await expect(place).toHaveAttribute("aria-valuetext", "0:50 of 1:05");
    await expect(status).toHaveText("Clip:");
    await page.keyboard.down("Shift");
    await drag(30.2, 20.2);
    await page.keyboard.up("Shift");
    await expect(status).toHaveText("Clip: 0:20 – 0:30");
    await expect(place).toHaveAttribute("aria-valuetext", "0:20 of 1:05");
    await handle("End").focus();
    await page.keyboard.press("Shift+ArrowRight");
    await page.keyboard.press("ArrowRight");
    await expect(handle("End")).toHaveAttribute("aria-valuetext", "0:31.1");
    const panel = page.getByRole("region", { name: "Share" });
    const part = panel.getByRole("checkbox", { name: "Start at 0:20, end at 0:31.1" });
    await expect(part).toHaveAccessibleName(/They can still play and download the rest\.$/);
    const teamLink = await copyBy(page.getByRole("button", { name: "Copy team link to 0:20 – 0:31.1" }), "?t=");
    expect(new URL(teamLink).searchParams.get("t")).toBe("20,31.1");
    const link = await copyBy(panel.getByRole("button", { name: "Copy link to 0:20 – 0:31.1" }), "#t=20,31.1");
    expect(link).toMatch(/\/share\/[^#]+#t=20,31\.1$/);
    expect((await collect(team.stowage.links.list(id)))[0]).toMatchObject({ disposition: "inline" });
  });

  test("shows the whole focus ring, the time under the pointer beside a handle, and no cut time of a zoomed ruler", async ({
    at,
  }) => {
    const { page } = await at("/files/:id?t=20,30", { files: ["minute.wav"] });
    const place = position(page);
    await tabTo(place);
    await expect(place).toHaveCSS("outline-offset", "-2px");
    const hover = player(page).locator(".player-hover > span");
    const overlaps = async (end: string) => {
      const [one, other] = await Promise.all([
        hover.boundingBox(),
        page.getByRole("slider", { name: `${end} of clip` }).boundingBox(),
      ]);
      return one && other && one.x < other.x + other.width && other.x < one.x + one.width;
    };
    const { x = 0, y = 0, width = 0, height = 0 } = (await place.boundingBox()) ?? {};
    for (const [seconds, end] of [
      [29, "End"],
      [16, "Start"],
    ] as const) {
      await page.mouse.move(x + (seconds / 65) * width, y + height / 2);
      expect(await overlaps(end), end).toBe(false);
    }
    await page.mouse.move(x + width - 2, y + height / 2);
    const box = await hover.boundingBox();
    expect((box?.x ?? 0) + (box?.width ?? 0)).toBeLessThanOrEqual(x + width);

    // To the clip, and then further.
    for (let press = 0; press < 3; press++) await page.getByRole("button", { name: /^Zoom (in|to clip)$/ }).click();
    const view = player(page).locator(".player-view");
    await view.evaluate((element) => {
      element.scrollLeft = 0;
    });
    const times = () =>
      view.evaluate((element) => {
        const { left, right } = element.getBoundingClientRect();
        const shown = [...element.querySelectorAll<HTMLElement>(".player-ruler [style]")]
          .filter((time) => time.style.visibility !== "hidden")
          .map((time) => time.getBoundingClientRect());
        return {
          shown: shown.filter((time) => time.left >= left && time.right <= right).length,
          cut: shown.filter(
            (time) => (time.left < left && time.right > left) || (time.left < right && time.right > right),
          ).length,
        };
      });
    // A step is smaller than a time, so some step cuts one.
    const { scrollWidth, clientWidth } = await view.evaluate(({ scrollWidth, clientWidth }) => ({
      scrollWidth,
      clientWidth,
    }));
    for (let scrolled = 0; scrolled < Math.min(400, scrollWidth - clientWidth); scrolled += 10) {
      await view.evaluate(async (element, to) => {
        element.scrollLeft = to;
        await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));
      }, scrolled);
      const { shown, cut } = await times();
      expect(cut, `${scrolled} px`).toBe(0);
      expect(shown).toBeGreaterThan(0);
    }
  });

  exhaustive("marks a clip by buttons and keys, and its panel can share all instead", async ({ at }) => {
    const { page, place, status } = await openRecording(at);
    await place.focus();
    for (const key of ["Home", "ArrowRight", "]", "Home", "ArrowRight", "PageUp", "["]) await page.keyboard.press(key);
    await expect(status).toHaveText("Clip: 0:35 – 1:05");
    await page.keyboard.press("ArrowRight");
    await tabTo(page.getByRole("button", { name: "Set end" }));
    await page.keyboard.press("Enter");
    await expect(status).toHaveText("Clip: 0:35 – 0:40");
    await expectGoodLooks(page, "file-clip");
    await page.keyboard.press("s");
    const panel = page.getByRole("region", { name: "Share" });
    const copy = panel.getByRole("button", { name: /^Copy link/ });
    await expect(copy).toBeFocused();
    await expect(dialog(page)).toHaveCount(0);
    await panel.getByRole("checkbox", { name: "Start at 0:35, end at 0:40" }).uncheck();
    await expect(copy).toHaveText("Copy link");
    await panel.getByRole("checkbox", { name: "Start at 0:35, end at 0:40" }).check();
    await expect(copy).toHaveText("Copy link to 0:35 – 0:40");
    await page.getByRole("button", { name: "Clear" }).click();
    await expect(status).toHaveText("Clip:");
    await expect(copy).toHaveText("Copy link");
  });

  exhaustive("moves both ends of a clip by dragging, and neither beyond the other", async ({ at }) => {
    const { page, status, handle, xAt, drag } = await openRecording(at);
    await page.keyboard.down("Shift");
    await drag(20, 30);
    await page.keyboard.up("Shift");
    const band = await page.locator(".player-clip").boundingBox();
    expect(Math.abs((band?.x ?? 0) - (await xAt(20)))).toBeLessThan(2);
    expect(Math.abs((band?.width ?? 0) - ((await xAt(30)) - (await xAt(20))))).toBeLessThan(2);
    const pull = async (name: "Start" | "End", seconds: number) => {
      const { x = 0, y = 0, width = 0, height = 0 } = (await handle(name).boundingBox()) ?? {};
      const [pressed, by] = [x + width / 2, (await xAt(seconds)) - (await xAt(0))];
      await page.mouse.move(pressed, y + height / 2);
      await page.mouse.down();
      await page.mouse.move(pressed + by, y + height / 2, { steps: 5 });
      await page.mouse.up();
    };
    await pull("End", 10);
    await expect(status).toHaveText("Clip: 0:20 – 0:40");
    await pull("Start", -15);
    await expect(status).toHaveText("Clip: 0:05 – 0:40");
    // The position is where the clip starts, so that it can be heard.
    await expect(position(page)).toHaveAttribute("aria-valuetext", "0:05 of 1:05");
    await pull("Start", 55);
    await expect(status).toHaveText("Clip: 0:39.9 – 0:40");
    await pull("End", 60);
    await expect(status).toHaveText("Clip: 0:39.9 – 1:05");
    for (const key of ["Home", "Shift+ArrowLeft"]) await handle("Start").press(key);
    await handle("End").press("Home");
    await expect(status).toHaveText("Clip: 0:00 – 0:00.1");
    for (const key of ["PageUp", "PageUp", "ArrowLeft"]) await handle("End").press(key);
    await expect(handle("End")).toHaveAttribute("aria-valuetext", "0:02");
    // A click keeps the clip.
    await page.mouse.click(await xAt(40.5), ((await position(page).boundingBox())?.y ?? 0) + 20);
    await expect(position(page)).toHaveAttribute("aria-valuetext", "0:40 of 1:05");
    await expect(status).toHaveText("Clip: 0:00 – 0:02");
  });

  exhaustive("stops at the end of a clip, continues from there, and loops the clip or the file", async ({ at }) => {
    const { page, place } = await openRecording(at);
    await page.goto(`${page.url()}?t=35,36`);
    await expect(place).toHaveAttribute("aria-valuetext", "0:35 of 1:05");
    await page.keyboard.press("Space");
    await expect.poll(() => secondsOf(page)).toBe(36);
    await expect(page.getByRole("button", { name: "Play minute.wav" })).toBeVisible();
    await page.keyboard.press("Space");
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(36.5);
    await page.getByRole("button", { name: "Loop" }).click();
    await expect(page.getByRole("button", { name: "Loop" })).toHaveAttribute("aria-pressed", "true");
    await page.getByRole("button", { name: "Pause minute.wav" }).click();
    for (const key of ["Home", "PageUp", "ArrowRight"]) await place.press(key);
    await page.keyboard.press("Space");
    // Nobody has pressed a key since it began to play: this is the end of the clip.
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(35.2);
    const jumped = await page.locator("audio").evaluate((audio: HTMLAudioElement) => {
      return new Promise<number>((resolve) => {
        audio.addEventListener("seeked", () => resolve(audio.currentTime), { once: true });
      });
    });
    expect(jumped).toBeGreaterThanOrEqual(35);
    expect(jumped).toBeLessThan(35.5);
    await page.getByRole("button", { name: "Clear" }).click();
    for (const key of ["Home", "PageUp", "PageUp"]) await place.press(key);
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(60.2);
    await expect.poll(() => secondsOf(page)).toBeLessThan(30);
    await expect(page.getByRole("button", { name: "Pause minute.wav" })).toBeVisible();
  });

  exhaustive("zooms by buttons, wheel and fingers, and follows the position", async ({ at }) => {
    const { page, place, xAt, status, drag } = await openRecording(at);
    const widthOf = async () => (await place.boundingBox())?.width ?? 0;
    const view = page.locator(".player-view");
    const shown = (await view.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
    await expect(page.getByRole("button", { name: "Zoom out" })).toHaveAttribute("aria-disabled", "true");
    await page.getByRole("button", { name: "Zoom in" }).click();
    expect(Math.round((await widthOf()) / shown.width)).toBe(2);
    await expect(page.locator(".player-ruler")).toContainText("0:05");
    expect((await page.locator(".player-seek canvas").boundingBox())?.width).toBe(shown.width);
    // The page does not become wider, and what is under the pointer stays there.
    await expectNoSidewaysScroll(page);
    const x = await xAt(20);
    await page.mouse.move(x, shown.y + 20);
    await page.keyboard.down("Control");
    await page.mouse.wheel(0, -100);
    await page.keyboard.up("Control");
    await expect.poll(widthOf).toBeGreaterThan(3 * shown.width);
    expect(Math.abs((await xAt(20)) - x)).toBeLessThan(2);
    // The loud first half is in view.
    expect((await drawn(page)).lowest).toBeGreaterThan(40);
    // Where a second is wide, tenths can be marked.
    await page.keyboard.down("Shift");
    await drag(20.3, 21.7);
    await page.keyboard.up("Shift");
    await expect(status).toHaveText("Clip: 0:20.3 – 0:21.7");
    await place.press("End");
    await expect.poll(() => xAt(65)).toBeLessThan(shown.x + shown.width + 1);
    await expect.poll(async () => (await drawn(page)).lowest).toBeLessThan(40);
    await place.press("Home");
    await expect.poll(() => xAt(0)).toBeGreaterThan(shown.x - 1);
    await expectGoodLooks(page, "file-zoom");
    for (let press = 0; press < 2; press++) await page.getByRole("button", { name: "Zoom out" }).click();
    expect(await widthOf()).toBe(shown.width);
    // Two fingers zoom, and leave the position where it is.
    await place.press("PageUp");
    const devtools = await page.context().newCDPSession(page);
    const touch = (type: "touchStart" | "touchMove" | "touchEnd", ...xs: number[]) =>
      devtools.send("Input.dispatchTouchEvent", {
        type,
        touchPoints: xs.map((x, id) => ({ x: shown.x + x, y: shown.y + 40, id })),
      });
    await touch("touchStart", 100);
    await touch("touchStart", 100, 200);
    for (const spread of [120, 150, 200]) await touch("touchMove", 150 - spread / 2, 150 + spread / 2);
    await touch("touchEnd");
    await expect.poll(widthOf).toBeGreaterThan(1.9 * shown.width);
    await expect(place).toHaveAttribute("aria-valuetext", "0:30 of 1:05");
  });

  exhaustive("keeps its button in reach on a phone, below the player", async ({ at }) => {
    const { page } = await openRecording(at, { width: 390, height: 500 });
    const bar = page.locator(".player-bar");
    await page.getByRole("button", { name: "Play minute.wav" }).click();
    await expect(page.getByRole("button", { name: "Pause minute.wav" })).toBeVisible();
    await expect(bar).toHaveCount(0);
    await page.getByRole("heading", { name: "Activity" }).scrollIntoViewIfNeeded();
    await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
    await bar.getByRole("button", { name: "Pause minute.wav" }).click();
    await expect(bar.getByRole("button", { name: "Play minute.wav" })).toBeVisible();
    await page.evaluate(() => scrollTo(0, 0));
    await expect(bar).toHaveCount(0);
  });

  test("dims what is outside of a clip, shows the position as a line, and zooms to the clip", async ({ at }) => {
    const { page, place, xAt } = await openRecording(at, { reducedMotion: true });
    /** How much of the color and how many pixels the columns at a moment have. */
    const columnAt = async (seconds: number) => {
      const x = Math.round((await xAt(seconds)) - ((await page.locator(".player-view").boundingBox())?.x ?? 0));
      return place.locator("canvas").evaluate((canvas: HTMLCanvasElement, x) => {
        const { data = [] } = canvas.getContext("2d")?.getImageData(x - 1, 0, 4, canvas.height) ?? {};
        const alphas = [...data].filter((_, place) => place % 4 === 3 && data[place]);
        return { height: canvas.height, most: Math.max(...alphas), count: alphas.length };
      }, x);
    };
    const whole = await columnAt(40);
    expect(whole.most).toBe(255);
    for (const key of ["Home", "PageUp", "[", "PageUp", "ArrowLeft", "]"]) await place.press(key);
    await expect(page.getByRole("status").filter({ hasText: "Clip: 0:30 – 0:55" })).toBeVisible();
    await expect.poll(async () => (await columnAt(20)).most).toBeLessThan(128);
    expect((await columnAt(40)).most).toBe(255);
    // The line is as high as the canvas, and the quiet bars of this part are not.
    await expect.poll(async () => (await columnAt(55)).count).toBeGreaterThanOrEqual(2 * whole.height);
    expect((await columnAt(40)).count).toBeLessThan(whole.height);
    await page.getByRole("button", { name: "Zoom to clip" }).click();
    const { x = 0, width = 0 } = (await page.locator(".player-view").boundingBox()) ?? {};
    expect(((await xAt(55)) - (await xAt(30))) / width).toBeCloseTo(1 / 1.25, 2);
    expect(((await xAt(30)) - x) / width).toBeCloseTo(0.1, 2);
    await expect(page.getByRole("button", { name: "Zoom in" })).toBeEnabled();
    await expect(place).toHaveAttribute("aria-keyshortcuts", "[ ]");
  });

  exhaustive("is a triangle on a button, and shows the clip, in forced colors", async ({ at }) => {
    const { page, place } = await openRecording(at);
    await page.emulateMedia({ forcedColors: "active" });
    const { back, top, start } = await page.getByRole("button", { name: "Play minute.wav" }).evaluate((button) => {
      const { borderTopColor: top, borderLeftColor: start } = getComputedStyle(button, "::before");
      return { back: getComputedStyle(button).backgroundColor, top, start };
    });
    // Forced colors would fill the sides of the triangle, too.
    expect(top).toBe("rgba(0, 0, 0, 0)");
    expect(start).not.toBe(back);
    for (const key of ["Home", "PageUp", "["]) await place.press(key);
    const { color, width } = await page.locator(".player-clip").evaluate((clip) => {
      const { borderLeftColor: color, borderLeftWidth: width } = getComputedStyle(clip);
      return { color, width };
    });
    expect([color, width]).toEqual(["rgb(0, 0, 0)", "2px"]);
    await screenshot(page, "forced-colors");
  });

  exhaustive("zooms to the position, also without motion", async ({ at }) => {
    const { page, place, xAt, drag } = await openRecording(at, { reducedMotion: true });
    await drag(10, 60.5);
    await expect(place).toHaveAttribute("aria-valuetext", "1:00 of 1:05");
    for (let press = 0; press < 2; press++) await page.getByRole("button", { name: "Zoom in" }).click();
    const { x, width } = (await page.locator(".player-view").boundingBox()) ?? { x: 0, width: 0 };
    expect(await xAt(60)).toBeGreaterThan(x);
    expect(await xAt(60)).toBeLessThan(x + width);
  });

  exhaustive("starts at the moment of the link, and keeps the volume for other files", async ({ at }) => {
    const team = await newTeam();
    const [one, two] = [await upload(team, "one.wav", tone(65)), await upload(team, "two.wav", tone(5))];
    const { page } = await at(`/files/${one}?t=1:02`, { team });
    await expect(position(page)).toHaveAttribute("aria-valuetext", "1:02 of 1:05");
    await page.getByRole("button", { name: "Sound" }).click();
    await page.getByRole("slider", { name: "Volume" }).fill("30");
    await page.goto(`/console/files/${two}`);
    await page.getByRole("button", { name: "Sound" }).click();
    await expect(page.getByRole("slider", { name: "Volume" })).toHaveValue("30");
    expect(await page.locator("audio").evaluate((audio: HTMLAudioElement) => audio.volume)).toBe(0.3);
  });

  exhaustive("shows Play again if the browser refuses to start", async ({ at }) => {
    const { page } = await at("/files/:id", { files: ["one.wav"] });
    await page.evaluate(() => {
      const { play } = HTMLMediaElement.prototype;
      HTMLMediaElement.prototype.play = () => {
        HTMLMediaElement.prototype.play = play;
        Reflect.set(window, "wasRefused", true);
        return Promise.reject(new DOMException("", "NotAllowedError"));
      };
    });
    await page.getByRole("button", { name: "Play one.wav" }).click();
    await expect.poll(() => page.evaluate(() => Reflect.get(window, "wasRefused"))).toBe(true);
    await expect(page.getByRole("button", { name: "Play one.wav" })).toBeVisible();
    await page.getByRole("button", { name: "Play one.wav" }).click();
    await expect.poll(async () => Number(await position(page).getAttribute("aria-valuenow"))).toBeGreaterThan(0);
  });

  exhaustive("redraws the waveform if the width or the theme changes", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "minute.wav", tone(65));
    const peaks = Array.from({ length: 1000 }, (_, at) => (at < 500 ? 1 : -0.1));
    await team.stowage.files.setWaveform(id, [peaks]);
    const { page } = await at(`/files/${id}`, { team, deviceScaleFactor: 2 });
    // 98 px high and drawn for two device pixels each: 196, and a tenth of it.
    await expect.poll(() => drawn(page)).toMatchObject({ highest: 196, lowest: 20 });
    const light = await drawn(page);
    expect(light.width).toBe(2 * Math.round((await position(page).boundingBox())?.width ?? 0));
    expect(light.colors).toHaveLength(1);
    await position(page).focus();
    await page.keyboard.press("PageUp");
    await expect.poll(async () => (await drawn(page)).colors.length).toBe(2);
    await page.emulateMedia({ colorScheme: "dark" });
    await expect.poll(async () => (await drawn(page)).colors).not.toContain(light.colors[0]);
    await page.setViewportSize({ width: 500, height: 800 });
    await expect.poll(async () => (await drawn(page)).width).toBeLessThan(light.width);
    await screenshot(page, "player");
  });

  exhaustive("draws the waveform once the service has measured it, without downloading the file", async ({ at }) => {
    const { page, id } = await at("/files/:id", { files: ["minute.wav"] });
    const requests: string[] = [];
    page.on("request", (request) => requests.push(request.url()));
    await expect.poll(async () => (await drawn(page)).highest).toBeGreaterThan(20);
    expect(requests.filter((url) => url.includes("/cdn-cgi/") && !url.includes(id))).toEqual([]);
  });

  exhaustive("says that a format has no waveform", async ({ at }) => {
    const { page } = await at("/files/:id", { files: { "tone.wma": sample("tone.wma") } });
    await expect(page.getByText("No waveform for this format.")).toBeVisible();
  });

  exhaustive("renews an expired URL, and continues at the same position", async ({ at, problems }) => {
    problems.allow(403);
    const team = await newTeam();
    const id = await upload(team, "long.wav", tone(600, 16_000));
    await team.stowage.files.setWaveform(id, [Array(16).fill(0.5)]);
    const { page } = await at("/files", { team });
    let signed = 0;
    let first = "";
    const status = async (source: string) => (await fetch(source, { headers: { Range: "bytes=0-0" } })).status;
    // The first URL has expired when the page gets it.
    await page.route(`**/docs/v1/uploads/${id}`, async (route) => {
      const isFirst = ++signed === 1;
      const response = await route.fetch({ url: `${route.request().url()}?expiresIn=${isFirst ? 1 : 3600}` });
      if (isFirst) {
        first = (await response.json()).signedUrl;
        await expect.poll(() => status(first)).toBe(403);
      }
      await route.fulfill({ response });
    });
    await page.getByRole("link", { name: "long.wav" }).click();
    const place = position(page);
    await expect(place).toHaveAttribute("aria-valuetext", "0:00 of 10:00");
    // Opening the page requests no URL.
    expect(signed).toBe(0);
    await place.focus();
    for (let press = 0; press < 18; press++) await page.keyboard.press("PageUp");
    await page.keyboard.press("Space");
    await expect.poll(() => signed).toBe(2);
    await expect.poll(async () => Number(await place.getAttribute("aria-valuenow"))).toBeGreaterThan(540);
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(541);
    await expect(page.getByRole("button", { name: "Pause" })).toBeVisible();

    // A failed renewal can be retried.
    await page.keyboard.press("Home");
    let isRejected = true;
    await page.route(`**/docs/v1/uploads/${id}`, (route) =>
      isRejected
        ? respond(route, { code: "forbidden", message: "Not now." })
        : route.continue({ url: `${route.request().url()}?expiresIn=1800` }),
    );
    await page.locator("audio").evaluate((audio: HTMLAudioElement, ended) => {
      audio.src = ended;
    }, first);
    await expect(page.getByRole("alert")).toBeVisible();
    await expect(page.getByRole("button", { name: "Play" })).toBeVisible();
    isRejected = false;
    await page.getByRole("button", { name: "Try again" }).click();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(0.2);
    await page.getByRole("button", { name: "Pause" }).click();
    expect(await page.locator("audio").evaluate(({ paused }: HTMLAudioElement) => paused)).toBe(true);
  });

  exhaustive("explains that the browser can't play a format", async ({ at }) => {
    const { page, team, id } = await at("/files/:id", { files: { "tone.wma": sample("tone.wma") } });
    const { mimeType } = await team.stowage.files.get(id);
    await page.getByRole("button", { name: "Play" }).click();
    await expect(page.getByRole("alert")).toContainText(`This browser can't play ${mimeType}.`);
    await expectAccessible(page);
  });

  exhaustive("shows the duration from the metadata if the browser does not know it", async ({ at }) => {
    const { page, team, id } = await at("/files/:id", { files: { "live.webm": sample("tone-live.webm") } });
    const { audio } = await team.stowage.files.get(id);
    expect(audio?.durationSeconds).toBeGreaterThan(1);
    await expect(position(page)).toHaveAttribute(
      "aria-valuetext",
      `0:00 of 0:0${Math.round(audio?.durationSeconds ?? 0)}`,
    );
    await page.getByRole("button", { name: "Play" }).click();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(0.5);
  });

  exhaustive("shows the duration of the record if the browser knows only that of a first part", async ({ at }) => {
    const { page } = await at("/files/:id", { files: ["minute.wav"] });
    // As WebKit does for a fragmented MP4.
    await page.evaluate(() => Object.defineProperty(HTMLMediaElement.prototype, "duration", { get: () => 1 }));
    await page.getByRole("button", { name: "Play" }).click();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(0.2);
    await expect(position(page)).toHaveAttribute("aria-valuetext", /of 1:05$/);
  });

  exhaustive("shows an image, and the picture of a video", async ({ at }) => {
    const files = { "cover.png": sample("pixel.png"), "video.webm": sample("video.webm") };
    const { page, ids } = await at("/files/:id", { files });
    const image = page.getByRole("img", { name: "cover.png" });
    await expect.poll(() => image.evaluate((element: HTMLImageElement) => element.naturalWidth)).toBeGreaterThan(0);
    await page.goto(`/console/files/${ids[1]}`);
    const video = page.locator("video");
    await expect.poll(() => video.evaluate((element: HTMLVideoElement) => element.videoWidth)).toBeGreaterThan(0);
    await video.evaluate((element: HTMLVideoElement) => element.play());
    await expect.poll(() => video.evaluate((element: HTMLVideoElement) => element.currentTime)).toBeGreaterThan(0.2);
  });
});
