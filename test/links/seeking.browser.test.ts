import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import type { Page } from "@playwright/test";
import { describe, onTestFinished } from "vitest";
import { ogg, opusMp4, recorded, webm } from "../audio/recorded/recorded.ts";
import { seekable } from "../support/browser/sounds.ts";
import { exhaustive, expect, type OpenPage, test } from "../support/browser/support.ts";
import { newTeam, upload } from "../support/team.ts";

/* Recordings in the player of a page: how much it loads until it plays from a place on. */

const MINUTE = 60;

/** Opens a page of another origin with a player of this file. */
async function openPlayer(openPage: OpenPage, name: string, bytes: Uint8Array) {
  const team = await newTeam();
  const id = await upload(team, name, bytes as Uint8Array<ArrayBuffer>);
  const { durationSeconds } = await team.stowage.files.get(id);
  const link = await team.stowage.files.createSignedUrl(id);
  const server = createServer((_, response) =>
    response.setHeader("Content-Type", "text/html").end("<!doctype html><title>Player</title><audio controls></audio>"),
  );
  await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
  onTestFinished(() => void server.close());
  const { port } = server.address() as AddressInfo;
  const page = await openPage({ baseURL: `http://127.0.0.1:${port}`, extraHTTPHeaders: {} });
  return { page, link, durationSeconds };
}

/** Counts what the browser loads of a file. */
async function countLoads(page: Page, link: string) {
  const session = await page.context().newCDPSession(page);
  await session.send("Network.enable");
  const counted = { requests: 0, bytes: 0 };
  const ids = new Set<string>();
  session.on("Network.requestWillBeSent", ({ request, requestId }) => {
    if (request.url !== link) return;
    ids.add(requestId);
    counted.requests += 1;
  });
  session.on("Network.dataReceived", ({ requestId, dataLength }) => {
    if (ids.has(requestId)) counted.bytes += dataLength;
  });
  return counted;
}

/** Loads a file. @returns its duration */
const load = (page: Page, link: string) =>
  page.locator("audio").evaluate(
    (audio: HTMLAudioElement, src) =>
      new Promise<number>((resolve, reject) => {
        audio.muted = true;
        audio.onloadedmetadata = () => resolve(audio.duration);
        audio.onerror = () => reject(new Error(audio.error?.message));
        audio.src = src;
      }),
    link,
  );

/** Plays from this second on, and waits until it is heard. @returns where it is then */
const playFrom = (page: Page, seconds: number) =>
  page.locator("audio").evaluate(
    (audio: HTMLAudioElement, from) =>
      new Promise<number>((resolve, reject) => {
        audio.onerror = () => reject(new Error(audio.error?.message));
        audio.onseeked = () => {
          const { currentTime } = audio;
          audio.ontimeupdate = () => {
            if (audio.currentTime <= currentTime) return;
            audio.pause();
            resolve(audio.currentTime);
          };
          void audio.play();
        };
        audio.currentTime = from;
      }),
    seconds,
  );

describe("A recording in the player of a page", () => {
  test.for([
    ["interview.webm", () => seekable(recorded("chrome.webm")), 6],
    ["interview.m4a", () => seekable(recorded("chrome.m4a")), 5.96],
    ["interview.webm", () => seekable(recorded("firefox.webm")), 4.45],
    ["interview.ogg", () => recorded("firefox.ogg"), 5.32],
  ] as const)("has a duration, and is sought: %s", async ([name, make, seconds], { openPage }) => {
    const { page, link, durationSeconds } = await openPlayer(openPage, name, make());
    expect(await load(page, link)).toBeCloseTo(seconds, 1);
    expect(durationSeconds).toBeCloseTo(seconds, 1);
    const from = seconds / 2;
    const at = await playFrom(page, from);
    expect(at).toBeGreaterThan(from);
    expect(at).toBeLessThan(from + 2);
  });

  exhaustive.for([
    ["interview.webm", () => seekable(webm({ seconds: 60 * MINUTE })), 4],
    ["interview.m4a", () => seekable(opusMp4(60 * MINUTE)), 4],
    // Without an index, the browser finds the place by the times of some pages.
    ["interview.ogg", () => ogg(60 * MINUTE), 20],
  ] as const)(
    "of an hour plays at minute 50 after few requests: %s",
    async ([name, make, maxRequests], { openPage }) => {
      const bytes = make();
      const { page, link } = await openPlayer(openPage, name, bytes);
      const counted = await countLoads(page, link);
      expect(Math.abs((await load(page, link)) - 60 * MINUTE)).toBeLessThan(1);
      const at = await playFrom(page, 50 * MINUTE);
      expect(at).toBeGreaterThan(50 * MINUTE);
      expect(at).toBeLessThan(50 * MINUTE + 5);
      expect(counted.requests).toBeLessThanOrEqual(maxRequests);
      // The browser loads up to 3 MB ahead of each place, as fast as it gets them. Reading up to minute 50 takes 24 MB.
      expect(counted.bytes).toBeLessThan(bytes.length / 2);
    },
  );
});
