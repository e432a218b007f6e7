import type { Locator, Page } from "@playwright/test";
import { describe } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { expectAccessible, expectGoodLooks, findTooWide, tabTo } from "../support/browser/appearance.ts";
import { chooseAction, exhaustive, PASSWORD, test, uploadNamed } from "../support/browser/console.ts";
import { dropFiles } from "../support/browser/dragging.ts";
import { alter, fakeFiles, hold, respond } from "../support/browser/fakes.ts";
import { button, dialog, heading, link, names, player, row, rows, secondsOf } from "../support/browser/locators.ts";
import { tone } from "../support/browser/sounds.ts";
import { copyBy, expect, expectAnnounced, screenshot } from "../support/browser/support.ts";
import { collect, newTeam, sample, type Team, upload, url } from "../support/team.ts";

const namesOf = async (stowage: Stowage) => (await stowage.files.list()).items.map((file) => file.name);

describe("File list", () => {
  const NAMES = [
    "plain.mp3",
    "Интервью, часть первая.mp3",
    "🎧 late night.mp3",
    "مقابلة.mp3",
    `${"long".repeat(40)}.txt`,
  ];

  test("shows the title, artist, duration, size, and age of each file, newest first", async ({ at }) => {
    const team = await newTeam();
    await uploadNamed(team, ...NAMES);
    const { page } = await at("/files", { team });
    await expect(names(page)).toHaveText([...NAMES].reverse());
    await expect(row(page, "plain.mp3").getByRole("rowheader")).toHaveText("plain.mp3Übergröße·日本 – Stowage");
    const cells = row(page, "plain.mp3").getByRole("cell");
    await expect(cells).toHaveText(["", "", "0:02", "9.3 kB", /now|ago/, ""]);
    await expectGoodLooks(page, "files");
    // On a phone, the first file is visible without scrolling.
    await page.setViewportSize({ width: 375, height: 667 });
    await expect(row(page, NAMES.at(-1) ?? "")).toBeInViewport({ ratio: 1 });
    await expect(row(page, "plain.mp3").getByText("Übergröße·日本 – Stowage")).toBeVisible();
    for (const section of await page.getByRole("navigation").getByRole("link").all())
      await expect(section).toBeInViewport({ ratio: 1 });
    await page.setViewportSize({ width: 1280, height: 800 });
    // The whole row opens the file.
    await cells.filter({ hasText: "9.3 kB" }).click();
    await expect(heading(page, "plain.mp3")).toBeVisible();
  });

  test("shows the first letters of each name before the cut, on the narrowest phone", async ({ at }) => {
    const [broken, long, short] = ["broken export.mp3", "2024-11-03_open-water_swim_final_48k.mp3", "ah.wav"];
    const team = await newTeam();
    await upload(team, broken, "no audio");
    await upload(team, long, sample("tone-vbr.mp3"));
    await upload(team, short, tone(5));
    const { page } = await at("/files", { team, width: 320 });
    await button(page, `Play ${long}`).click();
    await chooseAction(page, `Actions for ${broken}`, "Select");
    await expect(row(page, broken).getByRole("checkbox")).toBeChecked();
    await expect(player(page).locator(".name")).toBeVisible();
    await screenshot(page, "names");
    /** Where each part of a name is, and whether its whole text fits. */
    const partsOf = (name: Locator) =>
      name.locator(".name > span").evaluateAll((parts) =>
        parts.map((part) => {
          const { left, right } = part.getBoundingClientRect();
          const text = document.createRange();
          text.selectNodeContents(part);
          const { fontSize, textOverflow } = getComputedStyle(part);
          const lacking = text.getBoundingClientRect().width - (right - left);
          return { left, right, width: right - left, size: Number.parseFloat(fontSize), lacking, textOverflow };
        }),
      );
    for (const name of [row(page, broken), row(page, long), row(page, short), player(page)]) {
      const parts = await partsOf(name);
      const inside = await name.locator(".name").evaluate((whole) => whole.getBoundingClientRect().right);
      for (const { right, width, size, lacking, textOverflow } of parts) {
        expect(right, `${name}`).toBeLessThanOrEqual(inside + 1);
        if (lacking < 0.5) continue;
        // An ellipsis, and letters before it.
        expect(textOverflow).toBe("ellipsis");
        expect(width, `${name}`).toBeGreaterThanOrEqual(1.8 * size);
      }
      // Nothing is between the parts of a short name.
      const [first, last] = parts;
      if (last && first && first.lacking < -0.5) throw new Error(`There is a gap in ${name}.`);
    }
    // Where there is room for some letters of the start, the end stays whole.
    expect((await partsOf(row(page, long))).map(({ lacking }) => lacking > 0.5)).toEqual([true, false]);
    // The count of the selected files is on one line.
    const count = page.getByRole("region", { name: "Selected files" }).getByRole("status");
    for (const text of ["1 selected", "100 selected"]) {
      const { lines, spare } = await count.evaluate((place, text) => {
        const shown = place.querySelector(".narrow-only") as HTMLElement;
        shown.textContent = text;
        const bar = place.parentElement as HTMLElement;
        const range = document.createRange();
        range.selectNodeContents(shown);
        return { lines: range.getClientRects().length, spare: bar.clientWidth - bar.scrollWidth };
      }, text);
      expect([lines, spare], text).toEqual([1, 0]);
    }
  });

  exhaustive(
    "stands as rows, and the page of a file as a player above lines, until they have loaded",
    async ({ at }) => {
      const { page } = await at("/usage", { files: ["one.txt"] });
      const skeleton = page.getByRole("status").filter({ hasText: "Loading…" });
      const heights = () =>
        skeleton.locator("span:not(.visually-hidden)").evaluateAll((rows) => rows.map((row) => row.clientHeight));
      const list = await hold(page, "GET", /\/docs\/v1\/uploads\?/);
      await link(page, "Files").click();
      await list.isHeld;
      await expect.poll(heights).toEqual(Array(8).fill(35));
      list.release();
      await expect(names(page)).toHaveText(["one.txt"]);
      await expect(skeleton).toHaveCount(0);
      const file = await hold(page, "GET", /\/metadata$/);
      await link(page, "one.txt").click();
      await file.isHeld;
      await expect.poll(heights).toEqual([196, ...Array(7).fill(35)]);
      file.release();
      await expect(heading(page, "one.txt")).toBeVisible();
      await expect(skeleton).toHaveCount(0);
    },
  );

  exhaustive("shows the sizes of more files than the event log lists", async ({ at }) => {
    const { page } = await at("/usage");
    await page.route(/\/auth\/v1\/events\?/, (route) => respond(route, { data: [] }));
    await page.route(/\/docs\/v1\/uploads\?/, (route) => respond(route, { data: fakeFiles(3) }));
    await link(page, "Files").click();
    await expect(page.getByRole("cell").filter({ hasText: "1.5 MB" })).toHaveCount(3);
  });

  exhaustive("sorts by name and by date, and keeps the order in the URL", async ({ at }) => {
    const { page } = await at("/files", { files: ["b2.txt", "B1.txt", "a.txt"] });
    await page.getByRole("button", { name: "Name" }).click();
    await expect(page.getByRole("rowheader")).toHaveText(["a.txt", "B1.txt", "b2.txt"]);
    await expect(page.getByRole("columnheader", { name: "Name" })).toHaveAttribute("aria-sort", "ascending");
    await expect(page).toHaveURL(/sort=name/);
    await page.getByRole("button", { name: "Name" }).click();
    await expect(page.getByRole("rowheader")).toHaveText(["b2.txt", "B1.txt", "a.txt"]);
    await expect(page.getByRole("columnheader", { name: "Name" })).toHaveAttribute("aria-sort", "descending");
    await button(page, "Uploaded").click();
    await expect(page.getByRole("rowheader")).toHaveText(["a.txt", "B1.txt", "b2.txt"]);
    await expect(page.getByRole("columnheader", { name: "Uploaded" })).toHaveAttribute("aria-sort", "descending");
    await button(page, "Uploaded").click();
    await expect(page.getByRole("rowheader")).toHaveText(["b2.txt", "B1.txt", "a.txt"]);
    await expect(page).toHaveURL(/sort=oldest/);
  });

  exhaustive("draws the peaks of a file without loading its waveform", async ({ at }) => {
    const team = await newTeam();
    const [id = ""] = await uploadNamed(team, "song.mp3");
    await team.stowage.files.setWaveform(id, [Array.from({ length: 100 }, (_, at) => (at < 50 ? 1 : 0.1))]);
    const { page } = await at("/usage", { team });
    const requests: string[] = [];
    page.on("request", (request) => requests.push(request.url()));
    await link(page, "Files").click();
    const path = row(page, "song.mp3").locator(".row-wave path");
    await expect(path).toHaveAttribute("d", /^M0\.5 0\.00v2\.00M/);
    const heights = [...((await path.getAttribute("d")) ?? "").matchAll(/v([\d.]+)/g)].map(([, height]) =>
      Number(height),
    );
    expect(heights).toEqual([...Array(28).fill(2), ...Array(28).fill(0.2)]);
    expect(requests.filter((url) => url.endsWith("/waveform"))).toEqual([]);
    // A click plays from there, and the played part is marked.
    const box = await row(page, "song.mp3").locator(".row-wave").boundingBox();
    await page.mouse.click((box?.x ?? 0) + (box?.width ?? 0) * 0.75, (box?.y ?? 0) + 5);
    await expect(row(page, "song.mp3").locator(".played")).toHaveCount(1);
  });

  exhaustive("finds a file by its artist, folder, tag, and reference, and names these fields", async ({ at }) => {
    const team = await newTeam();
    const [, id = ""] = await uploadNamed(team, "notes.txt", "song.mp3");
    await team.stowage.files.update(id, { folder: "box", tags: ["live"], reference: "episode-12" });
    const { page } = await at("/files", { team });
    const field = page.getByLabel("Search files");
    await expect(field).toHaveAttribute(
      "placeholder",
      "Search name, title, artist, tag, folder, reference, or transcript",
    );
    for (const text of ["stowage", "box", "live", "episode"]) {
      await field.fill(text);
      await expect(page).toHaveURL(new RegExp(`search=${text}$`));
      await expect(page.getByRole("rowheader")).toHaveCount(1);
      await expect(row(page, "song.mp3")).toBeVisible();
    }
    await field.fill("nowhere");
    await expect(page.getByRole("main")).toContainText(
      "every word in their name, title, artist, tags, folder, or reference",
    );
  });

  exhaustive("plays a file from its row while the user browses", async ({ at }) => {
    const team = await newTeam();
    const [id = ""] = await uploadNamed(team, "song.mp3", "notes.txt");
    await team.stowage.files.update(id, { tags: ["live", "raw"] });
    const { page } = await at("/files", { team });
    await expect(row(page, "notes.txt").getByRole("button", { name: "Play" })).toHaveCount(0);
    await page.getByRole("button", { name: "Play song.mp3" }).click();
    await expect.poll(() => secondsOf(page)).toBeGreaterThan(0);
    await expectAccessible(page);
    for (const tag of await row(page, "song.mp3").getByRole("listitem").getByRole("link").all())
      expect((await tag.boundingBox())?.height).toBeGreaterThanOrEqual(24);
    await link(page, "Usage").click();
    await expect(player(page).getByRole("link", { name: "song.mp3" })).toBeVisible();
    await expectAccessible(page);
    await player(page).getByRole("button", { name: "Close" }).click();
    await expect(player(page)).toHaveCount(0);
  });

  exhaustive("shows a new team its first steps, which tick themselves", async ({ at }) => {
    const { page, team } = await at("/files");
    await expect(page.getByRole("heading", { name: "No files yet" })).toBeVisible();
    await expect(page.getByRole("main").getByRole("button", { name: /^(Add|Upload)/ })).toHaveText([
      "Add",
      "Upload files",
    ]);
    await expectGoodLooks(page, "files-none");
    const steps = page.getByRole("main").getByRole("listitem");
    await expect(steps).toContainText(["Create a key", "Upload a recording", "Add a webhook"]);
    await copyBy(page.getByRole("button", { name: "Copy curl command" }), `${url}/docs/v1/uploads`);
    const done = steps.filter({ hasText: "(done)" });
    await expect(done).toHaveCount(0);
    await team.stowage.keys.create({ name: "website" });
    await expect(done).toHaveText([/Create a key/]);
    await team.stowage.webhooks.create({ url: "http://127.0.0.1:9/" });
    await expect(done).toHaveText([/Create a key/, /Add a webhook/]);
    await uploadNamed(team, "first.txt");
    await expect(steps).toHaveCount(0);
  });

  exhaustive("shows only the steps that the session may take, and no dragging on a touch screen", async ({ at }) => {
    const team = await newTeam();
    const { key } = await team.stowage.keys.create({ name: "files", scopes: ["files:read", "files:upload"] });
    const limited = { team: { ...team, key } };
    const { page } = await at("/files", limited);
    await expect(page.getByRole("main").getByRole("listitem")).toHaveText([/^Upload a recording/]);
    await expect(page.getByText("Drop recordings")).toBeVisible();
    const { page: tablet } = await at("/files", { ...limited, hasTouch: true, isMobile: true });
    await expect(tablet.getByRole("heading", { name: "No files yet" })).toBeVisible();
    await expect(tablet.getByText("Drop recordings")).toBeHidden();
  });

  exhaustive("keeps the status badge visible on a selected row", async ({ at }) => {
    const { page } = await at("/usage");
    const files = fakeFiles(2).map((file) => ({ ...file, status: "processing" }));
    await page.route(/\/docs\/v1\/uploads\?/, (route) => respond(route, { data: files }));
    await link(page, "Files").click();
    await page.getByRole("checkbox", { name: "Select Recording 1.mp3" }).check();
    const background = (locator: Locator) => locator.evaluate((element) => getComputedStyle(element).backgroundColor);
    const backgrounds = new Set<string>();
    for (const name of ["accent-soft", "warning-soft", "danger-soft", "selected"])
      backgrounds.add(
        await page.evaluate((variable) => {
          const probe = document.body.appendChild(document.createElement("i"));
          probe.style.background = `var(--${variable})`;
          const { backgroundColor } = getComputedStyle(probe);
          probe.remove();
          return backgroundColor;
        }, name),
      );
    expect(backgrounds.size).toBe(4);
    expect(await background(row(page, "Recording 1.mp3"))).toBe([...backgrounds].at(-1));
  });

  exhaustive("loads at most five pages of a link at once", async ({ at }) => {
    const { page } = await at("/usage");
    const requests: string[] = [];
    await page.route(/\/docs\/v1\/uploads\?/, (route) => {
      requests.push(route.request().url());
      const headers = { Link: `<${url}/docs/v1/uploads?cursor=${requests.length}>; rel="next"` };
      return respond(route, { headers, data: fakeFiles(1, requests.length) });
    });
    await page.evaluate(() => history.pushState(null, "", "/console/files?pages=100"));
    await page.goBack();
    await page.goForward();
    // One file per page.
    await expect(page.getByRole("rowheader")).toHaveCount(5);
  });

  test("filters the list, keeps the filters in the URL, and clears them", async ({ at }) => {
    const { page } = await at("/files?type=text+file", { files: ["song.mp3", "notes.txt", "Other.txt"] });
    await expect(names(page)).toHaveText(["Other.txt", "notes.txt"]);
    await page.getByLabel("Search files").fill("NO");
    await expect(names(page)).toHaveText(["notes.txt"]);
    await expect(page).toHaveURL(/\/console\/files\?type=text\+file&search=NO$/);
    // Few need it. It stays once it is used.
    const [more, status] = [button(page, "More filters"), page.getByRole("combobox", { name: "Status" })];
    await expect(status).toHaveCount(0);
    await more.click();
    await status.selectOption("Failed");
    await more.click();
    await expect(button(page, /^Uploaded by/)).toHaveCount(0);
    await expect(status).toHaveValue("failed");
    await expect(page.getByRole("heading", { name: "No files found for “NO”" })).toBeVisible();
    await status.selectOption("All statuses");
    await expect(names(page)).toHaveText(["notes.txt"]);
    await expect(status).toHaveValue("");
    const clear = page.getByRole("main").getByRole("link", { name: "Clear filters" }).first();
    await clear.click();
    await expect(names(page)).toHaveText(["Other.txt", "notes.txt", "song.mp3"]);
    await expect(page.getByLabel("Search files")).toHaveValue("");
    await expect(page).toHaveURL(/\/console\/files$/);
    const day = await page.evaluate(() => new Date().toLocaleDateString("sv"));
    await page.getByText("Any date", { exact: true }).click();
    await page.getByLabel("Uploaded after").fill(day);
    await page.getByLabel("Uploaded before").fill(day);
    await expect(page).toHaveURL(new RegExp(`from=${day}&until=${day}$`));
    await expect(page.getByRole("rowheader")).toHaveCount(3);
    await page.getByLabel("Uploaded before").fill("2020-02-02");
    await expect(page.getByRole("heading", { name: "No matching files" })).toBeVisible();
    // Text that is typed while the URL changes is not lost.
    const field = page.getByLabel("Search files");
    await field.fill("x");
    await expect(page).toHaveURL(/search=x$/);
    await field.evaluate(
      (input: HTMLInputElement, link) => {
        (link as HTMLElement).click();
        input.value = "son";
        input.dispatchEvent(new InputEvent("input", { bubbles: true }));
      },
      await clear.elementHandle(),
    );
    await expect(page).toHaveURL(/\/console\/files\?search=son$/);
    await expect(names(page)).toHaveText(["song.mp3"]);
    await expect(field).toHaveValue("son");
  });

  exhaustive("filters by the user who uploaded a file, found by name or from its page", async ({ at }) => {
    const team = await newTeam();
    await uploadNamed(team, "by a key.txt");
    const login = { email: "ada@example.com", password: PASSWORD };
    const names = { firstName: "Ada", lastName: "Lovelace" };
    const { _id } = await team.stowage.users.create({ ...login, ...names, role: "member" });
    const { key } = await new Stowage({ url, key: null }).logIn({ teamId: team.teamId, ...login });
    await new Stowage({ url, key }).files.upload(new File(["mine"], "by Ada.txt"));
    for (const firstName of ["Ben", "Cleo"])
      await team.stowage.users.create({ firstName, lastName: "", email: `${firstName}@example.com`, role: "viewer" });
    const { page } = await at("/files", { team });
    // As if the team had more users than the API lists at once.
    const isFirstPage = ({ pathname, searchParams }: URL) =>
      pathname === "/auth/v1/users" && !/name|email|cursor/.test(`${searchParams}`);
    await page.route(isFirstPage, (route) => {
      const asked = new URL(route.request().url());
      asked.searchParams.set("limit", "1");
      return route.continue({ url: asked.href });
    });
    await expect(page.getByRole("rowheader")).toHaveText(["by Ada.txt", "by a key.txt"]);
    await button(page, "More filters").click();
    const choice = page.getByRole("button", { name: "Uploaded by" });
    await choice.click();
    const users = page.locator("[popover] .menu button");
    await expect(users).toHaveText(["All users", "Ada Lovelace"]);
    await page.getByLabel("Find a user").fill("Cleo");
    await expect(users).toHaveText(["Cleo"]);
    await page.getByLabel("Find a user").fill("x");
    await expect(
      page.getByText("No matches. Enter a full email address, or the start of a name, with the same capital letters."),
    ).toBeVisible();
    await page.getByLabel("Find a user").fill("ada@example.com");
    await expect(users).toHaveText(["Ada Lovelace"]);
    await users.click();
    await expect(page.getByRole("rowheader")).toHaveText(["by Ada.txt"]);
    await expect(page).toHaveURL(new RegExp(`user=${_id}$`));
    await expectGoodLooks(page, "files-of-user");
    await link(page, "by Ada.txt").click();
    await expect(page.getByRole("main")).toContainText("by Ada Lovelace");
    await page.getByRole("main").getByRole("link", { name: "Ada Lovelace" }).click();
    await expect(page.getByRole("rowheader")).toHaveText(["by Ada.txt"]);
    await expect(choice).toHaveText("Ada Lovelace");
    await choice.click();
    await users.filter({ hasText: "All users" }).click();
    await link(page, "by a key.txt").click();
    await expect(page.getByRole("main")).toContainText("by test");
  });

  exhaustive("shows changes by others, and moves the focus if its row disappears", async ({ at }) => {
    const team = await newTeam();
    const { stowage } = team;
    const [first = "", second = ""] = await uploadNamed(team, "first.mp3", "second.mp3");
    const { page } = await at("/files", { team });
    await expect(names(page)).toHaveText(["second.mp3", "first.mp3"]);
    await link(page, "second.mp3").focus();
    await uploadNamed(team, "third.mp3");
    await expect(row(page, "third.mp3")).toContainText("0:02");
    expect(await names(page).allTextContents()).toEqual(["third.mp3", "second.mp3", "first.mp3"]);
    await stowage.files.delete(second);
    await expect(names(page)).toHaveText(["third.mp3", "first.mp3"]);
    await expect(link(page, "first.mp3")).toBeFocused();
    await stowage.files.reprocess(first);
    await expect.poll(async () => (await stowage.files.get(first)).status).toBe("completed");
    await expect(row(page, "first.mp3")).not.toContainText("Queued");
  });

  exhaustive("adds a file to a filtered list when its status matches", async ({ at }) => {
    const { page, team } = await at("/files?status=completed&search=a.");
    const none = page.getByRole("heading", { name: "No files found for “a.”" });
    await expect(none).toBeVisible();
    // The other empty state appears only once it is certain.
    const held: (() => Promise<void>)[] = [];
    await page.route(/\/docs\/v1\/uploads\?/, (route) => {
      held.push(() => route.continue());
    });
    await link(page, "Clear filters").first().click();
    await expect.poll(() => held.length).toBe(1);
    await expect(page.getByRole("heading", { name: "No files yet" })).toHaveCount(0);
    await expect(none).toBeVisible();
    await held[0]?.();
    await expect(page.getByRole("heading", { name: "No files yet" })).toBeVisible();
    await page.unroute(/\/docs\/v1\/uploads\?/);
    await page.goBack();
    await expect(none).toBeVisible();
    await uploadNamed(team, "a.mp3", "b.mp3", "aa.mp3");
    await expect(names(page)).toHaveText(["a.mp3", "aa.mp3"]);
  });

  exhaustive("loads more pages, and shows them again when the user returns from a file", async ({ at }) => {
    const { page } = await at("/usage", { files: ["1.txt", "2.txt", "3.txt", "4.txt", "5.txt"] });
    // Two files per page.
    await page.route(/\/docs\/v1\/uploads\?/, (route) =>
      route.continue({ url: route.request().url().replace("limit=100", "limit=2") }),
    );
    await link(page, "Files").click();
    await expect(page.getByRole("rowheader")).toHaveText(["5.txt", "4.txt"]);
    const more = page.getByRole("button", { name: "Load more" });
    await tabTo(more);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("rowheader")).toHaveText(["5.txt", "4.txt", "3.txt", "2.txt"]);
    await expect(more).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(more).toHaveCount(0);
    await expect(link(page, "1.txt")).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(heading(page, "1.txt")).toBeFocused();
    await page.goBack();
    await expect(page.getByRole("rowheader")).toHaveCount(5);
    await expect(link(page, "1.txt")).toBeFocused();
  });

  exhaustive("lets the user leave while the next page loads", async ({ at }) => {
    const { page } = await at("/usage", { files: ["1.txt", "2.txt"] });
    await page.route(/\/docs\/v1\/uploads\?/, (route) => {
      const asked = route.request().url().replace("limit=100", "limit=1");
      // The second page never arrives.
      return asked.includes("cursor=") ? undefined : route.continue({ url: asked });
    });
    await link(page, "Files").click();
    const asking = page.waitForRequest(/cursor=/);
    await page.getByRole("button", { name: "Load more" }).click();
    await asking;
    const ended = page.waitForEvent("requestfailed", (request) => request.url().includes("cursor="));
    await link(page, "Users").click();
    await ended;
    await page.evaluate(() => new Promise(requestAnimationFrame));
    await expect(page).toHaveURL(/\/console\/users$/);
    await expect(heading(page, "Users")).toBeVisible();
  });

  exhaustive("handles two thousand files by keyboard, and selects all of them", async ({ at }) => {
    const { page } = await at("/usage");
    const files = fakeFiles(2000);
    await page.route(/\/docs\/v1\/uploads\?/, (route) => respond(route, { data: files }));
    await link(page, "Files").click();
    await expect(page.getByRole("rowheader")).toHaveCount(2000);
    const last = link(page, "Recording 1.mp3");
    await last.focus();
    await expect(last).toBeInViewport();
    await tabTo(page.getByRole("checkbox", { name: "Select Recording 1.mp3" }), "Shift+Tab");
    await page.keyboard.press("Space");
    await expect(page.getByRole("button", { name: "Delete 1 file" })).toBeInViewport();
    await page.getByRole("checkbox", { name: "Select all" }).check();
    await expect(page.getByRole("button", { name: "Delete 2,000 files" })).toBeVisible();
    await page.getByRole("button", { name: "Delete 2,000 files" }).click();
    await expect(dialog(page)).toContainText("and 1,995 more");
    await page.keyboard.press("Escape");
    await expect(page.getByRole("button", { name: "Delete 2,000 files" })).toBeFocused();
  });
});

describe("File list by keyboard, and its layout", () => {
  exhaustive("plays on through the list, and skips by keyboard", async ({ at }) => {
    const { page } = await at("/files", { files: ["third.mp3", "notes.txt", "second.mp3", "first.mp3"] });
    await page.getByRole("button", { name: "Play first.mp3" }).click();
    // The text between them is passed over.
    await expect(player(page).getByRole("link", { name: "second.mp3" })).toBeVisible();
    await expect(player(page).getByRole("link", { name: "third.mp3" })).toBeVisible();
    await expect(page.getByRole("button", { name: "Play third.mp3" }).first()).toBeVisible();
    await page.getByRole("heading", { level: 1 }).click();
    await page.keyboard.press("p");
    await expect(player(page).getByRole("link", { name: "second.mp3" })).toBeVisible();
  });

  exhaustive("moves between rows by arrow keys, and selects ranges with Shift", async ({ at }) => {
    const { page } = await at("/files", { files: ["4.txt", "3.txt", "2.txt", "1.txt"] });
    await expect(names(page)).toHaveText(["1.txt", "2.txt", "3.txt", "4.txt"]);
    await page.keyboard.press("ArrowDown");
    await expect(link(page, "1.txt")).toBeFocused();
    await page.keyboard.press("j");
    await expect(link(page, "2.txt")).toBeFocused();
    // The Tab key skips the controls of other rows.
    await tabTo(page.getByRole("button", { name: "Actions for 2.txt" }));
    await page.keyboard.press("Tab");
    expect(await page.evaluate(() => document.activeElement?.closest("tbody"))).toBeNull();
    const bar = page.getByRole("region", { name: "Selected files" });
    await page.getByRole("checkbox", { name: "Select 1.txt" }).click();
    await page.getByRole("checkbox", { name: "Select 3.txt" }).click({ modifiers: ["Shift"] });
    await expect(bar.getByRole("status")).toContainText("3 files selected");
    await expectAccessible(page);
    await page.getByRole("heading", { level: 1 }).click();
    await page.keyboard.press("Escape");
    await expect(bar).toHaveCount(0);
    // However fast they follow, each press moves by one row.
    await link(page, "1.txt").focus();
    await page.evaluate(() => {
      for (const key of ["j", "j", "j", "k"])
        document.activeElement?.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    });
    await expect(link(page, "3.txt")).toBeFocused();
  });

  exhaustive(
    "shows each file of a range as selected, also one whose box is clicked again with Shift",
    async ({ at }) => {
      const { page } = await at("/files", { files: ["3.txt", "2.txt", "1.txt"] });
      const box = (name: string) => page.getByRole("checkbox", { name: `Select ${name}` });
      await box("1.txt").click();
      await box("3.txt").click({ modifiers: ["Shift"] });
      await box("2.txt").click({ modifiers: ["Shift"] });
      await expect(page.getByRole("region", { name: "Selected files" })).toContainText("3 files selected");
      for (const name of ["1.txt", "2.txt", "3.txt"]) await expect(box(name)).toBeChecked();
      await box("2.txt").click();
      await expect(box("2.txt")).not.toBeChecked();
    },
  );

  exhaustive("downloads each of the selected files, and never asks whether to leave the page", async ({ at }) => {
    const { page } = await at("/files", { files: ["3.txt", "2.txt", "1.txt"] });
    // As it does while an upload is being sent.
    await page.evaluate(() => addEventListener("beforeunload", (event) => event.preventDefault()));
    const asked: string[] = [];
    page.on("dialog", (question) => {
      asked.push(question.type());
      void question.accept();
    });
    const saved: string[] = [];
    page.on("download", (download) => saved.push(download.suggestedFilename()));
    await page.getByRole("checkbox", { name: "Select all" }).check();
    await page.getByRole("region", { name: "Selected files" }).getByRole("button", { name: "Download" }).click();
    await expect.poll(() => saved.toSorted()).toEqual(["1.txt", "2.txt", "3.txt"]);
    expect(asked).toEqual([]);
    await expect(names(page)).toHaveCount(3);
  });

  exhaustive("says that other files aren't loaded if all loaded files are selected", async ({ at }) => {
    const { page } = await at("/usage");
    const headers = { Link: `<${url}/docs/v1/uploads?cursor=2>; rel="next"` };
    await page.route(/\/docs\/v1\/uploads\?/, (route) => respond(route, { data: fakeFiles(3), headers }));
    await link(page, "Files").click();
    await page.getByRole("checkbox", { name: "Select all" }).check();
    const bar = page.getByRole("region", { name: "Selected files" });
    await expect(bar).toContainText("3 files selected");
    await expect(bar).toContainText("More files aren't loaded");
    await page.getByRole("checkbox", { name: "Select Recording 1.mp3" }).uncheck();
    await expect(bar).not.toContainText("More files aren't loaded");
  });

  exhaustive("ends above the bar of selected files, which is one row on a phone", async ({ at }) => {
    const { page } = await at("/usage");
    const headers = { Link: `<${url}/docs/v1/uploads?cursor=2>; rel="next"` };
    await page.route(/\/docs\/v1\/uploads\?/, (route) => respond(route, { headers, data: fakeFiles(30) }));
    await link(page, "Files").click();
    await page.getByRole("checkbox", { name: "Select all" }).check();
    const bar = page.getByRole("region", { name: "Selected files" });
    await expect(bar).toBeVisible();
    for (const [width, height, barHeight, count] of [
      [1280, 800, 60, /^30 files selected/],
      [390, 844, 56, "30 selected"],
      [320, 640, 56, "30 selected"],
    ] as const) {
      await page.setViewportSize({ width, height });
      await page.evaluate(() => scrollTo(0, document.body.scrollHeight));
      const [more, place] = [
        await page.getByRole("button", { name: "Load more" }).boundingBox(),
        await bar.boundingBox(),
      ];
      expect((more?.y ?? 0) + (more?.height ?? 0), `${width}`).toBeLessThan(place?.y ?? 0);
      expect(place?.height).toBeLessThanOrEqual(barHeight);
      await expect(bar.getByRole("status")).toHaveText(count, { useInnerText: true });
      await expectAccessible(page, "target size");
    }
  });

  exhaustive(
    "has its menus as sheets at the bottom of a phone, and beside their buttons on a wide page",
    async ({ at }) => {
      const { page } = await at("/files", { files: ["one.txt"], width: 390, height: 844 });
      const menu = page.getByRole("menu");
      const boxOf = async () => (await menu.boundingBox()) ?? { x: 0, y: 0, width: 0, height: 0 };
      await button(page, "Actions for one.txt").click();
      await expect.poll(boxOf).toMatchObject({ x: 8, width: 374 });
      const { y, height } = await boxOf();
      expect(y + height).toBe(836);
      await expectAccessible(page);
      await page.keyboard.press("Escape");
      await page.setViewportSize({ width: 1280, height: 800 });
      await button(page, "Actions for one.txt").click();
      const { x, width = 0 } = (await button(page, "Actions for one.txt").boundingBox()) ?? { x: 0 };
      await expect.poll(async () => (await boxOf()).x + (await boxOf()).width).toBeCloseTo(x + width, 0);
      expect((await boxOf()).width).toBeLessThan(374);
    },
  );

  exhaustive("forgets the selection when another folder is opened", async ({ at }) => {
    const team = await newTeam();
    const [inside = ""] = await uploadNamed(team, "inside.txt", "outside.txt");
    await team.stowage.files.update(inside, { folder: "box" });
    const { page } = await at("/files", { team });
    await page.getByRole("checkbox", { name: "Select outside.txt" }).check();
    await link(page, "box").click();
    await expect(names(page)).toHaveText(["inside.txt"]);
    await page.goBack();
    await expect(names(page)).toHaveText(["outside.txt"]);
    await expect(page.getByRole("checkbox", { name: "Select outside.txt" })).not.toBeChecked();
  });

  exhaustive("says that dragged files could not be moved", async ({ at, problems }) => {
    problems.allow(403);
    const team = await newTeam();
    const [inside = ""] = await uploadNamed(team, "inside.txt", "outside.txt");
    await team.stowage.files.update(inside, { folder: "box" });
    const { page } = await at("/files", { team });
    await page.route("**/uploads/batch", (route) => respond(route, { code: "forbidden", message: "Not yours." }));
    await row(page, "outside.txt").dragTo(link(page, "box"));
    await expect(page.getByText("Not yours.")).toBeVisible();
    await expectAccessible(page);
  });

  exhaustive("closes the dates by Escape and by a click outside", async ({ at }) => {
    const { page } = await at("/files", { files: ["one.txt"] });
    const field = page.getByLabel("Uploaded after");
    await page.getByRole("button", { name: "Any date" }).click();
    await expect(field).toBeVisible();
    await page.keyboard.press("Escape");
    await expect(field).toHaveCount(0);
    await page.getByRole("button", { name: "Any date" }).click();
    await expect(field).toBeVisible();
    await page.getByRole("heading", { level: 1 }).click();
    await expect(field).toHaveCount(0);
    await page.getByRole("button", { name: "Any date" }).click();
    await page.getByRole("button", { name: "Today" }).click();
    await expect(page).toHaveURL(/from=\d{4}-\d\d-\d\d$/);
    await expect(names(page)).toHaveText(["one.txt"]);
  });

  test("shortens a long name in its middle, and copies all of it", async ({ at }) => {
    const name = "2026-11-14 Field recording from the harbor at dawn, take 3 (final) v12.mp3";
    const { page } = await at("/files", { files: [name], width: 320 });
    const end = link(page, name).getByText("v12.mp3", { exact: true });
    const isComplete = () => end.evaluate((part) => part.scrollWidth <= part.clientWidth && part.clientWidth > 0);
    expect(await isComplete()).toBe(true);
    expect(await findTooWide(page)).toEqual([]);
    const [place, shown] = [await row(page, name).boundingBox(), await end.boundingBox()];
    expect((shown?.x ?? 0) + (shown?.width ?? 0)).toBeLessThan((place?.x ?? 0) + (place?.width ?? 0));
    // The rows of this list are dragged, so no text in them can be selected.
    await page.goto("/console/events");
    const copied = await link(page, name).evaluate((target) => {
      getSelection()?.selectAllChildren(target);
      const clipboardData = new DataTransfer();
      const event = new ClipboardEvent("copy", { clipboardData, bubbles: true, cancelable: true });
      target.querySelector("span")?.dispatchEvent(event);
      return clipboardData.getData("text/plain");
    });
    expect(copied).toBe(name);
  });

  exhaustive("has rows of one height and fits a phone, whatever names and tags contain", async ({ at }) => {
    const team = await newTeam();
    const word = "unbreakable".repeat(6);
    const ids = await uploadNamed(team, `${word}.mp3`, "plain.mp3");
    // Has a badge.
    ids.push(await upload(team, `no audio ${word}.mp3`, "text"));
    for (const id of ids)
      await team.stowage.files.update(id, { tags: [word.slice(0, 60), "second", "third"], folder: "" });
    const { page } = await at("/files", { team });
    await expect(row(page, "plain.mp3").getByRole("listitem")).toHaveText([word.slice(0, 60), "second", "+1"]);
    const heights = () =>
      page.locator("tbody tr").evaluateAll((rows) => [...new Set(rows.map(({ clientHeight }) => clientHeight))]);
    /** Names and tags that are outside their row. */
    const outside = () =>
      page.locator("tbody tr").evaluateAll((rows) =>
        rows.flatMap((row) => {
          const { top, bottom } = row.getBoundingClientRect();
          return [...row.querySelectorAll("a, .badge")].filter((part) => {
            const box = part.getBoundingClientRect();
            return box.height > 0 && (box.top < top || box.bottom > bottom);
          });
        }),
      );
    expect(await heights()).toHaveLength(1);
    expect(await outside()).toEqual([]);
    // All is in one line if there is room.
    await page.setViewportSize({ width: 1440, height: 900 });
    expect((await heights())[0]).toBeLessThanOrEqual(41);
    expect(await outside()).toEqual([]);
    await page.setViewportSize({ width: 1024, height: 768 });
    expect(await heights()).toHaveLength(1);
    expect(await outside()).toEqual([]);
    await page.setViewportSize({ width: 768, height: 1024 });
    await expect(page.getByRole("button", { name: "Filters" })).toBeVisible();
    expect(await heights()).toHaveLength(1);
    expect(await outside()).toEqual([]);
    expect((await page.getByLabel("Search files").boundingBox())?.width).toBeGreaterThan(300);
    await page.setViewportSize({ width: 320, height: 640 });
    expect(await findTooWide(page)).toEqual([]);
    await chooseAction(page, "Actions for plain.mp3", "Edit tags");
    await expect(dialog(page).getByRole("checkbox", { name: word.slice(0, 60) })).toBeChecked();
    expect(await dialog(page).evaluate((box) => box.scrollWidth - box.clientWidth)).toBe(0);
    await page.keyboard.press("Escape");
    await link(page, "plain.mp3").click();
    await expect(heading(page, "plain.mp3")).toBeVisible();
    await expect(page.getByText(word.slice(0, 60))).toBeVisible();
    expect(await findTooWide(page)).toEqual([]);
  });
});

describe("Deleting files", () => {
  test("asks for confirmation, and deletes only the selected files", async ({ at }) => {
    const { page, team } = await at("/files", { files: ["keep.txt", "one.txt", "two.txt"] });
    await tabTo(page.getByRole("checkbox", { name: "Select two.txt" }));
    await page.keyboard.press("Space");
    await page.keyboard.press("ArrowDown");
    await expect(link(page, "one.txt")).toBeFocused();
    await page.keyboard.press("x");
    await tabTo(page.getByRole("button", { name: "Delete 2 files" }));
    await page.keyboard.press("Enter");
    await expect(dialog(page)).toHaveAccessibleName("Delete 2 files?");
    await expect(dialog(page).getByRole("listitem")).toHaveText(["two.txt", "one.txt"]);
    await expectAccessible(page);
    await page.keyboard.press("Escape");
    await expect(page.getByRole("button", { name: "Delete 2 files" })).toBeFocused();
    expect(await namesOf(team.stowage)).toHaveLength(3);
    await page.keyboard.press("Enter");
    await tabTo(dialog(page).getByRole("button", { name: "Delete 2 files" }));
    await page.keyboard.press("Enter");
    await expectAnnounced(page, "Deleted 2 files");
    await expect(page.getByRole("rowheader")).toHaveText(["keep.txt"]);
    await expect(page.getByRole("heading", { level: 1 })).toBeFocused();
    expect(await namesOf(team.stowage)).toEqual(["keep.txt"]);
  });

  test("follows the list on after the deletion of a file whose ID is searched for", async ({ at }) => {
    const team = await newTeam();
    const [id = "", other = ""] = await uploadNamed(team, "one.txt", "two.txt");
    await team.stowage.files.update(id, { name: `${id} one.txt` });
    const { page } = await at(`/files?search=${id}`, { team });
    await expect(rows(page)).toHaveText([`${id} one.txt`]);
    await chooseAction(page, `Actions for ${id} one.txt`, "Delete");
    await button(page, "Delete 1 file").click();
    await expect(rows(page)).toHaveCount(0);
    await team.stowage.files.update(other, { name: `${id} two.txt` });
    await expect(rows(page)).toHaveText([`${id} two.txt`]);
  });

  exhaustive("deletes a hundred files at a time, stops, and continues after a failure", async ({ at, problems }) => {
    problems.allow(403);
    const { page } = await at("/usage");
    const deleted = new Set<string>();
    const remaining = () => fakeFiles(250).filter(({ _id }) => !deleted.has(_id));
    await page.route(/\/docs\/v1\/uploads\?/, (route) => respond(route, { data: remaining() }));
    const batches: { ids: string[]; release: () => Promise<void> }[] = [];
    await page.route("**/uploads/batch", (route) => {
      const { ids } = route.request().postDataJSON() as { ids: string[] };
      const data = ids.map((_id) => ({ _id, ok: true }));
      const isRejected = batches.length === 1;
      const release = () => {
        if (!isRejected) for (const id of ids) deleted.add(id);
        return respond(route, isRejected ? { code: "forbidden", message: "Not you." } : { data });
      };
      batches.push({ ids, release });
    });
    await link(page, "Files").click();
    await page.getByRole("checkbox", { name: "Select all" }).check();
    await page.getByRole("button", { name: "Delete 250 files" }).click();
    const confirm = (count: number) =>
      dialog(page)
        .getByRole("button", { name: `Delete ${count} files` })
        .click();
    await confirm(250);
    await expect.poll(() => batches.length).toBe(1);
    await dialog(page).getByRole("button", { name: "Stop" }).click();
    await batches[0]?.release();
    await expect(dialog(page).getByRole("progressbar", { name: "Deleted 100 of 250" })).toBeVisible();
    await confirm(150);
    await expect.poll(() => batches.length).toBe(2);
    await batches[1]?.release();
    await expect(dialog(page).getByRole("alert")).toContainText("Not you.");
    await expectAccessible(page);
    await confirm(150);
    await expect.poll(() => batches.length).toBe(3);
    await batches[2]?.release();
    await expect.poll(() => batches.length).toBe(4);
    await batches[3]?.release();
    await expect(dialog(page)).toHaveCount(0);
    expect(batches.map(({ ids }) => ids.length)).toEqual([100, 100, 100, 50]);
    expect(new Set(batches.flatMap(({ ids }) => ids)).size).toBe(250);
    await expect(page.getByRole("rowheader")).toHaveCount(0);
  });
});

describe("Organizing files", () => {
  const folder = (page: Page, name: string) =>
    page.getByRole("list", { name: "Folders in this folder" }).getByRole("link", { name });
  const propertiesOf = async ({ stowage }: Team, id = "") => {
    const { name, folder, tags } = await stowage.files.get(id);
    return { name, folder, tags };
  };

  exhaustive("moves files into a folder by keyboard and by dragging, undoes a move, and leads back", async ({ at }) => {
    const team = await newTeam();
    const [one, two, three] = await uploadNamed(team, "one.txt", "two.txt", "three.txt");
    const { page } = await at("/files", { team });
    await page.getByRole("checkbox", { name: "Select one.txt" }).check();
    await tabTo(button(page, "Move"));
    await page.keyboard.press("Enter");
    await expect(dialog(page).getByLabel("Folder")).toBeFocused();
    await page.keyboard.type("podcast/2026 🎧");
    await expect(button(page, "Create and move")).toBeEnabled();
    await page.keyboard.press("Enter");
    await expect(page.getByText("Moved 1 file to podcast/2026 🎧")).toBeVisible();
    await expect(page.getByRole("rowheader")).toHaveText(["three.txt", "two.txt"]);
    expect((await propertiesOf(team, one)).folder).toBe("podcast/2026 🎧");

    await page.getByRole("checkbox", { name: "Select all" }).check();
    // The new folder moves the rows.
    await expect(folder(page, "podcast")).toBeVisible();
    await row(page, "two.txt").dragTo(folder(page, "podcast"));
    await expect(page.getByRole("rowheader")).toHaveCount(0);
    expect((await propertiesOf(team, three)).folder).toBe("podcast");
    await page.getByRole("button", { name: "Undo" }).last().click();
    await expect(page.getByRole("rowheader")).toHaveText(["three.txt", "two.txt"]);
    expect((await propertiesOf(team, two)).folder).toBe("");
    await expectGoodLooks(page, "files-folders");

    await folder(page, "podcast").click();
    await expect(heading(page, "podcast")).toBeFocused();
    await expect(page).toHaveURL(/\/console\/files\?folder=podcast$/);
    await folder(page, "2026 🎧").click();
    await expect(page.getByRole("rowheader")).toHaveText(["one.txt"]);
    await row(page, "one.txt").dragTo(page.getByRole("navigation", { name: "Folders" }).getByRole("link").first());
    await expect(page.getByRole("heading", { name: "This folder is empty" })).toBeVisible();
    await page.getByRole("navigation", { name: "Folders" }).getByRole("link", { name: "Files" }).click();
    await expect(page.getByRole("rowheader")).toHaveCount(3);
    await expect(page.getByRole("list", { name: "Folders in this folder" })).toHaveCount(0);
  });

  exhaustive("selects none of the files that were moved, also if the move is undone", async ({ at }) => {
    const team = await newTeam();
    await uploadNamed(team, "one.txt", "two.txt", "three.txt");
    await team.stowage.files.createFolder("box");
    const { page } = await at("/files", { team });
    const all = page.getByRole("checkbox", { name: "Select all" });
    for (const name of ["one.txt", "two.txt"]) await page.getByRole("checkbox", { name: `Select ${name}` }).check();
    await expect(all).toBeChecked({ indeterminate: true });
    await button(page, "Move").click();
    await button(page, "Move to box").click();
    await expect(page.getByRole("rowheader")).toHaveText(["three.txt"]);
    await expect(all).toBeChecked({ indeterminate: false, checked: false });
    await page.getByRole("button", { name: "Undo" }).click();
    await expect(page.getByRole("rowheader")).toHaveText(["three.txt", "two.txt", "one.txt"]);
    await expect(page.getByRole("checkbox", { checked: true })).toHaveCount(0);
    await expect(page.getByRole("region", { name: "Selected files" })).toHaveCount(0);
  });

  exhaustive("shows two rows of many folders, with their names in two lines, and all on request", async ({ at }) => {
    const team = await newTeam();
    const long = `Recordings of the ${"harbor ".repeat(10)}`.trim();
    for (let place = 10; place < 22; place++) await team.stowage.files.createFolder(`${place} ${long}`);
    const { page } = await at("/files", { team });
    const list = page.getByRole("list", { name: "Folders in this folder" });
    await expect(list.getByRole("listitem")).toHaveCount(12);
    await expect(page.getByText("Drop recordings here")).toBeVisible();
    await uploadNamed(team, "one.txt");
    const shown = list.getByRole("listitem");
    await expect(shown).not.toHaveCount(12);
    const tops = await shown.evaluateAll((folders) => folders.map((one) => one.getBoundingClientRect().top));
    expect(new Set(tops).size).toBe(2);
    const count = tops.length;
    await expectGoodLooks(page, "files-many-folders");
    await expect(shown).toHaveCount(count);
    await tabTo(button(page, "Show all 12"));
    await page.keyboard.press("Enter");
    await expect(shown).toHaveCount(12);
    await expect(shown.nth(count).getByRole("link")).toBeFocused();
    // To hide two folders isn't worth a button.
    for (let place = 12; place > count + 2; place--) await team.stowage.files.deleteFolder(`${9 + place} ${long}`);
    await page.reload();
    await expect(shown).toHaveCount(count + 2);
  });

  exhaustive("plays all files of a folder from the first one", async ({ at }) => {
    const team = await newTeam();
    for (const id of await uploadNamed(team, "b.mp3", "notes.txt", "a.mp3"))
      await team.stowage.files.update(id, { folder: "box" });
    const { page } = await at("/files?folder=box", { team });
    await expect(page.getByText("3 files · ")).toBeVisible();
    await button(page, "Play all").click();
    await expect(player(page).getByRole("link", { name: "a.mp3" })).toBeVisible();
    await expect(player(page).getByRole("link", { name: "b.mp3" })).toBeVisible();
  });

  exhaustive("leaves most of a phone on its side to the files, also while one plays", async ({ at }) => {
    const { page } = await at("/files", { files: ["one.wav"], width: 844, height: 390 });
    await button(page, "Play one.wav").first().click();
    const bar = await player(page).boundingBox();
    expect(bar?.y).toBeGreaterThan(290);
    // The tabs are at the side.
    expect((await page.getByRole("navigation", { name: "Sections" }).boundingBox())?.width).toBeLessThan(80);
    expect((await page.getByRole("main").boundingBox())?.y).toBe(0);
  });

  exhaustive("moves files from the list of folders, and offers the last ones again", async ({ at }) => {
    const team = await newTeam();
    const [one, two] = await uploadNamed(team, "one.txt", "two.txt");
    await team.stowage.files.createFolder("Night Signals/Season 2");
    const { page } = await at("/files", { team });
    const choose = async (name: string) => {
      await page.getByRole("checkbox", { name: `Select ${name}` }).check();
      await button(page, "Move").click();
    };
    await choose("one.txt");
    // The file is in this folder.
    const move = dialog(page).getByRole("button", { name: "Move", exact: true });
    await expect(move).toBeDisabled();
    await expect(button(page, "Move to Files Current folder")).toBeDisabled();
    await button(page, "Open Night Signals").click();
    await expect(move).toBeEnabled();
    await expect(button(page, "Move to Night Signals")).toHaveAttribute("aria-current", "true");
    // A folder without others can't be opened.
    await expect(button(page, "Open Season 2")).toHaveCount(0);
    await expectGoodLooks(page, "files-move");
    await button(page, "Up").click();
    await button(page, "Open Night Signals").click();
    await button(page, "Move to Season 2").click();
    await expect(page.getByRole("rowheader")).toHaveText(["two.txt"]);
    expect((await propertiesOf(team, one)).folder).toBe("Night Signals/Season 2");
    await choose("two.txt");
    await button(page, "Move to Night Signals/Season 2 Recent").click();
    await expect(page.getByRole("rowheader")).toHaveCount(0);
    expect((await propertiesOf(team, two)).folder).toBe("Night Signals/Season 2");
  });

  exhaustive("opens a folder once its content is loaded, so that no row moves under the pointer", async ({ at }) => {
    const team = await newTeam();
    const [id = ""] = await uploadNamed(team, "one.txt");
    await team.stowage.files.update(id, { folder: "a/b" });
    const { page } = await at("/files?folder=a", { team });
    let release = () => {};
    const held = new Promise<void>((resolve) => {
      release = resolve;
    });
    await page.route(/folders\?.*under=a%2Fb/, (route) => held.then(() => route.continue()));
    const loaded = page.waitForResponse(/uploads\?.*folder=a%2Fb/);
    await folder(page, "b").click();
    await (await loaded).finished();
    await page.evaluate(() => new Promise(requestAnimationFrame));
    await expect(page.getByRole("rowheader")).toHaveCount(0);
    release();
    await expect(page.getByRole("rowheader")).toHaveText(["one.txt"]);
    await expect(folder(page, "b")).toHaveCount(0);
  });

  exhaustive("uploads into the open folder, and keeps the folders of a dropped one", async ({ at }) => {
    const { page, stowage } = await at("/files");
    await chooseAction(page, "Add", "New folder");
    await dialog(page).getByLabel("Name").fill("music");
    await page.keyboard.press("Enter");
    await expect(heading(page, "music")).toBeVisible();
    await dropFiles(page.getByRole("main"), { "album/one.txt": Buffer.from("1"), "two.txt": Buffer.from("2") });
    await expect(page.getByRole("rowheader")).toHaveText(["two.txt"]);
    await folder(page, "album").click();
    await expect(page.getByRole("rowheader")).toHaveText(["one.txt"]);
    expect((await stowage.files.list({ under: "music" })).items.map((file) => file.folder)).toEqual(
      expect.arrayContaining(["music", "music/album"]),
    );
  });

  test("uploads a dropped folder into the folder that was open, although the user opens another one", async ({
    at,
  }) => {
    const { page, stowage } = await at("/files?folder=music");
    await expect(heading(page, "music")).toBeVisible();
    await page.evaluate(() => {
      const released = new Promise<void>((resolve) => Reflect.set(window, "release", resolve));
      const { webkitGetAsEntry } = DataTransferItem.prototype;
      DataTransferItem.prototype.webkitGetAsEntry = function () {
        const entry = webkitGetAsEntry.call(this) as FileSystemDirectoryEntry;
        const reader = entry.createReader();
        entry.createReader = () => ({
          readEntries: (...callbacks) => void released.then(() => reader.readEntries(...callbacks)),
        });
        return entry;
      };
    });
    await dropFiles(page.getByRole("main"), { "album/one.txt": Buffer.from("1") });
    await page.getByRole("navigation", { name: "Folders" }).getByRole("link", { name: "Files" }).click();
    await expect(heading(page, "Files")).toBeVisible();
    await page.evaluate(() => (Reflect.get(window, "release") as () => void)());
    await expect(page.getByText("1 of 1 uploaded")).toBeVisible();
    expect((await stowage.files.list({})).items.map((file) => file.folder)).toEqual(["music/album"]);
  });

  test("creates, renames, moves, and deletes a folder with everything in it", async ({ at }) => {
    const team = await newTeam();
    const [id = ""] = await uploadNamed(team, "one.txt");
    await team.stowage.files.update(id, { folder: "a/b" });
    const { page, stowage } = await at("/files", { team });
    const title = (name: string) => page.getByRole("heading", { level: 1, name, exact: true });
    await chooseAction(page, "Add", "New folder");
    await dialog(page).getByLabel("Name").fill("box");
    await page.keyboard.press("Enter");
    await expect(title("box")).toBeVisible();
    expect(await collect(stowage.files.folders())).toEqual(["a", "box"]);
    await page.getByRole("navigation", { name: "Folders" }).getByRole("link", { name: "Files" }).click();

    await chooseAction(page, "Actions for the folder a", "Rename");
    await dialog(page).getByLabel("Name").fill("music");
    await expectGoodLooks(page, "folder-rename");
    await page.keyboard.press("Enter");
    await expectAnnounced(page, "Renamed to music");
    await expect(folder(page, "music")).toBeVisible();
    await expect(folder(page, "a")).toHaveCount(0);

    await chooseAction(page, "Actions for the folder music", "Move");
    await expect(button(page, "Move to box")).toBeVisible();
    await expect(button(page, /Move to music/)).toHaveCount(0);
    await button(page, "Move to box").click();
    await expectAnnounced(page, "Moved to box");
    await expect(folder(page, "music")).toHaveCount(0);
    expect((await propertiesOf(team, id)).folder).toBe("box/music/b");

    await folder(page, "box").click();
    await folder(page, "music").click();
    await expect(title("music")).toBeVisible();
    await button(page, "Actions for this folder").click();
    await copyBy(page.getByRole("menuitem", { name: "Copy team link" }), "/console/files?folder=");
    await chooseAction(page, "Actions for this folder", "Delete");
    await dialog(page).getByRole("button", { name: "Delete folder" }).click();
    await expect(title("box")).toBeVisible();
    await expect(page.getByRole("heading", { name: "This folder is empty" })).toBeVisible();
    await expect(stowage.files.get(id)).rejects.toMatchObject({ status: 404 });
    expect(await collect(stowage.files.folders())).toEqual(["box"]);
  });

  exhaustive("says that the rest of a large folder follows, or that one is busy", async ({ at, problems }) => {
    problems.allow(409);
    const team = await newTeam();
    const ids = await uploadNamed(team, "one.txt", "two.txt");
    for (const [place, folder] of ["large", "other"].entries())
      await team.stowage.files.update(ids[place] ?? "", { folder });
    const { page } = await at("/files", { team });
    // As if the folder had more files than the API changes in one step.
    const changes = /\/docs\/v1\/folders(\/delete)?$/;
    await page.route(changes, (route) => alter<object>(route, (data) => ({ ...data, isComplete: false })));
    await chooseAction(page, "Actions for the folder large", "Rename");
    await dialog(page).getByLabel("Name").fill("archive");
    await page.keyboard.press("Enter");
    await expectAnnounced(page, "Renamed to archive. The rest follows within minutes.");
    await chooseAction(page, "Actions for the folder archive", "Delete");
    await dialog(page).getByRole("button", { name: "Delete folder" }).click();
    await expectAnnounced(page, "Deleted archive. The rest follows within minutes.");

    const message = "Another folder of the team is being moved or deleted. Retry in a few minutes.";
    await page.route(changes, (route) => respond(route, { code: "folder_busy", message }));
    for (const [action, confirm] of [
      ["Rename", "Rename"],
      ["Delete", "Delete folder"],
    ] as const) {
      await chooseAction(page, "Actions for the folder other", action);
      if (action === "Rename") await dialog(page).getByLabel("Name").fill("another");
      await dialog(page).getByRole("button", { name: confirm }).click();
      await expect(dialog(page).getByRole("alert")).toContainText(message);
      await page.keyboard.press("Escape");
      await expect(folder(page, "other")).toBeVisible();
    }
  });

  test("offers every tag of the team, also those of files that this tab has not shown", async ({ at }) => {
    const team = await newTeam();
    const [shown = "", inFolder = ""] = await uploadNamed(team, "shown.txt", "in-folder.txt");
    await team.stowage.files.update(shown, { tags: ["interview"] });
    await team.stowage.files.update(inFolder, { tags: ["episode"], folder: "box" });
    const { page } = await at("/files", { team });
    const filter = page.getByRole("combobox", { name: "Tag" });
    await expect(filter.getByRole("option")).toHaveText(["All tags", "episode", "interview"]);
    await page.getByRole("checkbox", { name: "Select shown.txt" }).check();
    await page.getByRole("region", { name: "Selected files" }).getByRole("button", { name: "Edit tags" }).click();
    const field = dialog(page).getByLabel("New tags");
    const tags = dialog(page).getByRole("checkbox");
    await expect(tags).toHaveCount(2);
    await field.fill("raw, Épi");
    // A tag of the typed letters takes their place.
    await dialog(page).getByRole("checkbox", { name: "episode" }).check();
    await expect(field).toHaveValue("raw,");
    await dialog(page).getByRole("checkbox", { name: "interview" }).uncheck();
    await expect(field).toHaveValue("raw,");
    await field.press("Enter");
    await expect(dialog(page)).toHaveCount(0);
    expect((await propertiesOf(team, shown)).tags.toSorted()).toEqual(["episode", "raw"]);
    await expect(filter.getByRole("option")).toHaveText(["All tags", "episode", "raw"]);
  });

  test("finds one of many tags by the typed letters, and keeps what is chosen", async ({ at }) => {
    const team = await newTeam();
    const [id = "", ...others] = await uploadNamed(team, "chosen.txt", "one.txt", "two.txt");
    const many = Array.from({ length: 40 }, (_, place) => `tag ${String(place).padStart(2, "0")}`);
    for (const [place, other] of others.entries())
      await team.stowage.files.update(other, { tags: many.slice(place * 20, (place + 1) * 20) });
    const { page } = await at(`/files/${id}`, { team });
    await chooseAction(page, "Actions for this file", "Edit tags");
    const tags = dialog(page).getByRole("checkbox");
    await expect(tags).toHaveCount(30);
    await expect(dialog(page).getByText("Type to find the other tags.")).toBeVisible();
    const field = dialog(page).getByLabel("New tags");
    await field.pressSequentially("TAG 39");
    await expect(tags.first()).toHaveAccessibleName("tag 39");
    await tags.first().check();
    await expect(field).toHaveValue("");
    await expect(dialog(page).getByRole("checkbox", { name: "tag 39" })).toBeChecked();
    await field.press("Enter");
    await expect(dialog(page)).toHaveCount(0);
    expect((await propertiesOf(team, id)).tags).toEqual(["tag 39"]);
  });

  exhaustive("tags files with suggestions, undoes it, and lists all files with a tag", async ({ at }) => {
    const team = await newTeam();
    const [one, two] = await uploadNamed(team, "one.txt", "two.txt", "three.txt");
    await team.stowage.files.update(one ?? "", { tags: ["music", "draft"] });
    const { page } = await at("/files", { team });
    for (const name of ["one.txt", "two.txt"]) await page.getByRole("checkbox", { name: `Select ${name}` }).check();
    await button(page, "Edit tags").click();
    const tag = (name: string) => dialog(page).getByRole("checkbox", { name });
    await expect(tag("music")).not.toBeChecked();
    expect(await tag("music").evaluate((box: HTMLInputElement) => box.indeterminate)).toBe(true);
    await tag("music").check();
    await tag("draft").check();
    await tag("draft").uncheck();
    await dialog(page).getByLabel("New tags").fill("Интервью, live ");
    await expectAccessible(page);
    await page.keyboard.press("Enter");
    await expect(row(page, "two.txt").getByRole("listitem")).toHaveText(["music", "Интервью", "+1"]);
    expect((await propertiesOf(team, one)).tags).toEqual(expect.arrayContaining(["music", "live", "Интервью"]));
    await row(page, "two.txt").getByRole("link", { name: "Интервью" }).click();
    await expect(page).toHaveURL(/\/console\/files\?tag=%D0%98\S+$/);
    await expect(page.getByRole("rowheader")).toHaveCount(2);
    await page.getByRole("button", { name: "Undo" }).click();
    await expectAnnounced(page, "Change undone");
    await expect(page.getByRole("heading", { name: "No matching files" })).toBeVisible();
    expect((await propertiesOf(team, one)).tags.sort()).toEqual(["draft", "music"]);
    expect((await propertiesOf(team, two)).tags).toEqual([]);
  });

  exhaustive("announces and undoes tags that were added before another one failed", async ({ at, problems }) => {
    problems.allow(503);
    const team = await newTeam();
    const [one] = await uploadNamed(team, "one.txt");
    const { page } = await at("/files", { team });
    await page.route(/\/uploads\/batch/, (route) =>
      route.request().postData()?.includes("second")
        ? respond(route, { code: "unavailable", headers: { "Retry-After": "0" } })
        : route.continue(),
    );
    await page.getByRole("checkbox", { name: "Select one.txt" }).check();
    await button(page, "Edit tags").click();
    await dialog(page).getByLabel("New tags").fill("first, second");
    await page.keyboard.press("Enter");
    await expect(dialog(page).getByRole("alert")).toBeVisible();
    await expectAnnounced(page, "Updated the tags of 1 file");
    await expect(row(page, "one.txt").getByRole("listitem")).toHaveText(["first"]);
    await page.getByRole("button", { name: "Undo" }).click();
    await expectAnnounced(page, "Change undone");
    expect((await propertiesOf(team, one)).tags).toEqual([]);
  });

  exhaustive("announces nothing if the tags are saved unchanged", async ({ at }) => {
    const { page } = await at("/files", { files: ["one.txt"] });
    await page.getByRole("checkbox", { name: "Select one.txt" }).check();
    await button(page, "Edit tags").click();
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await expect(dialog(page)).toHaveCount(0);
    expect(await page.evaluate(() => Reflect.get(window, "announced"))).toEqual([]);
  });

  test("finds a folder of any level by words, and offers to create one second", async ({ at }) => {
    const team = await newTeam();
    const [one, two] = await uploadNamed(team, "one.txt", "two.txt");
    for (const folder of ["1978/Winter/Takes", "box"]) await team.stowage.files.createFolder(folder);
    const { page } = await at("/files", { team });
    const choose = async (name: string, text: string) => {
      await page.getByRole("checkbox", { name: `Select ${name}` }).check();
      await button(page, "Move").click();
      await expect(button(page, "Open 1978")).toBeVisible();
      await page.keyboard.type(text);
    };
    const places = dialog(page).getByRole("list", { name: "Places to move to" }).getByRole("listitem");
    await choose("one.txt", "winter");
    // The folders whose name matches are first.
    await expect(places).toHaveText(["Move to Winter1978", "Move to Takes1978/Winter", "Create “winter”"]);
    await expect(button(page, "Move to Winter 1978")).toHaveAttribute("aria-current", "true");
    await page.keyboard.press("Enter");
    await expectAnnounced(page, "Moved 1 file to 1978/Winter");
    expect((await propertiesOf(team, one)).folder).toBe("1978/Winter");
    await expect(row(page, "one.txt")).toHaveCount(0);
    await choose("two.txt", "spring");
    await expect(places).toHaveText(["Create “spring”"]);
    await expect(button(page, "Create and move")).toBeVisible();
    for (const _ of "spring") await page.keyboard.press("Backspace");
    await button(page, "Open 1978").click();
    // A name is one in the open folder.
    await page.getByLabel("Folder", { exact: true }).fill("spring");
    await button(page, "Create “1978/spring”").click();
    await expectAnnounced(page, "Moved 1 file to 1978/spring");
    expect((await propertiesOf(team, two)).folder).toBe("1978/spring");
  });

  exhaustive("says that not all of very many folders were searched", async ({ at }) => {
    const team = await newTeam();
    await uploadNamed(team, "one.txt");
    const { page } = await at("/files", { team });
    let asked = 0;
    await page.route(/folders\?.*deep=true/, (route) => {
      const first = 100 * asked++;
      const data = Array.from({ length: 100 }, (_, place) => `folder ${first + place}`);
      const link = `<${url}/docs/v1/folders?deep=true&cursor=${asked}>; rel="next"`;
      return respond(route, { data, headers: { Link: link } });
    });
    await page.getByRole("checkbox", { name: "Select one.txt" }).check();
    await button(page, "Move").click();
    await page.getByLabel("Folder", { exact: true }).fill("folder 99");
    await expect(dialog(page).getByText("Only 1,000 folders were searched.")).toBeVisible();
    await expect(button(page, "Move to folder 999")).toBeVisible();
    await expect(button(page, "Move to folder 99")).toHaveAttribute("aria-current", "true");
    expect(asked).toBe(10);
  });

  test("renames a file in place, and explains an invalid name", async ({ at, problems }) => {
    problems.allow(400);
    const team = await newTeam();
    const [id] = await uploadNamed(team, "song.mp3");
    const { page } = await at("/files", { team });
    const rename = async () => {
      await page.getByRole("checkbox", { name: /^Select .*mp3/ }).check();
      await button(page, "Rename").click();
    };
    await rename();
    await page.keyboard.type("a/b");
    await page.keyboard.press("Enter");
    const field = page.getByLabel("New name of song.mp3");
    await expect(field).toHaveAccessibleDescription(/Must be a file name/);
    await expectAccessible(page);
    await page.keyboard.press("Escape");
    await expect(link(page, "song.mp3")).toBeFocused();
    await rename();
    await page.keyboard.type("Песня");
    await page.keyboard.press("Enter");
    await expect(link(page, "Песня.mp3")).toBeFocused();
    expect((await propertiesOf(team, id)).name).toBe("Песня.mp3");
    await page.keyboard.press("Enter");
    await expect(heading(page, "Песня.mp3")).toBeVisible();
  });

  test("searches as the user types, aborts earlier searches, and shows the folders of matches", async ({ at }) => {
    const team = await newTeam();
    const [id] = await uploadNamed(team, "Night drive.txt", "Morning.txt");
    await team.stowage.files.update(id ?? "", { folder: "drafts/2026" });
    const { page } = await at("/files", { team });
    await expect(page.getByRole("rowheader")).toHaveText(["Morning.txt"]);
    await page.route(/search=N&/, () => {});
    const aborted = page.waitForEvent("requestfailed", (request) => /search=N&/.test(request.url()));
    const asked = page.waitForRequest(/search=N&/);
    await page.getByLabel("Search files").fill("N");
    await asked;
    await page.getByLabel("Search files").fill("NIGHT");
    await aborted;
    await expect(page.getByRole("rowheader")).toHaveText([/^Night drive\.txt/]);
    await row(page, "Night drive.txt").getByRole("link", { name: "drafts/2026" }).click();
    await expect(heading(page, "2026")).toBeVisible();
    await expect(page.getByRole("rowheader")).toHaveText(["Night drive.txt"]);
  });

  exhaustive("searches on while pages are empty, and asks before it searches further", async ({ at }) => {
    const { page } = await at("/files", { files: ["Deep.txt"] });
    let requests = 0;
    await page.route(/\/uploads\?.*search=deep/, async (route) => {
      const url = route.request().url();
      if (++requests > 8) return route.continue({ url: url.replace(/&cursor=\w+/, "") });
      const headers = { Link: `<${url}&cursor=next>; rel="next"` };
      return respond(route, { data: [], headers });
    });
    await page.getByLabel("Search files").fill("deep");
    const further = page.getByRole("button", { name: "Search more" });
    await expect(further).toBeVisible();
    expect(requests).toBe(6);
    await further.click();
    await expect(names(page)).toHaveText(["Deep.txt"]);
    expect(requests).toBe(9);
  });
});
