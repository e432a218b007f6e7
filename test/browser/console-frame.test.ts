import type { Page, Request, Route } from "@playwright/test";
import { describe } from "vitest";
import { collect } from "../support/team.ts";
import { openConsole } from "./signed-in.ts";
import { expect, test } from "./support.ts";

/* What all pages of the console have in common. */

const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });
const dialog = (page: Page) => page.getByRole("dialog");
const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
const refusal = (status: number, message: string) => ({ status, json: { status: false, code: "forbidden", message } });

/** Holds the requests of one kind. @returns what lets them go, with another answer where one is given */
async function hold(page: Page, method: string, address: RegExp) {
  let release = (_answer?: object) => {};
  const released = new Promise<object | undefined>((resolve) => {
    release = resolve;
  });
  await page.route(address, async (route: Route) => {
    if (route.request().method() !== method) return route.fallback();
    const answer = await released;
    return answer ? route.fulfill(answer) : route.continue();
  });
  const isHeld = page.waitForRequest((request) => request.method() === method && address.test(request.url()));
  return { release: (answer?: object) => release(answer), isHeld };
}

/** As if another tab were chosen, or this one again. */
const turnAway = (page: Page, hidden: boolean) =>
  page.evaluate((hidden) => {
    Object.defineProperty(document, "hidden", { value: hidden, configurable: true });
    document.dispatchEvent(new Event("visibilitychange"));
  }, hidden);

test("An address that is no page says so, however it is written.", async ({ openPage }) => {
  const { page } = await openConsole(openPage, { path: "/constructor" });
  await expect(heading(page, "Not found")).toBeVisible();
  await page.goto("/console/files/%ff");
  await expect(heading(page, "Not found")).toBeVisible();
});

describe("A dialog", () => {
  test("Whatever is pressed while files are deleted, how it ends is shown.", async ({ openPage, problems }) => {
    problems.allow(/status of 403/);
    const { page, stowage } = await openConsole(openPage, { path: "/files" });
    const { id } = await stowage.files.upload(new File(["Text"], "kept.txt"));
    await page.getByRole("link", { name: "kept.txt" }).click();
    await button(page, "Delete file").click();
    const { release, isHeld } = await hold(page, "DELETE", /\/docs\/v1\//);
    await button(page, "Delete 1 file").click();
    await isHeld;
    for (const _ of [1, 2, 3]) await page.keyboard.press("Escape");
    release(refusal(403, "This one stays."));
    await expect(dialog(page)).toContainText("This one stays.");
    await page.keyboard.press("Escape");
    await expect(dialog(page)).toHaveCount(0);
    expect((await stowage.files.get(id)).originalName).toBe("kept.txt");
  });

  test("It can't be left while it makes a key, which is shown.", async ({ openPage }) => {
    const { page, stowage } = await openConsole(openPage, { path: "/keys" });
    await button(page, "Create key").click();
    await dialog(page).getByLabel("Name").fill("Made");
    const { release, isHeld } = await hold(page, "POST", /\/auth\/v1\/apikeys/);
    await page.keyboard.press("Enter");
    await isHeld;
    await expect(button(page, "Cancel")).toHaveAttribute("aria-disabled", "true");
    await page.keyboard.press("Escape");
    await button(page, "Cancel").click({ force: true });
    release();
    await expect(dialog(page)).toContainText("Copy the key now");
    const made = (await collect(stowage.keys.list())).find(({ name }) => name === "Made");
    await expect(dialog(page).getByRole("code")).toHaveText(made?.key ?? "");
  });

  test("A question goes with its page, and with the session.", async ({ openPage, problems }) => {
    problems.allow(/status of 401/);
    const { page, stowage } = await openConsole(openPage, { path: "/usage" });
    await page.getByRole("link", { name: "Keys" }).click();
    const [own] = await collect(stowage.keys.list());
    await button(page, "Revoke test").click();
    await expect(dialog(page)).toBeVisible();
    await page.goBack();
    await expect(heading(page, "Usage")).toBeVisible();
    await expect(dialog(page)).toHaveCount(0);
    await page.goForward();
    await button(page, "Revoke test").click();
    await expect(dialog(page)).toBeVisible();
    await stowage.keys.delete(own?.name === "Console" ? own.id : "");
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect(dialog(page)).toHaveCount(0);
  });
});

describe("Whoever is signed in", () => {
  test("A page is loaded anew when its tab is shown again, once, and not when it is hidden.", async ({ openPage }) => {
    const { page, stowage } = await openConsole(openPage, { path: "/users" });
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    // It follows what happens: from now on nothing else loads it.
    await stowage.users.create({ firstName: "Ada", lastName: "", email: "ada@example.com", password: "long enough" });
    await expect(page.getByRole("rowheader")).toHaveText("Ada");
    const asked: Request[] = [];
    page.on("request", (request) => /\/auth\/v1\/users/.test(request.url()) && asked.push(request));
    await turnAway(page, true);
    await expect(page.getByText("Connecting …")).toHaveCount(1);
    expect(asked).toHaveLength(0);
    await turnAway(page, false);
    await stowage.users.create({ firstName: "Bob", lastName: "", email: "bob@example.com", password: "long enough" });
    await expect(page.getByRole("rowheader")).toHaveCount(2);
    // Once for being shown, and once for the event, unless the first had it already.
    expect(asked.length).toBeLessThanOrEqual(2);
  });

  test("A late refusal of the key before does not end the session.", async ({ openPage, problems }) => {
    problems.allow(/status of 401/);
    const { page, key, stowage } = await openConsole(openPage, { path: "/webhooks" });
    const { _id } = await stowage.webhooks.create({ url: "https://example.com/hook" });
    await page.goto(`/console/webhooks/${_id}`);
    const { release, isHeld } = await hold(page, "PATCH", /\/auth\/v1\/webhooks\//);
    await button(page, "Disable").click();
    await isHeld;
    await button(page, "Sign out").click();
    await page.getByLabel("Secret key").fill(key);
    await button(page, "Sign in").click();
    await expect(button(page, "Enable").or(button(page, "Disable"))).toBeVisible();
    const answered = page.waitForResponse((response) => response.status() === 401);
    release(refusal(401, "This key was revoked."));
    await (await answered).finished();
    await page.getByRole("link", { name: "Usage" }).click();
    await expect(page.getByRole("meter")).toHaveCount(2);
  });
});

describe("A mistake in the console", () => {
  test("It is told to the browser's console, and takes no more away than its page.", async ({ openPage, problems }) => {
    problems.allow(/Not caught: TypeError/, /TypeError/);
    const { page } = await openConsole(openPage, { path: "/keys" });
    await page.route(/\/auth\/v1\/users/, (route) => route.fulfill({ json: [null] }));
    const told = page.waitForEvent("pageerror");
    await page.getByRole("link", { name: "Users" }).click();
    await expect(heading(page, "This page failed")).toBeVisible();
    await expect(page.getByRole("alert")).toContainText("Something went wrong in this page.");
    expect((await told).message).toMatch(/null/);
    await page.getByRole("link", { name: "Usage" }).click();
    await expect(heading(page, "Usage")).toBeVisible();
  });

  test("One in what hears events is no failure of the line.", async ({ openPage, problems }) => {
    problems.allow(/TypeError/);
    const { page, stowage } = await openConsole(openPage, { path: "/keys" });
    await expect(page.getByText("Connecting …")).toHaveCount(0);
    const told = page.waitForEvent("pageerror");
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
    await told;
    expect(await page.getByText("Connecting …").count()).toBe(0);
    await stowage.keys.create({ name: "From elsewhere" });
    await expect(page.getByRole("row").filter({ hasText: "From elsewhere" })).toBeVisible();
  });
});
