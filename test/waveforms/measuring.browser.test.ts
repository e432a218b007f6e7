import { readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "../support/browser/console.ts";
import { expect } from "../support/browser/support.ts";
import { newTeam, upload } from "../support/team.ts";

const PARTS = 40;

/** The loudest sample of each part in any channel, as the browser decodes the bytes at the file's own rate. */
async function decodedBars([base64, sampleRate, parts]: [string, number, number]): Promise<number[]> {
  const { buffer } = Uint8Array.from(atob(base64), (c) => c.charCodeAt(0));
  const sound = await new OfflineAudioContext(1, 1, sampleRate).decodeAudioData(buffer);
  const channels = Array.from({ length: sound.numberOfChannels }, (_, channel) => sound.getChannelData(channel));
  return Array.from({ length: parts }, (_, part) => {
    const [from, to] = [part, part + 1].map((at) => Math.floor((at * sound.length) / parts)) as [number, number];
    return channels.reduce(
      (max, samples) => samples.slice(from, to).reduce((m, s) => Math.max(m, Math.abs(s)), max),
      0,
    );
  });
}

test("the waveform that the service measures is that of the browser's decoder", async ({ at }) => {
  const team = await newTeam();
  const { page } = await at("/files", { team });
  for (const [file, rate, maxError] of [
    ["notes.wav", 8000, 0.01],
    ["notes.flac", 8000, 0.01],
    ["notes.mp3", 44_100, 0.06],
    ["notes.ogg", 44_100, 0.08],
    ["notes.opus", 48_000, 0.08],
    ["notes.webm", 48_000, 0.08],
  ] as const) {
    const bytes = readFileSync(join(import.meta.dirname, "../audio/notes", file));
    const id = await upload(team, file, bytes);
    await expect.poll(() => team.stowage.files.waveform(id), file).not.toBeNull();
    const channels = (await team.stowage.files.waveform(id)) ?? [];
    const decoded = await page.evaluate(decodedBars, [bytes.toString("base64"), rate, PARTS] as [
      string,
      number,
      number,
    ]);
    const size = (channels[0]?.length ?? 0) / PARTS;
    const errors = decoded.map((bar, part) => {
      const measured = channels.flatMap((peaks) => peaks.slice(part * size, (part + 1) * size).map(Math.abs));
      return Math.abs(bar - Math.max(...measured));
    });
    expect(Math.max(...errors), `${file}: ${Math.max(...errors)}`).toBeLessThan(maxError);
  }
});
