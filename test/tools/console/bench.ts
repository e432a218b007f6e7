import { spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { type Browser, chromium, type Page } from "@playwright/test";
import { startChromium } from "../../support/chromium.ts";
import { printTable } from "../bench/table.ts";
import { countClicks } from "./clicks.ts";

/*
 * Counts the actions of common tasks in the console, and measures how it responds under load, on a separate server. It is
 * not part of the suite, because timings depend on the machine. Scrolling and uploading also report the CPU time of the
 * page's main thread, which other processes affect little:
 *
 *   node test/tools/console/bench.ts                    # all parts, about ten minutes
 *   node test/tools/console/bench.ts clicks scroll search
 */

const PORT = "8798";
const URL = `http://localhost:${PORT}`;
const FILES = 10_000;
const ROWS = 1000;
const PAGE_ROWS = 100;
const SCROLL_PIXELS = 36_000;
const PIXELS_PER_SECOND = 7200;
const SEARCHES = 20;
/** Longer traces take more memory than the browser gives them. */
const TRACE_MILLISECONDS = 30_000;
const MAX_UPLOAD_MILLISECONDS = 1_200_000;
const KEYSTROKE_MILLISECONDS = 60;

interface TraceEvent {
  name: string;
  pid: number;
  tid: number;
  /** CPU time in microseconds. */
  tdur?: number;
  args: { name?: string };
}

/** Runs `work`, and measures the tasks of the page's main thread in milliseconds of CPU time, the longest first. */
async function measureTasks(browser: Browser, page: Page, work: () => Promise<unknown>): Promise<number[]> {
  await browser.startTracing(page, { categories: ["toplevel", "__metadata"] });
  await work();
  const { traceEvents }: { traceEvents: TraceEvent[] } = JSON.parse((await browser.stopTracing()).toString());
  const threads = traceEvents.filter(({ name, args }) => name === "thread_name" && args.name === "CrRendererMain");
  const tasks = threads.map(({ pid, tid }) =>
    traceEvents
      .filter((task) => task.pid === pid && task.tid === tid && /RunTask/.test(task.name))
      .map(({ tdur = 0 }) => tdur / 1000),
  );
  const [busiest = []] = tasks.sort((one, other) => sum(other) - sum(one));
  return busiest.sort((one, other) => other - one);
}

const sum = (numbers: number[]) => numbers.reduce((total, number) => total + number, 0);
/** The value that a part of the others does not exceed. */
const percentile = (numbers: number[], part: number) =>
  numbers.toSorted((one, other) => one - other)[Math.ceil(numbers.length * part) - 1] ?? 0;
const format = (numbers: number[]) => numbers.map((number) => number.toFixed(1)).join(", ");

const describe = (times: number[]) =>
  `${percentile(times, 0.5).toFixed(1)} ms in the median, ${percentile(times, 0.95).toFixed(1)} ms at 95 %`;

/** Starts `npm run dev` with an empty database, and reads the key of its first team. */
async function startServer() {
  const stateDir = mkdtempSync(join(tmpdir(), "stowage bench "));
  const root = join(import.meta.dirname, "../../..");
  const env = { ...process.env, PORT, STATE_DIR: stateDir };
  const child = spawn(process.execPath, ["src/dev/dev.ts"], { cwd: root, env, stdio: ["ignore", "pipe", "inherit"] });
  let output = "";
  for await (const chunk of child.stdout.iterator({ destroyOnReturn: false })) {
    output += chunk;
    if (output.includes("Press Ctrl-C")) break;
  }
  child.stdout.resume();
  const read = (label: string) => new RegExp(`${label}: (\\S+)`).exec(output)?.[1] ?? "";
  const stop = async () => {
    const exited = new Promise((resolve) => child.once("exit", resolve));
    child.kill("SIGTERM");
    await exited;
    rmSync(stateDir, { recursive: true, maxRetries: 5 });
  };
  return { stateDir, key: read("Your secret key"), teamId: read("Team ID"), stop };
}
type Server = Awaited<ReturnType<typeof startServer>>;

async function openFiles(browser: Browser, { key }: Server): Promise<Page> {
  const page = await browser.newPage({ viewport: { width: 1280, height: 800 } });
  await page.goto(`${URL}/console/files`);
  await page.getByText("API key", { exact: true }).click();
  await page.getByLabel("Secret key").fill(key);
  await page.getByRole("button", { name: "Sign in", exact: true }).click();
  await page.getByRole("heading", { level: 1, name: "Files" }).waitFor();
  return page;
}

/** Drops a folder of files. @returns a function that deletes it */
async function drop(page: Page): Promise<() => void> {
  const folder = mkdtempSync(join(tmpdir(), "stowage dropped "));
  for (let number = 0; number < FILES; number++) writeFileSync(join(folder, `${number}.txt`), `Text ${number}`);
  const session = await page.context().newCDPSession(page);
  const data = { items: [], files: [folder], dragOperationsMask: 1 };
  for (const type of ["dragEnter", "dragOver", "drop"] as const)
    await session.send("Input.dispatchDragEvent", { type, x: 640, y: 400, data });
  return () => rmSync(folder, { recursive: true });
}

/** Turns the wheel over the list, fast, for some seconds. @returns the milliseconds of each frame */
async function scroll(page: Page): Promise<number[]> {
  await page.evaluate(() => {
    scrollTo(0, 0);
    const times: number[] = [];
    const step = (now: number) => {
      times.push(now);
      if (Reflect.get(window, "frameTimes") === times) requestAnimationFrame(step);
    };
    Reflect.set(window, "frameTimes", times);
    requestAnimationFrame(step);
  });
  const session = await page.context().newCDPSession(page);
  const wheel = {
    x: 640,
    y: 400,
    yDistance: -SCROLL_PIXELS,
    speed: PIXELS_PER_SECOND,
    gestureSourceType: "mouse",
  } as const;
  await session.send("Input.synthesizeScrollGesture", wheel);
  await session.detach();
  return page.evaluate(() => {
    const times = Reflect.get(window, "frameTimes") as number[];
    Reflect.set(window, "frameTimes", null);
    return times.slice(1).map((time, frame) => time - (times[frame] ?? 0));
  });
}

const SHOWS = [
  ...["Open Water", "Night Shift", "The Long Answer", "Kitchen Table", "Field Notes", "Zwischen den Zeilen"],
  ...["Radio Río", "深夜ラジオ", "Second Draft", "Harbor Lights"],
];
const TOPICS = [
  ...["a conversation with Amara Osei", "the lighthouse keepers", "why bridges hum", "letters from Reykjavík"],
  ...["the last typewriter shop", "how seeds travel", "an hour with the tide tables", "mapping the old harbor"],
  ...["counting whales", "the bread that made a city", "what the archive forgot", "voices of the night market"],
];
const KINDS = ["interview", "live", "bonus", "trailer", "rerun"];
const HOUR_MILLISECONDS = 3_600_000;
/** The peaks that a list has of each recording. */
const ROW_PEAKS = 56;

/** The recordings of a podcast archive, the latest first. */
const archive = Array.from({ length: FILES }, (_, place) => {
  const number = FILES - place;
  const show = SHOWS[number % SHOWS.length] as string;
  const topic = TOPICS[(number * 7) % TOPICS.length] as string;
  const name = `${show} ${String(Math.ceil(number / SHOWS.length)).padStart(4, "0")} – ${topic}.mp3`;
  const createdAt = Date.now() - (place + 1) * HOUR_MILLISECONDS;
  const isFiled = number % 4 > 0;
  return {
    id: createdAt.toString(16).padStart(12, "0") + number.toString(16).padStart(12, "0"),
    name,
    // As the service folds names to search them.
    key: name.normalize("NFKC").toLowerCase(),
    folder: isFiled ? `${show}/${new Date(createdAt).getFullYear()}` : "",
    tags: [show.toLowerCase(), ...(number % 3 === 0 ? [KINDS[number % KINDS.length]] : [])],
    seconds: 600 + ((number * 97) % 5000),
    peaks: Buffer.from(Array.from({ length: ROW_PEAKS }, (_, peak) => 20 + ((number * 31 + peak * 17) % 80))).toString(
      "hex",
    ),
    createdAt,
  };
});

/** Runs statements in the local database. */
function inDatabase({ stateDir }: Server, run: (database: DatabaseSync) => void): void {
  const folder = join(stateDir, "v3/d1/miniflare-D1DatabaseObject");
  const file = readdirSync(folder).find((name) => /^[0-9a-f]{64}\.sqlite$/.test(name)) ?? "";
  const database = new DatabaseSync(join(folder, file), { timeout: 10_000 });
  run(database);
  database.close();
}

/** Inserts the archive into the local database, if it is not there yet. */
function insertArchive(server: Server): void {
  const of = (field: string) => `value ->> '${field}'`;
  const sql = `insert or ignore into files (id, team_id, key_id, original_name, name_key, folder, tags, search_keys, status, reserved_bytes,
      size_bytes, sha256, etag, mime_type, file_type, audio, processed_at, created_at, updated_at, version)
    select ${of("id")}, ?, (select id from api_keys where team_id = ? limit 1), ${of("name")}, ${of("key")},
      ${of("folder")}, ${of("tags")}, (select json_object('tags', json_group_object(tag.value, tag.value),
      'tagText', group_concat(tag.value, char(1))) from json_each(${of("tags")}) tag), 'completed', ${of("seconds")} * 16000, ${of("seconds")} * 16000,
      hex(zeroblob(32)), 'x', 'audio/mpeg', 'audio file', json_object('durationSeconds', ${of("seconds")}),
      ${of("createdAt")}, ${of("createdAt")}, ${of("createdAt")}, 2
    from json_each(?)`;
  const waveforms = `insert or ignore into file_objects (team_id, file_id, version, kind, state, updated_at, reserved_bytes, preview)
    select ?, ${of("id")}, '0', 'waveform', 'current', ${of("createdAt")}, 0, unhex(${of("peaks")}) from json_each(?)`;
  const { teamId } = server;
  const rows = JSON.stringify(archive);
  inDatabase(server, (database) => {
    database.prepare(sql).run(teamId, teamId, rows);
    database.prepare(waveforms).run(teamId, rows);
  });
}

/** Types a name into the search field. @returns the milliseconds from the last letter until the row of the file is painted */
async function search(page: Page, name: string): Promise<number> {
  const field = page.getByLabel("Search files");
  await field.fill("");
  await field.pressSequentially(name.slice(0, -1), { delay: KEYSTROKE_MILLISECONDS });
  await field.evaluate((input, text) => {
    const found = new Promise<number>((resolve) => {
      input.addEventListener("input", ({ timeStamp }) => {
        const look = () => {
          const names = [...document.querySelectorAll(".file-name > a")];
          if (names.length > 0 && names.every(({ textContent }) => textContent?.startsWith(text)))
            requestAnimationFrame((now) => resolve(now - timeStamp));
          else requestAnimationFrame(look);
        };
        look();
      });
      setTimeout(() => resolve(Number.POSITIVE_INFINITY), 10_000);
    });
    Reflect.set(window, "found", found);
  }, name);
  await field.press(name.slice(-1));
  return page.evaluate(() => Reflect.get(window, "found"));
}

async function measureScrolling(browser: Browser, server: Server): Promise<void> {
  insertArchive(server);
  const page = await openFiles(browser, server);
  const rows = page.getByRole("rowheader");
  for (let shown = PAGE_ROWS; shown < ROWS; shown += PAGE_ROWS) {
    await rows.nth(shown - 1).waitFor({ state: "attached" });
    await page.getByRole("button", { name: "Load more", exact: true }).click();
  }
  await rows.nth(ROWS - 1).waitFor({ state: "attached" });
  const frames = await scroll(page);
  let traced = frames;
  const tasks = await measureTasks(browser, page, async () => {
    traced = await scroll(page);
  });
  const perFrame = (sum(tasks) / traced.length).toFixed(1);
  console.log(
    `${ROWS} rows scroll: ${describe(frames)} a frame. ${perFrame} ms of CPU time a frame, longest tasks ${format(tasks.slice(0, 5))} ms`,
  );
  await page.close();
}

async function measureSearch(browser: Browser, server: Server): Promise<void> {
  insertArchive(server);
  const page = await openFiles(browser, server);
  await page.getByRole("rowheader").first().waitFor();
  const times: number[] = [];
  for (let number = 0; number < SEARCHES; number++) {
    const { name } = archive[Math.floor(((number + 0.5) * FILES) / SEARCHES)] as { name: string };
    times.push(await search(page, name.slice(0, name.indexOf(" –"))));
  }
  console.log(`Search in ${FILES} recordings: ${describe(times)}`);
  await page.close();
}

async function measureUploads(browser: Browser, server: Server): Promise<void> {
  const page = await openFiles(browser, server);
  const summary = page.locator(".uploads-summary");
  const startedAt = Date.now();
  let clean = () => {};
  const dropping = await measureTasks(browser, page, async () => {
    clean = await drop(page);
    await summary.waitFor();
    await sleep(TRACE_MILLISECONDS);
  });
  console.log(`${FILES} files dropped: longest tasks ${format(dropping.slice(0, 5))} ms`);
  const longest: number[] = [];
  while (Date.now() - startedAt < MAX_UPLOAD_MILLISECONDS) {
    longest.push(...(await measureTasks(browser, page, () => sleep(TRACE_MILLISECONDS))).slice(0, 5));
    const text = (await summary.textContent()) ?? "";
    console.log(`  ${text}: longest task ${format(longest.slice(-5, -4))} ms`);
    if (text.startsWith(`${FILES.toLocaleString("en")} of`)) break;
  }
  console.log(`while uploading: longest tasks ${format(longest.sort((one, other) => other - one).slice(0, 5))} ms`);
  clean();
  await page.close();
}

/** The tasks come first: later parts fill the team with files. */
async function measureClicks(browser: Browser, server: Server): Promise<void> {
  printTable(
    "Actions of common tasks",
    ["task", "before", "goal", "actions"],
    (await countClicks(browser, URL, server.key)).map(({ task, before, goal, actions }) => [
      task,
      before,
      goal,
      actions,
    ]),
  );
}

const PARTS = { clicks: measureClicks, scroll: measureScrolling, search: measureSearch, uploads: measureUploads };
const chosen = process.argv.slice(2);
const chromiumServer = await startChromium();
if (typeof chromiumServer === "string") throw new Error(chromiumServer);
const server = await startServer();
try {
  const browser = await chromium.connect(chromiumServer.wsEndpoint());
  for (const [name, measure] of Object.entries(PARTS))
    if (chosen.length === 0 || chosen.includes(name)) await measure(browser, server);
} finally {
  await chromiumServer.close();
  await server.stop();
}
