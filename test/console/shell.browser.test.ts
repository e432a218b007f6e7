import type { Request } from "@playwright/test";
import { describe } from "vitest";
import { chooseAction, exhaustive, PASSWORD, signIn, test } from "../support/browser/console.ts";
import { hold } from "../support/browser/fakes.ts";
import { button, dialog, heading, link, rows } from "../support/browser/locators.ts";
import { OFFLINE } from "../support/browser/problems.ts";
import { cutNetwork, expect, setHidden } from "../support/browser/support.ts";
import { collect } from "../support/team.ts";

/* The parts that all pages of the console share. */

test("shows a not found page for unknown and malformed URLs", async ({ at }) => {
  const { page } = await at("/constructor");
  await expect(heading(page, "Page not found")).toBeVisible();
  await page.goto("/console/files/%ff");
  await expect(heading(page, "Page not found")).toBeVisible();
});

describe("Dialog", () => {
  exhaustive("shows the result of a deletion even if Escape is pressed during it", async ({ at, problems }) => {
    problems.allow(403);
    const { page, stowage } = await at("/files");
    const { id } = await stowage.files.upload(new File(["Text"], "kept.txt"));
    await link(page, "kept.txt").click();
    await chooseAction(page, "Actions for this file", "Delete");
    const { release, isHeld } = await hold(page, "POST", /\/uploads\/batch/);
    await button(page, "Delete 1 file").click();
    await isHeld;
    for (const _ of [1, 2, 3]) await page.keyboard.press("Escape");
    release({ code: "forbidden", message: "This one stays." });
    await expect(dialog(page)).toContainText("This one stays.");
    await page.keyboard.press("Escape");
    await expect(dialog(page)).toHaveCount(0);
    expect((await stowage.files.get(id)).originalName).toBe("kept.txt");
  });

  exhaustive("can't be closed while it creates a key, which it then shows", async ({ at }) => {
    const { page, stowage } = await at("/keys");
    const place = await page.locator("main").boundingBox();
    await button(page, "Create key").click();
    // Nothing takes room from the page, also if the scrollbar does not.
    expect(await page.evaluate(() => innerWidth - document.documentElement.offsetWidth)).toBe(0);
    await dialog(page).getByLabel("Name").fill("Made");
    const { release, isHeld } = await hold(page, "POST", /\/auth\/v1\/apikeys/);
    await page.keyboard.press("Enter");
    await isHeld;
    await expect(button(page, "Cancel")).toHaveAttribute("aria-disabled", "true");
    await page.keyboard.press("Escape");
    await button(page, "Cancel").click({ force: true });
    release();
    await expect(dialog(page)).toContainText("Copy this key now.");
    // The gutter of the scrollbar stays, so the page behind the dialog does not move.
    expect(await page.locator("main").boundingBox()).toEqual(place);
    const made = (await collect(stowage.keys.list())).find(({ name }) => name === "Made");
    const { key } = await stowage.keys.get(made?.id ?? "");
    await expect(dialog(page).getByRole("code")).toHaveText(key);
  });

  exhaustive("closes if the page or the session changes", async ({ at, problems }) => {
    problems.allow(401);
    const { page, stowage } = await at("/usage");
    await link(page, "Keys").click();
    await chooseAction(page, "Actions for test", "Revoke");
    await expect(dialog(page)).toBeVisible();
    await page.goBack();
    await expect(heading(page, "Usage")).toBeVisible();
    await expect(dialog(page)).toHaveCount(0);
    await page.goForward();
    await chooseAction(page, "Actions for test", "Revoke");
    await expect(dialog(page)).toBeVisible();
    for (const { _id } of await collect(stowage.sessions.list())) await stowage.sessions.delete(_id);
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect(dialog(page)).toHaveCount(0);
  });
});

describe("Session", () => {
  exhaustive("loads a list once, and not again when the tab is shown again", async ({ at }) => {
    const { page, stowage } = await at("/users");
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    const asked: Request[] = [];
    page.on("request", (request) => /\/auth\/v1\/users/.test(request.url()) && asked.push(request));
    // Until its position in the event log is known, a page may load twice.
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    await link(page, "Usage").click();
    await expect(page.getByRole("meter")).toHaveCount(2);
    asked.length = 0;
    await link(page, "Users").click();
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    await expect.poll(() => asked.length).toBe(1);
    // Else it may be answered after the next user was created.
    await (await asked[0]?.response())?.finished();
    await stowage.users.create({ firstName: "Ada", lastName: "", email: "ada@example.com", password: PASSWORD });
    await expect(rows(page)).toContainText("Ada");
    // Once for the event.
    expect(asked).toHaveLength(2);
    await setHidden(page, true);
    await expect(page.getByText("Connecting…")).toHaveCount(1);
    await setHidden(page, false);
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    await stowage.users.create({ firstName: "Bob", lastName: "", email: "bob@example.com", password: PASSWORD });
    await expect(rows(page)).toHaveCount(2);
    expect(asked).toHaveLength(3);
  });

  exhaustive("survives a late 401 for the previous session key", async ({ at, problems }) => {
    problems.allow(401);
    const { page, team, stowage } = await at("/webhooks");
    const { _id } = await stowage.webhooks.create({ url: "https://example.com/hook" });
    await page.goto(`/console/webhooks/${_id}`);
    const { release, isHeld } = await hold(page, "PATCH", /\/auth\/v1\/webhooks\//);
    await chooseAction(page, "Actions for this webhook", "Disable");
    await isHeld;
    for (const { _id } of await collect(stowage.sessions.list())) await stowage.sessions.delete(_id);
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    await signIn(page, team.key);
    await expect(button(page, "Actions for this webhook")).toBeVisible();
    const answered = page.waitForResponse((response) => response.status() === 401);
    release({ code: "token_invalid", message: "This key was revoked." });
    await (await answered).finished();
    await link(page, "Usage").click();
    await expect(page.getByRole("meter")).toHaveCount(2);
  });
});

exhaustive("shows a banner while offline, and catches up afterward", async ({ at, problems }) => {
  problems.allow(OFFLINE);
  const { page, stowage } = await at("/keys");
  // The script of the page has loaded, too. Without the network, it would have to be loaded by a button.
  await expect(page.getByRole("row").nth(1)).toBeVisible();
  await expect(page.getByText("Connecting…")).toHaveCount(0);
  const reconnect = await cutNetwork(page);
  const banner = page.getByText("You're offline. Changes will appear when you reconnect.");
  await expect(banner).toBeVisible();
  await stowage.keys.create({ name: "While offline" });
  await reconnect();
  await expect(page.getByRole("row").filter({ hasText: "While offline" })).toBeVisible();
  await expect(banner).toHaveCount(0);
});

exhaustive("stays offline for the user until a request succeeds", async ({ at, problems }) => {
  problems.allow(OFFLINE);
  const { page } = await at("/keys");
  await expect(page.getByText("Connecting…")).toHaveCount(0);
  let failed = 0;
  page.on("requestfailed", (request) => /\/auth\/v1\/events/.test(request.url()) && failed++);
  const reconnect = await cutNetwork(page);
  const banner = page.getByText("You're offline. Changes will appear when you reconnect.");
  await expect(banner).toBeVisible();
  await banner.evaluate((element) => {
    Reflect.set(window, "changes", 0);
    new MutationObserver(() => Reflect.set(window, "changes", Number(Reflect.get(window, "changes")) + 1)).observe(
      element,
      { childList: true, characterData: true, subtree: true },
    );
  });
  // The client has used up its retries, and the page has retried twice.
  const given = failed;
  await expect.poll(() => failed - given).toBeGreaterThan(6);
  expect(await page.evaluate(() => Reflect.get(window, "changes"))).toBe(0);
  await reconnect();
  await expect(banner).toHaveCount(0);
});

exhaustive("keeps the palette closed while the session has expired", async ({ at, problems }) => {
  problems.allow(401);
  const { page, team, stowage } = await at("/files");
  for (const { _id } of await collect(stowage.sessions.list())) await stowage.sessions.delete(_id);
  await expect(heading(page, "Sign in")).toBeVisible();
  await page.keyboard.press("Control+k");
  await signIn(page, team.key);
  await expect(heading(page, "Files")).toBeVisible();
  await expect(dialog(page)).toHaveCount(0);
});

describe("Defect in the console", () => {
  test("is reported to the browser's console, and affects only its page", async ({ at, problems }) => {
    problems.allow(/TypeError/);
    const { page } = await at("/keys");
    // The service never responds so, which is why the page fails.
    await page.route(/\/auth\/v1\/users/, (route) => route.fulfill({ json: [null] }));
    const reported = page.waitForEvent("pageerror");
    await link(page, "Users").click();
    await expect(heading(page, "Something went wrong")).toBeVisible();
    await expect(page.getByRole("alert")).toContainText("Something went wrong on this page.");
    expect((await reported).message).toMatch(/null/);
    await link(page, "Usage").click();
    await expect(heading(page, "Usage")).toBeVisible();
  });

  exhaustive("does not stop the event log if it is in a listener", async ({ at, problems }) => {
    problems.allow(/TypeError/);
    const { page, stowage } = await at("/keys");
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    const reported = page.waitForEvent("pageerror");
    await page.route(
      /\/auth\/v1\/events\?.*order=asc/,
      async (route) => {
        const response = await route.fetch();
        const { items } = await stowage.events.list({ limit: 1 });
        // An event without a subject, which the service never sends.
        await route.fulfill({
          response,
          json: { message: "", data: [{ _id: items[0]?._id, type: "user.created", subject: null }] },
        });
      },
      { times: 1 },
    );
    await reported;
    expect(await page.getByText("Connecting…").count()).toBe(0);
    await stowage.keys.create({ name: "From elsewhere" });
    await expect(page.getByRole("row").filter({ hasText: "From elsewhere" })).toBeVisible();
  });
});
