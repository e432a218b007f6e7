import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { CDPSession, Locator, Page } from "@playwright/test";
import { describe, onTestFinished } from "vitest";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "../support/browser/appearance.ts";
import { type At, type ConsoleOptions, exhaustive, signIn, startUpload, test } from "../support/browser/console.ts";
import { dragFiles, dropFiles } from "../support/browser/dragging.ts";
import { hold, respond } from "../support/browser/fakes.ts";
import { link } from "../support/browser/locators.ts";
import { OFFLINE } from "../support/browser/problems.ts";
import { readDatabases } from "../support/browser/storage.ts";
import { chooseFiles, expect, expectAnnounced, failRequests, screenshot } from "../support/browser/support.ts";
import { MEBIBYTE, sha256 } from "../support/bytes.ts";
import { Line, type Plan } from "../support/line.ts";
import { bytesOf, collect, newTeam, type Team, url } from "../support/team.ts";

/** The requests that send files, but not the lists. */
const UPLOADS = /\/docs\/v1\/uploads(\/resumable.*)?$/;

type Paths = [string, string, string];

/** Opens the list of files of a new team. */
async function openFiles(at: At, options: ConsoleOptions = {}) {
  const opened = await at("/files", options);
  return { ...opened, card: opened.page.getByRole("region", { name: "Uploads" }) };
}

async function choose(page: Page, ...files: { name: string; bytes: Uint8Array }[]): Promise<void> {
  const payload = files.map(({ name, bytes }) => ({ name, mimeType: "", buffer: Buffer.from(bytes) }));
  await chooseFiles(page, () => startUpload(page), payload);
}

/** Waits until all uploads are processed, and opens the card, which collapses then. */
async function expectProcessed(card: Locator, count = 1): Promise<void> {
  await expect(card.getByText(new RegExp(`^${count} of ${count} uploaded$`))).toBeVisible();
  const toggle = card.getByRole("button", { name: "Uploads" });
  if ((await toggle.getAttribute("aria-expanded")) === "false") await toggle.click();
  await expect(card.getByText("Ready")).toHaveCount(count);
}

/** Chooses files on disk, which keep their modification time. */
const chooseFrom = (page: Page, paths: string | string[], start = () => startUpload(page)): Promise<void> =>
  chooseFiles(page, start, paths);

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "stowage sent "));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** Limits the upload speed of the page until the returned session is detached. */
async function slowDown(page: Page, uploadThroughput: number): Promise<CDPSession> {
  const session = await page.context().newCDPSession(page);
  const conditions = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput };
  await session.send("Network.enable");
  await session.send("Network.emulateNetworkConditions", conditions);
  return session;
}

/** Holds responses to the page. @returns a function that releases them */
async function holdResponses(page: Page, pattern: RegExp, method: string): Promise<() => void> {
  let release = () => {};
  const released = new Promise<void>((resolve) => {
    release = resolve;
  });
  await page.route(pattern, async (route) => {
    if (route.request().method() !== method) return route.fallback();
    const response = await route.fetch();
    await released;
    // The page may have aborted the request.
    await route.fulfill({ response }).catch(() => undefined);
  });
  return release;
}

async function openProxy(plan: Plan): Promise<Line> {
  const proxy = await Line.open(url, plan);
  onTestFinished(() => proxy.close());
  return proxy;
}

/** Opens the list of files of a new team over connections that stall after this many bytes. */
async function openStalling(at: At, afterBytes: number) {
  const proxy = await openProxy(() => ({ fault: "stall", afterBytes }));
  return { proxy, ...(await openFiles(at, { baseURL: proxy.url })) };
}

/** Records the offset of each request with bytes of a file. */
function recordOffsets(page: Page): number[] {
  const offsets: number[] = [];
  page.on("request", (request) => {
    if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
  });
  return offsets;
}

/** Whether the browser has saved the upload URL of a file. */
const isUrlSaved = async (page: Page, name: string) =>
  ((await readDatabases(page)).records as { name: string; saved?: { url?: string } }[]).some(
    (one) => one.name === name && one.saved?.url,
  );
/** The names of the files whose bytes the browser has saved. */
const savedFilesOf = async (page: Page) => (await readDatabases(page)).files ?? [];

const stored = async ({ stowage }: Team) => collect(stowage.files.list());
/** The files and bytes that count toward the team's quota. */
const usageOf = async ({ stowage }: Team) => {
  const { files, bytes } = await stowage.usage();
  return { files, bytes };
};

const percentOf = (page: Page, name: string) =>
  page
    .getByRole("progressbar", { name })
    .evaluate((bar) => Math.floor(((bar as HTMLProgressElement).value / (bar as HTMLProgressElement).max) * 100));

describe("Uploads", () => {
  test("shows a running upload above the finished ones, each with one state and on one edge", async ({ at }) => {
    const { page, card } = await openFiles(at);
    await choose(page, { name: "done.txt", bytes: Buffer.from("done") });
    await expectProcessed(card);
    const { release, isHeld } = await hold(page, "POST", UPLOADS);
    await choose(page, { name: "running.txt", bytes: Buffer.from("running") });
    await isHeld;
    const [first, second] = [card.getByRole("listitem").first(), card.getByRole("listitem").last()];
    await expect(first).toContainText("running.txt");
    await expect(second).toHaveText(/^done\.txtReady4 B$/);
    await expect(card.locator("header progress")).toBeVisible();
    expect((await second.boundingBox())?.height).toBeLessThanOrEqual(45);
    // The texts of the header stand above those of the rows.
    const edgesOf = (target: Locator) =>
      target.evaluate((element) => {
        const text = document.createRange();
        text.selectNodeContents(element);
        const { left, right } = text.getBoundingClientRect();
        return { left, right };
      });
    const [title, name] = [await edgesOf(card.getByRole("button", { name: "Uploads" })), await edgesOf(second)];
    expect(Math.abs(title.left - name.left)).toBeLessThan(1);
    const clear = await edgesOf(card.getByRole("button", { name: "Clear finished" }));
    expect(Math.abs(clear.right - name.right)).toBeLessThan(1);
    release();
    await expect(card.getByText("Ready")).toHaveCount(2);
    await expect(card.locator("header progress")).toHaveCount(0);
  });

  test("uploads chosen files, links to them once processed, and uploads a folder", async ({ at }) => {
    const { team, page, card } = await openFiles(at);
    const bytes = bytesOf(300_000);
    await choose(page, { name: "one 🎵 مرحبا.bin", bytes }, { name: "two.txt", bytes: Buffer.from("Hello") });
    await expectProcessed(card, 2);
    // The card shows it. Only screen readers need the announcement.
    await expect(page.getByRole("status").getByText("2 files uploaded")).toHaveClass("visually-hidden");
    const files = await stored(team);
    expect(files.map(({ originalName }) => originalName).sort()).toEqual(["one 🎵 مرحبا.bin", "two.txt"]);
    const one = files.find(({ originalName }) => originalName !== "two.txt");
    expect(await team.stowage.files.get(one?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
    await expect(card.getByRole("link", { name: "one" })).toHaveAttribute("href", `/console/files/${one?._id}`);
    await card.getByRole("button", { name: "Clear finished" }).click();
    await expect(card).toBeHidden();
    const place = await folder();
    for (const name of ["deep/a.txt", "b10.txt", "b9.txt", ".cache/c.txt", ".d"]) {
      mkdirSync(dirname(join(place, name)), { recursive: true });
      writeFileSync(join(place, name), name);
    }
    await chooseFrom(page, place, () => startUpload(page, "Upload folder"));
    await expect(page.getByRole("status").getByText("Skipped 2 hidden files")).toBeVisible();
    await expectProcessed(card, 3);
    await expect(card.getByRole("listitem")).toHaveText([/ \w+\/b9.txt/, / \w+\/b10.txt/, / \w+\/deep\/a.txt/]);
    const names = (await stored(team)).map(({ originalName }) => originalName);
    expect(names.filter((name) => !/^(one|two)/.test(name)).sort()).toEqual(["a.txt", "b10.txt", "b9.txt"]);
  });

  exhaustive("uploads files and folders dropped on any page, except hidden and empty ones", async ({ at }) => {
    const { team, page, card } = await openFiles(at);
    await link(page, "Usage").click();
    const text = (value: string) => new TextEncoder().encode(value);
    const main = page.getByRole("main");
    const { leave } = await dragFiles(main, { "a.txt": text("A") });
    await expect(page.getByText("Drop to upload")).toBeVisible();
    await leave();
    await page.mouse.move(400, 300);
    await expect(page.getByText("Drop to upload")).toBeHidden();
    await page.evaluate(() => {
      const { webkitGetAsEntry } = DataTransferItem.prototype;
      DataTransferItem.prototype.webkitGetAsEntry = function () {
        const entry = webkitGetAsEntry.call(this);
        if (!entry?.isFile) return entry;
        DataTransferItem.prototype.webkitGetAsEntry = webkitGetAsEntry;
        const kind: FileSystemFileEntry = Object.getPrototypeOf(entry);
        const { file } = kind;
        kind.file = function (found, failed) {
          if (this.name === "locked.txt") failed?.(new DOMException("", "NotReadableError"));
          else file.call(this, found, failed);
        };
        return entry;
      };
    });
    const release = await holdResponses(page, UPLOADS, "POST");
    await dropFiles(main, {
      "a.txt": text("A"),
      "album/b10.txt": text("B10"),
      "album/b9.txt": text("B9"),
      "album/deep/c.txt": text("C"),
      "album/.DS_Store": text("x"),
      ".hidden": text("x"),
      "album/empty/": text(""),
      "album/nothing.txt": text(""),
      "album/locked.txt": text("x"),
    });
    await expect(page.getByText("Drop to upload")).toBeHidden();
    const skipped = "Skipped 2 hidden files, 1 empty folder, and 1 unreadable item";
    await expect(page.getByRole("status").getByText(skipped)).toBeVisible();
    await expect(card.getByText("This file is empty (0 bytes).")).toBeVisible();
    await expect(card.getByText("0 of 5 uploaded · 1 failed")).toBeVisible();
    await expect(page.locator(".announcements").getByText("uploaded")).toHaveCount(0);
    release();
    await expect(card.getByText("4 of 5 uploaded")).toBeVisible();
    await expect(page.locator(".announcements").getByText("uploaded")).toHaveText("4 files uploaded, 1 failed");
    await expect(card.getByText("Ready")).toHaveCount(4);
    const places = ["album/nothing.txt", "a.txt", "album/b9.txt", "album/b10.txt", "album/deep/c.txt"];
    await expect(card.getByRole("listitem")).toContainText(places);
    const names = (await stored(team)).map(({ originalName }) => originalName);
    expect(names.sort()).toEqual(["a.txt", "b10.txt", "b9.txt", "c.txt"]);
    // The card stays on all pages.
    await page.getByRole("link", { name: "Files", exact: true }).click();
    await expect(card.getByText("Ready")).toHaveCount(4);
  });

  exhaustive("highlights while a drag moves between elements, and keeps folders clean", async ({ at }) => {
    const { team, page } = await openFiles(at);
    // Some browsers don't say which element a drag goes to.
    const drag = (type: string, selector: string) =>
      page
        .locator(selector)
        .first()
        .evaluate((element, type) => {
          const dataTransfer = new DataTransfer();
          dataTransfer.items.add(new File(["x"], "x.txt"));
          element.dispatchEvent(new DragEvent(type, { bubbles: true, cancelable: true, dataTransfer }));
        }, type);
    await drag("dragenter", "main");
    await drag("dragenter", "h1");
    await drag("dragleave", "main");
    await expect(page.getByText("Drop to upload")).toBeVisible();
    await drag("dragleave", "h1");
    await expect(page.getByText("Drop to upload")).toBeHidden();
    await dropFiles(page.getByRole("main"), { "one\u2028two/a.txt": Buffer.from("A") });
    await expect.poll(async () => (await stored(team)).map(({ folder }) => folder)).toEqual(["onetwo"]);
  });

  exhaustive("cancels uploads without a trace, and moves the focus to the next one", async ({ at, problems }) => {
    problems.tolerateInterruptions();
    const { team, page, card } = await openStalling(at, MEBIBYTE);
    const uploadUrls = new Set<string>();
    page.on("request", (request) => request.method() === "PATCH" && uploadUrls.add(request.url()));
    await slowDown(page, 200_000);
    await choose(
      page,
      { name: "first.bin", bytes: bytesOf(9 * MEBIBYTE) },
      { name: "second.bin", bytes: bytesOf(8 * MEBIBYTE) },
    );
    await expect.poll(() => percentOf(page, "first.bin")).toBeGreaterThan(5);
    await expect.poll(() => percentOf(page, "second.bin")).toBeGreaterThan(5);
    await expect(card.getByText(/% of .* · .*\/s · .* left/).first()).toBeVisible();
    const [cancelFirst, cancelSecond] = ["first", "second"].map((name) =>
      card.getByRole("button", { name: `Cancel ${name}.bin` }),
    ) as [Locator, Locator];
    await tabTo(cancelFirst);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("progressbar", { name: "first.bin" })).toBeHidden();
    await expect(cancelSecond).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(card).toBeHidden();
    await expect(page.getByRole("heading", { name: "Files", level: 1 })).toBeFocused();
    expect(uploadUrls.size).toBe(2);
    for (const uploadUrl of uploadUrls) {
      const headers = { Authorization: `Bearer ${team.key}`, "Tus-Resumable": "1.0.0" };
      expect((await fetch(uploadUrl, { method: "HEAD", headers })).status).toBe(404);
    }
    // They count against the quota until the recovery job finds that their requests have ended.
    expect(await stored(team)).toEqual([]);
  });

  exhaustive("retries transient failures automatically, and others by a button", async ({ at, problems }) => {
    problems.allow(413, 500);
    const { team, page, card } = await openFiles(at);
    const reject = (code: string, message: string) =>
      page.route(UPLOADS, (route) => respond(route, { code, message, headers: { "X-Request-Id": "request-1" } }));
    await reject("quota_exceeded", "Storage quota exceeded.");
    await choose(page, { name: "again.txt", bytes: Buffer.from("Again") });
    await expect(card.getByText("Storage quota exceeded.")).toBeVisible();
    await expect(card.getByText("request-1")).toBeVisible();
    await page.unroute(UPLOADS);
    await reject("internal", "Something went wrong here.");
    await tabTo(card.getByRole("button", { name: "Retry again.txt" }));
    await page.keyboard.press("Enter");
    await expect(card.getByRole("button", { name: "Cancel again.txt" })).toBeFocused();
    await expect(card.getByText("Something went wrong here.")).toBeVisible();
    await expect(card.getByText("Will resume automatically.")).toBeVisible();
    await page.unroute(UPLOADS);
    await expectProcessed(card);
    expect(await stored(team)).toHaveLength(1);
  });

  exhaustive("says in one line that an upload waits for the connection", async ({ at, problems }) => {
    problems.allow(OFFLINE);
    const { page, card } = await openFiles(at);
    await failRequests(page, UPLOADS);
    await choose(page, { name: "waits.txt", bytes: Buffer.from("Waits") });
    const line = card.getByText("Waiting for connection. Will resume automatically.");
    await expect(line).toBeVisible();
    await expect(card.getByRole("listitem").getByRole("paragraph")).toHaveCount(1);
    const [name, row, text] = await Promise.all(
      [card.getByText("waits.txt", { exact: true }).first(), card.getByRole("listitem"), line].map((one) =>
        one.boundingBox(),
      ),
    );
    expect(name?.width).toBeGreaterThan(50);
    expect(text?.width).toBeGreaterThan((row?.width ?? 0) * 0.8);
  });

  exhaustive("announces the result once nothing is tried any more", async ({ at, problems }) => {
    problems.allow(413, OFFLINE);
    const { page, card } = await openFiles(at);
    let isCut = true;
    let count = 0;
    await page.route(UPLOADS, (route) => {
      if (++count === 1) return respond(route, { code: "quota_exceeded", message: "Storage quota exceeded." });
      return isCut ? route.abort("internetdisconnected") : route.fallback();
    });
    const bytes = Buffer.from("Text");
    await choose(page, { name: "one.txt", bytes }, { name: "two.txt", bytes });
    await expect(card.getByText("Storage quota exceeded.")).toBeVisible();
    await expect(card.getByText("Waiting for connection.")).toBeVisible();
    isCut = false;
    await expectAnnounced(page, "uploaded, 1 failed");
    expect(await page.evaluate(() => Reflect.get(window, "announced"))).toEqual([
      "1 file uploaded, 1 failed on the page",
    ]);
  });

  exhaustive("shows that an uploaded file has no audio despite its name", async ({ at }) => {
    const { page, card } = await openFiles(at);
    await choose(page, { name: "junk.mp3", bytes: Buffer.from("No sound.") });
    await expect(card.getByText(/^1 of 1 uploaded$/)).toBeVisible();
    const toggle = card.getByRole("button", { name: "Uploads" });
    await expect(toggle).toHaveAttribute("aria-expanded", "false");
    await toggle.click();
    await expect(card.getByText("No audio found")).toBeVisible();
    await expect(card.getByText("Ready")).toHaveCount(0);
  });

  test("resumes an interrupted upload after a reload", async ({ at, problems }) => {
    problems.tolerateInterruptions();
    const { team, page, card, proxy } = await openStalling(at, 8 * MEBIBYTE);
    const path = join(await folder(), "long.bin");
    const bytes = bytesOf(12 * MEBIBYTE);
    writeFileSync(path, bytes);
    await chooseFrom(page, path);
    await expect.poll(() => proxy.faults).toBe(1);
    await expect.poll(() => savedFilesOf(page)).toEqual(["long.bin"]);
    // The browser asks before the page is left during an upload.
    const asked = page.waitForEvent("dialog");
    page.once("dialog", (dialog) => dialog.accept());
    proxy.stopFaults();
    const loading = page.reload();
    expect((await asked).type()).toBe("beforeunload");
    await loading;
    const sentBytes = proxy.sentBytes;
    await expectProcessed(card);
    expect(proxy.sentBytes - sentBytes).toBeLessThan(8 * MEBIBYTE);
    const [file, ...others] = await stored(team);
    expect(others).toEqual([]);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes), size: bytes.length });
    expect(await usageOf(team)).toEqual({ files: 1, bytes: bytes.length });
  });

  exhaustive("saves no upload that finishes while the bytes of an earlier one are saved", async ({ at, problems }) => {
    problems.tolerateInterruptions();
    // Each connection carries so little that no large file is complete before the end.
    const { page, card } = await openStalling(at, MEBIBYTE);
    // Saving the first file takes until `isSaved` is set.
    await page.evaluate(() => {
      const { put } = IDBObjectStore.prototype;
      IDBObjectStore.prototype.put = function (value, key) {
        const hold = () => {
          if (!Reflect.get(window, "isSaved")) this.get("").onsuccess = hold;
        };
        if (value.name === "first.bin" && this.name === "files") hold();
        return put.call(this, value, key);
      };
    });
    await choose(page, { name: "first.bin", bytes: bytesOf(9_000_000) });
    await choose(page, { name: "small.txt", bytes: Buffer.from("Small") });
    await expect(card.getByText("1 of 2 uploaded")).toBeVisible();
    await page.evaluate(() => Reflect.set(window, "isSaved", true));
    await choose(page, { name: "last.bin", bytes: bytesOf(9_000_000) });
    await expect.poll(() => savedFilesOf(page)).toContain("last.bin");
    expect(await savedFilesOf(page)).toEqual(["first.bin", "last.bin"]);
    page.on("dialog", (dialog) => dialog.accept());
  });

  exhaustive("starts over if the upload has expired", async ({ at, problems }) => {
    problems.allow(404);
    problems.tolerateInterruptions();
    const { team, page, card, proxy } = await openStalling(at, 6 * MEBIBYTE);
    const offsets = recordOffsets(page);
    const bytes = bytesOf(8 * MEBIBYTE);
    await choose(page, { name: "old.bin", bytes });
    await expect.poll(() => proxy.faults).toBe(1);
    await expect.poll(() => isUrlSaved(page, "old.bin")).toBe(true);
    await expect.poll(() => savedFilesOf(page)).toEqual(["old.bin"]);
    await page.route(UPLOADS, (route) =>
      route.request().method() === "HEAD" ? respond(route, { code: "not_found" }) : route.fallback(),
    );
    page.on("dialog", (dialog) => dialog.accept());
    proxy.stopFaults();
    await page.reload();
    await expectProcessed(card);
    expect(offsets.filter((offset) => offset === 0)).toHaveLength(2);
    const [file, ...others] = await stored(team);
    expect(others).toEqual([]);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
  });

  exhaustive("asks for the file if its bytes are not saved, and accepts no other file", async ({ at, problems }) => {
    problems.tolerateInterruptions();
    const { team, page, card, proxy } = await openStalling(at, 3 * MEBIBYTE);
    const session = await page.context().newCDPSession(page);
    await session.send("Storage.overrideQuotaForOrigin", { origin: proxy.url, quotaSize: 6_000_000 });
    const place = await folder();
    const [path, other, lost] = ["tape.bin", "other.bin", "lost.bin"].map((name) => join(place, name)) as Paths;
    const bytes = bytesOf(8 * MEBIBYTE);
    writeFileSync(path, bytes);
    writeFileSync(other, bytesOf(8 * MEBIBYTE));
    writeFileSync(lost, bytesOf(8 * MEBIBYTE));
    utimesSync(other, new Date(), new Date(0));
    await chooseFrom(page, [path, lost]);
    await expect.poll(() => proxy.faults).toBe(2);
    for (const name of ["tape.bin", "lost.bin"]) await expect.poll(() => isUrlSaved(page, name)).toBe(true);
    page.on("dialog", (dialog) => dialog.accept());
    proxy.stopFaults();
    await page.reload();
    await expect(card.getByText(/Interrupted at \d+% of 8.4 MB/)).toHaveCount(2);
    await expect(card.getByText("0 of 2 uploaded · 2 interrupted")).toBeVisible();
    await expect(card.getByRole("listitem")).toContainText(["tape.bin", "lost.bin"]);
    const select = card.getByRole("button", { name: "Select file to resume tape.bin" });
    await chooseFrom(page, other, () => select.click());
    await expect(
      card.getByText("That isn't the same file. Select the original to resume, or start over."),
    ).toBeVisible();
    await expect(select).toBeFocused();
    await card.getByRole("button", { name: "Remove lost.bin" }).click();
    await expect(card.getByRole("listitem")).toHaveCount(1);
    // Uploading the same file again resumes it too.
    await chooseFrom(page, path);
    await expectProcessed(card);
    const [file, ...others] = await stored(team);
    expect(others).toEqual([]);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
    expect((await usageOf(team)).bytes).toBe(bytes.length);
  });

  exhaustive("starts over with a new session after the session was ended", async ({ at, problems }) => {
    problems.allow(401, 404);
    problems.tolerateInterruptions();
    const { team, page, card, proxy } = await openStalling(at, 6 * MEBIBYTE);
    const offsets = recordOffsets(page);
    const bytes = bytesOf(8 * MEBIBYTE);
    await choose(page, { name: "long.bin", bytes });
    await expect.poll(() => proxy.faults).toBe(1);
    proxy.stopFaults();
    for (const { _id } of await collect(team.stowage.sessions.list())) await team.stowage.sessions.delete(_id);
    await expect(page.getByText("If the session was ended, they start over.")).toBeVisible();
    await signIn(page, team.key);
    await expectProcessed(card);
    // Revoking a key cancels its unfinished uploads.
    expect(offsets.filter((offset) => offset === 0)).toHaveLength(2);
    const [file] = await stored(team);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
  });

  exhaustive("confirms a sign-out during uploads, resumed by the same user only", async ({ at, problems }) => {
    // Signing out revokes the key, which cancels the upload on the service.
    problems.allow(404);
    problems.tolerateInterruptions();
    const { team, page, card, proxy } = await openStalling(at, MEBIBYTE);
    await choose(page, { name: "mine.bin", bytes: bytesOf(4 * MEBIBYTE) });
    await expect.poll(() => percentOf(page, "mine.bin")).toBeGreaterThan(5);
    const signOut = page.getByRole("button", { name: "Sign out" });
    const question = page.getByRole("dialog", { name: "Sign out with unfinished uploads?" });
    await signOut.first().click();
    await expect(question).toContainText(
      "1 upload hasn't finished. Signing out deletes the part that is already stored.",
    );
    await question.getByRole("button", { name: "Cancel" }).click();
    await expect(signOut).toBeFocused();
    await signOut.click();
    await question.getByLabel("on this device for 24 hours").check();
    await question.getByRole("button", { name: "Sign out" }).click();
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    proxy.stopFaults();
    const colleague = await team.stowage.keys.create({ name: "colleague" });
    await signIn(page, colleague.key);
    await expect(card).toBeHidden();
    await page.reload();
    await choose(page, { name: "theirs.txt", bytes: Buffer.from("Theirs") });
    await expectProcessed(card);
    await expect(card.getByRole("listitem")).toHaveCount(1);
    await signOut.click();
    await signIn(page, team.key);
    await expectProcessed(card);
    await expect(card.getByRole("listitem")).toHaveText(/mine.bin/);
    expect((await stored(team)).map(({ originalName }) => originalName).sort()).toEqual(["mine.bin", "theirs.txt"]);
  });

  exhaustive("discards failed uploads at sign-out unless the user keeps them", async ({ openPage, problems }) => {
    problems.allow(413);
    const team = await newTeam();
    const page = await openPage({ path: "/console/files" });
    // The database fails to open once, and is opened again.
    await page.addInitScript(() => {
      const { open } = IDBFactory.prototype;
      IDBFactory.prototype.open = () => {
        IDBFactory.prototype.open = open;
        throw new DOMException("", "UnknownError");
      };
    });
    await page.reload();
    await signIn(page, team.key);
    await page.route(UPLOADS, (route) =>
      respond(route, { code: "quota_exceeded", message: "Storage quota exceeded." }),
    );
    await choose(page, { name: "private.txt", bytes: Buffer.from("Private") });
    await expect(page.getByText("Storage quota exceeded.")).toBeVisible();
    await expect.poll(() => savedFilesOf(page)).toEqual(["private.txt"]);
    await link(page, "test API key").click();
    await page.getByRole("button", { name: "Actions for this session" }).click();
    await page.getByRole("menuitem", { name: "Sign out" }).click();
    const question = page.getByRole("dialog");
    await expect(question).toContainText("1 upload hasn't finished.");
    await question.getByRole("button", { name: "Sign out" }).click();
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    // The page without a session has opened the database, to delete what has expired.
    await expect.poll(() => page.evaluate(() => IDBFactory.prototype.open.name)).toBe("open");
    await expect.poll(() => savedFilesOf(page)).toEqual([]);
    await signIn(page, team.key);
    await expect(page.getByRole("region", { name: "Uploads" })).toBeHidden();
  });

  exhaustive("sends an upload from one tab at a time, and moves it once that is closed", async ({ at, problems }) => {
    problems.tolerateInterruptions();
    const { team, page, proxy } = await openStalling(at, 6 * MEBIBYTE);
    const path = join(await folder(), "long.bin");
    const bytes = bytesOf(8 * MEBIBYTE);
    writeFileSync(path, bytes);
    await chooseFrom(page, path);
    await expect.poll(() => proxy.faults).toBe(1);
    await expect.poll(() => savedFilesOf(page)).toEqual(["long.bin"]);
    const other = await page.context().newPage();
    const offsets = recordOffsets(other);
    await other.goto("/console/files");
    // The other tab has the session of the first, and waits for as long as that one lives.
    await other.waitForFunction(async () => (await navigator.locks.query()).pending?.length === 1);
    await expect(other.getByRole("region", { name: "Uploads" })).toBeHidden();
    expect(offsets).toEqual([]);
    proxy.stopFaults();
    await page.close();
    await expectProcessed(other.getByRole("region", { name: "Uploads" }));
    expect(offsets).not.toEqual([]);
    const [file] = await stored(team);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
  });

  exhaustive("queues ten thousand files without reading saved files or drawing all rows", async ({ at }) => {
    const { page, card } = await openFiles(at);
    // No request is ever answered.
    await page.route(UPLOADS, () => {});
    await page.evaluate(() => {
      const { getAll } = IDBObjectStore.prototype;
      Reflect.set(window, "fileReads", 0);
      IDBObjectStore.prototype.getAll = function () {
        if (this.name === "files") Reflect.set(window, "fileReads", Number(Reflect.get(window, "fileReads")) + 1);
        return getAll.call(this);
      };
      const transfer = new DataTransfer();
      for (let number = 0; number < 10_000; number++) transfer.items.add(new File(["x"], `${number}.txt`));
      // As if the user chose them.
      HTMLInputElement.prototype.click = function () {
        this.files = transfer.files;
        this.dispatchEvent(new Event("change", { bubbles: true }));
      };
    });
    await startUpload(page);
    await expect(card.getByText(/^0 of 10,000 uploaded/)).toBeVisible();
    await expect(card.getByRole("listitem")).toHaveCount(101);
    await expect(card.getByText("and 9,900 more files")).toBeVisible();
    let ownReads = 0;
    const countSaved = async () => {
      ownReads += 1;
      return (await savedFilesOf(page)).length;
    };
    await expect.poll(countSaved).toBeGreaterThan(0);
    expect(await page.evaluate(() => Number(Reflect.get(window, "fileReads")))).toBeLessThanOrEqual(ownReads);
  });

  exhaustive("uploads after a deployment has replaced the page's scripts", async ({ openPage, problems }) => {
    problems.allow(404);
    const team = await newTeam();
    const page = await openPage({ path: "/console/files" });
    const loaded = page.waitForResponse(/usage/);
    await signIn(page, team.key);
    await (await loaded).finished();
    await page.route(/\/assets\/.*\.js/, (route) => route.fulfill({ status: 404 }));
    await choose(page, { name: "after.txt", bytes: Buffer.from("After") });
    await expectProcessed(page.getByRole("region", { name: "Uploads" }));
    // All pages were loaded, too.
    await link(page, "Usage").click();
    await expect(page.getByRole("meter")).toHaveCount(2);
  });

  exhaustive(
    "leaves files with waveforms: those of the service, and that of AAC, which the browser decodes",
    async ({ at }) => {
      const { team, page, card } = await openFiles(at);
      const audio = join(import.meta.dirname, "../audio");
      const names = ["tone.mpc", "tone.flac", "tone-cbr.mp3", "tone.m4a"];
      const set: string[] = [];
      page.on("request", (request) => request.method() === "PUT" && set.push(request.url()));
      await chooseFrom(
        page,
        names.map((name) => join(audio, name)),
      );
      await expectProcessed(card, names.length);
      const waveforms = () =>
        Promise.all(
          names.map(async (name) => {
            const [file] = await collect(team.stowage.files.list({ name }));
            return team.stowage.files.waveform(file?._id ?? "");
          }),
        );
      await expect.poll(async () => (await waveforms()).map(Boolean)).toEqual([false, true, true, true]);
      expect(set.filter((url) => url.endsWith("/waveform"))).toHaveLength(1);
      for (const channels of (await waveforms()).filter((one) => one !== null)) {
        for (const peaks of channels) {
          expect(peaks).toHaveLength(1000);
          expect(Math.max(...peaks.map(Math.abs))).toBeGreaterThan(0.05);
        }
      }
    },
  );

  exhaustive("upload card is accessible in both themes, wide and narrow", async ({ at }) => {
    const { page, card } = await openFiles(at, { width: 320, height: 640 });
    const toggle = card.getByRole("button", { name: "Uploads" });
    await slowDown(page, 100_000);
    const long = `${"Aufnahme der Sitzung vom 14. Februar ".repeat(4)}🎧.wav`;
    await choose(
      page,
      { name: "done.txt", bytes: Buffer.from("Done") },
      { name: "تسجيل.txt", bytes: Buffer.from("x") },
    );
    await expect(card.getByText("2 of 2 uploaded")).toBeVisible();
    // On a small screen the card is collapsed.
    expect(await card.evaluate((section) => section.clientHeight / innerHeight)).toBeLessThan(0.25);
    await expectAccessible(page);
    await toggle.click();
    await page.setViewportSize({ width: 1280, height: 800 });
    await expectProcessed(card, 2);
    await choose(
      page,
      { name: long, bytes: bytesOf(3 * MEBIBYTE) },
      ...["a", "b", "c"].map((name) => ({ name: `${name}.flac`, bytes: bytesOf(2 * MEBIBYTE) })),
      { name: "empty.txt", bytes: Buffer.alloc(0) },
    );
    await expect(card.getByText(/ left/).first()).toBeVisible();
    await expectAccessible(page);
    await screenshot(page, "uploads");
    await page.emulateMedia({ colorScheme: "dark" });
    await expectAccessible(page, "contrast");
    await page.setViewportSize({ width: 320, height: 640 });
    await expectNoSidewaysScroll(page);
    await expectAccessible(page);
    await screenshot(page, "uploads");
    await tabTo(toggle);
    await page.keyboard.press("Enter");
    await expect(toggle).toHaveAttribute("aria-expanded", "false");
    await expect(page.getByRole("progressbar").first()).toBeHidden();
  });
});
