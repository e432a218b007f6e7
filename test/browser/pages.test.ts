import { gzipSync } from "node:zlib";
import { describe } from "vitest";
import { expectAccessible } from "./appearance.ts";
import { openConsole } from "./signed-in.ts";
import { expect, storeOrigin, test, url } from "./support.ts";

/* How the pages and their files are served, to browsers and other clients. */

const PAGES = ["/", "/console", "/console/files/01a200a6007316cfb20018cd"];
/** What a browser loads before the console can be used. The reference is a library of another size. */
const MAX_SCRIPT_BYTES = 45_000;
const MAX_STYLE_BYTES = 8_000;

const get = (path: string, accept = "text/html,*/*;q=0.8") =>
  fetch(new URL(path, url), { headers: { Accept: accept } });

/** The paths of the files that a page loads at once: those in its HTML, and those that its scripts import statically. */
async function filesOf(page: string): Promise<string[]> {
  const html = await (await get(page)).text();
  const found = new Set([...html.matchAll(/"(\/assets\/[^"]+)"/g)].map(([, path]) => path ?? ""));
  for (const path of found) {
    if (!path.endsWith(".js")) continue;
    const script = await (await get(path)).text();
    for (const [, name = ""] of script.matchAll(/(?:from|import)\s*["']\.\/([\w.-]+)["']/g))
      found.add(`/assets/${name}`);
  }
  return [...found];
}

/** The compressed size of all files with an extension. */
async function compressedBytes(page: string, extension: string): Promise<number> {
  const paths = (await filesOf(page)).filter((path) => path.endsWith(extension));
  expect(paths.length, `files ${extension} of ${page}`).toBeGreaterThan(0);
  const files = await Promise.all(paths.map(async (path) => (await get(path)).arrayBuffer()));
  return files.reduce((sum, bytes) => sum + gzipSync(Buffer.from(bytes)).length, 0);
}

describe("Page", () => {
  test.for(PAGES)("%s is revalidated HTML under a strict policy", async (path) => {
    const response = await get(path);
    expect(response.status).toBe(200);
    const headers = Object.fromEntries(response.headers);
    expect(headers).toMatchObject({
      "content-type": expect.stringMatching(/^text\/html/),
      "cache-control": "no-cache",
      "x-content-type-options": "nosniff",
      "x-frame-options": "SAMEORIGIN",
      "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin",
    });
    const policy = (headers["content-security-policy"] ?? "").split(/\s*;\s*/);
    expect(policy).toEqual(
      expect.arrayContaining([
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        `media-src ${storeOrigin}`,
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
        "require-trusted-types-for 'script'",
      ]),
    );
    expect(policy.join()).not.toMatch(/unsafe|\*/);
  });

  test("responds 404 at / unless the client accepts HTML", async () => {
    for (const accept of ["*/*", "application/json"]) {
      const response = await get("/", accept);
      expect(response.status).toBe(404);
      expect(await response.json()).toMatchObject({ status: false, code: "route_not_found" });
    }
  });

  test("responds to unknown pages in the shape of every error", async () => {
    for (const path of ["/consoles", "/reference/x", "/console.html", "/index.html", "/_headers"]) {
      const response = await get(path);
      expect(response.status, path).toBe(404);
      expect(await response.json()).toMatchObject({ code: "route_not_found" });
    }
  });
});

describe("Files of pages", () => {
  test.for(["/", "/console", "/reference"])(
    "of %s have a media type, are cached for a day, and are not sniffed",
    async (page) => {
      const paths = await filesOf(page);
      expect(paths.length).toBeGreaterThan(1);
      const types: Record<string, RegExp> = { js: /^text\/javascript/, css: /^text\/css/, svg: /^image\/svg\+xml/ };
      for (const path of paths) {
        const response = await get(path, "*/*");
        expect(response.status, path).toBe(200);
        expect(response.headers.get("Content-Type"), path).toMatch(types[path.split(".").at(-1) ?? ""] ?? /^$/);
        expect(response.headers.get("X-Content-Type-Options"), path).toBe("nosniff");
        expect(response.headers.get("Cache-Control"), path).toBe("public, max-age=86400");
      }
    },
  );

  test("are not found under other names", async () => {
    for (const path of ["/assets/nothing.js", "/assets/console.js", "/assets/", "/assets/../console.html"]) {
      expect((await get(path)).status, path).toBe(404);
      expect((await get(path, "*/*")).status, path).toBe(404);
    }
  });

  test("of the console stay within 45 kB of scripts and 8 kB of styles, compressed", async ({ annotate }) => {
    const [scripts, styles] = [await compressedBytes("/console", ".js"), await compressedBytes("/console", ".css")];
    await annotate(`The console loads ${scripts} bytes of scripts and ${styles} bytes of styles.`);
    expect(scripts).toBeLessThanOrEqual(MAX_SCRIPT_BYTES);
    expect(styles).toBeLessThanOrEqual(MAX_STYLE_BYTES);
  });
});

describe("Reference", () => {
  test("shows the operations and tries them with a token, isolated from the console's session", async ({
    openPage,
  }) => {
    const { page, key, teamId } = await openConsole(openPage, { path: "/usage", extraHTTPHeaders: {} });
    await page.goto("/reference");
    await expect(page.getByRole("heading", { name: /^Stowage/ })).toBeVisible();
    const storage = () => page.evaluate(() => [origin, sessionStorage.length]);
    await expect(storage()).rejects.toThrow(/sandboxed/);
    await page.getByRole("button", { name: "Authorize" }).click();
    const dialog = page.locator(".dialog-ux");
    await dialog.locator("input").first().fill(key);
    await dialog.getByRole("button", { name: "Apply credentials" }).first().click();
    await dialog.getByRole("button", { name: "Close" }).last().click();
    const operation = page.locator("#operations-Files-listFiles");
    await operation.locator("button").first().click();
    await operation.getByRole("button", { name: "Try it out" }).click();
    await operation.getByRole("button", { name: "Execute" }).click();
    await expect(operation.locator(".response .microlight").first()).toContainText('"data": []');
    for (const [title, text] of Object.entries({
      curl: "curl -X",
      JavaScript: "await fetch(",
      Python: "import requests",
    })) {
      await operation.locator(".request-snippets").getByText(title, { exact: true }).click();
      await expect(operation.locator(".request-snippets")).toContainText(text);
    }
    expect(teamId).toBeTruthy();
  });

  test("starts with a quickstart, and is accessible in both themes", async ({ openPage }) => {
    const page = await openPage({ path: "/reference", extraHTTPHeaders: {} });
    await expect(page.getByRole("heading", { name: "Quickstart" })).toBeVisible();
    await expect(page.getByText("-F file=@interview.mp3")).toBeVisible();
    for (const id of ["listFiles", "uploadFile", "setWaveform"])
      await page.locator(`#operations-Files-${id} button`).first().click();
    await expect(page.locator("#operations-Files-setWaveform .responses-wrapper")).toBeVisible();
    await expectAccessible(page);
    await page.emulateMedia({ colorScheme: "dark" });
    await expect(page.locator("html.dark-mode")).toBeVisible();
    await expectAccessible(page, "contrast");
    await page.setViewportSize({ width: 320, height: 640 });
    await expectAccessible(page, "target size");
  });
});
