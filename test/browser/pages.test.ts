import { gzipSync } from "node:zlib";
import { describe } from "vitest";
import { expect, storeOrigin, test, url } from "./support.ts";

/* How the pages and what they load are served, to a browser or to anybody else. */

const PAGES = ["/", "/console", "/console/files/01a200a6007316cfb20018cd", "/reference", "/reference/"];
const MAX_SCRIPT_BYTES = { "/console": 45_000, "/reference": 20_000 };
const MAX_STYLE_BYTES = 8_000;

const get = (path: string, accept = "text/html,*/*;q=0.8") =>
  fetch(new URL(path, url), { headers: { Accept: accept } });

/** The paths of a page's files: what its HTML names, and what its scripts import, at once or later. */
async function filesOf(page: string): Promise<string[]> {
  const html = await (await get(page)).text();
  const found = new Set([...html.matchAll(/"(\/assets\/[^"]+)"/g)].map(([, path]) => path ?? ""));
  for (const path of found) {
    if (!path.endsWith(".js")) continue;
    const script = await (await get(path)).text();
    // The client imports it to verify webhooks, which no page does.
    for (const [, name = ""] of script.matchAll(/(?:from|import)\s*\(?\s*["']\.\/([\w.-]+)["']/g))
      if (!name.startsWith("signatures-")) found.add(`/assets/${name}`);
  }
  return [...found];
}

/** All of one kind together, as they travel. */
async function compressedBytes(page: string, extension: string): Promise<number> {
  const paths = (await filesOf(page)).filter((path) => path.endsWith(extension));
  expect(paths.length, `files ${extension} of ${page}`).toBeGreaterThan(0);
  const files = await Promise.all(paths.map(async (path) => (await get(path)).arrayBuffer()));
  return files.reduce((sum, bytes) => sum + gzipSync(Buffer.from(bytes)).length, 0);
}

describe("A page", () => {
  test.for(PAGES)("%s is HTML that is asked for anew each time, under a strict policy.", async (path) => {
    const answer = await get(path);
    expect(answer.status).toBe(200);
    const headers = Object.fromEntries(answer.headers);
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

  test("Whoever does not ask for HTML hears at / that there is nothing.", async () => {
    for (const accept of ["*/*", "application/json"]) {
      const answer = await get("/", accept);
      expect(answer.status).toBe(404);
      expect(await answer.json()).toMatchObject({ status: false, code: "route_not_found" });
    }
  });

  test("A page that is not there is refused in the API's shape.", async () => {
    for (const path of ["/consoles", "/reference/x", "/console.html", "/index.html", "/_headers"]) {
      const answer = await get(path);
      expect(answer.status, path).toBe(404);
      expect(await answer.json()).toMatchObject({ code: "route_not_found" });
    }
  });
});

describe("What pages load", () => {
  test.for(["/", "/console", "/reference"])(
    "The files of %s have types, are kept for a day, and are not sniffed.",
    async (page) => {
      const paths = await filesOf(page);
      expect(paths.length).toBeGreaterThan(1);
      const types: Record<string, RegExp> = { js: /^text\/javascript/, css: /^text\/css/, svg: /^image\/svg\+xml/ };
      for (const path of paths) {
        const answer = await get(path, "*/*");
        expect(answer.status, path).toBe(200);
        expect(answer.headers.get("Content-Type"), path).toMatch(types[path.split(".").at(-1) ?? ""] ?? /^$/);
        expect(answer.headers.get("X-Content-Type-Options"), path).toBe("nosniff");
        expect(answer.headers.get("Cache-Control"), path).toBe("public, max-age=86400");
      }
    },
  );

  test("A page's script names its source map.", async () => {
    const script = (await filesOf("/console")).find((path) => path.includes("/console-") && path.endsWith(".js")) ?? "";
    const name = /sourceMappingURL=(\S+)\s*$/.exec(await (await get(script)).text())?.[1] ?? "";
    const { sources } = await (await get(new URL(name, new URL(script, url)).pathname)).json();
    expect(sources).toContainEqual(expect.stringMatching(/src\/console\/shell\.tsx$/));
  });

  test("An unknown file is not found, whoever asks.", async () => {
    for (const path of ["/assets/nothing.js", "/assets/console.js", "/assets/", "/assets/../console.html"]) {
      expect((await get(path)).status, path).toBe(404);
      expect((await get(path, "*/*")).status, path).toBe(404);
    }
  });

  test.for(Object.entries(MAX_SCRIPT_BYTES))(
    "The scripts of %s, with all that they import, stay within %d bytes compressed.",
    async ([page, maxBytes], { annotate }) => {
      const bytes = await compressedBytes(page, ".js");
      await annotate(`The scripts of ${page}: ${bytes} bytes compressed.`);
      expect(bytes).toBeLessThanOrEqual(maxBytes);
    },
  );

  test.for(["/", "/console", "/reference"])("The style of %s stays within 8 kB compressed.", async (page) => {
    expect(await compressedBytes(page, ".css")).toBeLessThanOrEqual(MAX_STYLE_BYTES);
  });
});
