import { spawn } from "node:child_process";
import { once } from "node:events";
import { readFileSync, writeFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { env, execPath } from "node:process";
import { pathToFileURL } from "node:url";
import { gzipSync } from "node:zlib";
import type { Locator, Page } from "@playwright/test";
import { describe, onTestFinished } from "vitest";
import type { StowageUpload } from "../../src/client/element.ts";
import type { UploadTokenInput } from "../../src/client/index.ts";
import type { RecordingProperties } from "../../src/client/recording-file.ts";
import { webm } from "../audio/recorded/recorded.ts";
import { expectAccessible, tabTo } from "../support/browser/appearance.ts";
import { dropFiles } from "../support/browser/dragging.ts";
import { hold, respond } from "../support/browser/fakes.ts";
import { OFFLINE, type Problems } from "../support/browser/problems.ts";
import { seekable } from "../support/browser/sounds.ts";
import { readDatabases } from "../support/browser/storage.ts";
import { test as base, chooseFiles, expect, failRequests, type OpenPage } from "../support/browser/support.ts";
import { MEBIBYTE } from "../support/bytes.ts";
import { type Fault, Line } from "../support/line.ts";
import { bytesOf, collect, newTeam, sample, type Team, url } from "../support/team.ts";
import { isExhaustive } from "../support/tiers.ts";

/* Pages of another origin than the service, as its users have them. */

const root = join(import.meta.dirname, "../..");
const MAX_GZIP_BYTES = 16_700;
const MAX_RECORDER_GZIP_BYTES = 8000;
const POLICY = `default-src 'none'; script-src ${url}; connect-src ${url}; media-src blob:; form-action 'self'; require-trusted-types-for 'script'; trusted-types 'none'`;
const SOUND = { name: "tone.mp3", mimeType: "audio/mpeg", buffer: sample("tone-vbr.mp3") };
const SCRIPT = `<script src="${url}/assets/upload.js" defer></script>`;

interface FormOptions {
  /** The limits of an upload token. Without them, the page has a public key. */
  limits?: UploadTokenInput;
  attributes?: string;
  /** The HTML before the form. */
  head?: string;
  input?: string;
  serviceUrl?: string;
  headers?: Record<string, string>;
  /** Replaces the whole page. `KEY` stands for the public key. */
  html?: string;
}

interface Tools {
  openPage: OpenPage;
  problems: Problems;
}

/** Opens a page with a form on its own server, which records what the form submits. */
const opener =
  ({ openPage, problems }: Tools) =>
  async (options: FormOptions = {}) => {
    const { limits, attributes = "", head = "", serviceUrl = url, headers = {} } = options;
    const { input = '<label for="file">Recordings</label><input id="file" type="file" multiple>' } = options;
    const team = await newTeam();
    const key = limits
      ? (await team.stowage.files.createUploadToken(limits)).token
      : (await team.stowage.keys.create({ name: "form", isPublic: true })).key;
    const form = `<!doctype html><html lang="en"><head><title>Form</title><meta charset="utf-8">${SCRIPT}${head}</head>
    <body><main><h1>Form</h1><form action="/submitted" method="post">
    <stowage-upload url="${serviceUrl}" token="${key}" name="recordings" ${attributes}>${input}</stowage-upload>
    <button>Submit</button></form></main></body></html>`;
    const { html = form } = options;
    const submitted: string[] = [];
    const server = createServer(async (request, response) => {
      response.setHeaders(new Headers({ "Content-Type": "text/html", ...headers }));
      if (request.method === "POST") submitted.push(Buffer.concat(await request.toArray()).toString());
      response.end(request.method === "POST" ? "<!doctype html><title>Thanks</title>" : html.replaceAll("KEY", key));
    });
    await new Promise<void>((listening) => server.listen(0, "127.0.0.1", listening));
    onTestFinished(() => void server.close());
    const { port } = server.address() as AddressInfo;
    problems.allow(/^Another host: http:\/\/(127\.0\.0\.1|localhost):/);
    // A header for the service would need its permission on a page of another origin.
    const page = await openPage({ baseURL: `http://127.0.0.1:${port}`, extraHTTPHeaders: {} });
    const element = page.locator("stowage-upload");
    const submit = page.getByRole("button", { name: "Submit" });
    const choose = page.getByRole("button", { name: /^Choose .*: Recordings$/ });
    return {
      page,
      team,
      key,
      element,
      submit,
      submitted,
      input: page.getByLabel("Recordings", { exact: true }),
      choose,
    };
  };

/** For tests that open several forms, or a recorder. */
const openForm = (tools: Tools, options?: FormOptions) => opener(tools)(options);
const test = base.extend("openForm", opener);
const exhaustive = test.runIf(isExhaustive);

const stateOf = (element: Locator, state: string) => expect(element).toHaveAttribute("data-state", state);
const idsOf = (element: Locator) => element.evaluate((one) => (one as StowageUpload).value);
const isValid = (element: Locator) => element.evaluate((one) => (one as StowageUpload).checkValidity());
const stored = ({ stowage }: Team) => collect(stowage.files.list());
const textFile = (name: string, text: string) => ({ name, mimeType: "text/plain", buffer: Buffer.from(text) });

/** Records the events of the page. @returns a function that reads them as lines of type, code and file name */
async function recordEvents(page: Page): Promise<() => Promise<string[]>> {
  await page.evaluate(() => {
    const seen: string[] = [];
    Reflect.set(window, "seen", seen);
    for (const type of [
      "upload-progress",
      "upload-waiting",
      "upload-stored",
      "upload-completed",
      "upload-failed",
      "upload-kept",
    ] as const)
      document.addEventListener(type, ({ detail: { code, file } }) => {
        const line = [type, code, file?.name].filter(Boolean).join(" ");
        if (seen.at(-1) !== line) seen.push(line);
      });
  });
  return () => page.evaluate(() => Reflect.get(window, "seen") as string[]);
}

/** The requests that send small files. */
const UPLOADS = /\/docs\/v1\/uploads$/;

describe("The upload element", () => {
  test.for([
    ["upload.js", MAX_GZIP_BYTES],
    ["upload-recorder.js", MAX_RECORDER_GZIP_BYTES],
  ] as const)("has in %s at most %i bytes, compressed, for pages of any origin", async ([name, maxBytes]) => {
    const response = await fetch(`${url}/assets/${name}`);
    expect(response.status).toBe(200);
    expect(response.headers.get("Access-Control-Allow-Origin")).toBe("*");
    expect(response.headers.get("Content-Type")).toMatch("text/javascript");
    expect(gzipSync(Buffer.from(await response.arrayBuffer())).length).toBeLessThanOrEqual(maxBytes);
  });

  test("uploads chosen files at once, reports events, and submits their ids with the form", async ({ openForm }) => {
    const { page, team, element, submit, submitted, input } = await openForm();
    const events = await recordEvents(page);
    await stateOf(element, "empty");
    await input.setInputFiles([SOUND, textFile("notes.txt", "Notes")]);
    await stateOf(element, "completed");
    expect(await events()).toEqual(
      expect.arrayContaining([
        "upload-progress tone.mp3",
        "upload-stored tone.mp3",
        "upload-stored notes.txt",
        "upload-completed tone.mp3",
        "upload-completed notes.txt",
      ]),
    );
    const ids = await idsOf(element);
    const files = await stored(team);
    expect(files.map(({ _id }) => _id).sort()).toEqual([...ids].sort());
    expect(files.find(({ originalName }) => originalName === "tone.mp3")).toMatchObject({ status: "completed" });
    await submit.click();
    await expect(page).toHaveTitle("Thanks");
    expect(submitted).toEqual([`recordings=${ids[0]}&recordings=${ids[1]}`]);
  });

  test("deletes what the user removes if its upload token may, keeps what the service keeps, and says so", async ({
    openForm,
    problems,
  }) => {
    const { page, team, element, input } = await openForm({ limits: { maxFiles: 4, canDelete: true } });
    const events = await recordEvents(page);
    const names = ["removed.txt", "linked.txt", "kept.txt"];
    await input.setInputFiles(names.map((name) => textFile(name, name)));
    await stateOf(element, "completed");
    const namesOf = async () => (await stored(team)).map(({ name }) => name).sort();
    const linked = (await stored(team)).find(({ name }) => name === "linked.txt");
    await team.stowage.links.create(linked?._id ?? "");
    problems.allow(403, 503);
    const remove = (name: string) => page.getByRole("button", { name: `Remove ${name}` });
    const row = (name: string) => element.getByRole("listitem").filter({ hasText: name });
    await remove("removed.txt").click();
    await expect(row("removed.txt")).toHaveCount(0);
    await remove("linked.txt").click();
    const used = "The team has already used this file. Ask it to delete the file.";
    await expect(row("linked.txt")).toContainText(used);
    await expect(element.getByRole("status")).toContainText(used);
    await expect(remove("linked.txt")).toBeFocused();
    expect(await namesOf()).toEqual(["kept.txt", "linked.txt"]);
    expect(await idsOf(element)).toHaveLength(2);
    expect(await isValid(element)).toBe(true);

    const deleting = "**/docs/v1/uploads/*";
    await page.route(deleting, (route) =>
      route.request().method() === "DELETE"
        ? respond(route, { code: "unavailable", headers: { "Access-Control-Allow-Origin": "*" } })
        : route.continue(),
    );
    await remove("kept.txt").click();
    await expect(row("kept.txt")).toContainText("This file can't be deleted now. Retry later.");
    await page.unroute(deleting);
    await remove("kept.txt").click();
    await expect(row("kept.txt")).toHaveCount(0);
    await expect.poll(namesOf).toEqual(["linked.txt"]);
    const kept = (await events()).filter((line) => line.startsWith("upload-kept"));
    expect(kept).toEqual(["upload-kept forbidden linked.txt", "upload-kept unavailable kept.txt"]);
    const announced = await element.getByRole("status").innerText();
    expect(announced.match(/\S+ removed$/gm)).toEqual(["removed.txt removed", "kept.txt removed"]);
  });

  test("deletes nothing by a reset, or by a token that may not, but takes it out of the form", async ({
    openForm,
    problems,
  }) => {
    problems.allow(403);
    const { page, team, element, input } = await openForm({ limits: { maxFiles: 2 } });
    const events = await recordEvents(page);
    await input.setInputFiles([textFile("a.txt", "A"), textFile("b.txt", "B")]);
    await stateOf(element, "completed");
    await page.getByRole("button", { name: "Remove a.txt" }).click();
    await expect(element.getByRole("listitem")).toHaveCount(1);
    await element.evaluate((one) => (one as StowageUpload).form?.reset());
    await stateOf(element, "empty");
    expect((await stored(team)).map(({ name }) => name).sort()).toEqual(["a.txt", "b.txt"]);
    expect((await events()).filter((line) => line.startsWith("upload-kept"))).toEqual([]);
  });

  test.for([
    ["form", 9, []],
    // The URL of a finished upload deletes nothing.
    ["resumable", 600 * 1024, [403]],
  ] as const)(
    "deletes a %s upload that was stored before it could be canceled, if its token may",
    async ([kind, size, refusals], { openForm, problems }) => {
      problems.allow(...refusals);
      const { page, team, element, input } = await openForm({ limits: { maxFiles: 1, canDelete: true } });
      await page.evaluate(() => {
        Object.defineProperty(XMLHttpRequest.prototype, "onload", {
          set(handler: () => void) {
            this.addEventListener("load", () => {
              const isStored = this.getResponseHeader("Location") ?? this.getResponseHeader("Content-Location");
              if (isStored === null) handler.call(this);
              else Reflect.set(window, "release", () => handler.call(this));
            });
          },
        });
      });
      await input.setInputFiles({ name: "late.txt", mimeType: "text/plain", buffer: Buffer.alloc(size, "a") });
      await page.waitForFunction(() => Reflect.has(window, "release"));
      const deleted = page.waitForResponse((response) => response.request().method() === "DELETE" && response.ok());
      await page.getByRole("button", { name: "Cancel late.txt" }).click();
      // A canceled form upload ends with its response, and a resumable one without it.
      if (kind === "form") await page.evaluate(() => Reflect.get(window, "release")());
      await deleted;
      await stateOf(element, "empty");
      expect(await stored(team)).toEqual([]);
    },
  );

  test("sends the waveforms of AAC, which the service does not measure, and of no other files", async ({
    openForm,
  }) => {
    const { page, team, element, input } = await openForm({ limits: { maxFiles: 3 } });
    const set: string[] = [];
    page.on("request", (request) => request.method() === "PUT" && set.push(request.url()));
    const names = ["tone.m4a", "tone.aac", "tone-vbr.mp3"];
    await input.setInputFiles(names.map((name) => ({ name, mimeType: "", buffer: sample(name) })));
    await stateOf(element, "completed");
    const waveforms = async () => {
      const files = await Promise.all(names.map((name) => collect(team.stowage.files.list({ name }))));
      return Promise.all(files.map(([file]) => team.stowage.files.waveform(file?._id ?? "")));
    };
    await expect.poll(async () => (await waveforms()).every(Boolean)).toBe(true);
    expect(set).toHaveLength(2);
    for (const channels of await waveforms())
      for (const peaks of channels ?? []) expect(Math.max(...peaks.map(Math.abs))).toBeGreaterThan(0.05);
  });

  exhaustive("takes over `required` of the input, and replaces a single file", async ({ openForm }) => {
    const { page, element, submit, submitted, input, choose } = await openForm({
      input: '<label>Recordings<input type="file" required></label>',
    });
    await expect(choose).toHaveText("Choose a file");
    expect(await isValid(element)).toBe(false);
    await submit.click();
    expect(submitted).toEqual([]);
    await expect(choose).toBeFocused();
    await input.setInputFiles(textFile("first.txt", "First"));
    await stateOf(element, "completed");
    const first = await idsOf(element);
    await input.setInputFiles(textFile("second.txt", "Second"));
    await expect(element.getByRole("listitem")).toHaveCount(1);
    await stateOf(element, "completed");
    const second = await idsOf(element);
    expect(second).not.toEqual(first);
    expect(await isValid(element)).toBe(true);
    await page.getByRole("button", { name: "Remove second.txt" }).click();
    expect(await isValid(element)).toBe(false);
    await input.setInputFiles(textFile("third.txt", "Third"));
    await stateOf(element, "completed");
    const [third] = await idsOf(element);
    await submit.click();
    await expect(page).toHaveTitle("Thanks");
    expect(submitted).toEqual([`recordings=${third}`]);
  });

  exhaustive("works with only a keyboard, and keeps the form invalid while it sends", async ({ openForm }) => {
    const { page, element, submit, submitted, choose } = await openForm();
    const { release } = await hold(page, "POST", UPLOADS);
    await tabTo(choose);
    const files = [textFile("a.txt", "A"), textFile("b.txt", "B")];
    await chooseFiles(page, () => page.keyboard.press("Enter"), files);
    await stateOf(element, "sending");
    await page.keyboard.press("Tab");
    await expect(page.getByRole("button", { name: "Cancel a.txt" })).toBeFocused();
    await submit.press("Enter");
    expect(submitted).toEqual([]);
    expect(await isValid(element)).toBe(false);
    await page.getByRole("button", { name: "Cancel a.txt" }).focus();
    await page.keyboard.press("Enter");
    await expect(page.getByRole("button", { name: "Cancel b.txt" })).toBeFocused();
    release();
    await stateOf(element, "completed");
    await expect(page.getByRole("button", { name: "Remove b.txt" })).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(choose).toBeFocused();
    await stateOf(element, "empty");
  });

  exhaustive("gives screen readers names, progress, and announcements, and is accessible", async ({ openForm }) => {
    const { page, element, input } = await openForm({ attributes: "record" });
    const { release } = await hold(page, "POST", UPLOADS);
    await input.setInputFiles(textFile("a.txt", "A"));
    const tree = () => element.ariaSnapshot();
    await expect.poll(tree).toContain('- button "Record"');
    await expect.poll(tree).toMatch(/- list:\n\s+- listitem:/);
    await expect.poll(tree).toContain('progressbar "a.txt"');
    await expect.poll(tree).toContain('button "Cancel a.txt"');
    await expect.poll(tree).toMatch(/- status:\s+- paragraph: Uploading a.txt/);
    await expectAccessible(page);
    release();
    // What was said before stays, because it may not have been read yet.
    await expect.poll(tree).toMatch(/Uploading a.txt\s+- paragraph: a.txt uploaded/);
    await expect.poll(tree).toContain('button "Remove a.txt"');
    await expectAccessible(page);
  });

  exhaustive("works inside another shadow root, and in a form there", async ({ openForm }) => {
    const { page, key } = await openForm();
    const events = await recordEvents(page);
    await page.evaluate(
      ([service = "", token = ""]) => {
        const host = document.body.appendChild(document.createElement("section"));
        const form = host.attachShadow({ mode: "open" }).appendChild(document.createElement("form"));
        const upload = document.createElement("stowage-upload");
        const input = Object.assign(document.createElement("input"), { type: "file", ariaLabel: "Inner" });
        for (const [name, value] of Object.entries({ url: service, token, name: "inner" }))
          upload.setAttribute(name, value);
        form.append(upload);
        // Frameworks may add the input later.
        upload.append(input);
      },
      [url, key],
    );
    await page.getByLabel("Inner", { exact: true }).setInputFiles(SOUND);
    const element = page.locator("section stowage-upload");
    await stateOf(element, "completed");
    const submitted = element.evaluate((one) => new FormData((one as StowageUpload).form ?? undefined).getAll("inner"));
    expect(await submitted).toEqual(await idsOf(element));
    expect(await events()).toContain("upload-completed tone.mp3");
  });

  test("replaces the browser's input by a button and, for a mouse, a hint, under other styles and texts, too", async ({
    openForm,
    openPage,
  }) => {
    const head = "<style>input { display: block !important; } stowage-upload::part(choose) { color: red; }</style>";
    const { page, element, input, choose } = await openForm({ head });
    await expect(input).toBeHidden();
    await expect(choose).toHaveText("Choose files");
    await expect(choose).toHaveCSS("color", "rgb(255, 0, 0)");
    await expect(element.getByText("or drop them here")).toBeVisible();
    await element.evaluate((one) => {
      (one as StowageUpload).texts = { choose: "Dateien auswählen" };
    });
    await expect(page.getByRole("button", { name: "Dateien auswählen: Recordings" })).toBeEnabled();
    // A disabled form is one of the states of the button.
    await page.evaluate(() => document.querySelector("input")?.closest("stowage-upload")?.toggleAttribute("disabled"));
    await expect(page.getByRole("button", { name: /Recordings/ })).toBeDisabled();
    const phone = await openPage({ baseURL: page.url(), extraHTTPHeaders: {}, isMobile: true, hasTouch: true });
    await expect(phone.getByRole("button", { name: /Recordings/ })).toBeVisible();
    await expect(phone.getByText("or drop them here")).toBeHidden();
    // Fingers need 44 pixels, also for the small buttons of a file.
    await phone.locator("input[type=file]").setInputFiles(textFile("notes.txt", "Notes"));
    const small = phone.getByRole("button", { name: "Remove notes.txt" });
    for (const button of [small, phone.getByRole("button", { name: /Recordings/ })])
      await expect.poll(async () => (await button.boundingBox())?.height).toBeGreaterThanOrEqual(44);
  });

  test("has its attributes as properties, which a framework may set before it is defined", async ({ openForm }) => {
    const html = `<!doctype html><html lang="en"><head><title>Form</title><meta charset="utf-8"></head><body><form>
      <stowage-upload><input type="file" aria-label="Recordings"></stowage-upload></form>
      <script>
        const upload = document.querySelector("stowage-upload");
        Object.assign(upload, { url: "${url}", getToken: () => "KEY", name: "own", required: true, record: true,
          multiple: true, texts: { choose: "Wählen" } });
      </script>${SCRIPT}</body></html>`;
    const { page, element } = await openForm({ html });
    await expect(page.getByRole("button", { name: "Wählen: Recordings" })).toBeVisible();
    await expect(page.getByRole("button", { name: "Record", exact: true })).toBeVisible();
    for (const [name, value] of Object.entries({ url, name: "own", required: "", record: "", multiple: "" }))
      await expect(element).toHaveAttribute(name, value);
    expect(await isValid(element)).toBe(false);
    await page
      .getByLabel("Recordings", { exact: true })
      .setInputFiles([textFile("a.txt", "A"), textFile("b.txt", "B")]);
    await stateOf(element, "completed");
    const [first = "", second = ""] = await idsOf(element);
    const changed = await element.evaluate((one, kept) => {
      const upload = one as StowageUpload;
      // A framework sets the value that it has read, and later one without the first file.
      upload.value = [...upload.value];
      upload.value = [kept];
      Object.assign(upload, { record: false, disabled: true, token: null });
      return [upload.value, upload.record, upload.disabled, upload.token, upload.hasAttribute("disabled")];
    }, second);
    expect(changed).toEqual([[second], false, true, "", true]);
    expect(first).not.toBe("");
    await expect(page.getByRole("button", { name: "Record", exact: true })).toBeHidden();
  });

  test("refuses a dropped file that the input does not accept, and sends the others", async ({ openForm }) => {
    const input = '<label for="file">Recordings</label><input id="file" type="file" multiple accept=".TXT, audio/*">';
    const { page, team, element } = await openForm({ input });
    const events = await recordEvents(page);
    await element.evaluate((one) => {
      const files = [
        new File(["A"], "a.txt", { type: "text/plain" }),
        new File(["B"], "b.pdf", { type: "application/pdf" }),
        // Browsers don't know the type of every sound.
        new File(["C"], "c.unknown"),
      ];
      (one as StowageUpload).add(files);
    });
    await expect(page.getByRole("listitem").filter({ hasText: "b.pdf" })).toContainText(
      "Files of this type aren't accepted.",
    );
    await expect(page.getByRole("button", { name: "Retry b.pdf" })).toBeHidden();
    await expect.poll(async () => (await idsOf(element)).length).toBe(2);
    expect(await events()).toContain("upload-failed type_not_allowed b.pdf");
    expect((await stored(team)).map(({ originalName }) => originalName).sort()).toEqual(["a.txt", "c.unknown"]);
    await stateOf(element, "failed");
    await page.getByRole("button", { name: "Cancel b.pdf" }).click();
    await stateOf(element, "completed");
  });

  test("waits without a URL and a token, says so, and uploads once the page has set them", async ({ openForm }) => {
    const html = `<!doctype html><html lang="en"><title>Form</title>${SCRIPT}<form method="post">
      <stowage-upload name="recordings"><label>Recordings <input type="file"></label></stowage-upload></form>`;
    const { page, key, team, element, input } = await openForm({ html });
    const events = await recordEvents(page);
    const warned = page.waitForEvent("console", (message) => message.type() === "warning");
    await input.setInputFiles(textFile("notes.txt", "Notes"));
    await stateOf(element, "waiting");
    await expect(element.getByRole("listitem")).toContainText("Waiting for permission to upload.");
    expect((await warned).text()).toBe("<stowage-upload> waits for its `url`, and for a `token` or `getToken`.");
    expect(await events()).toContain("upload-waiting token_missing notes.txt");
    await element.evaluate((one, settings) => Object.assign(one, settings), { url, token: key });
    await stateOf(element, "completed");
    expect(await idsOf(element)).toEqual((await stored(team)).map(({ _id }) => _id));
  });

  test("says why the form can't be submitted, at the button that solves it", async ({ openForm }) => {
    const { page, element, submit, submitted } = await openForm({ input: "", attributes: "record required" });
    const button = (name: string) => page.getByRole("button", { name, exact: true });
    const invalidAt = async (name: string, message: string) => {
      await expect.poll(() => element.evaluate((one) => (one as StowageUpload).validationMessage)).toBe(message);
      await submit.click();
      await expect(button(name)).toBeFocused();
    };
    const requests: string[] = [];
    page.on("request", (request) => requests.push(new URL(request.url()).pathname));
    await invalidAt("Record", "Record something, then send it.");
    expect(requests).not.toContain("/assets/upload-recorder.js");
    await button("Record").click();
    await invalidAt("Stop", "Send or cancel your recording.");
    expect(requests).toContain("/assets/upload-recorder.js");
    await button("Stop").click();
    await invalidAt("Send", "Send or cancel your recording.");
    const { release } = await hold(page, "POST", UPLOADS);
    await button("Send").click();
    await stateOf(element, "sending");
    await expect.poll(() => element.evaluate((one) => (one as StowageUpload).validationMessage)).toMatch(/^Wait until/);
    await submit.click();
    await expect(page.getByRole("button", { name: /^Cancel Recording/ })).toBeFocused();
    release();
    await stateOf(element, "completed");
    expect(await element.evaluate((one) => (one as StowageUpload).validationMessage)).toBe("");
    await submit.click();
    await expect(page).toHaveTitle("Thanks");
    expect(submitted).toHaveLength(1);
  });

  test("says what is missing or refused, by what the user can do", async ({ openForm }) => {
    const input = '<label>Recordings <input type="file" accept="audio/*" multiple></label>';
    const { page, element } = await openForm({ input, attributes: "record required" });
    const message = () => element.evaluate((one) => (one as StowageUpload).validationMessage);
    await expect.poll(message).toBe("Choose a file, or record something, then send it.");
    await page.locator("input").setInputFiles(textFile("notes.txt", "Notes"));
    await expect(page.getByRole("button", { name: "Cancel notes.txt" })).toBeVisible();
    await expect(page.getByRole("button", { name: "Retry notes.txt" })).toBeHidden();
    expect(await message()).toBe("Cancel the files that couldn't be uploaded.");
  });

  test("lets a form wait for what is not uploaded, and sends a recording with it", async ({ openForm }) => {
    const attributes = "record required defer-submit";
    const { page, element, submit, submitted, team } = await openForm({ input: "", attributes });
    const button = (name: string) => page.getByRole("button", { name, exact: true });
    // Other listeners of the page get the event once.
    await page.evaluate(() => {
      Reflect.set(window, "submits", 0);
      document.forms[0]?.addEventListener("submit", () =>
        Reflect.set(window, "submits", Reflect.get(window, "submits") + 1),
      );
    });
    const submits = () => page.evaluate(() => Reflect.get(window, "submits") as number);
    await submit.click();
    await expect(button("Record")).toBeFocused();
    await button("Record").click();
    await expect(button("Stop")).toBeVisible();
    const { release } = await hold(page, "POST", UPLOADS);
    await submit.click();
    await stateOf(element, "sending");
    await expect(element.getByRole("alert").filter({ hasText: "The form is sent once" })).toBeVisible();
    expect(await submits()).toBe(0);
    expect(submitted).toEqual([]);
    release();
    await expect(page).toHaveTitle("Thanks");
    const [file] = await stored(team);
    expect(submitted).toEqual([`recordings=${file?.id}`]);
  });

  test("shows where a file has failed for which the form waits, and waits no longer", async ({
    openForm,
    problems,
  }) => {
    const options = { attributes: "defer-submit", limits: { maxFileBytes: 4 } };
    const { page, element, input, submit, submitted } = await openForm(options);
    problems.allow(413);
    const { release } = await hold(page, "POST", UPLOADS);
    await input.setInputFiles(textFile("large.txt", "Large"));
    await stateOf(element, "sending");
    await submit.click();
    release();
    await stateOf(element, "failed");
    await expect(page.getByRole("button", { name: "Cancel large.txt" })).toBeFocused();
    await expect(element.getByRole("alert").filter({ hasText: "The form is sent once" })).toBeHidden();
    expect(submitted).toEqual([]);
  });

  test("has German texts on a page in German, and those of the page in their place", async ({ openForm }) => {
    const html = `<!doctype html><html lang="de-AT"><head><title>Formular</title><meta charset="utf-8">${SCRIPT}</head>
    <body><form><stowage-upload url="${url}" token="KEY" name="recordings" record>
    <label for="file">Recordings</label><input id="file" type="file"></stowage-upload></form></body></html>`;
    const { page, element, input } = await openForm({ html });
    await expect(page.getByRole("button", { name: "Aufnehmen" })).toBeVisible();
    await element.evaluate((one) => {
      (one as StowageUpload).texts = { completed: "Danke!" };
    });
    await input.setInputFiles(SOUND);
    await stateOf(element, "completed");
    await expect(element.getByRole("listitem")).toContainText("Danke!");
    await expect(page.getByRole("button", { name: "Entfernen tone.mp3" })).toBeVisible();
    await page.getByRole("button", { name: "Aufnehmen" }).click();
    await page.getByRole("button", { name: "Stopp" }).click();
    await expect(page.getByRole("button", { name: "Senden" })).toBeVisible();
    await expect
      .poll(async () => ((await readDatabases(page)).records as { name: string }[]).map(({ name }) => name))
      .toContainEqual(expect.stringMatching(/^Aufnahme 20\d\d-/));
    await element.evaluate((one) => one.setAttribute("lang", "en"));
    await expect(page.getByRole("button", { name: "Send", exact: true })).toBeVisible();
    await expect(element.getByRole("listitem")).toContainText("Danke!");
  });

  test("works under a strict policy with Trusted Types", async ({ openForm }) => {
    const headers = { "Content-Security-Policy": POLICY };
    const { page, element, input } = await openForm({ headers, attributes: "record" });
    await input.setInputFiles(SOUND);
    await stateOf(element, "completed");
    await expect(page.getByRole("button", { name: "Record", exact: true })).toBeVisible();
    // The styles of the element apply.
    await expect(element.getByRole("listitem")).toHaveCSS("display", "flex");
  });

  exhaustive("keeps its layout under 10,000 rules of the page, which can style its parts", async ({ openForm }) => {
    const names = ["button", "progress", "li", "ul", "div", "span", "p", "meter", "audio", "[part]", "[hidden]"];
    const rules = Array.from({ length: 10_000 }, (_, index) => {
      const name = names[index % names.length];
      return `${name}:not(.a${index}), stowage-upload ${name} { display: block !important; float: right !important;
        position: fixed !important; opacity: 0 !important; width: ${index % 7}px !important; }`;
    });
    const inherited = `stowage-upload { letter-spacing: 1em; text-transform: uppercase; line-height: 0; visibility: hidden;
      pointer-events: none; text-indent: -999px; white-space: nowrap; }`;
    const layoutOf = async (head: string) => {
      const { page, element, input } = await openForm({ head, attributes: "record" });
      await input.setInputFiles(SOUND);
      await stateOf(element, "completed");
      const layout = await element.evaluate((one) =>
        [...(one.shadowRoot?.querySelectorAll("[part]") ?? [])].map((part) => {
          const { width, height } = part.getBoundingClientRect();
          const { display, opacity, position } = getComputedStyle(part);
          return [part.getAttribute("part"), Math.round(width), Math.round(height), display, opacity, position];
        }),
      );
      await expect(page.getByRole("button", { name: "Remove tone.mp3" })).toBeVisible();
      await page.getByRole("button", { name: "Remove tone.mp3" }).click();
      await stateOf(element, "empty");
      return layout;
    };
    const width = "<style>main { width: 600px; }</style>";
    const undisturbed = await layoutOf(width);
    expect(undisturbed.length).toBeGreaterThan(10);
    expect(await layoutOf(`${width}<style>${inherited}${rules.join("\n")}</style>`)).toEqual(undisturbed);

    const head = "<style>stowage-upload::part(completed) { color: rgb(1, 2, 3); }</style>";
    const { element, input } = await openForm({ head });
    await input.setInputFiles(SOUND);
    await stateOf(element, "completed");
    await expect(element.getByRole("listitem")).toHaveCSS("color", "rgb(1, 2, 3)");
  });

  exhaustive("uploads dropped files", async ({ openForm }) => {
    const { team, element } = await openForm();
    await dropFiles(element, { "a.txt": Buffer.from("A"), "b.txt": Buffer.from("B") });
    await stateOf(element, "completed");
    const names = (await stored(team)).map(({ originalName }) => originalName);
    expect(names.sort()).toEqual(["a.txt", "b.txt"]);
    await expect(element).not.toHaveAttribute("data-dragging");
  });

  exhaustive("resumes after a reload at the stored offset, with the same file", async ({ openForm, problems }) => {
    problems.tolerateInterruptions();
    const proxy = await Line.open(url, () => ({ fault: "stall", afterBytes: 8 * MEBIBYTE }));
    onTestFinished(() => proxy.close());
    const { page, team, element, input } = await openForm({ serviceUrl: proxy.url });
    const folder = await mkdtemp(join(tmpdir(), "stowage sent "));
    onTestFinished(() => rm(folder, { recursive: true, force: true }));
    const path = join(folder, "long.bin");
    const bytes = bytesOf(12 * MEBIBYTE);
    writeFileSync(path, bytes);
    await input.setInputFiles(path);
    await expect.poll(() => proxy.faults).toBe(1);
    proxy.stopFaults();
    const offsets: number[] = [];
    page.on("request", (request) => {
      if (request.method() === "PATCH") offsets.push(Number(request.headers()["upload-offset"]));
    });
    await page.reload();
    await stateOf(element, "completed");
    expect(offsets[0]).toBeGreaterThan(0);
    const files = await stored(team);
    expect(files.map(({ size, _id }) => [size, _id])).toEqual([[bytes.length, (await idsOf(element))[0]]]);
    // It is over: nothing is uploaded again, and the form still has the file until the user removes it.
    const ids = await idsOf(element);
    await page.reload();
    await stateOf(element, "completed");
    expect(await idsOf(element)).toEqual(ids);
    expect(await stored(team)).toHaveLength(1);
    await page.getByRole("button", { name: "Remove long.bin" }).click();
    await page.reload();
    await stateOf(element, "empty");
    await expect(element.getByRole("listitem")).toHaveCount(0);
  });

  test("deletes a canceled upload, and retries a failed one", async ({ openForm, problems }) => {
    problems.allow(503);
    const { page, team, element, input } = await openForm();
    const events = await recordEvents(page);
    await page.route(/\/resumable\/.+/, (route) =>
      route.request().method() === "PATCH" ? undefined : route.continue(),
    );
    const creating = page.waitForResponse((response) => response.request().method() === "POST");
    const folder = await mkdtemp(join(tmpdir(), "stowage canceled "));
    onTestFinished(() => rm(folder, { recursive: true }));
    writeFileSync(join(folder, "large.bin"), bytesOf(9_000_000));
    await input.setInputFiles(join(folder, "large.bin"));
    expect((await creating).status()).toBe(201);
    await expect.poll(async () => (await collect(team.stowage.unfinishedUploads.list())).length).toBe(1);
    const deleting = page.waitForResponse((response) => response.request().method() === "DELETE");
    await page.getByRole("button", { name: "Cancel large.bin" }).click();
    expect((await deleting).status()).toBe(204);
    expect(await collect(team.stowage.unfinishedUploads.list())).toEqual([]);
    await stateOf(element, "empty");

    const headers = {
      "Access-Control-Allow-Origin": "*",
      "Retry-After": "1000",
      "Access-Control-Expose-Headers": "Retry-After",
    };
    await page.route(UPLOADS, (route) =>
      route.request().method() === "POST" ? respond(route, { code: "unavailable", headers }) : route.continue(),
    );
    // It would try again by itself.
    await page.clock.install();
    await page.clock.pauseAt(Date.now() + 60_000);
    await input.setInputFiles(textFile("again.txt", "Again"));
    await stateOf(element, "waiting");
    await expect(element.getByRole("listitem")).toContainText("The service is unavailable.");
    expect(await events()).toContain("upload-waiting unavailable again.txt");
    expect(await isValid(element)).toBe(false);
    await page.unroute(UPLOADS);
    await page.getByRole("button", { name: "Retry again.txt" }).press("Enter");
    await expect(page.getByRole("button", { name: /(Cancel|Remove) again.txt/ })).toBeFocused();
    await page.clock.resume();
    await stateOf(element, "completed");
    expect(await stored(team)).toHaveLength(1);
  });

  const LIMITS: [string, number, UploadTokenInput, string][] = [
    ["file_too_large", 413, { maxFileBytes: 10 }, "This file is too large."],
    ["type_not_allowed", 415, { fileTypes: ["audio file"] }, "Nur Audio!"],
    ["upload_limit_reached", 403, { maxFiles: 1 }, "You can't upload more files here."],
  ];
  exhaustive.for(LIMITS)(
    "explains the limit of an upload token: %s",
    async ([code, status, limits, message], { openForm, problems }) => {
      problems.allow(status);
      const { page, element, input, key } = await openForm({ limits });
      if (code === "upload_limit_reached") {
        const body = new FormData();
        body.append("file", new Blob(["First"]), "first.txt");
        const headers = { Authorization: `Bearer ${key}` };
        expect((await fetch(`${url}/docs/v1/uploads`, { method: "POST", headers, body })).status).toBe(200);
      }
      const events = await recordEvents(page);
      await element.evaluate((one) => {
        (one as StowageUpload).texts = { type_not_allowed: "Nur Audio!", retry: "Nochmal" };
      });
      await input.setInputFiles(textFile("notes.txt", "These are notes."));
      await stateOf(element, "failed");
      expect(await events()).toContain(`upload-failed ${code} notes.txt`);
      await expect(element.getByRole("listitem")).toContainText(message);
      // The other limits concern the file, which stays the same.
      await expect(page.getByRole("button", { name: "Nochmal notes.txt" })).toBeVisible({
        visible: code === "upload_limit_reached",
      });
      expect(await idsOf(element)).toEqual([]);
    },
  );

  test("records from the microphone, plays the recording, and sends it", async ({ openForm }) => {
    const headers = { "Content-Security-Policy": POLICY };
    const { page, team, element, choose } = await openForm({ headers, attributes: "record" });
    const button = (name: string) => page.getByRole("button", { name, exact: true });
    await tabTo(choose);
    await page.keyboard.press("Tab");
    await expect(button("Record")).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(button("Stop")).toBeFocused();
    await stateOf(element, "recording");
    expect(await isValid(element)).toBe(false);
    await expect(element.getByRole("timer")).not.toHaveText("0:00");
    // The fake microphone beeps.
    const level = element.getByRole("meter", { name: "Microphone level" });
    await expect.poll(() => level.evaluate((meter) => (meter as HTMLMeterElement).value)).toBeGreaterThan(0);
    await page.keyboard.press("Enter");
    await stateOf(element, "recorded");
    await expect(button("Send")).toBeFocused();
    const audio = element.locator("audio");
    await expect.poll(() => audio.evaluate((one) => (one as HTMLAudioElement).readyState)).toBeGreaterThan(0);
    expect(await stored(team)).toEqual([]);
    await page.keyboard.press("Enter");
    await stateOf(element, "completed");
    await expect(button("Record")).toBeFocused();
    const [file] = await stored(team);
    expect(file).toMatchObject({ fileType: "audio file", _id: (await idsOf(element))[0] });
    expect(file?.originalName).toMatch(/^Recording .*\.webm$/);
    expect(file?.durationSeconds).toBeGreaterThan(0.9);

    // One tap never discards what is being recorded.
    await button("Record").click();
    await stateOf(element, "recording");
    await expect(button("Cancel")).toBeHidden();
    await button("Stop").click();
    await button("Cancel").click();
    await stateOf(element, "completed");
    await page.evaluate(() => {
      navigator.mediaDevices.getUserMedia = async () => {
        throw new DOMException("", "NotAllowedError");
      };
    });
    const events = await recordEvents(page);
    await button("Record").click();
    await expect(element.getByRole("alert")).toContainText("Allow this page to use your microphone");
    await expect(button("Record")).toBeFocused();
    expect(await events()).toEqual(["upload-failed microphone_denied"]);
    expect(await stored(team)).toHaveLength(1);
  });

  exhaustive("works with the server and the page that README.md shows", async ({ openPage, problems }) => {
    const readme = readFileSync(join(root, "README.md"), "utf8").split("### Upload from a web page")[1] ?? "";
    const [server = "", html = ""] = ["js", "html"].map((language) =>
      new RegExp(`\`\`\`${language}\n(.*?)\`\`\``, "s").exec(readme)?.[1]?.replaceAll("http://localhost:8787", url),
    );
    const folder = await mkdtemp(join(tmpdir(), "page-"));
    onTestFinished(() => rm(folder, { recursive: true }));
    writeFileSync(join(folder, "page.html"), html);
    const program = server
      .replace('"stowage"', JSON.stringify(pathToFileURL(join(root, "src/client/index.ts")).href))
      .replace("listen(3000)", "listen(0, function () { console.log(this.address().port); })");
    writeFileSync(join(folder, "server.mjs"), program);
    const team = await newTeam();
    const running = spawn(execPath, ["server.mjs"], { cwd: folder, env: { ...env, STOWAGE_KEY: team.key } });
    onTestFinished(() => void running.kill());
    const [port] = await once(running.stdout, "data");
    problems.allow(/^Another host: http:\/\/(127\.0\.0\.1|localhost):/);
    const page = await openPage({ baseURL: `http://localhost:${String(port).trim()}`, extraHTTPHeaders: {} });
    const element = page.locator("stowage-upload");
    await expect(page.getByRole("button", { name: "Record", exact: true })).toBeVisible();
    await page.locator("input").setInputFiles(SOUND);
    await stateOf(element, "completed");
    const [id] = await idsOf(element);
    await page.getByRole("button", { name: "Submit" }).click();
    await expect(page.getByText(`recordings=${id}`)).toBeVisible();
    expect(await stored(team)).toMatchObject([{ _id: id, folder: "memos" }]);
  });

  exhaustive("works as the README of the client shows", async ({ openForm }) => {
    const text = readFileSync(join(root, "src/client/README.md"), "utf8");
    const sample = /```html\n(.*?)```/s.exec(text)?.[1]?.replaceAll(/https?:\/\/stowage\.example[\w.]+/g, url);
    const html = `${SCRIPT}<form method="post">${sample}<button>Submit</button></form>`;
    const { page, key, element, submit, submitted } = await openForm({ html });
    await expect(page.getByRole("button", { name: "Record", exact: true })).toBeVisible();
    await element.evaluate((one, token) => one.setAttribute("token", token), key);
    await page.locator("input").setInputFiles(SOUND);
    await stateOf(element, "completed");
    const [id] = await idsOf(element);
    await submit.click();
    await expect(page).toHaveTitle("Thanks");
    expect(submitted[0]).toBe(`recordings=${id}`);
  });

  exhaustive("has a demonstration on the development server", async ({ openPage }) => {
    const { key } = await newTeam();
    const page = await openPage({ path: "/assets/demo.html" });
    await expectAccessible(page);
    await page.getByLabel("API key").fill(key);
    await page.getByLabel("Recordings", { exact: true }).setInputFiles(SOUND);
    const element = page.locator("stowage-upload");
    await stateOf(element, "completed");
    // Buttons have a border or a line below their text, and one box is dashed.
    const remove = element.getByRole("button", { name: /^Remove / });
    await expect(remove).toHaveCSS("border-top-style", "solid");
    await expect(remove).toHaveCSS("text-decoration-line", "none");
    await expect(element).toHaveCSS("border-top-style", "none");
    await page.getByRole("button", { name: "Submit" }).click();
    await expect(page.locator("output")).toHaveText(/recordings=[0-9a-f]{24}$/);
  });
});

/** What the timer shows from one second on. A busy machine may miss the text of any one second. */
const ONE_SECOND = /0:(0[1-9]|[1-5])/;

/** Opens a page with a recorder whose getToken is a script of the page. */
async function openRecorder(tools: Tools, options: FormOptions = {}) {
  const opened = await openForm(tools, { attributes: "record", ...options });
  const button = (name: string) => opened.page.getByRole("button", { name, exact: true });
  /** Records for at least a second, and stops. */
  const record = async () => {
    await button("Record").click();
    await expect(opened.element.getByRole("timer")).toHaveText(ONE_SECOND);
    await button("Stop").click();
    await stateOf(opened.element, "recorded");
  };
  return { ...opened, button, record };
}

/** Asks `getToken` for each token, which fails until `isOnline` of the page is true. */
const failTokens = (element: Locator, key: string) =>
  element.evaluate((one, token) => {
    one.removeAttribute("token");
    (one as StowageUpload).getToken = async () => {
      if (!Reflect.get(window, "isOnline")) throw new TypeError("Failed to fetch");
      return token;
    };
  }, key);
const restoreTokens = (page: Page) => page.evaluate(() => Reflect.set(window, "isOnline", true));

/** The record of the only recording in the browser's storage. */
const savedRecording = async (page: Page) => {
  const [record] = ((await readDatabases(page)).records ?? []) as { properties?: RecordingProperties }[];
  return record?.properties ?? ({} as Partial<RecordingProperties>);
};

/** Saves a recording of an earlier visit for the element "recordings" of the page, in parts. */
const saveRecording = (page: Page, stream: Uint8Array) =>
  page.evaluate(
    async ([base64, partBytes]) => {
      const bytes = Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const opening = indexedDB.open("stowage-upload");
      await new Promise((done) => {
        opening.onsuccess = done;
      });
      const transaction = opening.result.transaction(["records", "files"], "readwrite");
      const key = "recording 1";
      let parts = 0;
      for (let at = 0; at < bytes.length; at += partBytes)
        transaction.objectStore("files").put(new Blob([bytes.slice(at, at + partBytes)]), [key, parts++]);
      const place = "recordings / recordings ";
      const item = {
        name: "Recording.webm",
        type: "audio/webm;codecs=opus",
        size: 0,
        isRecording: true,
        state: "recording",
      };
      const saved = { place, at: Date.now(), keptDays: 30, lock: "closed", sentBytes: 0, savedBytes: 0 };
      transaction.objectStore("records").put({ key, ...item, ...saved });
      await new Promise((done) => {
        transaction.oncomplete = done;
      });
      opening.result.close();
    },
    [Buffer.from(stream).toString("base64"), 80_000] as const,
  );

/** Seeks to the middle of the sound. @returns its duration */
const seek = (audio: Locator) =>
  audio.evaluate(
    (one: HTMLAudioElement) =>
      new Promise<{ duration: number }>((resolve, reject) => {
        const seekToMiddle = () => {
          const { duration } = one;
          if (!Number.isFinite(duration)) return reject(new Error(`The duration is ${duration}.`));
          one.onseeked = () => resolve({ duration });
          one.currentTime = duration / 2;
        };
        if (one.readyState > 0) seekToMiddle();
        else one.onloadedmetadata = seekToMiddle;
      }),
  );

describe("A recording", () => {
  test("that is sent without a network waits, asks before the page is left, survives a reload, and arrives", async ({
    openPage,
    problems,
  }) => {
    const html = `<!doctype html><html lang="en"><head><title>Form</title>${SCRIPT}</head><body><form>
      <stowage-upload url="${url}" name="recordings" record><input type="file" multiple></stowage-upload></form></body></html>`;
    const { page, team, element, key, button, record } = await openRecorder({ openPage, problems }, { html });
    await failTokens(element, key);
    await record();
    await button("Send").click();
    await stateOf(element, "waiting");
    await expect(element.getByRole("listitem")).toContainText("The service is unavailable.");
    await expect(page.getByText(/[Rr]eload/)).toHaveCount(0);
    const asked = page.waitForEvent("dialog");
    const reloading = page.reload();
    expect((await asked).type()).toBe("beforeunload");
    await (await asked).accept();
    await reloading;
    await failTokens(element, key);
    await stateOf(element, "waiting");
    expect(await stored(team)).toEqual([]);
    await restoreTokens(page);
    // The network is back.
    await page.evaluate(() => window.dispatchEvent(new Event("online")));
    await stateOf(element, "completed");
    const [file] = await stored(team);
    expect(file?.name).toMatch(/^Recording .*\.webm$/);
    expect(file?.durationSeconds).toBeGreaterThan(0.9);
    expect(await idsOf(element)).toEqual([file?._id]);
  });

  test("pauses and continues, keeps the screen on, and is sent as a file that can be sought", async ({
    openPage,
    problems,
  }) => {
    const { page, team, element, button } = await openRecorder({ openPage, problems });
    await page.evaluate(() => {
      const locks: string[] = [];
      const request = async (type: string) => {
        locks.push(type);
        return { release: async () => locks.push("released") };
      };
      Object.defineProperty(navigator, "wakeLock", { value: { request } });
      Reflect.set(window, "locks", locks);
    });
    const locks = () => page.evaluate(() => Reflect.get(window, "locks") as string[]);
    await button("Record").click();
    const timer = element.getByRole("timer");
    await expect(timer).toHaveText(ONE_SECOND);
    expect(await locks()).toEqual(["screen"]);
    // The browser takes it from a page that is not shown.
    await page.evaluate(() => document.dispatchEvent(new Event("visibilitychange")));
    await expect.poll(locks).toEqual(["screen", "screen"]);
    await button("Pause").click();
    await expect(element.getByText("Paused", { exact: true }).first()).toBeVisible();
    await expect(button("Pause")).toBeHidden();
    // What was recorded is saved at once: the part of the beginning, which is empty, and another one.
    await expect.poll(async () => (await savedRecording(page)).part).toBeGreaterThan(0);
    const pausedAt = await timer.textContent();
    await button("Continue").click();
    await expect(button("Pause")).toBeVisible();
    await expect(timer).not.toHaveText(pausedAt ?? "");
    await button("Stop").click();
    await stateOf(element, "recorded");
    expect(await locks()).toEqual(["screen", "screen", "released"]);
    const played = await seek(element.locator("audio"));
    expect(played.duration).toBeGreaterThan(1.9);
    // It is known how the file is composed before any byte of it is sent.
    expect((await savedRecording(page)).pieces?.length).toBeGreaterThan(1);
    await button("Send").click();
    await stateOf(element, "completed");
    const [file] = await stored(team);
    expect(file?.durationSeconds).toBeCloseTo(played.duration, 1);
    const { audio } = await team.stowage.files.get(file?._id ?? "");
    expect(audio?.channels).toBe(1);
    expect(audio?.bitrate).toBeLessThan(75_000);
    await page.evaluate(
      (src) => {
        document.body.append(Object.assign(new Audio(src), { id: "sent" }));
      },
      await team.stowage.files.createSignedUrl(file?._id ?? ""),
    );
    expect((await seek(page.locator("#sent"))).duration).toBeCloseTo(played.duration, 2);
  });

  test("pauses while something else has the microphone, and keeps what is there if the microphone is lost", async ({
    openPage,
    problems,
  }) => {
    const { page, team, element, button } = await openRecorder(
      { openPage, problems },
      { attributes: 'record bitrate="24000"' },
    );
    await page.evaluate(() => {
      // As in Firefox.
      const typeOf = Object.getOwnPropertyDescriptor(MediaRecorder.prototype, "mimeType")?.get;
      Object.defineProperty(MediaRecorder.prototype, "mimeType", {
        get(this: MediaRecorder) {
          return this.state === "inactive" ? "" : typeOf?.call(this);
        },
      });
      const getUserMedia = navigator.mediaDevices.getUserMedia.bind(navigator.mediaDevices);
      navigator.mediaDevices.getUserMedia = async (constraints) => {
        const stream = await getUserMedia(constraints);
        Reflect.set(window, "microphone", stream.getTracks()[0]);
        return stream;
      };
    });
    /** The browser fires these events at a call, and when a headset is disconnected. */
    const fire = (type: string) =>
      page.evaluate(
        (type) => (Reflect.get(window, "microphone") as MediaStreamTrack).dispatchEvent(new Event(type)),
        type,
      );
    await button("Record").click();
    await expect(element.getByRole("timer")).toHaveText(ONE_SECOND);
    const paused = element.locator("[part=paused]");
    const message = element.getByRole("alert");
    await fire("mute");
    await expect(paused).toBeVisible();
    await expect(message).toHaveText("Your microphone is in use elsewhere. The recording continues afterwards.");
    await fire("unmute");
    await expect(paused).toBeHidden();
    await expect(message).toBeHidden();
    // The user's pause lasts. WebKit mutes the microphone during it.
    await button("Pause").click();
    await fire("mute");
    await expect(message).toBeHidden();
    await fire("unmute");
    await expect(paused).toBeVisible();
    await button("Continue").click();
    await expect(paused).toBeHidden();
    await fire("mute");
    await button("Continue").click();
    await expect(paused).toBeHidden();
    await fire("ended");
    await stateOf(element, "recorded");
    await expect(message).toHaveText("Your microphone was disconnected. Send or cancel your recording.");
    await button("Send").click();
    await stateOf(element, "completed");
    await expect(message).toBeHidden();
    const [file] = await stored(team);
    expect(file?.durationSeconds).toBeGreaterThan(0.9);
    const { audio } = await team.stowage.files.get(file?._id ?? "");
    expect(audio?.bitrate).toBeLessThan(35_000);
  });

  exhaustive(
    "of an earlier visit, torn at its end, is composed once, and resumes after a reload as the same file",
    async ({ openPage, problems }) => {
      problems.tolerateInterruptions();
      // 12 MB, so the upload is resumable.
      const stream = webm({ seconds: 1500 }).slice(0, -100);
      const expected = seekable(stream);
      let fault: Fault = "stall";
      const proxy = await Line.open(url, () => ({ fault, afterBytes: 6_000_000 }));
      onTestFinished(() => proxy.close());
      const options = { attributes: "record", serviceUrl: proxy.url };
      const { page, team, element } = await openForm({ openPage, problems }, options);
      await saveRecording(page, stream);
      await page.reload();
      await stateOf(element, "recorded");
      const { pieces } = await savedRecording(page);
      expect(pieces?.length).toBeGreaterThan(1);
      await page.getByRole("button", { name: "Send", exact: true }).click();
      await expect.poll(() => Math.max(0, ...proxy.offsets)).toBeGreaterThan(0);
      fault = "none";
      proxy.disconnect();
      page.on("dialog", (dialog) => void dialog.accept());
      await page.reload();
      const sent = proxy.sentBytes;
      await stateOf(element, "completed");
      const [file] = await stored(team);
      expect(file?.size).toBe(expected.length);
      const loaded = await (await fetch(await team.stowage.files.createSignedUrl(file?._id ?? ""))).arrayBuffer();
      expect(Buffer.from(loaded).equals(expected)).toBe(true);
      // It did not begin again.
      expect(proxy.sentBytes - sent).toBeLessThan(expected.length);
    },
  );

  test("of a tab that is killed while it records is offered again, up to the last ten seconds", async ({
    openPage,
    problems,
  }) => {
    const { page, team, button } = await openRecorder({ openPage, problems });
    // Delivers the recorded chunks every second instead of every ten.
    await page.evaluate(() => {
      const start = MediaRecorder.prototype.start;
      MediaRecorder.prototype.start = function (milliseconds = 0) {
        start.call(this, milliseconds / 10);
      };
    });
    await button("Record").click();
    await expect(page.locator("stowage-upload").getByRole("timer")).toHaveText(/0:(0[4-9]|[1-5])/);
    // What the parts contain is saved with them.
    await expect.poll(async () => (await savedRecording(page)).index?.readBytes).toBeGreaterThan(0);
    const tab = await page.context().newPage();
    const address = page.url();
    await page.close({ runBeforeUnload: false });
    await tab.goto(address);
    const element = tab.locator("stowage-upload");
    await stateOf(element, "recorded");
    const { duration } = await seek(element.locator("audio"));
    expect(duration).toBeGreaterThan(1.9);
    await tab.getByRole("button", { name: "Send", exact: true }).click();
    await stateOf(element, "completed");
    const [file] = await stored(team);
    expect(file?.fileType).toBe("audio file");
    expect(file?.size).toBeGreaterThan(10_000);
    expect(file?.durationSeconds).toBeCloseTo(duration, 1);
  });

  test("of an element that is removed is offered by the next one at its place, or by itself when it returns", async ({
    openPage,
    problems,
  }) => {
    const { page, team, element, button } = await openRecorder({ openPage, problems });
    await button("Record").click();
    await expect(element.getByRole("timer")).toHaveText(ONE_SECOND);
    await element.evaluate((one) => {
      const next = one.cloneNode(true);
      one.replaceWith(next);
    });
    await stateOf(element, "recorded");
    const removed = await element.evaluateHandle((one) => {
      const parent = one.parentElement;
      one.remove();
      return { one, parent };
    });
    const tab = await page.context().newPage();
    await tab.goto(page.url());
    await stateOf(tab.locator("stowage-upload"), "recorded");
    await removed.evaluate(({ one, parent }) => parent?.prepend(one));
    // The other tab has it now.
    await stateOf(element, "empty");
    await tab.close();
    await stateOf(element, "recorded");
    await button("Send").click();
    await stateOf(element, "completed");
    expect((await stored(team))[0]?.durationSeconds).toBeGreaterThan(0.9);
  });
});

test("A recording that was not sent is offered to its visitor, and to no other", async ({ openPage, problems }) => {
  const { page, element, button, record } = await openRecorder({ openPage, problems });
  const show = async (visitor: string) => {
    await element.evaluate((one, name) => {
      const next = one.cloneNode(true) as StowageUpload;
      next.visitor = name;
      one.replaceWith(next);
    }, visitor);
  };
  await show("one");
  await record();
  await show("two");
  await record();
  await button("Send").click();
  await stateOf(element, "completed");
  await page.reload();
  await show("one");
  await stateOf(element, "recorded");
});

describe("The upload element, over a bad connection,", () => {
  exhaustive(
    "continues by itself when the network is back, however long it was away",
    async ({ openPage, problems }) => {
      problems.allow(OFFLINE);
      const { page, team, element, input } = await openForm({ openPage, problems });
      await page.clock.install();
      const reconnect = await failRequests(page, /\/docs\/v1\//);
      await input.setInputFiles(SOUND);
      await stateOf(element, "waiting");
      await expect(element.getByRole("listitem")).toContainText("No connection.");
      for (let minute = 0; minute < 10; minute++) await page.clock.runFor(60_000);
      await stateOf(element, "waiting");
      await reconnect();
      await page.clock.runFor(60_000);
      await page.clock.resume();
      await stateOf(element, "completed");
      expect(await stored(team)).toHaveLength(1);
    },
  );
});

describe("The form of an upload element", () => {
  test("keeps its finished files after a reload, until it is submitted", async ({ openPage, problems }) => {
    const { page, team, element, submit, submitted, input } = await openForm({ openPage, problems });
    await input.setInputFiles([SOUND, textFile("notes.txt", "Notes")]);
    await stateOf(element, "completed");
    const ids = await idsOf(element);
    await page.reload();
    await stateOf(element, "completed");
    expect((await idsOf(element)).sort()).toEqual([...ids].sort());
    await submit.click();
    await expect(page).toHaveTitle("Thanks");
    expect(submitted[0]?.match(/[0-9a-f]{24}/g)?.sort()).toEqual([...ids].sort());
    await page.goto("/");
    await stateOf(element, "empty");
    expect(await idsOf(element)).toEqual([]);
    expect(await stored(team)).toHaveLength(2);
  });
});
