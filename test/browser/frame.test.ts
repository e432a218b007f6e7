import { describe } from "vitest";
import { dropFiles } from "./dragging.ts";
import { findBarriers, findTooWide, tabTo, watchLayoutShift } from "./looks.ts";
import { settle } from "./problems.ts";
import { cutNetwork, expect, failRequests, test } from "./support.ts";

/* That the other tests of pages would see what they look for. */

describe("What goes wrong in a page", () => {
  const WRONGS: [string, () => unknown, RegExp][] = [
    ["an error in the console", () => console.error("so it is"), /so it is/],
    [
      "an exception",
      () =>
        void setTimeout(() => {
          throw new Error("so it is");
        }),
      /Not caught.*so it is/,
    ],
    ["a promise that fails", () => void Promise.reject(new Error("so it is")), /Not caught.*so it is/],
    ["a request that is refused", () => fetch("/nothing"), /404/],
    ["a style in the text", () => document.body.setAttribute("style", "color: red"), /Against the policy: style-src/],
    ["text as HTML", () => Object.assign(document.body, { innerHTML: "<p>" }), /Against the policy: require-trusted/],
    ["a request to another host", () => fetch("http://other.test/"), /Against the policy: connect-src/],
  ];
  test.for(WRONGS)("It is noticed: %s.", async ([, act, problem], { openPage, problems }) => {
    const page = await openPage();
    await page.evaluate(act).catch(() => undefined);
    await settle([page]);
    expect(problems.take().join("\n")).toMatch(problem);
  });

  test("A page that leads to another host is noticed.", async ({ openPage, problems }) => {
    const page = await openPage();
    await page.goto("http://other.test/").catch(() => undefined);
    expect(problems.take().join("\n")).toContain("Another host: http://other.test/");
  });

  test.fails("It fails the test.", async ({ openPage }) => {
    const page = await openPage();
    await page.evaluate(() => console.error("so it is"));
  });
});

describe("What keeps people from using a page", () => {
  test("It is found: no name, no contrast, too small, out of reach, too wide.", async ({ openPage }) => {
    const page = await openPage({ width: 320 });
    expect(await findBarriers(page)).toEqual([]);
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
    const barriers = (await findBarriers(page)).join("\n");
    for (const rule of ["image-alt", "color-contrast", "target-size"]) expect(barriers).toContain(rule);
    expect((await findTooWide(page)).join("\n")).toContain("400px");
    await tabTo(page.getByRole("button", { name: "Two" }));
    await expect(tabTo(page.getByRole("button", { name: "Three" }))).rejects.toThrow("can't be reached");
  });
});

test("What moves a page by itself is found.", async ({ openPage }) => {
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

describe("What tests do to a page", () => {
  test("Files and folders that are dropped arrive with their bytes.", async ({ openPage }) => {
    const page = await openPage();
    await page.evaluate(() => {
      addEventListener("dragover", (event) => event.preventDefault());
      addEventListener("drop", async (event) => {
        event.preventDefault();
        const entries = [...(event.dataTransfer?.items ?? [])].map((item) => item.webkitGetAsEntry());
        const told: string[] = [];
        for (const entry of entries as (FileSystemFileEntry | FileSystemDirectoryEntry)[]) {
          const files =
            "createReader" in entry
              ? await new Promise<FileSystemEntry[]>((done) => entry.createReader().readEntries(done))
              : [entry];
          for (const one of files as FileSystemFileEntry[]) {
            const file = await new Promise<File>((done) => one.file(done));
            told.push(`${one.fullPath}=${await file.text()}`);
          }
        }
        document.body.append(Object.assign(document.createElement("output"), { textContent: told.sort().join(" ") }));
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

  test("A page without a network reaches nothing until it has one again.", async ({ openPage }) => {
    const page = await openPage();
    const reach = () => page.evaluate(() => fetch("/openapi.json").then(({ ok }) => ok, String));
    for (const cut of [() => cutNetwork(page), () => failRequests(page, /openapi/)]) {
      const mend = await cut();
      expect(await reach()).toMatch("TypeError");
      await mend();
      expect(await reach()).toBe(true);
    }
  });
});
