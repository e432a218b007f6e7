import type { Page, Request, Route } from "@playwright/test";
import { describe } from "vitest";
import { collect } from "../support/team.ts";
import { button, dialog, heading } from "./locators.ts";
import { chooseAction, openConsole } from "./signed-in.ts";
import { cutNetwork, expect, test } from "./support.ts";

/* The parts that all pages of the console share. */

const errorResponse = (status: number, message: string) => ({
  status,
  json: { status: false, code: "forbidden", message },
});

/** Holds matching requests until they are released, optionally with a given response. */
async function hold(page: Page, method: string, pattern: RegExp) {
  let release = (_response?: object) => {};
  const released = new Promise<object | undefined>((resolve) => {
    release = resolve;
  });
  await page.route(pattern, async (route: Route) => {
    if (route.request().method() !== method) return route.fallback();
    const response = await released;
    return response ? route.fulfill(response) : route.continue();
  });
  const isHeld = page.waitForRequest((request) => request.method() === method && pattern.test(request.url()));
  return { release: (response?: object) => release(response), isHeld };
}

/** Simulates switching to another tab and back. */
const setHidden = (page: Page, hidden: boolean) =>
  page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);

test("shows a not found page for unknown and malformed URLs", async ({ openPage }) => {
  const { page } = await openConsole(openPage, { path: "/constructor" });
  await expect(heading(page, "Page not found")).toBeVisible();
  await page.goto("/console/files/%ff");
  await expect(heading(page, "Page not found")).toBeVisible();
});

describe("Dialog", () => {
  test("shows the result of a deletion even if Escape is pressed during it", async ({ openPage, problems }) => {
    problems.allow(/status of 403/);
    const { page, stowage } = await openConsole(openPage, { path: "/files" });
    const { id } = await stowage.files.upload(new File(["Text"], "kept.txt"));
    await page.getByRole("link", { name: "kept.txt" }).click();
    await chooseAction(page, "Actions for this file", "Delete");
    const { release, isHeld } = await hold(page, "POST", /\/uploads\/batch/);
    await button(page, "Delete 1 file").click();
    await isHeld;
    for (const _ of [1, 2, 3]) await page.keyboard.press("Escape");
    release(errorResponse(403, "This one stays."));
    await expect(dialog(page)).toContainText("This one stays.");
    await page.keyboard.press("Escape");
    await expect(dialog(page)).toHaveCount(0);
    expect((await stowage.files.get(id)).originalName).toBe("kept.txt");
  });

  test("can't be closed while it creates a key, which it then shows", async ({ openPage }) => {
    const { page, stowage } = await openConsole(openPage, { path: "/keys" });
    const place = await page.locator("main").boundingBox();
    await button(page, "Create key").click();
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

  test("closes if the page or the session changes", async ({ openPage, problems }) => {
    problems.allow(/status of 401/);
    const { page, stowage } = await openConsole(openPage, { path: "/usage" });
    await page.getByRole("link", { name: "Keys" }).click();
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
  test("loads a list once, and not again when the tab is shown again", async ({ openPage }) => {
    const { page, stowage } = await openConsole(openPage, { path: "/users" });
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    const asked: Request[] = [];
    page.on("request", (request) => /\/auth\/v1\/users/.test(request.url()) && asked.push(request));
    // Until its position in the event log is known, a page may load twice.
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    await page.getByRole("link", { name: "Usage" }).click();
    await expect(page.getByRole("meter")).toHaveCount(2);
    asked.length = 0;
    await page.getByRole("link", { name: "Users" }).click();
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    await expect.poll(() => asked.length).toBe(1);
    await stowage.users.create({ firstName: "Ada", lastName: "", email: "ada@example.com", password: "long enough" });
    await expect(page.getByRole("rowheader")).toContainText("Ada");
    // Once for the event.
    expect(asked).toHaveLength(2);
    await setHidden(page, true);
    await expect(page.getByText("Connecting…")).toHaveCount(1);
    await setHidden(page, false);
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    await stowage.users.create({ firstName: "Bob", lastName: "", email: "bob@example.com", password: "long enough" });
    await expect(page.getByRole("rowheader")).toHaveCount(2);
    expect(asked).toHaveLength(3);
  });

  test("survives a late 401 for the previous session key", async ({ openPage, problems }) => {
    problems.allow(/status of 401/);
    const { page, key, stowage } = await openConsole(openPage, { path: "/webhooks" });
    const { _id } = await stowage.webhooks.create({ url: "https://example.com/hook" });
    await page.goto(`/console/webhooks/${_id}`);
    const { release, isHeld } = await hold(page, "PATCH", /\/auth\/v1\/webhooks\//);
    await chooseAction(page, "Actions for this webhook", "Disable");
    await isHeld;
    for (const { _id } of await collect(stowage.sessions.list())) await stowage.sessions.delete(_id);
    await expect(page.getByRole("heading", { name: "Sign in" })).toBeVisible();
    await page.getByText("API key", { exact: true }).click();
    await page.getByLabel("Secret key").fill(key);
    await button(page, "Sign in").click();
    await expect(button(page, "Actions for this webhook")).toBeVisible();
    const answered = page.waitForResponse((response) => response.status() === 401);
    release(errorResponse(401, "This key was revoked."));
    await (await answered).finished();
    await page.getByRole("link", { name: "Usage" }).click();
    await expect(page.getByRole("meter")).toHaveCount(2);
  });
});

test("shows a banner while offline, and catches up afterward", async ({ openPage }) => {
  const { page, stowage } = await openConsole(openPage, { path: "/keys" });
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

describe("Defect in the console", () => {
  test("is reported to the browser's console, and affects only its page", async ({ openPage, problems }) => {
    problems.allow(/Uncaught: TypeError/, /TypeError/);
    const { page } = await openConsole(openPage, { path: "/keys" });
    await page.route(/\/auth\/v1\/users/, (route) => route.fulfill({ json: [null] }));
    const reported = page.waitForEvent("pageerror");
    await page.getByRole("link", { name: "Users" }).click();
    await expect(heading(page, "Something went wrong")).toBeVisible();
    await expect(page.getByRole("alert")).toContainText("Something went wrong on this page.");
    expect((await reported).message).toMatch(/null/);
    await page.getByRole("link", { name: "Usage" }).click();
    await expect(heading(page, "Usage")).toBeVisible();
  });

  test("does not stop the event log if it is in a listener", async ({ openPage, problems }) => {
    problems.allow(/TypeError/);
    const { page, stowage } = await openConsole(openPage, { path: "/keys" });
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    const reported = page.waitForEvent("pageerror");
    await page.route(
      /\/auth\/v1\/events\?.*order=asc/,
      async (route) => {
        const response = await route.fetch();
        const { items } = await stowage.events.list({ limit: 1 }).page();
        await route.fulfill({
          response,
          json: { status: true, data: [{ _id: items[0]?._id, type: "user.created", subject: null }] },
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
