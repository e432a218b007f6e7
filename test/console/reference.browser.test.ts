import { execFile } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Page } from "@playwright/test";
import { transform } from "esbuild";
import { describe, onTestFinished } from "vitest";
import { type OpenApi, type Route, routesOf } from "../../src/console/reference/document.ts";
import { renderReference } from "../../src/console/reference/page.tsx";
import { ORIGIN, samplesOf } from "../../src/console/reference/samples.ts";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "../support/browser/appearance.ts";
import { OFFLINE } from "../support/browser/problems.ts";
import { copyBy, exhaustive, expect, screenshot, test, url } from "../support/browser/support.ts";
import { newTeam, sample } from "../support/team.ts";
import { isExhaustive } from "../support/tiers.ts";

/* The API reference: static HTML made from the OpenAPI document, with search and forms that a script adds. */

const execute = promisify(execFile);
const document = (await (await fetch(`${url}/openapi.json`)).json()) as OpenApi;
const routes = routesOf(document);

/** Shows the page, or other HTML, with an empty script. In a page whose scripts are off, tests could not wait. */
async function openWithoutScript(page: Page, html?: string): Promise<Page> {
  await page.route(/\/assets\/reference.*\.js$/, (route) =>
    route.fulfill({ contentType: "text/javascript", body: "" }),
  );
  if (html !== undefined) {
    await page.route("/reference", (route) => route.fulfill({ contentType: "text/html", body: html }));
    await page.route("/assets/reference.css", (route) => route.fulfill({ contentType: "text/css", body: "" }));
  }
  await page.goto("/reference");
  return page;
}

describe("Reference without a script", () => {
  test("shows every operation with its route, scope, fields, errors and samples", async ({ openPage }) => {
    const page = await openWithoutScript(await openPage());
    const shown = await page.locator("main .operation:has(.samples)").evaluateAll((all) =>
      all.map((one) => ({
        id: one.id,
        text: one.textContent,
        samples: one.querySelectorAll("pre[data-language]").length,
      })),
    );
    expect(shown.length).toBe(routes.length);
    for (const { method, path, operation } of routes) {
      const { text, samples } = shown.find(({ id }) => id === operation.operationId) ?? { text: "", samples: 0 };
      const fields = operation.parameters?.map(({ name }) => name) ?? [];
      const codes = Object.values(operation.responses).flatMap(({ content }) =>
        Object.keys(content?.["application/json"]?.examples ?? {}),
      );
      const wanted = [operation.summary, `${method} ${path}`, operation["x-scope"] ?? "", ...fields, ...codes];
      for (const part of wanted) expect(text, operation.operationId).toContain(part);
      expect(samples, operation.operationId).toBe(3);
    }
    // A parameter that does nothing is not the first one.
    const parameters = page.locator("main #uploadFile dl.fields").first().locator("dt code:first-child");
    await expect(parameters.last()).toHaveText("limit");
    await expect(page.locator("main #setTranscript")).toContainText("--data-binary '@interview.vtt'");
    await expect(page.getByRole("link", { name: "Console", exact: true })).toHaveAttribute("href", "/console");
    await expect(page.getByRole("link", { name: document.info.title, exact: true })).toHaveAttribute("href", "/");
  });

  exhaustive("links from the contents and from types only to existing targets", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const { ids, targets } = await page.evaluate(() => ({
      ids: [...window.document.querySelectorAll("[id]")].map(({ id }) => id),
      targets: [...window.document.querySelectorAll<HTMLAnchorElement>('a[href^="#"]')].map(({ hash }) =>
        hash.slice(1),
      ),
    }));
    expect(new Set(ids).size, "unique IDs").toBe(ids.length);
    expect(targets.length).toBeGreaterThan(routes.length);
    for (const target of targets) expect(ids).toContain(target);
  });

  exhaustive("switches the language of a sample", async ({ openPage }) => {
    const page = await openWithoutScript(await openPage());
    const operation = page.locator("#listFiles");
    for (const [language, text] of [
      ["Python", "import requests"],
      ["JavaScript", "stowage.files.list"],
      ["curl", "curl "],
    ] as const) {
      await operation.getByText(language, { exact: true }).click();
      await expect(operation.locator("pre[data-language]:visible")).toHaveCount(1);
      await expect(operation.locator("pre[data-language]:visible")).toContainText(text);
    }
  });
});

describe("Reference", () => {
  test("colors the samples, and shows of a long list of numbers the first ones", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const example = page.locator("main #listFiles figure code").first();
    await expect(example).toContainText(/"peaks": \[(\d+, ){6}…\]/);
    await example.scrollIntoViewIfNeeded();
    const marked = (name: string) =>
      example.evaluate((code, name) => {
        const ranges = [...(CSS.highlights.get(name) ?? [])].filter((one) => one.startContainer === code.firstChild);
        return ranges.map((one) => code.textContent.slice(one.startOffset, one.endOffset));
      }, name);
    expect((await marked("text")).slice(0, 2)).toEqual(['"Files: 1."', '"0193477c0a5e2b7f4d1c8e90"']);
    expect(await marked("value")).toEqual(expect.arrayContaining(["482113", "30.04", "null"]));
    await screenshot(page, "reference-colors");
  });

  test("has samples of valid JavaScript that contain this service's URL and no token", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    await expect(page.locator("#listFiles pre").first()).toContainText(url);
    const samples = await page.locator("pre[data-language]").allTextContents();
    for (const sample of samples) {
      expect(sample).not.toContain("HOST");
      expect(sample).not.toMatch(/stow_(?:sk|pk|ss)_/);
    }
    for (const source of await page.locator('pre[data-language="JavaScript"]').allTextContents())
      await transform(source, { format: "esm" });
  });

  exhaustive("has curl samples that upload a file and update it", async ({ skip }) => {
    await execute("curl", ["--version"]).catch(() => skip("There is no curl."));
    const { key, stowage } = await newTeam();
    const folder = mkdtempSync(join(tmpdir(), "stowage samples "));
    onTestFinished(() => rmSync(folder, { recursive: true }));
    writeFileSync(join(folder, "interview.mp3"), sample("tone-vbr.mp3"));
    const run = async (id: string, variables: Record<string, string>) => {
      const route = routes.find(({ operation }) => operation.operationId === id) as Route;
      const source = samplesOf(route).find(({ language }) => language === "curl")?.source ?? "";
      const env = { ...process.env, KEY: key, ...variables };
      const { stdout } = await execute("sh", ["-c", source.replaceAll(ORIGIN, url)], { cwd: folder, env });
      return JSON.parse(stdout);
    };
    const { data } = await run("uploadFile", {});
    expect(data).toMatchObject({ originalName: "interview.mp3" });
    await run("updateFile", { ID: data._id });
    expect(await stowage.files.get(data._id)).toMatchObject({ folder: "podcast/2026", tags: ["interview"] });
  });

  exhaustive("finds operations by words of their name, route, fields and error codes", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const search = page.getByRole("searchbox");
    const found = () => page.locator("main .operation:visible").evaluateAll((all) => all.map(({ id }) => id));
    await page.keyboard.press("/");
    await expect(search).not.toBeFocused();
    await page.keyboard.press("Control+k");
    await expect(search).toBeFocused();
    for (const [words, id] of Object.entries({
      "signed url": "signFile",
      "patch users": "updateUser",
      keepkeys: "deleteUser",
      "post digest_mismatch": "uploadFile",
    })) {
      await search.fill(words);
      await expect(page.getByRole("status").first()).toHaveText(/^\d+ results?$/);
      expect(await found(), words).toContain(id);
      expect((await found()).length, words).toBeLessThan(12);
      await expect(page.locator(`.index a[href="#${id}"]`)).toBeVisible();
    }
    await expect(page.locator(".index").getByText("Authentication")).toBeHidden();
    await expectAccessible(page.locator("#uploadFile"));
    await search.fill("nothing has zzzz");
    await expect(page.getByText("No results.")).toBeVisible();
    await search.fill("");
    expect((await found()).length).toBeGreaterThanOrEqual(routes.length);
  });

  test("sends a request with a token that it keeps in memory, and shows the response as text", async ({ openPage }) => {
    const { key, stowage } = await newTeam();
    await stowage.files.upload(new File(["text"], "<img src=x>.txt"));
    const page = await openPage({ path: "/reference", width: 1440 });
    const operation = page.locator("#listFiles");
    await operation.getByRole("button", { name: "Try it" }).click();
    const form = operation.getByRole("form");
    await form.getByLabel("Token").fill(key);
    await form.getByLabel("limit").fill("1");
    await expect(form.locator("pre").first()).toContainText("/docs/v1/uploads?limit=1");
    await form.getByRole("button", { name: "Send request" }).click();
    await expect(form.getByRole("status")).toHaveText("Response 200");
    await expect(form.getByRole("region", { name: "Response" })).toContainText('"name": "<img src=x>.txt"');
    // Axe reads all of this long page.
    if (isExhaustive) await expectAccessible(operation);
    await screenshot(page, "reference-try");
    // Other forms have the token, too.
    const me = page.locator("#getMe");
    await me.getByRole("button", { name: "Try it" }).click();
    await me.getByRole("button", { name: "Send request" }).click();
    await expect(me.getByRole("status")).toHaveText("Response 200");
    const copied = await copyBy(operation.getByRole("button", { name: /Cop/ }), "curl");
    expect(copied).toContain("$KEY");
    expect(await page.locator("body").innerHTML()).not.toContain(key);
    expect(await page.evaluate(() => [localStorage.length, sessionStorage.length, window.document.cookie])).toEqual([
      0,
      0,
      "",
    ]);
    await page.reload();
    await me.getByRole("button", { name: "Try it" }).click();
    await expect(me.getByLabel("Token")).toHaveValue("");
  });

  exhaustive("uploads a file with the user's input, without examples", async ({ openPage }) => {
    const team = await newTeam();
    const page = await openPage({ path: "/reference" });
    const operation = page.locator("#uploadFile");
    await operation.getByRole("button", { name: "Try it" }).click();
    for (const input of await operation.locator("form :is(input, textarea)").all()) await expect(input).toHaveValue("");
    await operation.getByLabel("Token").fill(team.key);
    await operation
      .locator("input[type=file]")
      .setInputFiles({ name: "a b.mp3", mimeType: "", buffer: sample("tone-vbr.mp3") });
    await operation.getByLabel("properties").fill('{"folder":"from/reference"}');
    await operation.getByRole("button", { name: "Send request" }).click();
    await expect(operation.getByRole("status")).toHaveText("Response 200");
    const [file] = await team.stowage.files.list({ folder: "from/reference" }).toArray({ limit: 1 });
    expect(file).toMatchObject({ originalName: "a b.mp3" });
  });

  exhaustive("sends optional parameters only if the user sets them", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const operation = page.locator("#deleteUser");
    await operation.getByRole("button", { name: "Try it" }).click();
    const curl = operation.locator("form pre").first();
    await expect(curl).toContainText("/auth/v1/users/{id}'");
    await operation.getByLabel("id path").fill("01a200a6007316cfb20018cd");
    await expect(curl).toContainText("/auth/v1/users/01a200a6007316cfb20018cd'");
    await operation.getByLabel("keepKeys").selectOption("true");
    await expect(curl).toContainText("/auth/v1/users/01a200a6007316cfb20018cd?keepKeys=true'");
  });

  exhaustive("shows the response to a HEAD request, which has no body", async ({ openPage, problems }) => {
    problems.allow(404);
    const page = await openPage({ path: "/reference" });
    const operation = page.locator("#getResumableUpload");
    await operation.getByRole("button", { name: "Try it" }).click();
    await operation.getByLabel("Token").fill((await newTeam()).key);
    await operation.getByLabel("upload path").fill("01a200a6007316cfb20018cd.unknown");
    await operation.getByRole("button", { name: "Send request" }).click();
    await expect(operation.getByRole("status")).toHaveText("Response 404");
  });

  test("shows a rejected request and a failed one", async ({ openPage, problems }) => {
    problems.allow(401, OFFLINE);
    const page = await openPage({ path: "/reference" });
    const operation = page.locator("#updateFile");
    await operation.getByRole("button", { name: "Try it" }).click();
    await operation.getByLabel("Token").fill("wrong");
    await operation.getByLabel("id path").fill("01a200a6007316cfb20018cd");
    await operation.getByRole("button", { name: "Send request" }).click();
    await expect(operation.getByRole("status")).toHaveText("Response 401");
    await expect(operation.getByRole("region", { name: "Response" })).toContainText("token_invalid");
    await page.context().setOffline(true);
    await operation.getByRole("button", { name: "Send request" }).click();
    await expect(operation.getByRole("status")).toContainText("The request failed");
    await page.setViewportSize({ width: 320, height: 640 });
    await expectNoSidewaysScroll(page);
    if (!isExhaustive) return;
    await expectAccessible(operation, "target size");
    await page.emulateMedia({ colorScheme: "dark" });
    await expectAccessible(operation, "contrast");
  });

  exhaustive("works with only a keyboard", async ({ openPage }) => {
    const page = await openPage({ path: "/reference#listFiles" });
    await tabTo(page.locator("#listFiles").getByRole("button", { name: "Try it" }));
    await page.keyboard.press("Enter");
    await expect(page.locator("#listFiles").getByLabel("Token")).toBeFocused();
  });
});

describe("Rendering", () => {
  const described: OpenApi = {
    info: {
      title: "Test",
      version: "1",
      description: "Text with <b>markup</b>.\n\n## Start\n\n| A | B |\n|---|---|\n| `x` | ping |",
    },
    tags: [{ name: "Group", description: "One." }],
    paths: {
      "/ping": {
        get: { operationId: "ping", tags: ["Group"], summary: "Ping", responses: { 200: { description: "Pong." } } },
      },
    },
    webhooks: {
      "file.completed": {
        post: {
          summary: "A file is processed",
          requestBody: {
            content: {
              "application/json": {
                schema: { type: "object", properties: { seen: { $ref: "#/components/schemas/Seen" } } },
                example: { seen: { id: "1" } },
              },
            },
          },
          responses: { 200: { description: "Anything in 2xx." } },
        },
      },
    },
    components: { schemas: { Seen: { type: "object", properties: { id: { type: "string" } } } }, securitySchemes: {} },
  };

  exhaustive("shows the requests of webhooks", async ({ openPage }) => {
    const page = await openWithoutScript(await openPage(), renderReference(described));
    const request = page.locator("#webhook-file-completed");
    await expect(request.getByRole("heading", { name: "A file is processed" })).toBeVisible();
    await expect(request).toContainText("POST file.completed");
    await expect(request.locator("pre")).toContainText('"id": "1"');
    await expect(request.getByRole("link", { name: "Seen" })).toHaveAttribute("href", "#schema-Seen");
    await expect(page.locator(".index").getByRole("link", { name: "A file is processed" })).toBeVisible();
  });

  test("shows markup in the document as text, and links operations in tables", async ({ openPage }) => {
    const page = await openWithoutScript(await openPage(), renderReference(described));
    await expect(page.getByText("Text with <b>markup</b>.")).toBeVisible();
    await expect(page.locator("table").getByRole("link", { name: "ping" })).toHaveAttribute("href", "#ping");
  });

  test("fails if an operation has a tag that is not described", () => {
    expect(() => renderReference({ ...described, tags: [] })).toThrow('The tag "Group" of ping');
  });
});
