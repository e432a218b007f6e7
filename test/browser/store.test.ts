import { describe } from "vitest";
import { newTeam, sample, upload } from "../support/team.ts";
import { expect, storeOrigin, test } from "./support.ts";

const sound = sample("tone-vbr.mp3");

async function signedAddress(): Promise<string> {
  const team = await newTeam();
  return team.stowage.files.sign(await upload(team, "tone.mp3", sound));
}

describe("A signed address", () => {
  test("It is on another host than the pages, which play its sound to the end.", async ({ openPage }) => {
    const address = await signedAddress();
    expect(new URL(address).origin).toBe(storeOrigin);
    const page = await openPage({ path: "/console" });
    expect(new URL(page.url()).host).not.toBe(new URL(address).host);
    const seconds = await page.evaluate(async (source) => {
      const audio = new Audio(source);
      audio.muted = true;
      const ended = new Promise((done) => audio.addEventListener("ended", done));
      await audio.play();
      await ended;
      return audio.currentTime;
    }, address);
    expect(seconds).toBeGreaterThan(1.9);
  });

  test("It can be saved from a page, under the name of the file.", async ({ openPage }) => {
    const address = await signedAddress();
    const page = await openPage({ path: "/console" });
    const saving = page.waitForEvent("download");
    await page.evaluate((source) => {
      const link = Object.assign(document.createElement("a"), { href: source, textContent: "Download" });
      document.body.append(link);
    }, address);
    await page.getByRole("link", { name: "Download" }).click();
    const download = await saving;
    expect(download.suggestedFilename()).toBe("tone.mp3");
    const bytes = Buffer.concat(await (await download.createReadStream()).toArray());
    expect(bytes.equals(sound)).toBe(true);
  });
});
