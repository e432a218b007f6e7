import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { newTeam, type Team, url } from "../support/team.ts";
import { expectAccessible, expectGoodLooks, tabTo } from "./appearance.ts";
import { heading } from "./locators.ts";
import { openConsole } from "./signed-in.ts";
import { expect, test } from "./support.ts";

const PASSWORD = "correct horse battery";
const rows = (page: Page) => page.getByRole("row").filter({ has: page.getByRole("rowheader") });
const types = (page: Page) => page.getByRole("rowheader");
const button = (page: Page, name: string | RegExp) => page.getByRole("button", { name });
const latest = async ({ stowage }: Team, count: number) =>
  (await stowage.events.list({ limit: count }).page()).items.map(({ _id }) => _id);

/** Waits until the page receives events. */
const untilLive = (page: Page) => expect(page.getByText("Connecting…")).toHaveCount(0);

describe("Event log", () => {
  test("shows type, resource, and actor of each event, newest first, with details on demand", async ({ openPage }) => {
    const team = await newTeam();
    const { stowage } = team;
    const file = await stowage.files.upload(new File(["<b>text</b>"], "<b>مقابلة 🎧.txt"));
    await stowage.files.waitUntilProcessed(file.id);
    const web = await stowage.keys.create({ name: "Web player" });
    await stowage.users.create({ firstName: "Ada", lastName: "", email: "ada@example.com", password: PASSWORD });
    const { page } = await openConsole(openPage, { path: "/events?signins=shown", team });
    await expect(types(page)).toHaveText([
      "Session created",
      "User created",
      "API key created",
      "File processed",
      "File uploaded",
      "API key created",
      "Team created",
    ]);
    const cells = (place: number) => rows(page).nth(place).getByRole("cell");
    await expect(cells(0)).toContainText(["test", "test", /now|ago/]);
    await expect(cells(1)).toContainText(["ada@example.com", "test"]);
    await expect(cells(3)).toContainText(["<b>مقابلة 🎧.txt", "System"]);
    await expect(cells(5)).toContainText(["test", "Operator"]);
    const links = page.getByRole("row").getByRole("link");
    expect(await links.evaluateAll((all) => all.map((link) => link.getAttribute("href")))).toEqual([
      "/console/users?search=ada%40example.com",
      "/console/keys",
      `/console/files/${file.id}`,
      `/console/files/${file.id}`,
      "/console/keys",
    ]);

    const details = button(page, "Details of File uploaded");
    await expect(details).toHaveAttribute("aria-expanded", "false");
    await tabTo(details);
    await page.keyboard.press("Enter");
    await expect(details).toHaveAttribute("aria-expanded", "true");
    const [uploaded] = (await stowage.events.list({ type: "file.uploaded" }).page()).items;
    const shown = page.getByRole("cell").filter({ hasText: `Event ID: ${uploaded?._id}` });
    await expect(shown).toContainText(`Request ID: ${uploaded?.actor.requestId}`);
    expect(JSON.parse((await shown.getByText('"originalName"').textContent()) ?? "")).toEqual(uploaded?.data);
    await page.keyboard.press("Enter");
    await expect(shown).toHaveCount(0);

    // A revoked key keeps its name in this tab and loses its link.
    await stowage.keys.delete(web.id);
    await button(page, "1 new event").click();
    await expect(types(page).first()).toHaveText("API key revoked");
    await expect(cells(0).first()).toHaveText("Web player");
    await expect(cells(0).first().getByRole("link")).toHaveCount(0);
  });

  test("adds new events on top, or announces them while the user reads further down", async ({ openPage }) => {
    const { page, stowage } = await openConsole(openPage, { path: "/events?signins=shown" });
    for (let made = 0; made < 60; made += 10)
      await Promise.all(Array.from({ length: 10 }, () => stowage.keys.create({ name: "many", isPublic: true })));
    // The 60 keys, the team with its first key, and the session.
    await expect(types(page)).toHaveCount(63);
    await page.reload();
    await expect(types(page)).toHaveCount(50);
    await button(page, "Load more").click();
    await expect(types(page)).toHaveCount(63);
    await expect(button(page, "Load more")).toHaveCount(0);
    await untilLive(page);

    const read = rows(page).nth(30);
    await read.scrollIntoViewIfNeeded();
    const before = await read.boundingBox();
    const { id } = await stowage.keys.create({ name: "new" });
    await expect(button(page, "1 new event")).toBeVisible();
    await stowage.keys.delete(id);
    await expect(button(page, "2 new events")).toBeVisible();
    expect((await read.boundingBox())?.y).toBeCloseTo(before?.y ?? 0, 0);
    await expect(types(page)).toHaveCount(63);

    await button(page, "2 new events").click();
    await expect(types(page)).toHaveCount(65);
    await expect(types(page).first()).toHaveText("API key revoked");
    await expect(types(page).first()).toBeInViewport();
    await expect(heading(page, "Events")).toBeFocused();
    await expect(button(page, /new event/)).toHaveCount(0);

    // Open details count as reading.
    await button(page, /^Details of/)
      .first()
      .click();
    const unfolded = await page.getByText('"_id"').boundingBox();
    await stowage.keys.create({ name: "newer" });
    await expect(button(page, "1 new event")).toBeVisible();
    const { y = 0 } = (await page.getByText('"_id"').boundingBox()) ?? {};
    expect(y - (unfolded?.y ?? 0)).toBeLessThan(60);
    await expect(types(page)).toHaveCount(65);
  });

  test("filters by type, and keeps the filter in the URL", async ({ openPage, problems }) => {
    const team = await newTeam();
    await team.stowage.files.upload(new File(["text"], "one.txt"));
    const { page } = await openConsole(openPage, { path: "/events?type=file.uploaded", team });
    await expect(types(page)).toHaveText(["File uploaded"]);
    await expect(page.getByLabel("Type")).toHaveValue("file.uploaded");
    await untilLive(page);
    // Other types do not appear.
    await team.stowage.keys.create({ name: "unseen" });
    await team.stowage.files.upload(new File(["text"], "two.txt"));
    await expect(types(page)).toHaveText(["File uploaded", "File uploaded"]);

    await tabTo(page.getByLabel("Type"));
    await page.keyboard.type("User del");
    await expect(page.getByRole("heading", { name: "No matching events" })).toBeVisible();
    await expect(page).toHaveURL(`${url}/console/events?type=user.deleted`);
    await expect(page.getByLabel("Type")).toBeFocused();
    await page.getByRole("link", { name: "Clear filters" }).click();
    await expect(types(page).last()).toHaveText("Team created");
    await expect(page).toHaveURL(`${url}/console/events`);
    await page.goBack();
    await expect(page.getByRole("heading", { name: "No matching events" })).toBeVisible();

    problems.allow(/status of 400/);
    await page.goto("/console/events?type=nothing");
    await expect(page.getByRole("alert")).toContainText("type");
  });
});

test("shows the newest events after the tab was in the background", async ({ openPage }) => {
  const { page, stowage } = await openConsole(openPage, { path: "/usage" });
  // Before its position in the event log is known, a page may load twice.
  await untilLive(page);
  await page.getByRole("link", { name: "Events" }).click();
  await expect(types(page)).toHaveText(["API key created", "Team created"]);
  const setHidden = (hidden: boolean) =>
    page.evaluate((isHidden) => {
      Object.defineProperty(document, "hidden", { value: isHidden, configurable: true });
      document.dispatchEvent(new Event("visibilitychange"));
    }, hidden);
  await setHidden(true);
  for (const name of ["one", "two", "three"]) await stowage.keys.create({ name });
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  await setHidden(false);
  await expect(rows(page)).toHaveCount(5);
  await expect(
    rows(page)
      .getByRole("cell")
      .filter({ hasText: /^(one|two|three)$/ }),
  ).toHaveText(["three", "two", "one"]);
  // The events are replayed, and no page is loaded again.
  expect(requests.filter((request) => /events\?(?!.*order=asc)/.test(request))).toEqual([]);
});

describe("Event page", () => {
  test("links to the events before and after it", async ({ openPage, problems }) => {
    const team = await newTeam();
    const { id } = await team.stowage.files.upload(new File(["text"], "one.txt"));
    await team.stowage.files.waitUntilProcessed(id);
    await team.stowage.files.delete(id);
    const [deleted, , uploaded] = await latest(team, 3);
    const { page } = await openConsole(openPage, { path: `/events/${uploaded}`, team });
    await expect(heading(page, "File uploaded")).toBeVisible();
    await expect(page.getByRole("link", { name: "one.txt" })).toHaveAttribute("href", `/console/files/${id}`);
    await expectAccessible(page);
    await page.getByRole("link", { name: "Newer →" }).click();
    await expect(types(page)).toHaveText(["File deleted", "File processed"]);
    await expect(page.getByText(`Showing events after ${uploaded}`)).toBeVisible();
    await page.goBack();
    await page.getByRole("link", { name: "← Older" }).click();
    await expect(types(page)).toHaveText(["API key created", "Team created"]);
    // New events are not older.
    await untilLive(page);
    await team.stowage.keys.create({ name: "later" });
    await page.getByRole("link", { name: "Clear filters" }).click();
    await expect(types(page)).toHaveCount(6);

    await page.goto(`/console/events/${deleted}`);
    await expect(heading(page, "File deleted")).toBeVisible();
    // A deleted file has no page.
    await expect(page.getByRole("link", { name: "one.txt" })).toHaveCount(0);
    problems.allow(/status of 404/);
    await page.goto(`/console/events/${id}`);
    await expect(page.getByRole("heading", { name: "Event not found" })).toBeVisible();
    await page.getByRole("link", { name: "Back to events" }).click();
    await expect(types(page)).toHaveCount(6);
  });
});

test("events are accessible in both themes and fit 320 px", async ({ openPage }) => {
  const team = await newTeam();
  const names = ["plain.mp3", "مقابلة مع المؤلف.mp3", "🎧 late night.flac", `${"long".repeat(50)}.wav`];
  for (const name of names) await team.stowage.files.upload(new File([`of ${name}`], name));
  await team.stowage.keys.create({ name: "A name as long as one may be ".repeat(4).slice(0, 100) });
  const { page } = await openConsole(openPage, { path: "/events", team });
  await button(page, /^Details of/)
    .first()
    .click();
  await expectGoodLooks(page, "events");
});
