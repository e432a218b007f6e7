import { gzipSync } from "node:zlib";
import { describe } from "vitest";
import { expectGoodLooks } from "../support/browser/appearance.ts";
import { expect, storeOrigin, test, url } from "../support/browser/support.ts";
import { newTeam, upload } from "../support/team.ts";

/* How the pages and their files are served, to browsers and other clients. */

const PAGES = ["/", "/console", "/console/files/01a200a6007316cfb20018cd", "/reference"];
/** The limit on the scripts that a browser loads before the console can be used. */
const MAX_SCRIPT_BYTES = 45_000;
const MAX_STYLE_BYTES = 9_000;
/** The same for the page of a file, with its player, and without the code of a transcript. */
const MAX_FILE_BYTES = 66_000;
/** Without the code of a transcript, which loads only if there is one. */
const MAX_SHARE_BYTES = 27_000;
/** The reference with its script and styles. It grows with each operation. */
const MAX_REFERENCE_BYTES = 64_000;

const kilobytes = (bytes: number) => `${bytes / 1000} kB`;

const get = (path: string, accept = "text/html,*/*;q=0.8") =>
  fetch(new URL(path, url), { headers: { Accept: accept } });

/**
 * The paths of the files that a page loads at once: those in its HTML, and those that its scripts import statically. Browsers
 * don't wait for the styles of forced colors.
 */
async function filesOf(page: string): Promise<string[]> {
  const html = (await (await get(page)).text()).replace(/<link [^>]*media="\(forced-colors: active\)">/, "");
  return withImports([...html.matchAll(/"(\/assets\/[^"]+)"/g)].map(([, path]) => path ?? ""));
}

async function withImports(paths: string[]): Promise<string[]> {
  const found = new Set(paths);
  for (const path of found) {
    if (!path.endsWith(".js")) continue;
    const script = await (await get(path)).text();
    for (const [, name = ""] of script.matchAll(/(?:from|import)\s*["']\.\/([\w.-]+)["']/g))
      found.add(`/assets/${name}`);
  }
  return [...found];
}

async function compressedBytes(paths: string[], extension: string): Promise<number> {
  const ofType = paths.filter((path) => path.endsWith(extension));
  expect(ofType.length, `files ${extension}`).toBeGreaterThan(0);
  const files = await Promise.all(ofType.map(async (path) => (await get(path)).arrayBuffer()));
  return files.reduce((sum, bytes) => sum + gzipSync(Buffer.from(bytes)).length, 0);
}

/** The compressed sizes of the scripts and the styles of a page. */
async function bytesOf(page: string): Promise<[scripts: number, styles: number]> {
  const paths = await filesOf(page);
  return [await compressedBytes(paths, ".js"), await compressedBytes(paths, ".css")];
}

describe("Page", () => {
  test.for(PAGES)("%s is revalidated HTML under a strict policy", async (path) => {
    const response = await get(path);
    expect(response.status).toBe(200);
    const headers = Object.fromEntries(response.headers);
    expect(headers).toMatchObject({
      "content-type": expect.stringMatching(/^text\/html/),
      "cache-control": "no-cache, no-transform",
      "x-content-type-options": "nosniff",
      "x-frame-options": "DENY",
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

  test("leads from an unknown page to the console and the reference, in a browser", async ({ openPage, problems }) => {
    problems.allow(404);
    const page = await openPage({ path: "/nothing-here" });
    await expect(page.getByRole("heading", { level: 1 })).toHaveText("This page doesn't exist");
    await expectGoodLooks(page, "not-found");
    for (const path of ["/docs/v1/nothing", "/auth/nothing"]) {
      await page.goto(path);
      await expect(page.locator("body")).toContainText("route_not_found");
    }
    await page.goto("/nothing-here");
    await page.getByRole("link", { name: "console" }).click();
    await expect(page).toHaveURL(/\/console$/);
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
    "%s loads files that have a media type, are cached for a day, and are not sniffed",
    async (page) => {
      const paths = await filesOf(page);
      expect(paths.length).toBeGreaterThan(1);
      const types: Record<string, RegExp> = {
        js: /^text\/javascript/,
        css: /^text\/css/,
        svg: /^image\/svg\+xml/,
        webp: /^image\/webp/,
      };
      for (const path of paths) {
        const response = await get(path, "*/*");
        expect(response.status, path).toBe(200);
        expect(response.headers.get("Content-Type"), path).toMatch(types[path.split(".").at(-1) ?? ""] ?? /^$/);
        expect(response.headers.get("X-Content-Type-Options"), path).toBe("nosniff");
        expect(response.headers.get("Cache-Control"), path).toBe("public, max-age=86400");
      }
    },
  );

  test("rejects other names of files with 404", async () => {
    for (const path of ["/assets/nothing.js", "/assets/console.js", "/assets/", "/assets/../console.html"]) {
      expect((await get(path)).status, path).toBe(404);
      expect((await get(path, "*/*")).status, path).toBe(404);
    }
  });

  test(`the console loads at most ${kilobytes(MAX_SCRIPT_BYTES)} of scripts and ${kilobytes(MAX_STYLE_BYTES)} of styles, compressed`, async ({
    annotate,
  }) => {
    const [scripts, styles] = await bytesOf("/console");
    await annotate(`The console loads ${scripts} bytes of scripts and ${styles} bytes of styles.`);
    expect(scripts).toBeLessThanOrEqual(MAX_SCRIPT_BYTES);
    expect(styles).toBeLessThanOrEqual(MAX_STYLE_BYTES);
  });

  test(`the page of a file loads at most ${kilobytes(MAX_FILE_BYTES)} of scripts, compressed`, async ({ annotate }) => {
    const first = await filesOf("/console");
    const texts = await Promise.all(
      first.filter((path) => path.endsWith(".js")).map(async (path) => (await get(path)).text()),
    );
    const [, name] = texts.join().match(/import\("\.\/(file-\w+\.js)"\)/) ?? [];
    const all = new Set([...first, ...(await withImports([`/assets/${name}`]))]);
    const bytes = await compressedBytes([...all], ".js");
    await annotate(`The page of a file loads ${bytes} bytes of scripts.`);
    expect(bytes).toBeLessThanOrEqual(MAX_FILE_BYTES);
  });

  test(`the page of a link loads at most ${kilobytes(MAX_SHARE_BYTES)}, compressed`, async ({ annotate }) => {
    const team = await newTeam();
    const { pageUrl } = await team.stowage.links.create(await upload(team, "a.txt", "a"));
    const [scripts, styles] = await bytesOf(new URL(pageUrl).pathname);
    await annotate(`The page of a link loads ${scripts} bytes of scripts and ${styles} bytes of styles.`);
    expect(scripts + styles).toBeLessThanOrEqual(MAX_SHARE_BYTES);
  });

  test(`the reference has at most ${kilobytes(MAX_REFERENCE_BYTES)} with its files, compressed`, async ({
    annotate,
  }) => {
    const html = gzipSync(await (await get("/reference")).text()).length;
    const [scripts, styles] = await bytesOf("/reference");
    await annotate(`The reference loads ${html} bytes of HTML, ${scripts} of scripts and ${styles} of styles.`);
    expect(html + scripts + styles).toBeLessThanOrEqual(MAX_REFERENCE_BYTES);
  });
});
