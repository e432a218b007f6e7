import type { Page } from "@playwright/test";
import { describe, onTestFinished } from "vitest";
import type { Webhook } from "../../src/client/index.ts";
import { SignatureError, verifyMessage } from "../../src/client/signatures.ts";
import { expectGoodLooks, tabTo } from "../support/browser/appearance.ts";
import { type At, chooseAction, exhaustive, test } from "../support/browser/console.ts";
import { alter, respond } from "../support/browser/fakes.ts";
import { button, dialog, heading } from "../support/browser/locators.ts";
import { OFFLINE } from "../support/browser/problems.ts";
import { copyBy, expect, expectAnnounced } from "../support/browser/support.ts";
import { type Received, Receiver } from "../support/receiver.ts";
import { collect, newTeam, url } from "../support/team.ts";

const testResponse = (page: Page) => page.getByRole("status").filter({ hasText: "Test event:" });
const deliveries = (page: Page) => page.getByRole("list", { name: "Deliveries" }).getByRole("listitem");
/** The delivery that was chosen from the list. */
const details = (page: Page) => page.getByRole("region", { name: "Delivery", exact: true });
const act = (page: Page, action: string) => chooseAction(page, "Actions for this webhook", action);
const menu = (page: Page) => button(page, "Actions for this webhook");

const verify = (message: Received | undefined, secret: string) =>
  verifyMessage<{ type: string }>(message?.body ?? "", message?.headers ?? {}, secret);

interface Response {
  status: number;
  body: string;
  headers?: Record<string, string>;
}

/** Starts a webhook endpoint for one test. Its response can be changed at any time. */
async function openEndpoint() {
  const state: { response: Response } = { response: { status: 200, body: "thanks" } };
  const receiver = await Receiver.open((reply) => {
    const { status, headers, body } = state.response;
    reply.writeHead(status, { "Content-Type": "text/html", ...headers }).end(body);
  });
  onTestFinished(() => receiver.close());
  return Object.assign(state, { url: receiver.url, received: receiver.received });
}

/** Creates a webhook and opens its page. */
async function openWebhook(at: At, url: string) {
  const team = await newTeam();
  const webhook = await team.stowage.webhooks.create({
    url,
    types: ["apikey.created", "session.created"],
    description: "",
  });
  const { page } = await at(`/webhooks/${webhook._id}`, { team });
  await expect(heading(page, new URL(url).host)).toBeVisible();
  const { webhooks } = team.stowage;
  return { page, team, webhooks, ...webhook };
}

describe("Webhooks", () => {
  test("explains webhooks to a team without any, and shows the secret of a new one once", async ({ at, problems }) => {
    const endpoint = await openEndpoint();
    const { page, stowage } = await at("/webhooks");
    await expect(page.getByRole("heading", { name: "No webhooks yet" })).toBeVisible();
    await expect(page.getByRole("main")).toContainText("Webhooks send a signed request to your server");
    await button(page, "Create webhook").first().click();
    await dialog(page).getByLabel("Endpoint URL").fill("ftp://example.com/");
    await dialog(page).getByLabel("Description").fill("Catalogue");
    await dialog(page).getByLabel("All events").uncheck();
    await dialog(page).getByRole("button", { name: "Create webhook" }).click();
    await expect(page.getByRole("alert")).toHaveText("Select at least one event.");
    await dialog(page).getByLabel("File processed").check();
    await dialog(page).getByLabel("File failed").check();
    problems.allow(400);
    await dialog(page).getByRole("button", { name: "Create webhook" }).click();
    await expect(dialog(page).getByLabel("Endpoint URL")).toBeFocused();
    await expect(dialog(page).getByLabel("Endpoint URL")).toHaveAccessibleDescription(/^Must be an https URL/);
    await expect(dialog(page).getByLabel("Description")).toHaveValue("Catalogue");
    await expect(dialog(page).getByLabel("File failed")).toBeChecked();
    await dialog(page).getByLabel("Endpoint URL").fill(endpoint.url);
    await dialog(page).getByRole("button", { name: "Create webhook" }).click();

    await expect(dialog(page)).toContainText("The console won't show it again.");
    const secret = (await dialog(page).locator("code").textContent()) ?? "";
    expect(await copyBy(dialog(page).getByRole("button", { name: "Copy secret" }), secret)).toBe(secret);
    await expectAnnounced(page, "Copied secret");
    await button(page, "Done").click();
    await expect(button(page, "Create webhook").first()).toBeFocused();
    const [made] = await collect(stowage.webhooks.list());
    expect(made).toMatchObject({
      url: endpoint.url,
      description: "Catalogue",
      types: ["file.completed", "file.failed"],
      status: "enabled",
    });
    await stowage.webhooks.test(made?._id ?? "");
    expect(await verify(endpoint.received[0], secret)).toMatchObject({ type: "webhook.test" });

    const row = page.getByRole("row").filter({ hasText: endpoint.url });
    await expect(row).toContainText("Catalogue");
    await expect(row.getByRole("cell")).toContainText(["File processed, File failed", "", "Enabled"]);
    expect(await page.content()).not.toContain(secret);
    await row.getByRole("link").click();
    await expect(heading(page, "Catalogue")).toBeFocused();
    await expect(page).toHaveURL(`${url}/console/webhooks/${made?._id}`);
  });

  test("shows the response to a test event as text, or why there is none", async ({ at }) => {
    const endpoint = await openEndpoint();
    endpoint.response = { status: 418, body: "<h1>I am a teapot</h1>" };
    const { page, webhooks, _id } = await openWebhook(at, endpoint.url);
    await button(page, "Send test event").click();
    await expect(testResponse(page)).toContainText(/418 · [\d,]+ ms/);
    await expect(testResponse(page)).toContainText("<h1>I am a teapot</h1>");
    await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
    await expect(button(page, "Send test event")).toBeFocused();

    const closed = new URL(endpoint.url);
    closed.port = "1";
    await webhooks.update(_id, { url: closed.href });
    await expect(heading(page, closed.host)).toBeVisible();
    await button(page, "Send test event").click();
    await expect(testResponse(page)).toContainText("Connection failed");
  });

  test("edits, disables, enables, and deletes a webhook", async ({ at }) => {
    const endpoint = await openEndpoint();
    const { page, webhooks, _id } = await openWebhook(at, endpoint.url);
    await act(page, "Edit");
    await expect(dialog(page).getByLabel("API key created")).toBeChecked();
    await dialog(page).getByLabel("Description").fill("وصف 🎧");
    await dialog(page).getByLabel("All events").check();
    // Somebody else's change neither clears the form nor is overwritten.
    await webhooks.update(_id, { url: `${endpoint.url}/2` });
    const shownUrl = page.getByRole("definition", { includeHidden: true }).first();
    await expect(shownUrl).toHaveText(`${endpoint.url}/2`);
    // Titles appear in tabs and histories, and a path may contain a secret.
    await expect(page).toHaveTitle(`${new URL(endpoint.url).host} – Stowage`);
    await expect(dialog(page).getByLabel("Description")).toHaveValue("وصف 🎧");
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await expectAnnounced(page, "Webhook updated");
    await expect(menu(page)).toBeFocused();
    await expect(page.getByRole("definition")).toContainText([endpoint.url, "All events"]);
    await expect(heading(page, "وصف 🎧")).toBeVisible();
    expect(await webhooks.get(_id)).toMatchObject({ types: null, description: "وصف 🎧", url: `${endpoint.url}/2` });

    await act(page, "Disable");
    await expect(page.getByText("Disabled", { exact: true })).toBeVisible();
    await expect(menu(page)).toBeFocused();
    expect(await webhooks.get(_id)).toMatchObject({ status: "disabled", disabledReason: "requested" });
    await act(page, "Enable");
    await expectAnnounced(page, "Webhook enabled");
    expect(await webhooks.get(_id)).toMatchObject({ status: "enabled" });

    await act(page, "Delete");
    await expect(dialog(page)).toContainText("its delivery log will be deleted");
    await dialog(page).getByRole("button", { name: "Delete webhook" }).click();
    await expect(heading(page, "Webhooks")).toBeFocused();
    await expectAnnounced(page, "Webhook deleted");
    expect(await collect(webhooks.list())).toEqual([]);
    await expect(page.getByRole("heading", { name: "No webhooks yet" })).toBeVisible();
  });

  exhaustive("loads no webhook while deleting it, although the event of the deletion arrives first", async ({ at }) => {
    const endpoint = await openEndpoint();
    const { page, _id } = await openWebhook(at, endpoint.url);
    await page.clock.install();
    await page.reload();
    await expect(menu(page)).toBeVisible();
    const loaded: string[] = [];
    await page.route(new RegExp(`/auth/v1/webhooks/${_id}`), async (route) => {
      if (route.request().method() !== "DELETE") {
        loaded.push(route.request().url());
        return route.continue();
      }
      loaded.length = 0;
      const reported = page.waitForResponse(
        async (response) =>
          response.url().includes("/auth/v1/events") && (await response.text()).includes("webhook.deleted"),
      );
      const response = await route.fetch();
      await reported;
      // Longer than the interval of loads.
      await page.clock.runFor(5000);
      await route.fulfill({ response });
    });
    await act(page, "Delete");
    await dialog(page).getByRole("button", { name: "Delete webhook" }).click();
    await expect(page.getByRole("heading", { name: "No webhooks yet" })).toBeVisible();
    expect(loaded).toEqual([]);
  });

  exhaustive("rotates the secret, which keeps or revokes the old one", async ({ at }) => {
    const endpoint = await openEndpoint();
    const { page, webhooks, _id, secret: first } = await openWebhook(at, endpoint.url);
    const rotate = async (isOldRevoked: boolean) => {
      await act(page, "Rotate secret");
      await dialog(page).getByLabel("Revoke the old secret immediately").setChecked(isOldRevoked);
      await dialog(page).getByRole("button", { name: "Rotate secret" }).click();
      await expect(dialog(page)).toContainText("Copy this secret now.");
      const secret = (await dialog(page).locator("code").textContent()) ?? "";
      await button(page, "Done").click();
      await expect(menu(page)).toBeFocused();
      await webhooks.test(_id);
      return { secret, message: endpoint.received.at(-1) };
    };
    const second = await rotate(false);
    for (const secret of [first, second.secret]) await verify(second.message, secret);
    const third = await rotate(true);
    await verify(third.message, third.secret);
    for (const secret of [first, second.secret])
      await expect(verify(third.message, secret)).rejects.toBeInstanceOf(SignatureError);
  });

  exhaustive("says that a webhook was not found", async ({ at, problems }) => {
    const { page, webhooks, _id } = await openWebhook(at, "http://127.0.0.1:1/");
    problems.allow(404);
    await webhooks.delete(_id);
    await expect(page.getByRole("heading", { name: "Webhook not found" })).toBeVisible();
    await page.getByRole("link", { name: "Back to webhooks" }).click();
    await expect(heading(page, "Webhooks")).toBeFocused();
  });
});

describe("A webhook whose last attempt failed", () => {
  exhaustive("is not called healthy, although it is not failing yet", async ({ at }) => {
    const endpoint = await openEndpoint();
    endpoint.response = { status: 500, body: "" };
    const { page, webhooks, _id } = await openWebhook(at, endpoint.url);
    await expect.poll(async () => (await webhooks.get(_id)).lastResult).not.toBeNull();
    // The third failure may come before the page asks.
    const asHealthy = (webhook: Webhook) => ({ ...webhook, health: "healthy", failingSince: null });
    await page.route(`**/auth/v1/webhooks/${_id}`, (route) => alter(route, asHealthy));
    await page.reload();
    await expect(page.getByText("Last attempt failed")).toBeVisible();
    await expect(page.getByText("Healthy")).toHaveCount(0);
  });
});

describe("The count of failing webhooks", () => {
  test("is on the icon of its tab, and leaves the label free, on a phone", async ({ at }) => {
    const { page, team } = await at("/files", { width: 320 });
    await team.stowage.webhooks.create({ url: "https://hooks.example.com/", types: ["user.deleted"] });
    const asFailing = (webhooks: Webhook[]) =>
      webhooks.map((webhook) => ({ ...webhook, health: "failing", failingSince: webhook.createdAt }));
    await page.route(/\/auth\/v1\/webhooks(\?|$)/, (route) => alter(route, asFailing));
    await page.reload();
    const tab = page.getByRole("navigation", { name: "Sections" }).getByRole("link", { name: "Webhooks 1 failing" });
    const badge = tab.getByTitle("1 webhook failing");
    await expect(badge).toBeVisible();
    for (const [width, height] of [
      [390, 800],
      [320, 640],
      [700, 390],
    ] as const) {
      await page.setViewportSize({ width, height });
      const [mark, icon, label] = await Promise.all([
        badge.boundingBox(),
        tab.locator("svg").boundingBox(),
        tab.evaluate((link) => {
          const text = document.createRange();
          text.selectNode([...link.childNodes].find(({ nodeType }) => nodeType === Node.TEXT_NODE) as Node);
          return text.getBoundingClientRect().toJSON();
        }),
      ]);
      if (!mark || !icon) throw new Error("The badge is not visible.");
      expect(mark.height, `at ${width} px`).toBe(16);
      expect(mark.y + mark.height, `at ${width} px`).toBeLessThanOrEqual(label.y);
      // Its middle is near the upper corner.
      expect(Math.abs(mark.x + mark.width / 2 - icon.x - icon.width), `at ${width} px`).toBeLessThan(8);
      expect(Math.abs(mark.y + mark.height / 2 - icon.y), `at ${width} px`).toBeLessThan(8);
    }
  });
});

describe("Delivery log", () => {
  exhaustive("shows each delivery with its attempts, polls pending ones, and resends", async ({ at }) => {
    const endpoint = await openEndpoint();
    endpoint.response = { status: 500, body: "out of order" };
    // Signing in creates a session, which is the event of this webhook.
    const { page, team, webhooks, _id } = await openWebhook(at, endpoint.url);
    await expect(deliveries(page)).toHaveCount(1);
    await expect(deliveries(page)).toContainText(
      /Session created(Waiting|Failing).+(HTTP 500 · \d attempts?.+ · next|Not sent yet)/,
    );
    endpoint.response = { status: 200, body: "thanks" };
    // On a slow machine, the next attempt may be minutes away.
    for (const { _id: id, attempts } of (await webhooks.deliveries(_id)).items)
      if (attempts.length > 1) await webhooks.redeliver(id);
    await expect(deliveries(page)).toContainText(/Session createdDelivered.+HTTP 200 · \d attempts/);
    // On a slow machine, several attempts fail before the page shows the first one.
    const attempts = endpoint.received.length;
    await expect(deliveries(page)).toContainText(`HTTP 200 · ${attempts} attempts`);

    await tabTo(deliveries(page).getByRole("button"));
    await page.keyboard.press("Enter");
    // The latest attempt is the first.
    await expect(details(page)).toContainText(/200 · .*500 · /s);
    const [event] = (await team.stowage.events.list({ type: "session.created", limit: 1 })).items;
    const link = details(page).getByRole("link", { name: event?._id ?? "" });
    await expect(link).toHaveAttribute("href", `/console/events/${event?._id}`);

    await expect(page.getByText(/^Last day: \d+% of \d+ attempts succeeded$/)).toBeVisible();
    await details(page).getByText("Request", { exact: true }).click();
    const request = await details(page).getByText("webhook-signature: (not stored)").textContent();
    const { headers, body } = endpoint.received.at(-1) ?? {};
    expect(request).toContain(`webhook-timestamp: ${headers?.["webhook-timestamp"]}\n`);
    expect(JSON.parse(request?.slice(request.indexOf("{")) ?? "")).toEqual(JSON.parse(body ?? ""));
    await button(page, "Resend").click();
    await expect(details(page).getByRole("status")).toHaveText(/^Delivered · HTTP 200 · [\d,]+ ms$/);
    await expect(deliveries(page)).toContainText(/Delivered/);
    await expect(deliveries(page)).toContainText(`HTTP 200 · ${attempts + 1} attempts`);
    await expect(button(page, "Resend")).toBeFocused();
    expect(endpoint.received.map(({ headers }) => headers["webhook-id"])).toEqual(Array(attempts + 1).fill(event?._id));

    // New deliveries appear on top, and the chosen one stays.
    await team.stowage.keys.create({ name: "next" });
    await expect(deliveries(page)).toHaveCount(2);
    await expect(deliveries(page).first()).toContainText(/API key createdDeliverednext · .+HTTP 200 · 1 attempt$/);
    await expect(details(page).getByRole("heading")).toHaveText("Session created");

    await link.click();
    await expect(heading(page, "Session created")).toBeFocused();
  });

  test("shows the result of a resend in place, although its tab no longer lists the delivery", async ({ at }) => {
    const endpoint = await openEndpoint();
    endpoint.response = { status: 500, body: "out of order" };
    const team = await newTeam();
    const { _id } = await team.stowage.webhooks.create({ url: endpoint.url, types: ["apikey.created"] });
    for (const name of ["one", "two"]) await team.stowage.keys.create({ name });
    const failing = () => collect(team.stowage.webhooks.deliveries(_id, { status: "failing" }));
    await expect.poll(async () => (await failing()).length).toBe(2);
    const { page } = await at(`/webhooks/${_id}`, { team });
    await page.getByRole("group", { name: "Show" }).getByText("Failing").click();
    await expect(deliveries(page)).toHaveCount(2);
    await expect(button(page, "Resend 2 that failed")).toBeVisible();
    const chosen = deliveries(page).filter({ hasText: "one" });
    await chosen.getByRole("button").click();
    endpoint.response = { status: 200, body: "" };
    await button(page, "Resend").click();
    await expect(details(page).getByRole("status")).toHaveText(/^Delivered · HTTP 200 · [\d,]+ ms$/);
    await expect(chosen).toHaveCount(0);
    await expect(details(page)).toContainText("one");
    await expect(details(page)).toContainText("HTTP 200");
  });

  exhaustive("says since when an endpoint fails, and resends from there", async ({ at }) => {
    const endpoint = await openEndpoint();
    endpoint.response = { status: 500, body: "database is locked" };
    const team = await newTeam();
    const { _id } = await team.stowage.webhooks.create({ url: endpoint.url, types: ["apikey.created"] });
    for (const name of ["one", "two", "three"]) await team.stowage.keys.create({ name });
    await expect.poll(() => endpoint.received.length).toBeGreaterThanOrEqual(3);
    await expect.poll(async () => (await team.stowage.webhooks.get(_id)).health).toBe("failing");
    const failing = await team.stowage.webhooks.get(_id);
    const { page } = await at("/webhooks", { team });
    const listed = page.getByRole("row").filter({ hasText: endpoint.url });
    await expect(listed.getByRole("cell").last()).toHaveText("Failing");
    // Every page says it.
    await expect(page.getByRole("navigation", { name: "Sections" })).toContainText("Webhooks1 failing");
    // The record has the health, so no delivery is read.
    const requests: string[] = [];
    page.on("request", (request) => requests.push(request.url()));
    await page.reload();
    await expect(listed.getByRole("cell").last()).toHaveText("Failing");
    expect(requests.filter((requested) => requested.includes("deliveries"))).toEqual([]);
    await expect(listed.getByText(/^(\d+) of \1 attempts failed$/)).toBeVisible();
    await listed.getByRole("link").click();
    await expect(heading(page, new URL(endpoint.url).host)).toBeVisible();
    const banner = page.getByRole("status").filter({ hasText: "Failing since" });
    await expect(banner).toContainText("HTTP 500. Next attempt");
    // The response of the endpoint is in the pane below.
    await expect(banner).not.toContainText("database is locked");
    await expect(details(page)).toContainText("database is locked");
    await expect(banner.locator("strong time")).toHaveAttribute("datetime", failing.failingSince ?? "");
    await expectGoodLooks(page, "webhook-failing");
    endpoint.response = { status: 200, body: "" };
    await banner.getByRole("button", { name: "Resend 3 that failed" }).click();
    await expect(dialog(page)).toHaveAccessibleName("Resend 3 that failed?");
    await dialog(page).getByRole("button", { name: "Resend" }).click();
    await expect(banner).toHaveCount(0);
    await expect(page.getByText("Healthy")).toBeVisible();
    await expect(page.getByRole("radio", { name: "All" })).toBeChecked();
  });

  exhaustive("shows in the list that an endpoint starts to fail, although there is no event for it", async ({ at }) => {
    const endpoint = await openEndpoint();
    const team = await newTeam();
    const { _id } = await team.stowage.webhooks.create({ url: endpoint.url, types: ["apikey.created"] });
    const { page } = await at("/webhooks", { team });
    const health = page.getByRole("row").filter({ hasText: endpoint.url }).getByRole("cell").last();
    await expect(health).toHaveText("Enabled");
    endpoint.response = { status: 500, body: "" };
    for (const name of ["one", "two", "three"]) await team.stowage.keys.create({ name });
    await expect.poll(async () => (await team.stowage.webhooks.get(_id)).health).toBe("failing");
    await expect(health).toHaveText("Failing");
  });

  exhaustive("opens on failures behind a page of waiting events, and resends all failed ones", async ({ at }) => {
    const endpoint = await openEndpoint();
    endpoint.response = { status: 500, body: "maintenance" };
    const team = await newTeam();
    const { _id } = await team.stowage.webhooks.create({ url: endpoint.url, types: ["apikey.created"] });
    const create = (name: string) => team.stowage.keys.create({ name });
    for (const name of ["one", "two", "three"]) await create(name);
    await expect.poll(async () => (await team.stowage.webhooks.get(_id)).health).toBe("failing");
    // The next response pauses the webhook for an hour.
    endpoint.response = { status: 503, body: "maintenance", headers: { "Retry-After": "3600" } };
    const failing = () => collect(team.stowage.webhooks.deliveries(_id, { status: "failing" }));
    const nextAttempts = async () => (await failing()).map(({ nextAttemptAt }) => Date.parse(nextAttemptAt ?? ""));
    await expect.poll(async () => Math.min(...(await nextAttempts()))).toBeGreaterThan(Date.now() + 30 * 60_000);
    const names = Array.from({ length: 55 }, (_, i) => `waiting ${i}`);
    await Promise.all(names.map(create));
    const { page } = await at(`/webhooks/${_id}`, { team });
    const banner = page.getByRole("status").filter({ hasText: "Failing since" });
    await expect(banner).toContainText("HTTP 503. Next attempt");
    await expect(page.getByRole("radio", { name: "Failing" })).toBeChecked();
    await expect(deliveries(page).first()).toContainText(
      /^API key created(one|two|three) · .+HTTP 50[03] · \d attempt/,
    );
    await expect(deliveries(page).filter({ hasText: "waiting" })).toHaveCount(0);
    await expect(details(page)).toContainText(/HTTP 50[03] · .+maintenance.+Request/s);
    await expect(button(page, "Resend")).toHaveClass(/primary/);
    await expect(page.getByRole("group", { name: "Show" })).toHaveText("ShowAllFailing 3Delivered");
    const show = (tab: string) => page.getByRole("group", { name: "Show" }).getByText(tab).click();
    await show("Delivered");
    await expect(page.getByText("No matching deliveries")).toBeVisible();
    await show("All");
    await expect(deliveries(page)).toHaveCount(50);
    await expect(deliveries(page).first()).toContainText(/^API key createdWaitingwaiting \d+ · .+Not sent yet$/);
    await expect(button(page, "Send now")).not.toHaveClass(/primary/);

    endpoint.response = { status: 200, body: "" };
    await banner.getByRole("button", { name: "Resend 3 that failed" }).click();
    await expect(dialog(page)).toHaveAccessibleName("Resend 3 that failed?");
    await dialog(page).getByRole("button", { name: "Resend" }).click();
    await expectAnnounced(page, "3 events queued for resending");
    await expect(banner).toHaveCount(0);
    await expect.poll(() => new Set(endpoint.received.map(({ headers }) => headers["webhook-id"])).size).toBe(58);
    await expect(deliveries(page).first()).toContainText("Delivered");
  });

  exhaustive("replays failed deliveries after a disabled webhook is enabled again", async ({ at, problems }) => {
    const endpoint = await openEndpoint();
    const { page, webhooks, team, _id } = await openWebhook(at, endpoint.url);
    await expect(deliveries(page)).toContainText("Delivered");
    endpoint.response = { status: 410, body: "" };
    await team.stowage.keys.create({ name: "gone" });
    await expect(page.getByText("Disabled: endpoint returned 410 Gone")).toBeVisible();
    await expect(deliveries(page).first()).toContainText(/API key createdFailedgone · .+HTTP 410 · 1 attempt$/);
    const [failed] = (await webhooks.deliveries(_id)).items;

    problems.allow(409);
    await act(page, "Replay");
    await dialog(page).getByLabel("Failed deliveries only").check();
    await dialog(page).getByRole("button", { name: "Replay" }).click();
    await expect(page.getByRole("alert")).toContainText("The webhook is disabled. Enable it and retry.");
    await page.keyboard.press("Escape");
    await expect(menu(page)).toBeFocused();

    endpoint.response = { status: 200, body: "" };
    await act(page, "Enable");
    await expectAnnounced(page, "Webhook enabled");
    await act(page, "Replay");
    await dialog(page).getByLabel("Failed deliveries only").check();
    await dialog(page).getByRole("button", { name: "Replay" }).click();
    await expectAnnounced(page, "1 event queued for resending");
    await expect(deliveries(page).first()).toContainText(/API key createdDelivered.+HTTP 200 · 2 attempts$/);
    expect(endpoint.received.at(-1)?.headers["webhook-id"]).toBe(failed?.eventId);
    expect(endpoint.received).toHaveLength(3);
  });

  exhaustive("continues a long replay, also after a failure", async ({ at, problems }) => {
    problems.allow(OFFLINE);
    const { page, team } = await openWebhook(at, (await openEndpoint()).url);
    const [first] = (await team.stowage.events.list({ order: "asc", limit: 1 })).items;
    const later = first?._id.replace(/.$/, (digit) => (digit === "0" ? "1" : "0"));
    const asked: unknown[] = [];
    const steps = [{ deliveries: 1000, next: later }, null, { deliveries: 2, next: null }];
    await page.route(/\/replay$/, async (route) => {
      asked.push(route.request().postDataJSON());
      const data = steps.shift();
      if (!data) return route.abort("internetdisconnected");
      await respond(route, { data });
    });
    await act(page, "Replay");
    const since = dialog(page).getByLabel("Events since");
    await expect(since).toHaveValue(/^\d{4}-\d\d-\d\dT\d\d:\d\d$/);
    await since.fill("2026-03-01T10:30");
    await dialog(page).getByRole("button", { name: "Replay" }).click();
    await expect(page.getByRole("alert")).toContainText("Can't reach Stowage.");
    await expect(dialog(page).getByText("1,000 events so far")).toBeVisible();
    await dialog(page).getByRole("button", { name: "Replay" }).click();
    await expectAnnounced(page, "1,002 events queued for resending");
    const step = (after: string | undefined) => ({ after, failedOnly: true });
    const moment = await page.evaluate(() => new Date("2026-03-01T10:30").toISOString());
    expect(asked).toEqual([step(moment), step(later), step(later)]);
    await expect(menu(page)).toBeFocused();
  });
});

exhaustive("webhooks work with only a keyboard", async ({ at }) => {
  const endpoint = await openEndpoint();
  const { page, stowage } = await at("/webhooks");
  const press = async (target: ReturnType<typeof button>) => {
    await tabTo(target);
    await page.keyboard.press("Enter");
  };
  await press(button(page, "Create webhook").first());
  await expect(dialog(page).getByLabel("Endpoint URL")).toBeFocused();
  await page.keyboard.type(endpoint.url);
  await tabTo(dialog(page).getByLabel("All events"));
  await page.keyboard.press("Space");
  await tabTo(dialog(page).getByLabel("User deleted"));
  await page.keyboard.press("Space");
  await press(dialog(page).getByRole("button", { name: "Create webhook" }));
  await press(button(page, "Done"));
  expect(await collect(stowage.webhooks.list())).toMatchObject([{ url: endpoint.url, types: ["user.deleted"] }]);
  await press(page.getByRole("link", { name: new URL(endpoint.url).host }));
  await expect(heading(page, new URL(endpoint.url).host)).toBeFocused();
  await press(button(page, "Send test event"));
  await expect(testResponse(page)).toContainText("200 · ");
  await press(menu(page));
  await expect(page.getByRole("menuitem", { name: "Edit" })).toBeFocused();
  await page.keyboard.press("ArrowDown");
  await page.keyboard.press("Enter");
  await expect(dialog(page).getByLabel("Events since")).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(menu(page)).toBeFocused();
  await page.keyboard.press("Enter");
  await expect(page.getByRole("menuitem", { name: "Edit" })).toBeFocused();
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await press(dialog(page).getByRole("button", { name: "Delete webhook" }));
  await expect(heading(page, "Webhooks")).toBeFocused();
  expect(await collect(stowage.webhooks.list())).toEqual([]);
});
