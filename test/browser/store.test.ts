import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe } from "vitest";
import { newTeam } from "../client/support.ts";
import { expect, storeOrigin, test } from "./support.ts";

const sound = readFileSync(join(import.meta.dirname, "../audio/tone-vbr.mp3"));

async function signedAddress(): Promise<string> {
  const { stowage } = await newTeam();
  const { id } = await stowage.files.upload(new File([sound], "tone.mp3"));
  return stowage.files.sign(id);
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
