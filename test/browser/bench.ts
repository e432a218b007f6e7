import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Browser, chromium, type Page } from "@playwright/test";
import { startChromium } from "../support/chromium.ts";

/*
 * Measures how the console responds under load. It is not part of the suite, because timings depend on the machine. It
 * reports the CPU time of the page's main thread, which other processes affect little:
 *
 *   npm run dev                                        # prints the key of a new team
 *   node test/browser/bench.ts http://localhost:8787 stow_sk_…
 */

const FILES = 10_000;
const ROWS = 2000;
/** Includes the collection of the files, and hundreds of uploads. */
const UPLOAD_MILLISECONDS = 60_000;
const SCROLL_FRAMES = 300;

const [url = "http://localhost:8787", key = ""] = process.argv.slice(2);

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  /** CPU time in microseconds. */
  tdur?: number;
  args: { name?: string };
}

/** Runs `work`, and measures the tasks of the page's main thread in milliseconds of CPU time. */
async function measureTasks(browser: Browser, page: Page, work: () => Promise<void>) {
  await browser.startTracing(page, { categories: ["toplevel", "__metadata"] });
  await work();
  const { traceEvents }: { traceEvents: TraceEvent[] } = JSON.parse((await browser.stopTracing()).toString());
  const threads = traceEvents.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain");
  const totals = threads.map(({ pid, tid }) => {
    const tasks = traceEvents.filter((task) => task.pid === pid && task.tid === tid && /RunTask/.test(task.name));
    const times = tasks.map(({ tdur = 0 }) => tdur / 1000).sort((one, other) => other - one);
    return { longest: times.slice(0, 5), total: times.reduce((sum, time) => sum + time, 0) };
  });
  const [busiest = { longest: [], total: 0 }] = totals.sort((one, other) => other.total - one.total);
  return { longest: busiest.longest.map((time) => time.toFixed(1)).join(", "), total: busiest.total };
}

async function openFiles(browser: Browser, prepare = async (_page: Page) => {}): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await prepare(page);
  await page.goto(`${url}/console/files`);
  await page.getByLabel("Secret key").fill(key);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Files" }).waitFor();
  return page;
}

/** Drops a folder of files, and waits while they are uploaded. */
async function drop(page: Page): Promise<void> {
  const folder = mkdtempSync(join(tmpdir(), "stowage dropped "));
  for (let number = 0; number < FILES; number++) writeFileSync(join(folder, `${number}.txt`), `Text ${number}`);
  const session = await page.context().newCDPSession(page);
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"] as const)
    await session.send("Input.dispatchDragEvent", { type, x: 640, y: 400, data });
  await sleep(UPLOAD_MILLISECONDS);
  rmSync(folder, { recursive: true });
}

/** Scrolls through the list at the speed of a fast wheel. */
const scroll = (page: Page) =>
  page.evaluate(
    (frames) =>
      new Promise<void>((resolve) => {
        let frame = 0;
        const step = () => {
          scrollBy(0, 120);
          if (++frame < frames) requestAnimationFrame(step);
          else resolve();
        };
        requestAnimationFrame(step);
      }),
    SCROLL_FRAMES,
  );

/** Makes the list return many files at once. */
async function fakeList(page: Page): Promise<void> {
  const data = Array.from({ length: ROWS }, (_, place) => ({
    _id: (ROWS - place).toString(16).padStart(24, "0"),
    originalName: `Recording ${place}.mp3`,
    name: `Recording ${place}.mp3`,
    folder: "",
    tags: [],
    fileType: "audio file",
    status: "completed",
    createdAt: new Date(1_780_000_000_000 - place * 60_000).toISOString(),
    __v: 2,
    size: 1_500_000,
    mimeType: "audio/mpeg",
    durationSeconds: 61,
  }));
  await page.route(/\/docs\/v1\/uploads\?/, (route) => route.fulfill({ json: { message: "", data } }));
}

const server = await startChromium();
if (typeof server === "string") throw new Error(server);
try {
  const browser = await chromium.connect(server.wsEndpoint());
  const list = await openFiles(browser, fakeList);
  await list
    .getByRole("rowheader")
    .nth(ROWS - 1)
    .waitFor({ state: "attached" });
  const scrolling = await measureTasks(browser, list, () => scroll(list));
  const perFrame = (scrolling.total / SCROLL_FRAMES).toFixed(1);
  console.log(`${ROWS} rows: ${perFrame} ms of CPU time per frame, longest tasks ${scrolling.longest} ms`);
  const files = await openFiles(browser);
  const dropping = await measureTasks(browser, files, () => drop(files));
  const summary = await files.locator(".uploads-summary").textContent();
  console.log(`${FILES} files: longest tasks ${dropping.longest} ms (${summary})`);
} finally {
  await server.close();
}
