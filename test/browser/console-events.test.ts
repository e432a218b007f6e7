import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { newTeam, type Team, url } from "../support/team.ts";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "./looks.ts";
import { openConsole } from "./signed-in.ts";
import { expect, screenshot, test } from "./support.ts";

const PASSWORD = "correct horse battery";
const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });
const rows = (page: Page) => page.getByRole("row").filter({ has: page.getByRole("rowheader") });
const types = (page: Page) => page.getByRole("rowheader");
const button = (page: Page, name: string | RegExp) => page.getByRole("button", { name });
const latest = async ({ stowage }: Team, count: number) =>
  (await stowage.events.list({ limit: count }).page()).items.map(({ _id }) => _id);

/** Waits until the page follows events: what happens before is in its list, and what happens after appears. */
const untilLive = (page: Page) => expect(page.getByText("Connecting …")).toHaveCount(0);

describe("The trail of events", () => {
  test("It says in words what happened, to what and by whom, newest first, with details on demand.", async ({
    openPage,
  }) => {
    const team = await newTeam();
    const { stowage } = team;
    const file = await stowage.files.upload(new File(["<b>text</b>"], "<b>مقابلة 🎧.txt"));
    await stowage.files.waitFor(file.id);
    const web = await stowage.keys.create({ name: "Web player" });
    await stowage.users.create({ firstName: "Ada", lastName: "", email: "ada@example.com", password: PASSWORD });
    const { page } = await openConsole(openPage, { path: "/events", team });
    await expect(types(page)).toHaveText([
      "Key created",
      "User created",
      "Key created",
      "File processed",
      "File uploaded",
      "Key created",
    ]);
    const cells = (place: number) => rows(page).nth(place).getByRole("cell");
    await expect(cells(0)).toContainText(["Console", "test", /2026|20\d\d/]);
    await expect(cells(1)).toContainText(["ada@example.com", "test"]);
    await expect(cells(3)).toContainText(["<b>مقابلة 🎧.txt", "Stowage"]);
    await expect(cells(5)).toContainText(["test", "The operator"]);
    const links = page.getByRole("row").getByRole("link");
    expect(await links.evaluateAll((all) => all.map((link) => link.getAttribute("href")))).toEqual([
      "/console/keys",
      "/console/users?email=ada%40example.com",
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
    const shown = page.getByRole("cell").filter({ hasText: `Event ${uploaded?._id}` });
    await expect(shown).toContainText(`Request ${uploaded?.actor.requestId}`);
    expect(JSON.parse((await shown.getByText('"originalName"').textContent()) ?? "")).toEqual(uploaded?.data);
    await page.keyboard.press("Enter");
    await expect(shown).toHaveCount(0);

    // A key that is revoked keeps its name for whoever is looking, and loses its link.
    await stowage.keys.delete(web.id);
    await button(page, "1 new event").click();
    await expect(types(page).first()).toHaveText("Key revoked");
    await expect(cells(0).first()).toHaveText("Web player");
    await expect(cells(0).first().getByRole("link")).toHaveCount(0);
  });

  test("What is new appears on top; whoever reads further down is told, and not moved.", async ({ openPage }) => {
    const { page, stowage } = await openConsole(openPage, { path: "/events" });
    for (let made = 0; made < 60; made += 10)
      await Promise.all(Array.from({ length: 10 }, () => stowage.keys.create({ name: "many", isPublic: true })));
    // All that happened since the page was opened: 60, and two of the founding and signing in.
    await expect(types(page)).toHaveCount(62);
    await page.reload();
    await expect(types(page)).toHaveCount(50);
    await button(page, "Show more").click();
    await expect(types(page)).toHaveCount(62);
    await expect(button(page, "Show more")).toHaveCount(0);
    await untilLive(page);

    const read = rows(page).nth(30);
    await read.scrollIntoViewIfNeeded();
    const before = await read.boundingBox();
    const { id } = await stowage.keys.create({ name: "new" });
    await expect(button(page, "1 new event")).toBeVisible();
    await stowage.keys.delete(id);
    await expect(button(page, "2 new events")).toBeVisible();
    expect((await read.boundingBox())?.y).toBeCloseTo(before?.y ?? 0, 0);
    await expect(types(page)).toHaveCount(62);

    await button(page, "2 new events").click();
    await expect(types(page)).toHaveCount(64);
    await expect(types(page).first()).toHaveText("Key revoked");
    await expect(types(page).first()).toBeInViewport();
    await expect(heading(page, "Events")).toBeFocused();
    await expect(button(page, /new event/)).toHaveCount(0);

    // Who has unfolded one is reading, too.
    await button(page, "Details").first().click();
    const unfolded = await page.getByText('"_id"').boundingBox();
    await stowage.keys.create({ name: "newer" });
    await expect(button(page, "1 new event")).toBeVisible();
    const { y = 0 } = (await page.getByText('"_id"').boundingBox()) ?? {};
    expect(y - (unfolded?.y ?? 0)).toBeLessThan(60);
    await expect(types(page)).toHaveCount(64);
  });

  test("It is filtered by type, at an address that can be linked to and gone back to.", async ({
    openPage,
    problems,
  }) => {
    const team = await newTeam();
    await team.stowage.files.upload(new File(["text"], "one.txt"));
    const { page } = await openConsole(openPage, { path: "/events?type=file.uploaded", team });
    await expect(types(page)).toHaveText(["File uploaded"]);
    await expect(page.getByLabel("Type")).toHaveValue("file.uploaded");
    await untilLive(page);
    // Of what comes only what is wanted.
    await team.stowage.keys.create({ name: "unseen" });
    await team.stowage.files.upload(new File(["text"], "two.txt"));
    await expect(types(page)).toHaveText(["File uploaded", "File uploaded"]);

    await tabTo(page.getByLabel("Type"));
    await page.keyboard.type("User del");
    await expect(page.getByRole("heading", { name: "No such event" })).toBeVisible();
    await expect(page).toHaveURL(`${url}/console/events?type=user.deleted`);
    await expect(page.getByLabel("Type")).toBeFocused();
    await page.getByRole("link", { name: "Clear filters" }).click();
    await expect(types(page).last()).toHaveText("Key created");
    await expect(page).toHaveURL(`${url}/console/events`);
    await page.goBack();
    await expect(page.getByRole("heading", { name: "No such event" })).toBeVisible();

    problems.allow(/status of 400/);
    await page.goto("/console/events?type=nothing");
    await expect(page.getByRole("alert")).toContainText("type");
  });
});

describe("An event", () => {
  test("It has a page of its own, from which what came before and after is found.", async ({ openPage, problems }) => {
    const team = await newTeam();
    const { id } = await team.stowage.files.upload(new File(["text"], "one.txt"));
    await team.stowage.files.waitFor(id);
    await team.stowage.files.delete(id);
    const [deleted, , uploaded] = await latest(team, 3);
    const { page } = await openConsole(openPage, { path: `/events/${uploaded}`, team });
    await expect(heading(page, "File uploaded")).toBeVisible();
    await expect(page.getByRole("link", { name: "one.txt" })).toHaveAttribute("href", `/console/files/${id}`);
    await expectAccessible(page);
    await screenshot(page, "event");
    await page.getByRole("link", { name: "Later events" }).click();
    await expect(types(page)).toHaveText(["Key created", "File deleted", "File processed"]);
    await expect(page.getByText(`Only what happened after event ${uploaded}`)).toBeVisible();
    await page.goBack();
    await page.getByRole("link", { name: "Earlier events" }).click();
    await expect(types(page)).toHaveText(["Key created"]);
    // What is new is not earlier.
    await untilLive(page);
    await team.stowage.keys.create({ name: "later" });
    await page.getByRole("link", { name: "Clear filters" }).click();
    await expect(types(page)).toHaveCount(6);

    await page.goto(`/console/events/${deleted}`);
    await expect(heading(page, "File deleted")).toBeVisible();
    // There is no page of what was deleted.
    await expect(page.getByRole("link", { name: "one.txt" })).toHaveCount(0);
    problems.allow(/status of 404/);
    await page.goto(`/console/events/${id}`);
    await expect(page.getByRole("heading", { name: "There is no event at this address." })).toBeVisible();
    await page.getByRole("link", { name: "All events" }).click();
    await expect(types(page)).toHaveCount(6);
  });
});

test("Events have no barriers in either theme, and fit 320 px.", async ({ openPage }) => {
  const team = await newTeam();
  const names = ["plain.mp3", "مقابلة مع المؤلف.mp3", "🎧 late night.flac", `${"long".repeat(50)}.wav`];
  for (const name of names) await team.stowage.files.upload(new File([`of ${name}`], name));
  await team.stowage.keys.create({ name: "A name as long as one may be ".repeat(4).slice(0, 100) });
  for (const theme of ["light", "dark"] as const) {
    const { page } = await openConsole(openPage, { path: "/events", team, theme });
    await button(page, "Details").first().click();
    for (const width of [1280, 320]) {
      await page.setViewportSize({ width, height: 800 });
      await expectNoSidewaysScroll(page);
      await expectAccessible(page);
      await screenshot(page, "events");
    }
  }
});
