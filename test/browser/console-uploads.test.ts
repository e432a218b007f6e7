import { createHash } from "node:crypto";
import { mkdirSync, utimesSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { CDPSession, Locator, Page } from "@playwright/test";
import { describe, onTestFinished } from "vitest";
import { Line, type Plan } from "../support/line.ts";
import { bytesOf, collect, newTeam, type Team, url } from "../support/team.ts";
import { dragFiles, dropFiles } from "./dragging.ts";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "./looks.ts";
import { openConsole, signIn } from "./signed-in.ts";
import { expect, type PageOptions, screenshot, test } from "./support.ts";

const MEBIBYTE = 1024 * 1024;
const UPLOADS = /\/docs\/v1\/uploads\/resumable/;

type Paths = [string, string, string];
type OpenPage = (options?: PageOptions) => Promise<Page>;

/** A team of the test's own, and its page of files. */
async function openFiles(openPage: OpenPage, options: PageOptions = {}) {
  const { page, ...team } = await openConsole(openPage, { path: "/files", ...options });
  return { team, page, tray: page.getByRole("region", { name: "Uploads" }) };
}

async function choose(page: Page, ...files: { name: string; bytes: Uint8Array }[]): Promise<void> {
  const asked = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: "Upload files" }).click();
  const payload = files.map(({ name, bytes }) => ({ name, mimeType: "", buffer: Buffer.from(bytes) }));
  await (await asked).setFiles(payload);
}

/** Files of this machine keep their time of change, which those made by a test do not. */
async function chooseFrom(page: Page, paths: string | string[], button = "Upload files"): Promise<void> {
  const asked = page.waitForEvent("filechooser");
  await page.getByRole("button", { name: button }).click();
  await (await asked).setFiles(paths);
}

async function folder(): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), "stowage sent "));
  onTestFinished(() => rm(path, { recursive: true, force: true }));
  return path;
}

/** Lets the page send so many bytes a second, until the session that is answered is detached. */
async function slowDown(page: Page, uploadThroughput: number): Promise<CDPSession> {
  const session = await page.context().newCDPSession(page);
  const conditions = { offline: false, latency: 0, downloadThroughput: -1, uploadThroughput };
  await session.send("Network.enable");
  await session.send("Network.emulateNetworkConditions", conditions);
  return session;
}

/** Lets the page wait for what the service answers to bytes, or to whatever is asked. @returns what lets it through */
async function holdAnswers(page: Page, pattern = UPLOADS, method = "PATCH"): Promise<() => void> {
  let answer = () => {};
  const answered = new Promise<void>((resolve) => {
    answer = resolve;
  });
  await page.route(pattern, async (route) => {
    if (route.request().method() !== method) return route.fallback();
    const response = await route.fetch();
    await answered;
    // It may have stopped to wait.
    await route.fulfill({ response }).catch(() => undefined);
  });
  return answer;
}

async function openLine(plan: Plan): Promise<Line> {
  const line = await Line.open(url, plan);
  onTestFinished(() => line.close());
  return line;
}

/** Where each request began that carried bytes of a file. */
function noteOffsets(page: Page): number[] {
  const offsets: number[] = [];
  page.on("request", (request) => {
    if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
  });
  return offsets;
}

/** How many bytes of a file the browser remembers to have sent. */
const keptBytesOf = (page: Page, name: string) =>
  page.evaluate(async (wanted) => {
    const ask = <T>(request: IDBRequest<T>) =>
      new Promise<T>((resolve) => {
        request.onsuccess = () => resolve(request.result);
      });
    const database = await ask(indexedDB.open("stowage"));
    const records = await ask(database.transaction("records").objectStore("records").getAll());
    database.close();
    return records.find((one: { name: string }) => one.name === wanted)?.sentBytes ?? 0;
  }, name);

/** The names of the files whose bytes the browser keeps. */
const keptFilesOf = (page: Page) =>
  page.evaluate(async () => {
    const ask = <T>(request: IDBRequest<T>) =>
      new Promise<T>((resolve) => {
        request.onsuccess = () => resolve(request.result);
      });
    const database = await ask(indexedDB.open("stowage"));
    const isThere = database.objectStoreNames.contains("files");
    const files: File[] = isThere ? await ask(database.transaction("files").objectStore("files").getAll()) : [];
    database.close();
    return files.map(({ name }) => name);
  });

const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const stored = async ({ stowage }: Team) => collect(stowage.files.list());
/** Files and bytes that the team keeps or has reserved. */
const kept = async ({ stowage }: Team) => {
  const { files, bytes } = await stowage.usage();
  return { files, bytes };
};

const percentOf = (page: Page, name: string) =>
  page
    .getByRole("progressbar", { name })
    .evaluate((bar) => Math.floor(((bar as HTMLProgressElement).value / (bar as HTMLProgressElement).max) * 100));

describe("Files that are uploaded in the console", () => {
  test("Those chosen by a button are sent, processed, and linked to.", async ({ openPage }) => {
    const { team, page, tray } = await openFiles(openPage);
    const bytes = bytesOf(300_000);
    await choose(page, { name: "one 🎵 مرحبا.bin", bytes }, { name: "two.txt", bytes: Buffer.from("Hello") });
    await expect(tray.getByText("2 of 2 uploaded")).toBeVisible();
    await expect(tray.getByText("completed")).toHaveCount(2);
    await expect(page.getByRole("status").getByText("2 files were uploaded.")).toBeVisible();
    const files = await stored(team);
    expect(files.map(({ originalName }) => originalName).sort()).toEqual(["one 🎵 مرحبا.bin", "two.txt"]);
    const one = files.find(({ originalName }) => originalName !== "two.txt");
    expect(await team.stowage.files.get(one?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
    await expect(tray.getByRole("link", { name: "one" })).toHaveAttribute("href", `/console/files/${one?._id}`);
    await tray.getByRole("button", { name: "Clear finished" }).click();
    await expect(tray).toBeHidden();
  });

  test("Those of a chosen folder are sent, but for what is hidden.", async ({ openPage }) => {
    const { team, page, tray } = await openFiles(openPage);
    const place = await folder();
    for (const name of ["one/a.txt", "b10.txt", "b9.txt", ".cache/c.txt", ".d"]) {
      mkdirSync(dirname(join(place, name)), { recursive: true });
      writeFileSync(join(place, name), name);
    }
    await chooseFrom(page, place, "Upload a folder");
    await expect(page.getByRole("status").getByText("Left out: 2 hidden files.")).toBeVisible();
    await expect(tray.getByText("completed")).toHaveCount(3);
    await expect(tray.getByRole("listitem")).toHaveText([/ \w+\/b9.txt/, / \w+\/b10.txt/, / \w+\/one\/a.txt/]);
    const names = (await stored(team)).map(({ originalName }) => originalName);
    expect(names.sort()).toEqual(["a.txt", "b10.txt", "b9.txt"]);
  });

  test("Those dropped on any page are sent with what is in folders, but for what is hidden and empty.", async ({
    openPage,
  }) => {
    const { team, page, tray } = await openFiles(openPage);
    await page.getByRole("link", { name: "Usage" }).click();
    const text = (value: string) => new TextEncoder().encode(value);
    const main = page.getByRole("main");
    const { leave } = await dragFiles(main, { "a.txt": text("A") });
    await expect(page.getByText("Drop files or folders")).toBeVisible();
    await leave();
    await page.mouse.move(400, 300);
    await expect(page.getByText("Drop files or folders")).toBeHidden();
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
    const answer = await holdAnswers(page);
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
    await expect(page.getByText("Drop files or folders")).toBeHidden();
    const leftOut = "Left out: 2 hidden files, 1 empty folder, and 1 that can't be read.";
    await expect(page.getByRole("status").getByText(leftOut)).toBeVisible();
    await expect(tray.getByText("This file is empty: there is nothing to upload.")).toBeVisible();
    await expect(tray.getByText("0 of 5 uploaded · 1 failed")).toBeVisible();
    await expect(page.getByRole("status").getByText("uploaded")).toHaveCount(0);
    answer();
    await expect(tray.getByText("4 of 5 uploaded")).toBeVisible();
    await expect(page.getByRole("status").getByText("uploaded")).toHaveText("4 files were uploaded, 1 could not be.");
    await expect(tray.getByText("completed")).toHaveCount(4);
    const places = ["a.txt", "album/b9.txt", "album/b10.txt", "album/deep/c.txt", "album/nothing.txt"];
    await expect(tray.getByRole("listitem")).toContainText(places);
    const names = (await stored(team)).map(({ originalName }) => originalName);
    expect(names.sort()).toEqual(["a.txt", "b10.txt", "b9.txt", "c.txt"]);
    // The tray outlives the page.
    await page.getByRole("link", { name: "Files", exact: true }).click();
    await expect(tray.getByText("completed")).toHaveCount(4);
  });

  test("One that is cancelled leaves nothing behind, and the focus is at the next.", async ({ openPage, problems }) => {
    problems.allow(/Another host/, /ERR_/);
    const line = await openLine(() => ({ fault: "stall", afterBytes: MEBIBYTE }));
    const { team, page, tray } = await openFiles(openPage, { baseURL: line.url });
    const addresses = new Set<string>();
    page.on("request", (request) => request.method() === "PATCH" && addresses.add(request.url()));
    await slowDown(page, 200_000);
    await choose(
      page,
      { name: "first.bin", bytes: bytesOf(3 * MEBIBYTE) },
      { name: "second.bin", bytes: bytesOf(2 * MEBIBYTE) },
    );
    await expect.poll(() => percentOf(page, "first.bin")).toBeGreaterThan(5);
    await expect.poll(() => percentOf(page, "second.bin")).toBeGreaterThan(5);
    await expect(tray.getByText(/kB of .* · .*\/s · .* left/).first()).toBeVisible();
    const [cancelFirst, cancelSecond] = ["first", "second"].map((name) =>
      tray.getByRole("button", { name: `Cancel ${name}.bin` }),
    ) as [Locator, Locator];
    await tabTo(cancelFirst);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("progressbar", { name: "first.bin" })).toBeHidden();
    await expect(cancelSecond).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(tray).toBeHidden();
    await expect(page.getByRole("heading", { name: "Files", level: 1 })).toBeFocused();
    expect(addresses.size).toBe(2);
    for (const address of addresses) {
      const headers = { Authorization: `Bearer ${team.key}`, "Tus-Resumable": "1.0.0" };
      expect((await fetch(address, { method: "HEAD", headers })).status).toBe(404);
    }
    expect((await kept(team)).bytes).toBe(0);
    expect(await stored(team)).toEqual([]);
  });

  test("One that was complete before it could be cancelled is kept, and said to be.", async ({
    openPage,
    problems,
  }) => {
    problems.allow(/403/);
    const { team, page, tray } = await openFiles(openPage);
    // The answer to the last byte is what the page waits for when it is cancelled.
    const answer = await holdAnswers(page);
    const tell = await holdAnswers(page, /\/metadata$|\/events\?/, "GET");
    await choose(page, { name: "late.txt", bytes: Buffer.from("Late") });
    await expect.poll(() => kept(team)).toEqual({ files: 1, bytes: 4 });
    await expect.poll(async () => (await stored(team)).length).toBe(1);
    await tray.getByRole("button", { name: "Cancel late.txt" }).click();
    await expect(page.getByRole("status").getByText("complete before it could be cancelled")).toBeVisible();
    answer();
    await expect(tray.getByText("1 of 1 uploaded · 1 processing")).toBeVisible();
    await expect(tray.getByText("4 B · being processed")).toBeVisible();
    tell();
    await expect(tray.getByText("completed")).toBeVisible();
    await expect(tray.getByText("processing")).toBeHidden();
    expect(await stored(team)).toHaveLength(1);
  });

  test("One that failed is tried again: by itself where the reason passes, otherwise by its button.", async ({
    openPage,
    problems,
  }) => {
    problems.allow(/500|413|ERR_FAILED|ERR_CONNECTION/);
    const { team, page, tray } = await openFiles(openPage);
    const refuse = (status: number, code: string, message: string) =>
      page.route(UPLOADS, (route) =>
        route.fulfill({ status, headers: { "X-Request-Id": "request-1" }, json: { status: false, code, message } }),
      );
    await refuse(413, "quota_exceeded", "The team may keep no more.");
    await choose(page, { name: "again.txt", bytes: Buffer.from("Again") });
    await expect(tray.getByText("The team may keep no more.")).toBeVisible();
    await expect(tray.getByText("request-1")).toBeVisible();
    await page.unroute(UPLOADS);
    await refuse(500, "internal", "Something went wrong here.");
    await tabTo(tray.getByRole("button", { name: "Retry again.txt" }));
    await page.keyboard.press("Enter");
    await expect(tray.getByRole("button", { name: "Cancel again.txt" })).toBeFocused();
    await expect(tray.getByText("Something went wrong here.")).toBeVisible();
    await expect(tray.getByText("goes on by itself")).toBeVisible();
    await page.unroute(UPLOADS);
    await expect(tray.getByText("completed")).toBeVisible();
    expect(await stored(team)).toHaveLength(1);
  });

  test("One whose line breaks goes on by itself, from where it was.", async ({ openPage, problems }) => {
    // The development server may answer 500 for what was cut; 409 where the cut request stored more than was told.
    problems.allow(/Another host/, /ERR_/, /status of 500/, /status of 409/);
    const line = await openLine(() => ({ fault: "cut", afterBytes: 7 * MEBIBYTE }));
    const { team, page, tray } = await openFiles(openPage, { baseURL: line.url });
    const bytes = bytesOf(10 * MEBIBYTE);
    await choose(page, { name: "long.bin", bytes });
    await expect(tray.getByText("completed")).toBeVisible();
    // From zero it would never come to an end: each connection is cut before it is through.
    expect(line.faults).toBeGreaterThan(0);
    const [file] = await stored(team);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
  });

  test("One that was cut goes on after the page was loaded anew, from where it was.", async ({
    openPage,
    problems,
  }) => {
    problems.allow(/Another host/, /ERR_/);
    const line = await openLine(() => ({ fault: "stall", afterBytes: 8 * MEBIBYTE }));
    const { team, page, tray } = await openFiles(openPage, { baseURL: line.url });
    const path = join(await folder(), "long.bin");
    const bytes = bytesOf(12 * MEBIBYTE);
    writeFileSync(path, bytes);
    await chooseFrom(page, path);
    await expect.poll(() => line.faults).toBe(1);
    // What leaves a page where something is being sent is asked first.
    const asked = page.waitForEvent("dialog");
    page.once("dialog", (dialog) => dialog.accept());
    line.heal();
    const loading = page.reload();
    expect((await asked).type()).toBe("beforeunload");
    await loading;
    const sentBytes = line.sentBytes;
    await expect(tray.getByText("completed")).toBeVisible();
    expect(line.sentBytes - sentBytes).toBeLessThan(8 * MEBIBYTE);
    const [file, ...others] = await stored(team);
    expect(others).toEqual([]);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes), size: bytes.length });
    expect(await kept(team)).toEqual({ files: 1, bytes: bytes.length });
  });

  test("One that the service knows no more begins anew.", async ({ openPage, problems }) => {
    problems.allow(/404/);
    const { team, page, tray } = await openFiles(openPage);
    const offsets = noteOffsets(page);
    const bytes = bytesOf(3 * MEBIBYTE);
    const slowed = await slowDown(page, MEBIBYTE);
    await choose(page, { name: "old.bin", bytes });
    await expect.poll(() => keptBytesOf(page, "old.bin")).toBeGreaterThan(0);
    await page.route(UPLOADS, (route) =>
      route.request().method() === "HEAD" ? route.fulfill({ status: 404 }) : route.fallback(),
    );
    page.on("dialog", (dialog) => dialog.accept());
    await page.reload();
    await slowed.detach();
    await expect(tray.getByText("completed")).toBeVisible();
    expect(offsets).toEqual([0, 0]);
    const [file, ...others] = await stored(team);
    expect(others).toEqual([]);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
  });

  test("One whose bytes the browser did not keep waits for its file, and takes no other.", async ({ openPage }) => {
    const { team, page, tray } = await openFiles(openPage);
    const session = await page.context().newCDPSession(page);
    await session.send("Storage.overrideQuotaForOrigin", { origin: new URL(url).origin, quotaSize: 6_000_000 });
    const place = await folder();
    const [path, other, lost] = ["tape.bin", "other.bin", "lost.bin"].map((name) => join(place, name)) as Paths;
    const bytes = bytesOf(8 * MEBIBYTE);
    writeFileSync(path, bytes);
    writeFileSync(other, bytesOf(8 * MEBIBYTE));
    writeFileSync(lost, bytesOf(8 * MEBIBYTE));
    utimesSync(other, new Date(), new Date(0));
    const slowed = await slowDown(page, MEBIBYTE);
    await chooseFrom(page, [path, lost]);
    for (const name of ["tape.bin", "lost.bin"]) await expect.poll(() => percentOf(page, name)).toBeGreaterThan(20);
    await expect.poll(() => keptBytesOf(page, "tape.bin")).toBeGreaterThan(0);
    await expect.poll(() => keptBytesOf(page, "lost.bin")).toBeGreaterThan(0);
    page.on("dialog", (dialog) => dialog.accept());
    await page.reload();
    await expect(tray.getByText(/Interrupted at \d+ % of 8.4 MB/)).toHaveCount(2);
    await slowed.detach();
    await expect(tray.getByText("0 of 2 uploaded · 2 interrupted")).toBeVisible();
    await expect(tray.getByRole("listitem")).toContainText(["tape.bin", "lost.bin"]);
    await chooseFrom(page, other, "Choose the file tape.bin");
    await expect(tray.getByText("“other.bin” is not the file that was begun, or was changed since.")).toBeVisible();
    await expect(tray.getByRole("button", { name: "Choose the file tape.bin" })).toBeFocused();
    await tray.getByRole("button", { name: "Remove lost.bin" }).click();
    await expect(tray.getByRole("listitem")).toHaveCount(1);
    // Whoever uploads it again, not knowing, goes on as well.
    await chooseFrom(page, path);
    await expect(tray.getByText("completed")).toBeVisible();
    const [file, ...others] = await stored(team);
    expect(others).toEqual([]);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
    expect((await kept(team)).bytes).toBe(bytes.length);
  });

  test("Those whose key was revoked go on with the key of whoever signs in again.", async ({ openPage, problems }) => {
    problems.allow(/401/, /Another host/, /ERR_/);
    const line = await openLine(() => ({ fault: "stall", afterBytes: 6 * MEBIBYTE }));
    const { team, page, tray } = await openFiles(openPage, { baseURL: line.url });
    const offsets = noteOffsets(page);
    const bytes = bytesOf(8 * MEBIBYTE);
    await choose(page, { name: "long.bin", bytes });
    await expect.poll(() => line.faults).toBe(1);
    line.heal();
    const [own] = (await collect(team.stowage.keys.list())).filter(({ name }) => name === "Console");
    await team.stowage.keys.delete(own?.id ?? "");
    await expect(page.getByText("Your key has ended or was revoked.")).toBeVisible();
    await signIn(page, team.key);
    await expect(tray.getByText("completed")).toBeVisible();
    expect(offsets).toHaveLength(2);
    expect(offsets[1]).toBeGreaterThan(0);
    const [file] = await stored(team);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
  });

  test("Whoever signs out while files are being sent is asked, and alone finds them again.", async ({
    openPage,
    problems,
  }) => {
    problems.allow(/Another host/, /ERR_/);
    const line = await openLine(() => ({ fault: "stall", afterBytes: MEBIBYTE }));
    const { team, page, tray } = await openFiles(openPage, { baseURL: line.url });
    await choose(page, { name: "mine.bin", bytes: bytesOf(4 * MEBIBYTE) });
    await expect.poll(() => percentOf(page, "mine.bin")).toBeGreaterThan(5);
    const signOut = page.getByRole("button", { name: "Sign out" });
    const question = page.getByRole("dialog", { name: "Sign out with unfinished uploads?" });
    await signOut.first().click();
    await question.getByRole("button", { name: "Cancel" }).click();
    await expect(signOut).toBeFocused();
    await signOut.click();
    await question.getByRole("button", { name: "Sign out" }).click();
    line.heal();
    const colleague = await team.stowage.keys.create({ name: "colleague" });
    await signIn(page, colleague.key);
    await expect(tray).toBeHidden();
    await page.reload();
    await choose(page, { name: "theirs.txt", bytes: Buffer.from("Theirs") });
    await expect(tray.getByText("completed")).toBeVisible();
    await expect(tray.getByRole("listitem")).toHaveCount(1);
    await signOut.click();
    await signIn(page, team.key);
    await expect(tray.getByText("completed")).toBeVisible();
    await expect(tray.getByRole("listitem")).toHaveText(/mine.bin/);
    expect((await stored(team)).map(({ originalName }) => originalName).sort()).toEqual(["mine.bin", "theirs.txt"]);
  });

  test("Whoever signs out may have those forgotten that failed, also by revoking the console's key.", async ({
    openPage,
    problems,
  }) => {
    problems.allow(/413/);
    const team = await newTeam();
    const page = await openPage({ path: "/console/files" });
    // A browser that fails once to open its database is asked again.
    await page.addInitScript(() => {
      const { open } = IDBFactory.prototype;
      IDBFactory.prototype.open = () => {
        IDBFactory.prototype.open = open;
        throw new DOMException("", "UnknownError");
      };
    });
    await page.reload();
    await signIn(page, team.key);
    const json = { status: false, code: "quota_exceeded", message: "The team may keep no more." };
    await page.route(UPLOADS, (route) => route.fulfill({ status: 413, json }));
    await choose(page, { name: "private.txt", bytes: Buffer.from("Private") });
    await expect(page.getByText("The team may keep no more.")).toBeVisible();
    await expect.poll(() => keptFilesOf(page)).toEqual(["private.txt"]);
    await page.getByRole("link", { name: "Keys" }).click();
    await page.getByRole("button", { name: "Revoke Console" }).click();
    const question = page.getByRole("dialog");
    await expect(question).toContainText("One upload is not finished.");
    await question.getByLabel("Forget them").check();
    await question.getByRole("button", { name: "Revoke key" }).click();
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    await expect.poll(() => keptFilesOf(page)).toEqual([]);
    await signIn(page, team.key);
    await expect(page.getByRole("region", { name: "Uploads" })).toBeHidden();
  });

  test("One is sent by one tab at a time, and by another once that is closed.", async ({ openPage, problems }) => {
    problems.allow(/Another host/, /ERR_/);
    const line = await openLine(() => ({ fault: "stall", afterBytes: 6 * MEBIBYTE }));
    const { team, page } = await openFiles(openPage, { baseURL: line.url });
    const path = join(await folder(), "long.bin");
    const bytes = bytesOf(8 * MEBIBYTE);
    writeFileSync(path, bytes);
    await chooseFrom(page, path);
    await expect.poll(() => line.faults).toBe(1);
    const other = await page.context().newPage();
    const offsets = noteOffsets(other);
    await other.goto("/console/files");
    await signIn(other, team.key);
    // It asks for the lock, and gives up.
    await other.waitForFunction(async () => (await navigator.locks.query()).pending?.length === 1);
    await other.waitForFunction(async () => (await navigator.locks.query()).pending?.length === 0);
    await expect(other.getByRole("region", { name: "Uploads" })).toBeHidden();
    expect(offsets).toEqual([]);
    line.heal();
    await page.close();
    await other.reload();
    await expect(other.getByRole("region", { name: "Uploads" }).getByText("completed")).toBeVisible();
    expect(offsets).toHaveLength(1);
    const [file] = await stored(team);
    expect(await team.stowage.files.get(file?._id ?? "")).toMatchObject({ sha256: sha256(bytes) });
  });

  test("They are sent in spite of a deployment after which the page's scripts are gone.", async ({ openPage }) => {
    const team = await newTeam();
    const page = await openPage({ path: "/console/files" });
    const loaded = page.waitForResponse(/\/assets\/.*\.js/);
    await signIn(page, team.key);
    await (await loaded).finished();
    await page.route(/\/assets\/.*\.js/, (route) => route.fulfill({ status: 404 }));
    await choose(page, { name: "after.txt", bytes: Buffer.from("After") });
    await expect(page.getByRole("region", { name: "Uploads" }).getByText("completed")).toBeVisible();
  });

  test("The peaks of a sound are stored, and of what the browser can't decode none.", async ({ openPage }) => {
    const { team, page, tray } = await openFiles(openPage);
    const audio = join(import.meta.dirname, "../audio");
    await chooseFrom(
      page,
      ["tone.mpc", "tone.flac", "tone-cbr.mp3"].map((name) => join(audio, name)),
    );
    await expect(tray.getByText("completed")).toHaveCount(3);
    const waveforms = () =>
      Promise.all(
        (["tone.flac", "tone-cbr.mp3", "tone.mpc"] as const).map(async (name) => {
          const [file] = await collect(team.stowage.files.list({ name }));
          return team.stowage.files.waveform(file?._id ?? "");
        }),
      );
    await expect.poll(async () => (await waveforms()).filter(Boolean)).toHaveLength(2);
    for (const channels of (await waveforms()).filter((one) => one !== null)) {
      for (const peaks of channels) {
        expect(peaks).toHaveLength(1000);
        expect(Math.max(...peaks.map(Math.abs))).toBeGreaterThan(0.05);
      }
    }
  });

  test.for(["light", "dark"] as const)("Everybody can use the tray in the %s theme.", async (theme, { openPage }) => {
    const { page, tray } = await openFiles(openPage, { theme, width: 320, height: 640 });
    const toggle = tray.getByRole("button", { name: "Uploads" });
    await slowDown(page, 100_000);
    const long = `${"Aufnahme der Sitzung vom 14. Februar ".repeat(4)}🎧.wav`;
    await choose(
      page,
      { name: "done.txt", bytes: Buffer.from("Done") },
      { name: "تسجيل.txt", bytes: Buffer.from("x") },
    );
    await expect(tray.getByText("2 of 2 uploaded")).toBeVisible();
    // Of a small window, the tray leaves most to the page.
    expect(await tray.evaluate((section) => section.clientHeight / innerHeight)).toBeLessThan(0.25);
    await expectAccessible(page);
    await toggle.click();
    await page.setViewportSize({ width: 1280, height: 800 });
    await expect(tray.getByText("completed")).toHaveCount(2);
    await choose(
      page,
      { name: long, bytes: bytesOf(3 * MEBIBYTE) },
      ...["a", "b", "c"].map((name) => ({ name: `${name}.flac`, bytes: bytesOf(2 * MEBIBYTE) })),
      { name: "empty.txt", bytes: Buffer.alloc(0) },
    );
    await expect(tray.getByText(/ left/).first()).toBeVisible();
    await expectAccessible(page);
    await screenshot(page, "uploads");
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
