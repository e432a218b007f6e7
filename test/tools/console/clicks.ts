import { once } from "node:events";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Browser, expect as base, type Locator, type Page } from "@playwright/test";
import { Stowage } from "../../../src/client/index.ts";
import { join as concatenate, id3, le32, repeat, riffChunk, text, wav } from "../../audio/build.ts";

/*
 * Performs common tasks in the console, and counts what the user does: each click, key, field that is typed into, and file
 * chooser of the system.
 */

const TIMEOUT_MILLISECONDS = 60_000;
const expect = base.configure({ timeout: TIMEOUT_MILLISECONDS });

const SEASON = "Open Water/Season 1";
const EPISODES = 12;
const LOOSE = ["Cold open.wav", "Credits.wav", "Trailer.wav"];
const TARGET = "Night Signals/Season 2";
const HERTZ = 8000;
const TONE_SECONDS = 0.5;
const FAILED_EVENTS = 3;

class User {
  actions = 0;
  readonly page: Page;

  constructor(page: Page) {
    this.page = page;
  }

  async click(target: Locator): Promise<void> {
    this.actions++;
    await target.click();
  }

  async press(key: string): Promise<void> {
    this.actions++;
    await this.page.keyboard.press(key);
  }

  /** Types into a field, by default the one that has the focus. */
  async type(words: string, field?: Locator): Promise<void> {
    await field?.focus();
    await expect(this.page.locator("input:focus")).toHaveCount(1);
    this.actions++;
    await this.page.keyboard.type(words);
  }

  async paste(words: string): Promise<void> {
    await expect(this.page.locator("input:focus")).toHaveCount(1);
    this.actions++;
    await this.page.evaluate((pasted) => navigator.clipboard.writeText(pasted), words);
    await this.page.keyboard.press("ControlOrMeta+v");
  }

  async choose(target: Locator, path: string): Promise<void> {
    const chooser = this.page.waitForEvent("filechooser");
    await this.click(target);
    this.actions++;
    await (await chooser).setFiles(path);
  }

  button(name: string): Locator {
    return this.page.getByRole("button", { name, exact: true });
  }

  link(name: string | RegExp): Locator {
    return this.page.getByRole("link", { name, exact: true });
  }

  /** Waits until the clipboard has a text. */
  async expectCopied(pattern: RegExp): Promise<void> {
    await expect.poll(() => this.page.evaluate(() => navigator.clipboard.readText())).toMatch(pattern);
  }
}

/** A short tone. */
function tone(): Uint8Array {
  const samples = new Uint8Array(HERTZ * TONE_SECONDS).map((_, at) => 128 + 60 * Math.sin(at / 3));
  const format = concatenate(Uint8Array.of(1, 0, 1, 0), le32(HERTZ), le32(HERTZ), Uint8Array.of(1, 0, 8, 0));
  return wav(riffChunk("fmt ", format), riffChunk("data", samples));
}

/** A webhook endpoint that fails until it is fixed. */
async function startEndpoint() {
  const endpoint = { url: "", isFixed: false, received: 0 };
  const server = createServer((request, response) => {
    request.resume().on("end", () => {
      if (endpoint.isFixed) endpoint.received++;
      response.writeHead(endpoint.isFixed ? 200 : 500).end();
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  endpoint.url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/hook`;
  return { endpoint, close: () => server.close() };
}

interface Task {
  task: string;
  /** Actions that the task took in the first version of the console, and those that it should take. */
  before: string;
  goal: string;
  /** Where the user begins. */
  start: string;
  perform: (user: User) => Promise<void>;
}

/** Makes a team's files and its failing webhook, and lists the tasks. */
async function prepare(stowage: Stowage, key: string, endpoint: Awaited<ReturnType<typeof startEndpoint>>["endpoint"]) {
  const upload = async (name: string, content: Uint8Array, folder = "") => {
    const { id } = await stowage.files.upload(new File([content as Uint8Array<ArrayBuffer>], name), {
      properties: { folder },
    });
    await stowage.files.waitUntilProcessed(id);
  };
  const { _id: webhook } = await stowage.webhooks.create({ url: endpoint.url, types: ["apikey.created"] });
  for (let number = 0; number < FAILED_EVENTS; number++) await stowage.keys.create({ name: `Event ${number}` });
  for (const name of LOOSE) await upload(name, tone());
  for (let number = 1; number <= EPISODES; number++)
    await upload(`${String(number).padStart(2, "0")}.wav`, tone(), SEASON);
  const tags = id3(["TIT2", text("Why bridges hum")], ["TPE1", text("Kit Marlowe")]);
  await upload(
    "R0417.mp3",
    concatenate(tags, repeat(readFileSync(join(import.meta.dirname, "../../audio/tone-cbr.mp3")), 3)),
  );
  await stowage.files.createFolder(TARGET);
  await expect.poll(async () => (await stowage.webhooks.get(webhook)).health).toBe("failing");

  const [folder = ""] = TARGET.split("/");
  const uploaded = mkdtempSync(join(tmpdir(), "stowage uploaded "));
  const season = join(uploaded, "Season 3");
  mkdirSync(season);
  writeFileSync(join(season, "Pilot.wav"), tone());

  const tasks: Task[] = [
    {
      task: "Sign in with a key, from the home page",
      before: "3",
      goal: "1–2",
      start: "/",
      perform: async (user) => {
        await user.click(user.link("Open the console"));
        await user.paste(key);
        await user.page.getByRole("heading", { level: 1, name: "Files" }).waitFor();
      },
    },
    {
      task: "Upload a folder",
      before: "1 + chooser",
      goal: "2 + chooser",
      start: "/console/files",
      perform: async (user) => {
        await user.click(user.button("Add"));
        await user.choose(user.page.getByRole("menuitem", { name: "Upload folder" }), season);
        await user.link("Season 3").waitFor();
      },
    },
    {
      task: `Move 3 files to ${TARGET}`,
      before: "6",
      goal: "5",
      start: "/console/files",
      perform: async (user) => {
        for (const name of LOOSE) await user.click(user.page.getByRole("checkbox", { name: `Select ${name}` }));
        await user.click(user.button("Move"));
        await user.click(user.button(`Open ${folder}`));
        await user.click(user.button(`Move to ${TARGET}`));
        for (const name of LOOSE) await expect(user.link(name)).toHaveCount(0);
      },
    },
    {
      task: "Find the recordings of an artist",
      before: "impossible",
      goal: "2",
      start: "/console/files",
      perform: async (user) => {
        await user.press("/");
        await user.type("Kit Marlowe");
        await expect(user.page.getByRole("rowheader")).toHaveText([/R0417/]);
      },
    },
    {
      task: `Listen to a season of ${EPISODES} files`,
      before: "12",
      goal: "1",
      start: `/console/files?folder=${encodeURIComponent(SEASON)}`,
      perform: async (user) => {
        await user.click(user.button("Play 01.wav"));
        const last = user.page.getByRole("row").getByRole("button", { name: `Play ${EPISODES}.wav` });
        await expect(last).toHaveAttribute("data-current", "true");
        await expect
          .poll(() => user.page.locator("audio").evaluate((audio: HTMLAudioElement) => audio.ended))
          .toBe(true);
      },
    },
    {
      task: "Share a recording, with the link copied",
      before: "2",
      goal: "2",
      start: "/console/files",
      perform: async (user) => {
        await user.click(user.link("R0417.mp3"));
        await user.click(user.button("Copy link"));
        await user.expectCopied(/\/share\//);
      },
    },
    {
      task: "Create a key for a developer, with its settings copied",
      before: "5, without settings",
      goal: "4",
      start: "/console/files",
      perform: async (user) => {
        await user.click(user.link("Keys"));
        await user.click(user.button("Create key"));
        await user.type("Importer");
        // The choice at first is the least, which only uploads.
        await user.click(user.page.getByRole("radio", { name: /^All actions on files/ }));
        await user.press("Enter");
        await user.click(user.button("Copy .env sample"));
        await user.expectCopied(/STOWAGE_KEY=stow_sk_/);
      },
    },
    {
      task: "See what happened to a file",
      before: "1",
      goal: "1",
      start: "/console/files",
      perform: async (user) => {
        await user.click(user.link("R0417.mp3"));
        await user.page.getByRole("region", { name: "Activity" }).getByText("uploaded this file").waitFor();
      },
    },
    {
      task: "Resend failed events to a webhook whose endpoint is fixed",
      before: "7–9",
      goal: "3",
      start: "/console/files",
      perform: async (user) => {
        endpoint.isFixed = true;
        await user.click(user.link("Webhooks"));
        await user.click(user.page.getByRole("row").getByRole("link"));
        await user.click(user.button(`Resend ${FAILED_EVENTS} that failed`));
        await user.click(user.page.getByRole("dialog").getByRole("button", { name: "Resend" }));
        await expect.poll(() => endpoint.received).toBeGreaterThanOrEqual(FAILED_EVENTS);
      },
    },
    {
      task: "Add a colleague, with the invitation copied",
      before: "4, without an invitation",
      goal: "3",
      start: "/console/files",
      perform: async (user) => {
        await user.click(user.link("Users"));
        await user.click(user.button("Invite user").first());
        await user.type("ada@example.com", user.page.getByLabel("Email"));
        await user.press("Enter");
        await user.expectCopied(/ada@example\.com/);
      },
    },
  ];
  return { tasks, clean: () => rmSync(uploaded, { recursive: true }) };
}

/** Performs each task in one tab, and counts its actions. */
export async function countClicks(browser: Browser, url: string, key: string) {
  const { endpoint, close } = await startEndpoint();
  const context = await browser.newContext({ viewport: { width: 1280, height: 800 } });
  context.setDefaultTimeout(TIMEOUT_MILLISECONDS);
  await context.grantPermissions(["clipboard-read", "clipboard-write"]);
  const { tasks, clean } = await prepare(new Stowage({ url, key }), key, endpoint);
  try {
    const page = await context.newPage();
    const counted = [];
    for (const { start, perform, ...task } of tasks) {
      await page.goto(url + start);
      if (start !== "/") await page.getByRole("heading", { level: 1 }).waitFor();
      const user = new User(page);
      await perform(user);
      counted.push({ ...task, actions: user.actions });
    }
    return counted;
  } finally {
    clean();
    close();
    await context.close();
  }
}
