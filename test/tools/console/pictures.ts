import { spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setTimeout as sleep } from "node:timers/promises";
import { parseEnv } from "node:util";
import { type Browser, chromium, type Page, type Request } from "@playwright/test";
import sharp from "sharp";
import { startChromium } from "../../support/chromium.ts";
import { PICTURE_NAMES, PICTURES } from "./picture-names.ts";
import { type Archive, CLIP, createArchive, SHOWN_NAME, sample } from "./recordings.ts";

/*
 * `npm run pictures` takes the pictures of the README in light and dark, on a separate server with an archive of
 * recordings. Run it when the console looks different. PORT (8797) sets the port.
 */

const root = join(import.meta.dirname, "../../..");
const port = process.env.PORT || "8797";
const url = `http://localhost:${port}`;
const SIZE = { width: 1280, height: 800 };
const STEP_MILLISECONDS = 60_000;
/** A page that has not called the API for this time has loaded. */
const QUIET_MILLISECONDS = 2000;
const MAX_LOADING_MILLISECONDS = 20_000;
const OPTIONAL_STEP_MILLISECONDS = 10_000;

/** Starts the service with separate storage. */
async function startServer() {
  const stateDir = mkdtempSync(join(tmpdir(), "stowage pictures "));
  const env = { ...process.env, PORT: port, STATE_DIR: stateDir, npm_lifecycle_event: "" };
  const child = spawn(process.execPath, ["src/dev/dev.ts"], { cwd: root, env, stdio: ["ignore", "pipe", "inherit"] });
  const stop = async () => {
    if (child.exitCode === null) {
      const exited = new Promise((resolve) => child.once("exit", resolve));
      child.kill("SIGTERM");
      await exited;
    }
    rmSync(stateDir, { recursive: true, force: true, maxRetries: 5 });
  };
  let output = "";
  for await (const chunk of child.stdout.iterator({ destroyOnReturn: false })) {
    output += chunk;
    if (output.includes("Press Ctrl-C")) break;
  }
  child.stdout.resume();
  if (!output.includes("Press Ctrl-C")) {
    await stop();
    throw new Error(`The server did not start:\n${output}`);
  }
  const { OPERATOR_TOKEN = "" } = parseEnv(readFileSync(join(root, ".dev.vars"), "utf8"));
  return { stateDir, operatorToken: OPERATOR_TOKEN, stop };
}

/** Spreads the uploads over the last weeks. The API has no way to set a time. */
function backdate(stateDir: string, { teamId, uploadedAt }: Archive): void {
  const folder = join(stateDir, "v3/d1/miniflare-D1DatabaseObject");
  const file = readdirSync(folder).find((name) => /^[0-9a-f]{64}\.sqlite$/.test(name)) ?? "";
  const database = new DatabaseSync(join(folder, file), { timeout: 10_000 });
  const files = database.prepare("update files set created_at = ?1, updated_at = ?1 where team_id = ?2 and id = ?3");
  const events = database.prepare("update events set created_at = ?1 where team_id = ?2 and subject_id = ?3");
  for (const [id, time] of uploadedAt) {
    if (files.run(time, teamId, id).changes !== 1) throw new Error(`The file ${id} is not in the database.`);
    events.run(time, teamId, id);
  }
  database.close();
}

/** A step that only embellishes a picture: a console without that control still gets its pictures, with a warning. */
async function tryStep(name: string, step: () => Promise<unknown>): Promise<void> {
  await step().catch((error: Error) => console.warn(`Left out: ${name}. ${error.message.split("\n")[0]}`));
}

/** Opens the page of each picture. */
const SHOTS: Record<(typeof PICTURE_NAMES)[number], (page: Page, archive: Archive) => Promise<unknown>> = {
  async files(page) {
    await page.goto(`${url}/console/files`);
    await page.getByRole("link", { name: SHOWN_NAME }).first().waitFor();
    await play(page);
  },
  async file(page, { shownId }) {
    await page.goto(`${url}/console/files/${shownId}?t=${CLIP}`);
    await page.getByRole("heading", { name: SHOWN_NAME }).waitFor();
    await page.getByRole("region", { name: "Transcript" }).getByRole("button").first().waitFor();
    await tryStep("playing the clip", () =>
      page
        .getByRole("button", { name: `Play ${SHOWN_NAME}` })
        .first()
        .click(),
    );
  },
  /** The upload element in a form, as in the README. */
  async upload(page, { otherKey }) {
    await page.goto(`${url}/assets/demo.html`);
    await page.getByLabel("API key").fill(otherKey);
    await page.locator("input[type=file]").setInputFiles([
      { name: "Voicemail for the show.mp3", mimeType: "audio/mpeg", buffer: sample("tone-vbr.mp3") },
      { name: "Kitchen sounds.flac", mimeType: "audio/flac", buffer: sample("tone.flac") },
    ]);
    await page.waitForFunction(() => {
      const form = document.querySelector("form");
      return form && new FormData(form).getAll("recordings").length === 2;
    });
    await page.getByLabel("API key").evaluate((field: HTMLInputElement) => {
      field.type = "password";
    });
  },
};
/** The element that a picture shows, with a margin; all of the window without one. */
const PARTS: Partial<Record<string, string>> = { upload: "form" };
const MARGIN_PIXELS = 12;

/**
 * Shows pages in the same font on every machine, which looks like the system fonts of most users. A policy of the page
 * concerns neither fonts from memory nor style sheets of scripts.
 */
async function useFont(page: Page): Promise<void> {
  const file = join(root, "node_modules/@fontsource-variable/inter/files/inter-latin-wght-normal.woff2");
  await page.addInitScript((base64) => {
    const bytes = Uint8Array.from(atob(base64), (character) => character.charCodeAt(0));
    const font = new FontFace("Inter", bytes, { weight: "100 900" });
    document.fonts.add(font);
    void font.load();
    const sheet = new CSSStyleSheet();
    sheet.replaceSync("html { font-family: Inter, system-ui, sans-serif }");
    document.adoptedStyleSheets = [sheet];
  }, readFileSync(file).toString("base64"));
}

/** Plays the recording up to a third. */
async function play(page: Page): Promise<void> {
  const timeout = OPTIONAL_STEP_MILLISECONDS;
  await tryStep("playing the recording", async () => {
    await page
      .getByRole("button", { name: `Play ${SHOWN_NAME}` })
      .first()
      .click({ timeout });
    await page
      .getByRole("button", { name: `Pause ${SHOWN_NAME}` })
      .first()
      .waitFor({ timeout });
  });
  await tryStep("seeking in the recording", async () => {
    const slider = page.getByRole("slider", { name: "Position" }).first();
    const { width, height } = (await slider.boundingBox({ timeout })) ?? { width: 0, height: 0 };
    await slider.click({ position: { x: width * 0.34, y: height / 2 }, timeout });
  });
}

/** Counts the calls of a page to the API. @returns a function that waits until there have been none for a while */
function watchCalls(page: Page): () => Promise<void> {
  const running = new Set<Request>();
  let changedAt = Date.now();
  const isCall = (request: Request) => ["fetch", "xhr"].includes(request.resourceType());
  const note = (change: (request: Request) => unknown) => (request: Request) => {
    if (!isCall(request)) return;
    change(request);
    changedAt = Date.now();
  };
  page.on(
    "request",
    note((request) => running.add(request)),
  );
  for (const event of ["requestfinished", "requestfailed"] as const)
    page.on(
      event as "requestfinished",
      note((request) => running.delete(request)),
    );
  return async () => {
    const end = Date.now() + MAX_LOADING_MILLISECONDS;
    while (running.size > 0 || Date.now() - changedAt < QUIET_MILLISECONDS) {
      // A console that keeps a connection open for events is never quiet.
      if (Date.now() > end) return console.warn(`Still loading: ${[...running].map((one) => one.url()).join(", ")}`);
      await sleep(100);
    }
  };
}

/** Waits until nothing moves or is focused. */
async function settle(page: Page): Promise<void> {
  await page.mouse.move(0, 0);
  await page.evaluate(async () => {
    (document.activeElement as HTMLElement | null)?.blur();
    const ending = document.getAnimations().filter(({ effect }) => effect?.getComputedTiming().endTime !== Infinity);
    await Promise.allSettled(ending.map((one) => one.finished));
    await document.fonts.ready;
  });
}

async function take(page: Page, part: string | undefined): Promise<Buffer> {
  const box = part && (await page.locator(part).boundingBox());
  if (!box) return page.screenshot();
  const [x, y] = [Math.floor(box.x) - MARGIN_PIXELS, Math.floor(box.y) - MARGIN_PIXELS];
  const [width, height] = [Math.ceil(box.width) + 2 * MARGIN_PIXELS, Math.ceil(box.height) + 2 * MARGIN_PIXELS];
  return page.screenshot({ clip: { x, y, width, height }, fullPage: true });
}

/** Playwright takes PNG, which is three times as large. A lossy file would be larger, too, because of the letters. */
const toWebp = (png: Buffer): Promise<Buffer> => sharp(png).webp({ lossless: true, effort: 6 }).toBuffer();

async function takePictures(browser: Browser, archive: Archive): Promise<void> {
  mkdirSync(PICTURES, { recursive: true });
  for (const theme of ["light", "dark"] as const) {
    const context = await browser.newContext({ viewport: SIZE, deviceScaleFactor: 2, colorScheme: theme });
    context.setDefaultTimeout(STEP_MILLISECONDS);
    const page = await context.newPage();
    await useFont(page);
    const loaded = watchCalls(page);
    await page.goto(`${url}/console/files`);
    await page.getByText("API key", { exact: true }).click();
    await page.getByLabel("Secret key").fill(archive.key);
    await page.getByRole("button", { name: "Sign in", exact: true }).click();
    await page.getByRole("link", { name: SHOWN_NAME }).first().waitFor();
    for (const name of PICTURE_NAMES) {
      await SHOTS[name](page, archive);
      await loaded();
      await settle(page);
      const file = join(PICTURES, `${name}-${theme}.webp`);
      const webp = await toWebp(await take(page, PARTS[name]));
      writeFileSync(file, webp);
      console.log(`${file}: ${Math.round(webp.length / 1000)} kB`);
    }
    await context.close();
  }
}

// Otherwise letters stand on whole pixels, at uneven distances.
const chromiumServer = await startChromium(["--font-render-hinting=none"]);
if (typeof chromiumServer === "string") throw new Error(chromiumServer);
try {
  const server = await startServer();
  try {
    const archive = await createArchive(url, server.operatorToken);
    backdate(server.stateDir, archive);
    await takePictures(await chromium.connect(chromiumServer.wsEndpoint()), archive);
  } finally {
    await server.stop();
  }
} finally {
  await chromiumServer.close();
}
