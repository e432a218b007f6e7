import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { expectAccessible, tabTo } from "../support/browser/appearance.ts";
import { exhaustive, PASSWORD, test } from "../support/browser/console.ts";
import { button, heading } from "../support/browser/locators.ts";
import { expect, setHidden } from "../support/browser/support.ts";
import { newTeam, type Team, url } from "../support/team.ts";

const rows = (page: Page) => page.locator(".timeline li");
const sentences = (page: Page) => rows(page).locator(".sentence");
const latest = async ({ stowage }: Team, count: number) =>
  (await stowage.events.list({ limit: count })).items.map(({ _id }) => _id);

/** Waits until the page receives events. */
const untilLive = (page: Page) => expect(page.getByText("Connecting…")).toHaveCount(0);

describe("Event log", () => {
  test("shows each event in a sentence, newest first, with details on demand", async ({ at }) => {
    const team = await newTeam();
    const { stowage } = team;
    const file = await stowage.files.upload(new File(["<b>text</b>"], "<b>مقابلة 🎧.txt"));
    await stowage.files.waitUntilProcessed(file.id);
    await stowage.links.create(file.id);
    const web = await stowage.keys.create({ name: "Web player" });
    const ada = { firstName: "Ada", lastName: "Lovelace", email: "ada@example.com", role: "admin" } as const;
    const { _id } = await stowage.users.create({ ...ada, password: PASSWORD });
    const { key } = await stowage.logIn({ teamId: team.teamId, email: ada.email, password: PASSWORD });
    const byAda = new Stowage({ url, key });
    await byAda.files.update(file.id, { tags: ["demo"] });
    await byAda.files.update(file.id, { folder: "season 2" });
    await byAda.files.update(file.id, { name: "final.txt", reference: "7" });
    await byAda.users.update(_id, { lastName: "King" });
    const { page } = await at("/events?type=all", { team });
    await expect(sentences(page)).toHaveText([
      "test started a session",
      "Ada King changed their own name",
      "Ada King changed the name and reference of final.txt",
      "Ada King moved final.txt",
      "Ada King tagged final.txt",
      "Ada King signed in",
      "test created the user Ada King",
      "test created the key Web player",
      "test created a link to final.txt",
      "Stowage processed final.txt",
      "test uploaded final.txt",
      "The operator created the key test",
      "The operator created the team",
    ]);
    await expect(page.getByRole("heading", { level: 2 })).toHaveText(["Library", "Team", "Developers", "Today"]);
    await expect(rows(page).first().getByRole("time")).toHaveAttribute("title", /\d:\d\d:\d\d/);
    // The icon of the subject, and that of the button.
    await expect(rows(page).first().locator("svg")).toHaveCount(2);
    const links = rows(page).getByRole("link");
    expect(await links.evaluateAll((all) => all.map((link) => link.getAttribute("href")))).toEqual([
      ...Array.from({ length: 3 }, () => `/console/files/${file.id}`),
      "/console/users?search=Ada+King",
      "/console/keys",
      `/console/files/${file.id}`,
      `/console/files/${file.id}`,
      `/console/files/${file.id}`,
      "/console/keys",
    ]);

    const details = button(page, /^Details of File uploaded/);
    await expect(details).toHaveAttribute("aria-expanded", "false");
    await tabTo(details);
    await page.keyboard.press("Enter");
    await expect(details).toHaveAttribute("aria-expanded", "true");
    const [uploaded] = (await stowage.events.list({ type: "file.uploaded" })).items;
    const shown = rows(page).filter({ hasText: `Event ID: ${uploaded?._id}` });
    await expect(shown).toContainText(`Request ID: ${uploaded?.actor.requestId}`);
    // As the service sends it. The client adds an `id`.
    const sent = { ...uploaded?.data, id: undefined };
    expect(JSON.parse((await shown.getByText('"originalName"').textContent()) ?? "")).toEqual(sent);
    await page.keyboard.press("Enter");
    await expect(shown).toHaveCount(0);

    // Nothing knows the name of a revoked key, and it has no link.
    await stowage.keys.delete(web.id);
    await button(page, /^1 new event/).click();
    await expect(sentences(page).first()).toHaveText("test revoked a key");
    await expect(sentences(page).first().getByRole("link")).toHaveCount(0);
    await expect(rows(page).first()).not.toContainText(web.id);
  });

  test("sends one request for a page, and none for the names in it and in new events", async ({ at }) => {
    const team = await newTeam();
    await team.stowage.users.create({ firstName: "Ada", lastName: "", email: "ada@example.com" });
    const { page } = await at("/usage", { team });
    // The requests that every page sends once.
    const loaded = ["apikeys", "webhooks"].map((name) => page.waitForResponse(new RegExp(`/auth/v1/${name}`)));
    await page.reload();
    await Promise.all(loaded);
    await untilLive(page);
    const asked: string[] = [];
    page.on("request", (request) => {
      const { pathname, searchParams } = new URL(request.url());
      // Every page asks for the next events, in their order, and for the keys that expire soon.
      const isOfEveryPage = searchParams.get("order") === "asc" || pathname === "/auth/v1/apikeys";
      if (/^\/(auth|docs)\/v1\//.test(pathname) && !isOfEveryPage) asked.push(pathname);
    });
    await page.getByRole("link", { name: "Events" }).click();
    await expect(sentences(page).first()).toHaveText("test created the user Ada");
    await team.stowage.keys.create({ name: "CI" });
    await expect(sentences(page).first()).toHaveText("test created the key CI");
    expect(asked).toEqual(["/auth/v1/events"]);
  });

  test("hides sign-ins and processing until the user asks for them, except for one file", async ({ at }) => {
    const { page, id, stowage } = await at("/events", { width: 390, files: ["one.txt"] });
    const { _id: created } = (await stowage.events.list({ type: "team.created" })).items[0] ?? {};
    const people = ["test uploaded one.txt", "The operator created the key test", "The operator created the team"];
    await stowage.files.waitUntilProcessed(id);
    await page.reload();
    await expect(sentences(page)).toHaveText(people);
    await page.goto(`/console/events?subject=${id}`);
    await expect(sentences(page)).toHaveText(["Stowage processed one.txt", "test uploaded one.txt"]);
    await page.goto(`/console/events?after=${created}`);
    await expect(sentences(page)).toHaveText(people.slice(0, 2));
    await page.goto("/console/events");
    await button(page, "Filters").click();
    await page.getByLabel("Type").selectOption("All events");
    await expect(sentences(page).filter({ hasText: "test started a session" })).toHaveCount(1);
    await expect(page).toHaveURL(`${url}/console/events?type=all`);
    await page.getByLabel("Type").selectOption("Main events");
    await expect(sentences(page)).toHaveText(people);
  });

  test("shows uploads in a row as one, and each of them on demand", async ({ at }) => {
    const { page, stowage } = await at("/events", { files: ["1.txt", "2.txt"] });
    await expect(sentences(page).first()).toHaveText("test uploaded 2.txt");
    await stowage.files.upload(new File(["text"], "3.txt"));
    await expect(sentences(page).first()).toHaveText("test uploaded 3 files");
    await button(page, "Each of the 3 files").click();
    const names = ["3.txt", "2.txt", "1.txt"].map((name) => `test uploaded ${name}`);
    await expect(sentences(page)).toHaveText([
      ...["test uploaded 3 files", ...names],
      ...["The operator created the key test", "The operator created the team"],
    ]);
    await expectAccessible(page);
    const ids = (await stowage.files.list()).items.map(({ _id }) => _id);
    await stowage.files.batch({ action: "move", folder: "box", ids });
    // An open row counts as reading.
    await button(page, /^3 new events/).click();
    await expect(sentences(page).first()).toHaveText("test moved 3 files");
  });

  exhaustive("adds new events on top, or announces them while the user reads further down", async ({ at }) => {
    const { page, stowage } = await at("/events?type=all");
    for (let made = 0; made < 60; made += 10)
      await Promise.all(Array.from({ length: 10 }, () => stowage.keys.create({ name: "many", isPublic: true })));
    // The 60 keys, the team with its first key, and the session.
    await expect(sentences(page)).toHaveCount(63);
    await page.reload();
    await expect(sentences(page)).toHaveCount(50);
    await button(page, "Load more").click();
    await expect(sentences(page)).toHaveCount(63);
    await expect(button(page, "Load more")).toHaveCount(0);
    await untilLive(page);

    const read = rows(page).nth(30);
    await read.scrollIntoViewIfNeeded();
    const before = await read.boundingBox();
    const { id } = await stowage.keys.create({ name: "new" });
    await expect(button(page, /^1 new event/)).toBeVisible();
    await stowage.keys.delete(id);
    await expect(button(page, /^2 new events/)).toBeVisible();
    expect((await read.boundingBox())?.y).toBeCloseTo(before?.y ?? 0, 0);
    await expect(sentences(page)).toHaveCount(63);

    await button(page, /^2 new events/).click();
    await expect(sentences(page)).toHaveCount(65);
    await expect(sentences(page).first()).toHaveText("test revoked a key");
    await expect(sentences(page).first()).toBeInViewport();
    await expect(heading(page, "Events")).toBeFocused();
    await expect(button(page, /new event/)).toHaveCount(0);

    // Open details count as reading.
    await button(page, /^Details of/)
      .first()
      .click();
    const unfolded = await page.getByText('"_id"').boundingBox();
    await stowage.keys.create({ name: "newer" });
    await expect(button(page, /^1 new event/)).toBeVisible();
    const { y = 0 } = (await page.getByText('"_id"').boundingBox()) ?? {};
    expect(y - (unfolded?.y ?? 0)).toBeLessThan(60);
    await expect(sentences(page)).toHaveCount(65);
  });

  exhaustive("filters by type, and keeps the filter in the URL", async ({ at, problems }) => {
    const team = await newTeam();
    await team.stowage.files.upload(new File(["text"], "one.txt"));
    const { page } = await at("/events?type=file.uploaded", { team });
    await expect(sentences(page)).toHaveText(["test uploaded one.txt"]);
    await expect(page.getByLabel("Type")).toHaveValue("file.uploaded");
    await untilLive(page);
    // Other types do not appear.
    await team.stowage.keys.create({ name: "unseen" });
    await team.stowage.files.upload(new File(["text"], "two.txt"));
    await expect(sentences(page)).toHaveText(["test uploaded two.txt", "test uploaded one.txt"]);

    await tabTo(page.getByLabel("Type"));
    await page.keyboard.type("User del");
    await expect(page.getByRole("heading", { name: "No matching events" })).toBeVisible();
    await expect(page).toHaveURL(`${url}/console/events?type=user.deleted`);
    await expect(page.getByLabel("Type")).toBeFocused();
    await page.getByRole("link", { name: "Clear filters" }).click();
    await expect(sentences(page).last()).toHaveText("The operator created the team");
    await expect(page).toHaveURL(`${url}/console/events`);
    await page.goBack();
    await expect(page.getByRole("heading", { name: "No matching events" })).toBeVisible();

    problems.allow(400);
    await page.goto("/console/events?type=nothing");
    await expect(page.getByRole("alert")).toContainText("type");
  });

  exhaustive("filters by kind, by day, and by an actor whom the user finds by name", async ({ at }) => {
    const team = await newTeam();
    const { stowage } = team;
    // More than the list shows before the user types.
    for (let made = 0; made < 24; made++)
      await stowage.users.create({ firstName: `Guest ${made}`, lastName: "", email: `${made}@example.com` });
    const ada = { email: "ada@example.com", password: PASSWORD };
    await stowage.users.create({ firstName: "Ada", lastName: "Lovelace", role: "admin", ...ada });
    const byAda = new Stowage({ url, key: (await stowage.logIn({ teamId: team.teamId, ...ada })).key });
    await byAda.files.upload(new File(["text"], "one.txt"));
    const { id } = await byAda.keys.create({ name: "hers" });
    await stowage.files.upload(new File(["more"], "two.txt"));
    const { page } = await at("/events?type=file", { team });
    await expect(sentences(page).filter({ hasText: "uploaded" })).toHaveText([/two.txt/, /one.txt/]);
    await expect(sentences(page).filter({ hasText: "key" })).toHaveCount(0);

    await page.getByLabel("Type").selectOption("Main events");
    await button(page, /^Actor/).click();
    const found = page.locator("[popover] .menu button");
    await expect(found).toHaveCount(21);
    await expect(found.filter({ hasText: "Ada" })).toHaveCount(0);
    await page.getByLabel("Find a user").fill("love");
    await expect(found).toHaveText(["Ada Lovelace"]);
    await found.click();
    await expect(sentences(page)).toHaveText(["Ada Lovelace created the key hers", "Ada Lovelace uploaded one.txt"]);
    await expect(button(page, /^Actor/)).toHaveText("Ada Lovelace");
    await untilLive(page);
    await stowage.keys.create({ name: "of another actor" });
    await byAda.keys.create({ name: "her second" });
    await expect(sentences(page).first()).toHaveText("Ada Lovelace created the key her second");
    await expect(sentences(page)).toHaveCount(3);

    await button(page, /^Details of API key created/)
      .last()
      .click();
    await page.getByRole("link", { name: "More of this key" }).click();
    await expect(page).toHaveURL(`${url}/console/events?subject=${id}`);
    await expect(page.getByText("Showing events of the key hers")).toBeVisible();
    await expect(sentences(page)).toHaveText(["Ada Lovelace created the key hers"]);
    await page.getByRole("link", { name: "Clear filters" }).click();

    const day = (days: number) => new Date(Date.now() + days * 86_400_000).toLocaleDateString("sv");
    await button(page, "Any date").click();
    await page.getByLabel("After").fill(day(1));
    await expect(page.getByRole("heading", { name: "No matching events" })).toBeVisible();
    await page.getByLabel("After").fill(day(-1));
    await expect(sentences(page).first()).toHaveText("Ada Lovelace created the key her second");
    await page.getByLabel("Before").fill(day(-1));
    await expect(page.getByRole("heading", { name: "No matching events" })).toBeVisible();
  });
});

exhaustive("shows the newest events after the tab was in the background", async ({ at }) => {
  const { page, stowage } = await at("/usage");
  // Before its position in the event log is known, a page may load twice.
  await untilLive(page);
  await page.getByRole("link", { name: "Events" }).click();
  await expect(sentences(page)).toHaveText(["The operator created the key test", "The operator created the team"]);
  await setHidden(page, true);
  for (const name of ["one", "two", "three"]) await stowage.keys.create({ name });
  const requests: string[] = [];
  page.on("request", (request) => requests.push(request.url()));
  await setHidden(page, false);
  await expect(rows(page)).toHaveCount(5);
  await expect(sentences(page).filter({ hasText: /key (one|two|three)$/ })).toHaveText([/three/, /two/, /one/]);
  // The events are replayed, and no page is loaded again. One event is requested, to check the connection.
  expect(requests.filter((request) => /events\?(?!.*order=asc|limit=1$)/.test(request))).toEqual([]);
});

describe("Event page", () => {
  exhaustive("links to the events before and after it", async ({ at, problems }) => {
    const team = await newTeam();
    const { id } = await team.stowage.files.upload(new File(["text"], "one.txt"));
    await team.stowage.files.waitUntilProcessed(id);
    await team.stowage.files.delete(id);
    const [deleted, , uploaded] = await latest(team, 3);
    const { page } = await at(`/events/${uploaded}`, { team });
    await expect(heading(page, "File uploaded")).toBeVisible();
    await expect(page.getByRole("link", { name: "one.txt" })).toHaveAttribute("href", `/console/files/${id}`);
    await expectAccessible(page);
    await page.getByRole("link", { name: "Newer →" }).click();
    await expect(sentences(page)).toHaveText(["test deleted one.txt"]);
    await expect(page.getByText(`Showing events after ${uploaded}`)).toBeVisible();
    await page.goBack();
    await page.getByRole("link", { name: "← Older" }).click();
    await expect(sentences(page)).toHaveText(["The operator created the key test", "The operator created the team"]);
    // New events are not older.
    await untilLive(page);
    await team.stowage.keys.create({ name: "later" });
    await page.getByRole("link", { name: "Clear filters" }).click();
    await expect(sentences(page)).toHaveCount(5);

    await page.goto(`/console/events/${deleted}`);
    await expect(heading(page, "File deleted")).toBeVisible();
    // A deleted file has no page.
    await expect(page.getByRole("link", { name: "one.txt" })).toHaveCount(0);
    problems.allow(404);
    await page.goto(`/console/events/${id}`);
    await expect(page.getByRole("heading", { name: "Event not found" })).toBeVisible();
    await page.getByRole("link", { name: "Back to events" }).click();
    await expect(sentences(page)).toHaveCount(5);
  });
});
