import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { newTeam, sample, upload } from "../support/team.ts";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "./looks.ts";
import { openConsole } from "./signed-in.ts";
import { copyBy, expect, screenshot, test } from "./support.ts";

/** A tone of so many seconds, as a WAV of 8 bits. */
function wav(seconds: number, rate = 8000): Uint8Array<ArrayBuffer> {
  const bytes = new Uint8Array(44 + seconds * rate);
  const view = new DataView(bytes.buffer);
  const text = (at: number, words: string) => bytes.set(new TextEncoder().encode(words), at);
  const [riff, fmt] = [bytes.length - 8, 16];
  text(0, "RIFF");
  view.setUint32(4, riff, true);
  text(8, "WAVEfmt ");
  view.setUint32(16, fmt, true);
  view.setUint32(20, 0x0001_0001, true);
  view.setUint32(24, rate, true);
  view.setUint32(28, rate, true);
  view.setUint32(32, 0x0008_0001, true);
  text(36, "data");
  view.setUint32(40, seconds * rate, true);
  for (let at = 44; at < bytes.length; at++) bytes[at] = 128 + 60 * Math.sin(at / 3);
  return bytes;
}

const fact = (page: Page, name: string) =>
  page.getByRole("definition").filter({ has: page.locator(`xpath=preceding-sibling::dt[.="${name}"]`) });
const position = (page: Page) => page.getByRole("slider", { name: "Position" });

describe("A file's page", () => {
  test("It shows what is known of the file, and of its sound.", async ({ openPage }) => {
    const team = await newTeam();
    const name = "Ночной эфир 🎧, часть первая.flac";
    const id = await upload(team, name, sample("tone.flac"));
    const file = await team.stowage.files.get(id);
    for (const theme of ["light", "dark"] as const) {
      const { page } = await openConsole(openPage, { path: `/files/${id}`, team, theme });
      await expect(page.getByRole("heading", { level: 1, name })).toBeVisible();
      await expect(fact(page, "Status")).toHaveText("completed");
      await expect(fact(page, "Media type")).toHaveText("audio/flac");
      await expect(fact(page, "SHA-256")).toContainText(file.sha256 ?? "none");
      await expect(fact(page, "Codec")).toHaveText("FLAC");
      await expect(fact(page, "Sample rate")).toHaveText(`${file.audio?.sampleRate?.toLocaleString("en")} Hz`);
      await expect(fact(page, "Lossless")).toHaveText("yes");
      await expect(fact(page, "Duration")).toHaveText("0:02");
      for (const [what, text] of Object.entries({ id, "SHA-256": file.sha256, address: file.path })) {
        expect(await copyBy(page.getByRole("button", { name: `Copy ${what}` }), text ?? "")).toBe(text);
      }
      await expectAccessible(page);
      await screenshot(page, "file");
      await page.setViewportSize({ width: 320, height: 640 });
      await expectNoSidewaysScroll(page);
      await screenshot(page, "file");
    }
  });

  test("shows tags as text, whatever they contain", async ({ openPage }) => {
    const team = await newTeam();
    const id = await upload(team, "tagged.mp3", sample("tone-vbr.mp3"));
    const file = await team.stowage.files.get(id);
    const { page } = await openConsole(openPage, { path: "/files", team });
    const tags = {
      title: "<img src=x onerror=alert(1)>",
      artist: "مطرب; Другой",
      comment: "la ".repeat(60) + "x".repeat(76),
      track: 1,
      ["__proto__"]: "safe",
    };
    await page.route(`**/${id}/metadata`, (route) =>
      route.fulfill({ json: { message: "", data: { ...file, audio: { ...file.audio, tags } } } }),
    );
    await page.getByRole("link", { name: "tagged.mp3" }).click();
    await expect(fact(page, "title")).toHaveText(tags.title);
    await expect(fact(page, "artist")).toHaveText(tags.artist);
    await expect(fact(page, "comment")).toHaveText(tags.comment);
    await expect(fact(page, "track")).toHaveText("1");
    await expect(fact(page, "__proto__")).toHaveText("safe");
    await expectAccessible(page);
    await page.setViewportSize({ width: 320, height: 640 });
    await expectNoSidewaysScroll(page);
    await screenshot(page, "file-tags");
  });

  test("Why it failed is said, and it can be processed again, live.", async ({ openPage }) => {
    const team = await newTeam();
    const broken = new Uint8Array(3000);
    broken.set(new TextEncoder().encode("fLaC"));
    const id = await upload(team, "broken.flac", broken);
    const { failure, __v } = await team.stowage.files.get(id);
    expect(failure?.code).toBe("audio_unreadable");
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team });
    await expect(fact(page, "Status")).toHaveText("failed");
    await expect(page.getByText(failure?.message ?? "none")).toBeVisible();
    await tabTo(page.getByRole("button", { name: "Process again" }));
    await page.keyboard.press("Enter");
    await expect(page.getByText("The file is processed again.")).toBeVisible();
    await expect(page.getByRole("button", { name: "Process again" })).toBeFocused();
    await expect.poll(async () => (await team.stowage.files.get(id)).status).toBe("failed");
    const { __v: latest } = await team.stowage.files.get(id);
    expect(latest).toBeGreaterThan(__v);
    await expect(fact(page, "Version")).toHaveText(String(latest));
  });

  test("It is downloaded under its own name, with its bytes.", async ({ openPage }) => {
    const team = await newTeam();
    const id = await upload(team, "Bericht – März.txt", "all of it");
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team });
    const saving = page.waitForEvent("download");
    await page.getByRole("button", { name: "Download" }).click();
    const download = await saving;
    expect(download.suggestedFilename()).toBe("Bericht – März.txt");
    expect(Buffer.concat(await (await download.createReadStream()).toArray()).toString()).toBe("all of it");
    await expect(page.getByRole("heading", { level: 1, name: "Bericht – März.txt" })).toBeVisible();
  });

  test("A signed address is copied, for as long as is chosen.", async ({ openPage }) => {
    const team = await newTeam();
    const id = await upload(team, "a.txt", "all of it");
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team });
    const make = page.getByRole("button", { name: "Make signed address" });
    let address = "";
    const lives = { "A minute": 60, "An hour": 3600, "A day": 86_400, "A week": 604_800, "So many seconds": 77 };
    for (const [label, seconds] of Object.entries(lives)) {
      await page.getByLabel("It lives for").selectOption(label);
      if (seconds === 77) await page.getByLabel("Seconds").fill("77");
      address = await copyBy(make, `X-Amz-Expires=${seconds}&`);
      const told = page.getByRole("status").filter({ hasText: `X-Amz-Expires=${seconds}&` });
      await expect(told).toContainText("It ends:");
      const endsAt = Date.parse((await told.getByRole("time").getAttribute("datetime")) ?? "");
      expect(Math.abs(endsAt - Date.now() - seconds * 1000)).toBeLessThan(60_000);
    }
    expect(await (await fetch(address)).text()).toBe("all of it");
  });

  test("It is deleted after a question, and the list is where one goes.", async ({ openPage }) => {
    const team = await newTeam();
    await upload(team, "stays.txt", "stays");
    const id = await upload(team, "goes.txt", "goes");
    const { page } = await openConsole(openPage, { path: "/files?type=text+file", team });
    await page.getByRole("link", { name: "goes.txt" }).click();
    await tabTo(page.getByRole("button", { name: "Delete file" }));
    await page.keyboard.press("Enter");
    await expect(page.getByRole("dialog")).toHaveAccessibleName("Delete 1 file?");
    await tabTo(page.getByRole("button", { name: "Delete 1 file" }));
    await page.keyboard.press("Enter");
    await expect(page.getByRole("rowheader")).toHaveText(["stays.txt"]);
    await expect(page).toHaveURL(/\/console\/files\?type=text\+file$/);
    await expect(page.getByRole("heading", { level: 1, name: "Files" })).toBeFocused();
    await expect(team.stowage.files.get(id)).rejects.toMatchObject({ code: "not_found" });
  });

  test("One that is not there, or that somebody deletes, leads back to the list.", async ({ openPage, problems }) => {
    problems.allow(/404.*metadata/);
    const team = await newTeam();
    const id = await upload(team, "goes.txt", "goes");
    const { page } = await openConsole(openPage, { path: "/files/0123456789abcdef01234567", team });
    await expect(page.getByRole("heading", { name: "There is no file at this address." })).toBeVisible();
    await expectAccessible(page);
    await page.getByRole("link", { name: "All files" }).click();
    await page.getByRole("link", { name: "goes.txt" }).click();
    await page.getByRole("button", { name: "Download" }).focus();
    await team.stowage.files.delete(id);
    await expect(page.getByRole("heading", { name: "There is no file at this address." })).toBeVisible();
    await expect(page.getByRole("heading", { level: 1 })).toBeFocused();
  });
});

describe("The player", () => {
  /** What a canvas shows: the height of what is drawn in each of its columns, in device pixels, and its colours. */
  const drawn = (page: Page) =>
    position(page)
      .locator("canvas")
      .evaluate((canvas: HTMLCanvasElement) => {
        const { width, height } = canvas;
        const { data = [] } = canvas.getContext("2d")?.getImageData(0, 0, width, height) ?? {};
        const heights = new Array<number>(width).fill(0);
        const colours = new Set<string>();
        for (let at = 0; at < data.length; at += 4) {
          if (data[at + 3] !== 255) continue;
          const column = (at / 4) % width;
          heights[column] = (heights[column] ?? 0) + 1;
          colours.add(`${data[at]} ${data[at + 1]} ${data[at + 2]}`);
        }
        return {
          width,
          highest: Math.max(...heights),
          lowest: Math.min(...heights.filter(Boolean)),
          colours: [...colours],
        };
      });

  test("It plays, and keys move in it.", async ({ openPage }) => {
    const team = await newTeam();
    const id = await upload(team, "minute.wav", wav(65));
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team });
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
    await page.getByLabel("Speed").selectOption("2×");
    await page.getByRole("button", { name: "Mute" }).click();
    await expect(page.getByRole("button", { name: "Mute" })).toHaveAttribute("aria-pressed", "true");
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
  });

  test("It draws the waveform, anew for another width and theme, and a plain bar without one.", async ({
    openPage,
  }) => {
    const team = await newTeam();
    const id = await upload(team, "minute.wav", wav(65));
    const plain = await openConsole(openPage, { path: `/files/${id}`, team });
    await expect.poll(() => drawn(plain.page)).toMatchObject({ highest: 4, lowest: 4 });
    const peaks = Array.from({ length: 1000 }, (_, at) => (at < 500 ? 1 : -0.1));
    await team.stowage.files.setWaveform(id, [peaks]);
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team, deviceScaleFactor: 2 });
    // 75 px high and drawn for two device pixels each: 150, and a tenth of it.
    await expect.poll(() => drawn(page)).toMatchObject({ highest: 150, lowest: 16 });
    const light = await drawn(page);
    expect(light.width).toBe(2 * Math.round((await position(page).boundingBox())?.width ?? 0));
    expect(light.colours).toHaveLength(1);
    await position(page).focus();
    await page.keyboard.press("PageUp");
    await expect.poll(async () => (await drawn(page)).colours.length).toBe(2);
    await page.emulateMedia({ colorScheme: "dark" });
    await expect.poll(async () => (await drawn(page)).colours).not.toContain(light.colours[0]);
    await page.setViewportSize({ width: 500, height: 800 });
    await expect.poll(async () => (await drawn(page)).width).toBeLessThan(light.width);
    await screenshot(page, "player");
  });

  test("When its address has ended it takes another, and goes on where it was.", async ({ openPage, problems }) => {
    problems.allow(/403/);
    const team = await newTeam();
    const id = await upload(team, "long.wav", wav(600, 16_000));
    const { page } = await openConsole(openPage, { path: "/files", team });
    let signed = 0;
    // The first address is as one that ended meanwhile.
    await page.route(`**/docs/v1/uploads/${id}`, (route) =>
      route.continue({ url: `${route.request().url()}?expiresIn=${++signed === 1 ? 1 : 3600}` }),
    );
    await page.getByRole("link", { name: "long.wav" }).click();
    const place = position(page);
    await expect(place).toHaveAttribute("aria-valuetext", "0:00 of 10:00");
    await expect
      .poll(() => page.locator("audio").evaluate(({ readyState }: HTMLAudioElement) => readyState))
      .toBeGreaterThan(0);
    const first = await page.locator("audio").getAttribute("src");
    await expect.poll(async () => (await fetch(first ?? "", { headers: { Range: "bytes=0-0" } })).status).toBe(403);
    await page.getByRole("button", { name: "Play" }).click();
    await place.focus();
    for (let press = 0; press < 18; press++) await page.keyboard.press("PageUp");
    await expect.poll(() => signed).toBe(2);
    await expect.poll(async () => Number(await place.getAttribute("aria-valuenow"))).toBeGreaterThan(540);
    const at = () => page.locator("audio").evaluate(({ currentTime }: HTMLAudioElement) => currentTime);
    await expect.poll(at).toBeGreaterThan(541);
    await expect(page.getByRole("button", { name: "Pause" })).toBeVisible();

    // Nor is it stuck where no other address is to be had at first.
    await page.keyboard.press("Home");
    let isRefused = true;
    await page.route(`**/docs/v1/uploads/${id}`, (route) =>
      isRefused
        ? route.fulfill({ status: 403, json: { status: false, code: "forbidden", message: "Not now." } })
        : route.continue({ url: `${route.request().url()}?expiresIn=1800` }),
    );
    await page.locator("audio").evaluate((audio: HTMLAudioElement, ended) => {
      audio.src = ended ?? "";
    }, first);
    await expect(page.getByRole("alert")).toContainText("Not now.");
    await expect(page.getByRole("button", { name: "Play" })).toBeVisible();
    isRefused = false;
    await page.getByRole("button", { name: "Try again" }).click();
    await expect.poll(at).toBeGreaterThan(0.2);
    await page.getByRole("button", { name: "Pause" }).click();
    expect(await page.locator("audio").evaluate(({ paused }: HTMLAudioElement) => paused)).toBe(true);
  });

  test("What the browser does not play is said in words.", async ({ openPage }) => {
    const team = await newTeam();
    const id = await upload(team, "tone.wma", sample("tone.wma"));
    const { mimeType } = await team.stowage.files.get(id);
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team });
    await expect(page.getByRole("alert")).toContainText(`This browser does not play ${mimeType}.`);
    await expectAccessible(page);
    await screenshot(page, "player-refused");
  });

  test("A length that the browser can't tell is the one that the service found.", async ({ openPage }) => {
    const team = await newTeam();
    const id = await upload(team, "live.webm", sample("tone-live.webm"));
    const { audio } = await team.stowage.files.get(id);
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team });
    expect(audio?.durationSeconds).toBeGreaterThan(1);
    await expect(position(page)).toHaveAttribute(
      "aria-valuetext",
      `0:00 of 0:0${Math.floor(audio?.durationSeconds ?? 0)}`,
    );
    await page.getByRole("button", { name: "Play" }).click();
    await expect
      .poll(() => page.locator("audio").evaluate(({ currentTime }: HTMLAudioElement) => currentTime))
      .toBeGreaterThan(0.5);
  });

  test("It plays the sound of a video.", async ({ openPage }) => {
    const team = await newTeam();
    const id = await upload(team, "video.webm", sample("video.webm"));
    const { page } = await openConsole(openPage, { path: `/files/${id}`, team });
    await page.getByRole("button", { name: "Play" }).click();
    await expect
      .poll(() => page.locator("audio").evaluate(({ currentTime }: HTMLAudioElement) => currentTime))
      .toBeGreaterThan(0.2);
  });
});
