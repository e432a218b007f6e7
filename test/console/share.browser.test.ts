import type { Locator, Page } from "@playwright/test";
import { describe } from "vitest";
import { expectGoodLooks, findAccessibilityIssues } from "../support/browser/appearance.ts";
import { respond } from "../support/browser/fakes.ts";
import { position } from "../support/browser/locators.ts";
import { OFFLINE } from "../support/browser/problems.ts";
import { silence } from "../support/browser/sounds.ts";
import { copyBy, exhaustive, expect, type OpenPage, storeOrigin, test } from "../support/browser/support.ts";
import { newTeam, sample, type Team, upload } from "../support/team.ts";

/* The page of a link, and its player in the pages of other sites. */

/** Another origin of this machine, because a site of the internet may not frame a page of the local network. */
const SITE = `${storeOrigin}/site`;

async function share(team: Team, name: string, content: BlobPart = silence(65), expiresAt: string | null = null) {
  const id = await upload(team, name, content);
  await team.stowage.files.setWaveform(id, [Array.from({ length: 100 }, (_, at) => (at % 10) / 10)]).catch(() => {});
  const link = await team.stowage.links.create(id, { expiresAt });
  const { pathname } = new URL(link.pageUrl);
  return { ...link, pathname };
}

const secondsOf = async (slider: Locator) => Number(await slider.getAttribute("aria-valuenow"));

/** How many colors the waveform has. */
const colors = (page: Page) =>
  page.locator(".player-seek canvas").evaluate((canvas: HTMLCanvasElement) => {
    const { width, height } = canvas;
    const { data = [] } = width > 0 ? (canvas.getContext("2d")?.getImageData(0, 0, width, height) ?? {}) : {};
    const seen = new Set<string>();
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) seen.add(data.slice(at, at + 3).join());
    return seen.size;
  });

describe("The page of a link", () => {
  test("is headed by the title of the recording, here and in a frame, with its artist and its file", async ({
    openPage,
  }) => {
    const team = await newTeam();
    const { pathname, fileId } = await share(team, "take 12.mp3", sample("tone-vbr.mp3"));
    await expect.poll(async () => (await team.stowage.files.get(fileId)).title).toBe("Übergröße·日本");
    const page = await openPage({ path: pathname });
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("Übergröße·日本");
    await expect(page).toHaveTitle("Übergröße·日本");
    await expect(page.getByText("Stowage", { exact: true })).toBeVisible();
    await expect(page.getByText(/^take 12\.mp3 · 0:02 · 9\.3 kB$/)).toBeVisible();
    await expect(page.getByRole("button", { name: "Play Übergröße·日本" })).toBeVisible();
    await page.goto(pathname.replace("/share/", "/embed/"));
    await expect(page.getByRole("link", { name: "Übergröße·日本" })).toHaveAttribute("href", pathname);
  });

  test("plays the recording from the moment in its URL", async ({ openPage }) => {
    const { pathname, pageUrl } = await share(await newTeam(), "a season.wav");
    const page = await openPage({ path: `${pathname}#t=30` });
    await expect(page.getByRole("heading", { level: 1, name: "a season.wav" })).toBeVisible();
    await expect(page).toHaveTitle("a season.wav");
    await expect(page.getByText("test shared this")).toBeVisible();
    await expect(page.getByText("1:05 · 2.1 MB")).toBeVisible();
    await expect(page.locator(".player-ruler")).toHaveText("0:000:100:200:300:400:501:05");
    // A third of the free space is above it.
    const [card, height] = [await page.locator(".share .card").boundingBox(), page.viewportSize()?.height ?? 0];
    expect(card?.width).toBe(736);
    expect(card?.y).toBeLessThan(height - (card?.y ?? 0) - (card?.height ?? 0));
    const place = position(page);
    await expect(place).toHaveAttribute("aria-valuetext", "0:30 of 1:05");
    await expect.poll(() => colors(page)).toBe(2);
    await expectGoodLooks(page, "share");
    expect(await copyBy(page.getByRole("button", { name: "Copy link to this moment" }), "#t=30")).toBe(
      `${pageUrl}#t=30`,
    );
    await page.getByRole("combobox", { name: "Speed" }).selectOption("2×");
    await page.getByRole("button", { name: "Play a season.wav" }).click();
    await expect.poll(() => secondsOf(place)).toBeGreaterThan(32);
    expect(await page.locator("audio").evaluate((audio: HTMLAudioElement) => audio.playbackRate)).toBe(2);
    await page.getByRole("heading", { level: 1 }).click();
    await page.keyboard.press("Space");
    await expect(page.getByRole("button", { name: "Play a season.wav" })).toBeVisible();
    await page.getByRole("button", { name: "Forward 30 seconds" }).click();
    await expect.poll(() => secondsOf(place)).toBeGreaterThan(60);
    await page.evaluate(() => {
      location.hash = "t=0:05";
    });
    await expect(place).toHaveAttribute("aria-valuetext", "0:05 of 1:05");
  });

  test("uses no letter as a shortcut, because it has no place to turn that off", async ({ openPage }) => {
    const { pathname } = await share(await newTeam(), "a season.wav");
    const page = await openPage({ path: pathname });
    await expect(page.getByRole("button", { name: "Play a season.wav" })).toBeVisible();
    const isMuted = () => page.locator("audio").evaluate((audio: HTMLAudioElement) => audio.muted);
    await page.keyboard.press("m");
    expect(await isMuted()).toBe(false);
    await page.keyboard.press("Space");
    await expect(page.getByRole("button", { name: "Pause a season.wav" })).toBeVisible();
  });

  test("says that the link doesn't work, and loads once more, if only the API knows that", async ({
    openPage,
    problems,
  }) => {
    problems.allow(404);
    const { pathname } = await share(await newTeam(), "a season.wav");
    const page = await openPage();
    await page.route(/\/docs\/v1\/links\//, (route) => respond(route, { code: "not_found" }));
    let loads = 0;
    page.on("request", (request) => {
      if (request.isNavigationRequest()) loads++;
    });
    await page.goto(pathname).catch(() => undefined);
    await expect(page.getByText("This link doesn't work anymore.")).toBeVisible();
    expect(loads).toBe(2);
  });

  exhaustive("plays the clip in its URL until it ends, and shows it", async ({ openPage }) => {
    const { pathname } = await share(await newTeam(), "a season.wav");
    const page = await openPage({ path: `${pathname}#t=0:30,32.5` });
    const place = position(page);
    await expect(place).toHaveAttribute("aria-valuetext", "0:30 of 1:05");
    await expect(page.getByText("Plays 0:30 – 0:32.5")).toBeVisible();
    const [bar, clip] = [await place.boundingBox(), await page.locator(".player-clip").boundingBox()];
    if (!bar || !clip) throw new Error("There is no clip.");
    expect(Math.abs((clip.x - bar.x) / bar.width - 30 / 65)).toBeLessThan(0.01);
    expect(Math.abs(clip.width / bar.width - 2.5 / 65)).toBeLessThan(0.01);
    await expectGoodLooks(page, "share-clip");
    const time = () => page.locator("audio").evaluate((audio: HTMLAudioElement) => audio.currentTime);
    await page.getByRole("button", { name: "Play a season.wav" }).click();
    await expect.poll(time).toBe(32.5);
    await expect(page.getByRole("button", { name: "Play a season.wav" })).toBeVisible();
    await page.evaluate(() => {
      location.hash = "t=50";
    });
    await expect(page.getByText(/^Plays/)).toHaveCount(0);
    await page.getByRole("button", { name: "Play a season.wav" }).click();
    await expect.poll(time).toBeGreaterThan(50.5);
  });

  exhaustive("shows when the link expires", async ({ openPage }) => {
    const tomorrow = new Date(Date.now() + 86_400_000).toISOString();
    const { pathname } = await share(await newTeam(), "notes.txt", "text", tomorrow);
    const page = await openPage({ path: pathname });
    await expect(page.getByText("Expires in 24 hours")).toBeVisible();
  });

  exhaustive("plays a video and shows an image", async ({ openPage }) => {
    const team = await newTeam();
    const video = await share(team, "tour.webm", sample("video.webm"));
    const page = await openPage({ path: video.pathname });
    const player = page.locator("video");
    await player.evaluate((element: HTMLVideoElement) => element.play());
    await expect.poll(() => player.evaluate((element: HTMLVideoElement) => element.currentTime)).toBeGreaterThan(0.2);
    await page.goto((await share(team, "cover.png", sample("pixel.png"))).pathname);
    const image = page.getByRole("img", { name: "cover.png" });
    await expect.poll(() => image.evaluate((element: HTMLImageElement) => element.naturalWidth)).toBeGreaterThan(0);
    await expectGoodLooks(page, "share-image");
  });

  test("shows any other file with its size, and downloads it", async ({ openPage }) => {
    const name = `${"long ".repeat(15)}${"letters".repeat(12)} über.txt`;
    const { pathname } = await share(await newTeam(), name, "all of it");
    const page = await openPage({ path: pathname });
    await expect(page.getByText("9 B")).toBeVisible();
    await expect(position(page)).toHaveCount(0);
    await expectGoodLooks(page, "share-other");
    const saving = page.waitForEvent("download");
    await page.getByRole("link", { name: "Download" }).click();
    const download = await saving;
    expect(download.suggestedFilename()).toBe(name);
    expect(Buffer.concat(await (await download.createReadStream()).toArray()).toString()).toBe("all of it");
  });

  test("ends, with its player, once the link is revoked", async ({ openPage, problems }) => {
    problems.allow(404);
    const team = await newTeam();
    const { _id, pathname } = await share(team, "revoked.wav");
    const page = await openPage({ path: pathname });
    const play = page.getByRole("button", { name: "Play revoked.wav" });
    await expect(play).toBeVisible();
    await team.stowage.links.delete(_id);
    await play.click();
    await expect(page.getByRole("heading", { level: 1, name: "This link doesn't work" })).toBeVisible();
    await expectGoodLooks(page, "share-gone");
  });

  exhaustive("can be loaded again after the connection was lost", async ({ openPage, problems }) => {
    problems.allow(OFFLINE);
    const { pathname } = await share(await newTeam(), "offline.wav");
    const page = await openPage();
    await page.route("**/docs/v1/links/**", (route) => route.abort("internetdisconnected"));
    await page.goto(pathname);
    await expect(page.getByRole("alert")).toHaveText(/Check your connection/);
    await page.unroute("**/docs/v1/links/**");
    await page.getByRole("button", { name: "Try again" }).click();
    await expect(position(page)).toBeVisible();
  });
});

describe("The player of a link in the page of another site", () => {
  /** Opens a site that frames pages of the service. */
  async function openSite(openPage: OpenPage, sources: string[], width = 600) {
    const page = await openPage({ width });
    await page.context().grantPermissions(["local-network-access"], { origin: storeOrigin });
    const frames = sources.map((src) => `<iframe src="${src}" width="100%" height="120" style="border:0"></iframe>`);
    await page.route(SITE, (route) => route.fulfill({ contentType: "text/html", body: frames.join("") }));
    await page.goto(SITE);
    return page;
  }

  exhaustive("plays within 120 pixels, and the page itself can't be framed", async ({ openPage, problems }) => {
    problems.allow(404, /frame-ancestors/);
    const team = await newTeam();
    const [audio, other] = [await share(team, "a season.wav"), await share(team, "notes.txt", "notes")];
    const embed = ({ pageUrl }: { pageUrl: string }) => pageUrl.replace("/share/", "/embed/");
    const revoked = await share(team, "gone.txt", "gone");
    await team.stowage.links.delete(revoked._id);
    for (const width of [640, 320]) {
      const page = await openSite(openPage, [embed(audio), embed(other), embed(revoked), audio.pageUrl], width);
      const [player, file, ended, framed] = [0, 1, 2, 3].map((at) => page.frameLocator("iframe").nth(at));
      if (!player || !file || !ended || !framed) throw new Error("A frame is missing.");
      await expect(ended.getByRole("heading", { name: "This link doesn't work" })).toBeVisible();
      await expect(file.getByRole("link", { name: "Download" })).toBeVisible();
      await expect(framed.getByText("a season.wav")).toHaveCount(0);
      await player.getByRole("button", { name: "Play a season.wav" }).click();
      await expect.poll(() => secondsOf(position(player))).toBeGreaterThan(0);
      await player.getByRole("combobox", { name: "Speed" }).selectOption("1.5×");
      for (const frame of [player, file, ended]) {
        const size = await frame.locator("main").evaluate(({ ownerDocument: { documentElement: root } }) => ({
          fits: root.scrollHeight <= 120 && root.scrollWidth <= root.clientWidth,
        }));
        expect(size).toEqual({ fits: true });
      }
      // Where there is room, the embedded player skips, too.
      await expect(player.getByRole("button", { name: "Forward 30 seconds" })).toBeVisible({ visible: width > 600 });
      const own = page.frames().filter((frame) => frame.url().includes("/embed/"));
      expect(own).toHaveLength(3);
      const direct = await openPage({ path: new URL(embed(audio)).pathname, width, height: 120 });
      await expect(position(direct)).toBeVisible();
      expect(await findAccessibilityIssues(direct)).toEqual([]);
    }
  });
});
