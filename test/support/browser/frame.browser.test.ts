import type { Route } from "@playwright/test";
import { describe } from "vitest";
import { findAccessibilityIssues, findTooWide, tabTo, watchLayoutShift } from "./appearance.ts";
import { dropFiles } from "./dragging.ts";
import { respond } from "./fakes.ts";
import { OFFLINE, settle } from "./problems.ts";
import { cutNetwork, exhaustive, expect, failRequests, test } from "./support.ts";

/* Shows that the helpers of the browser tests find what they look for. */

describe("Problems", () => {
  const WRONGS: [string, () => unknown, RegExp][] = [
    ["an error in the console", () => console.error("on purpose"), /on purpose/],
    [
      "an exception",
      () =>
        void setTimeout(() => {
          throw new Error("on purpose");
        }),
      /Uncaught.*on purpose/,
    ],
    ["a promise that fails", () => void Promise.reject(new Error("on purpose")), /Uncaught.*on purpose/],
    ["a request that is refused", () => fetch("/nothing"), /404/],
    ["a style in the text", () => document.body.setAttribute("style", "color: red"), /Policy violation: style-src/],
    ["text as HTML", () => Object.assign(document.body, { innerHTML: "<p>" }), /Policy violation: require-trusted/],
    ["a request to another host", () => fetch("http://other.test/"), /Policy violation: connect-src/],
  ];
  test("reports errors, rejected requests, violations, and other hosts", async ({ openPage, problems }) => {
    const page = await openPage();
    for (const [name, act, problem] of WRONGS) {
      await page.evaluate(act).catch(() => undefined);
      let found = "";
      const collect = () => {
        found += problems.take().join("\n");
        return found;
      };
      await expect.poll(collect, name).toMatch(problem);
      // Nothing is left for the next one, or the end of the test.
      await settle([page]);
      problems.take();
    }
  });

  test("reports a navigation to another host", async ({ openPage, problems }) => {
    const page = await openPage();
    await page.goto("http://other.test/").catch(() => undefined);
    expect(problems.take().join("\n")).toContain("Another host: http://other.test/");
  });

  test.fails("fails the test whose page has a problem", async ({ openPage }) => {
    const page = await openPage();
    await page.evaluate(() => console.error("on purpose"));
  });
});

describe("Appearance checks", () => {
  exhaustive("find names, contrast, targets, controls, and widths that are wrong", async ({ openPage }) => {
    const page = await openPage({ width: 320 });
    expect(await findAccessibilityIssues(page)).toEqual([]);
    expect(await findTooWide(page)).toEqual([]);
    await page.evaluate(() => {
      const main = document.querySelector("main") as HTMLElement;
      const quiet = main.appendChild(document.createElement("p"));
      quiet.textContent = "Hard to read";
      quiet.style.color = "#ddd";
      main.appendChild(document.createElement("img")).src = "/assets/icon.svg";
      const buttons = main.appendChild(document.createElement("p"));
      for (const name of ["One", "Two", "Three"]) {
        const button = buttons.appendChild(document.createElement("button"));
        button.textContent = name;
        Object.assign(button.style, { width: "8px", height: "8px", padding: 0, border: 0, overflow: "hidden" });
        if (name === "Three") button.tabIndex = -1;
      }
      const wide = main.appendChild(document.createElement("div"));
      wide.style.width = "400px";
      wide.textContent = "Wide";
    });
    const issues = (await findAccessibilityIssues(page)).join("\n");
    for (const rule of ["image-alt", "color-contrast", "target-size"]) expect(issues).toContain(rule);
    expect((await findTooWide(page)).join("\n")).toContain("400px");
    await tabTo(page.getByRole("button", { name: "Two" }));
    await expect(tabTo(page.getByRole("button", { name: "Three" }))).rejects.toThrow("can't be reached");
  });
});

describe("Invented responses", () => {
  test("must have a status, fields, and a code that the OpenAPI document describes", async ({ openPage, problems }) => {
    problems.allow(/ERR_FAILED/);
    const page = await openPage();
    for (const [path, invented, problem] of [
      ["/docs/v1/uploads", { data: [] }, /^$/],
      ["/docs/v1/uploads", { data: [{ name: "one.txt" }] }, /differs from the OpenAPI document/],
      ["/docs/v1/uploads", { code: "folder_busy" }, /409 is not in the OpenAPI document/],
      ["/docs/v1/uploads", { code: "login_failed" }, /has no such code/],
      ["/auth/v1/nothing", { data: [] }, /is not in the OpenAPI document/],
    ] as const) {
      const responded = new Promise<string>((resolve) => {
        const answer = (route: Route) =>
          respond(route, invented).then(
            () => resolve(""),
            ({ message }) => resolve(message),
          );
        void page.route(path, answer, { times: 1 });
      });
      await page.evaluate((url) => fetch(url).catch(() => undefined), path);
      expect(await responded).toMatch(problem);
    }
  });
});

exhaustive("layout shifts are measured", async ({ openPage }) => {
  const page = await openPage();
  const shifted = await watchLayoutShift(page);
  await page.reload();
  expect(await shifted()).toBeLessThan(0.01);
  await page.evaluate(() => {
    const late = document.createElement("div");
    late.style.height = "200px";
    document.body.prepend(late);
  });
  await expect.poll(shifted).toBeGreaterThan(0.01);
});

describe("Simulated input", () => {
  exhaustive("drops files and folders with their bytes", async ({ openPage }) => {
    const page = await openPage();
    await page.evaluate(() => {
      addEventListener("dragover", (event) => event.preventDefault());
      addEventListener("drop", async (event) => {
        event.preventDefault();
        const entries = [...(event.dataTransfer?.items ?? [])].map((item) => item.webkitGetAsEntry());
        const found: string[] = [];
        for (const entry of entries as (FileSystemFileEntry | FileSystemDirectoryEntry)[]) {
          const files =
            "createReader" in entry
              ? await new Promise<FileSystemEntry[]>((done) => entry.createReader().readEntries(done))
              : [entry];
          for (const one of files as FileSystemFileEntry[]) {
            const file = await new Promise<File>((done) => one.file(done));
            found.push(`${one.fullPath}=${await file.text()}`);
          }
        }
        document.body.append(Object.assign(document.createElement("output"), { textContent: found.sort().join(" ") }));
      });
    });
    const bytes = (text: string) => new TextEncoder().encode(text);
    await dropFiles(page.getByRole("main"), {
      "a.txt": bytes("A"),
      "album/b.txt": bytes("B"),
      "album/c.txt": bytes("C"),
    });
    await expect(page.getByRole("status")).toHaveText("/a.txt=A /album/b.txt=B /album/c.txt=C");
  });

  exhaustive("disconnects a page until it is reconnected", async ({ openPage, problems }) => {
    problems.allow(OFFLINE);
    const page = await openPage();
    const reach = () => page.evaluate(() => fetch("/openapi.json").then(({ ok }) => ok, String));
    for (const cut of [() => cutNetwork(page), () => failRequests(page, /openapi/)]) {
      const reconnect = await cut();
      expect(await reach()).toMatch("TypeError");
      await reconnect();
      expect(await reach()).toBe(true);
    }
  });
});
