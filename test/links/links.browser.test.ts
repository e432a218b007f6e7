import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { silence } from "../support/browser/sounds.ts";
import { exhaustive, expect, type OpenPage, test } from "../support/browser/support.ts";
import { newTeam, sample, type Team, upload } from "../support/team.ts";

/* Links to files of users, opened in a browser. */

/** Another site, which embeds links. */
const SITE = "http://site.test/";
/** Reports to the site that the file runs, and what it can read. */
const SCRIPT = `fetch("${SITE}ran"); new Image().src = "${SITE}ran"; console.log("ran"); top.location = "${SITE}ran";`;
const HTML = `<!doctype html><title>ran</title><script>${SCRIPT}</script><img src="${SITE}ran">
<iframe src="/console"></iframe><form action="${SITE}ran"><input autofocus onfocus="${SCRIPT.replaceAll('"', "'")}"></form>`;
const SVG = `<svg xmlns="http://www.w3.org/2000/svg" onload='${SCRIPT}'><script>${SCRIPT}</script></svg>`;
const PDF = `%PDF-1.7
1 0 obj<</Type/Catalog/Pages 2 0 R/OpenAction<</S/JavaScript/JS(app.launchURL\\("${SITE}ran"\\))>>>>endobj
2 0 obj<</Type/Pages/Kids[3 0 R]/Count 1>>endobj
3 0 obj<</Type/Page/Parent 2 0 R/MediaBox[0 0 99 99]>>endobj
trailer<</Root 1 0 R>>`;
/** A playable WAV whose bytes are also a page. */
const POLYGLOT = Buffer.concat([sample("tone.wav"), Buffer.from(HTML)]);
const HOSTILE = {
  "page.html": [HTML, "text/html"],
  "image.svg": [SVG, "image/svg+xml"],
  "paper.pdf": [PDF, "application/pdf"],
  "code.js": [SCRIPT, "text/javascript"],
  "polyglot.wav": [POLYGLOT, "text/html"],
} as const;

const linkTo = async (team: Team, name: string, content: BlobPart) =>
  (await team.stowage.links.create(await upload(team, name, content), { disposition: "inline" })).url;

/** Opens a link in a tab and embeds it in a site in every way. @returns the growing set of effects: script, request, frame */
async function effectsOf(
  page: Page,
  link: string,
  change: (headers: Record<string, string>) => void = () => {},
): Promise<Set<string>> {
  const effects = new Set<string>();
  page.on("console", (message) => message.text() === "ran" && effects.add("script"));
  // Routes see only requests that no policy has blocked.
  const record = (pattern: string, effect: string) =>
    page.route(pattern, (route) => {
      effects.add(effect);
      return route.fulfill({ contentType: "text/html", body: "<p>Ran</p>" });
    });
  await record(`${SITE}ran`, "request");
  await record("**/console", "frame");
  await page.route("**/docs/v1/links/**", async (route) => {
    const response = await route.fetch();
    const headers = response.headers();
    change(headers);
    await route.fulfill({ response, headers });
  });
  const embedded = `<script src="${link}"></script><link rel="stylesheet" href="${link}"><iframe src="${link}"></iframe>
<object data="${link}"></object><embed src="${link}"><img src="${link}">`;
  await page.route(SITE, (route) => route.fulfill({ contentType: "text/html", body: embedded }));
  // A download rejects the navigation. The load event waits for everything that is embedded.
  for (const target of [link, SITE]) await page.goto(target).catch(() => undefined);
  return effects;
}

describe("A link to a recording", () => {
  exhaustive("lets a player seek to bytes that it has not loaded", async ({ openPage }) => {
    const link = await linkTo(await newTeam(), "long.wav", silence(120));
    // Like a page of the team's own, whose policy allows the link.
    const page = await openPage({ path: "/openapi.json", bypassCSP: true });
    const starts: (string | undefined)[] = [];
    page.on("response", (response) => {
      if (response.url() === link)
        starts.push(`${response.status()} ${response.headers()["content-range"]?.split("-")[0]}`);
    });
    const times = await page.evaluate(async (source) => {
      const audio = Object.assign(new Audio(), { preload: "metadata", src: source });
      const reached = (type: string) =>
        new Promise((done, fail) => {
          audio.addEventListener(type, done, { once: true });
          audio.addEventListener("error", () => fail(new Error(audio.error?.message)), { once: true });
        });
      await reached("loadedmetadata");
      const seeked = reached("seeked");
      audio.currentTime = 110;
      await seeked;
      return [audio.duration, audio.currentTime];
    }, link);
    expect(times).toEqual([120, 110]);
    expect(starts[0]).toBe("206 bytes 0");
    expect(starts.at(-1)).toMatch(/^206 bytes [1-9]/);
  });
});

describe("A link to a hostile file", () => {
  /** The browser's messages when it blocks a file, and each attempt of a file to reach the other site. */
  const BLOCKED = [/^Another host: http:\/\/site\.test\//, /^Blocked /, /^Refused to /];

  /** Opens each file without Content-Disposition and as the type that its sender wants. */
  const effectsWithout = async (openPage: OpenPage, headers: string[], files: Partial<typeof HOSTILE>) => {
    const team = await newTeam();
    const results = Object.entries(files).map(async ([name, [content, type]]) => {
      const link = await linkTo(team, name, content);
      return effectsOf(await openPage(), link, (sent) => {
        for (const header of headers) delete sent[header];
        sent["content-type"] = type;
      });
    });
    return Promise.all(results);
  };

  test("runs, requests, and frames nothing, even if it is not an attachment", async ({ openPage, problems }) => {
    problems.allow(...BLOCKED, /Content Security Policy/);
    const { "code.js": code, ...pages } = HOSTILE;
    const effects = await effectsWithout(openPage, ["content-disposition"], pages);
    // As a script of another site, it is blocked by its type, which the service chooses.
    const script = await linkTo(await newTeam(), "code.js", code[0]);
    for (const found of [...effects, await effectsOf(await openPage(), script)]) expect([...found]).toEqual([]);
  });

  test("runs without our headers, which shows that the files are hostile", async ({ openPage, problems }) => {
    problems.allow(...BLOCKED, /^Uncaught: $/);
    const { "paper.pdf": _, ...files } = HOSTILE;
    const unprotected = ["content-disposition", "content-security-policy", "x-content-type-options"];
    for (const effects of await effectsWithout(openPage, unprotected, files))
      await expect.poll(() => [...effects]).toContain("script");
  });
});
