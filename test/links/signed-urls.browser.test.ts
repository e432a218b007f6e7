import { describe } from "vitest";
import { exhaustive, expect, storeOrigin, test } from "../support/browser/support.ts";
import { newTeam, sample, upload } from "../support/team.ts";

const sound = sample("tone-vbr.mp3");

async function createSignedUrl(): Promise<string> {
  const team = await newTeam();
  return team.stowage.files.createSignedUrl(await upload(team, "tone.mp3", sound));
}

describe("Signed URL", () => {
  exhaustive("is on another host than the pages, which play it to the end", async ({ openPage }) => {
    const signedUrl = await createSignedUrl();
    expect(new URL(signedUrl).origin).toBe(storeOrigin);
    const page = await openPage({ path: "/console" });
    expect(new URL(page.url()).host).not.toBe(new URL(signedUrl).host);
    const seconds = await page.evaluate(async (source) => {
      const audio = new Audio(source);
      audio.muted = true;
      const ended = new Promise((done) => audio.addEventListener("ended", done));
      await audio.play();
      await ended;
      return audio.currentTime;
    }, signedUrl);
    expect(seconds).toBeGreaterThan(1.9);
  });

  test("saves the file under its name", async ({ openPage }) => {
    const signedUrl = await createSignedUrl();
    const page = await openPage({ path: "/console" });
    const saving = page.waitForEvent("download");
    await page.evaluate((source) => {
      const link = Object.assign(document.createElement("a"), { href: source, textContent: "Download" });
      document.body.append(link);
    }, signedUrl);
    await page.getByRole("link", { name: "Download" }).click();
    const download = await saving;
    expect(download.suggestedFilename()).toBe("tone.mp3");
    const bytes = Buffer.concat(await (await download.createReadStream()).toArray());
    expect(bytes.equals(sound)).toBe(true);
  });
});
