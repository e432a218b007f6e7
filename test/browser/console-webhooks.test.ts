import type { Page } from "@playwright/test";
import { describe } from "vitest";
import { SignatureError, verifyMessage } from "../../src/client/signatures.ts";
import { newTeam, type Team, url } from "../support/team.ts";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "./looks.ts";
import { openReceiver, type Received } from "./receiver.ts";
import { openConsole } from "./signed-in.ts";
import { copyBy, expect, screenshot, test } from "./support.ts";

const heading = (page: Page, name: string) => page.getByRole("heading", { level: 1, name });
const dialog = (page: Page) => page.getByRole("dialog");
const button = (page: Page, name: string) => page.getByRole("button", { name, exact: true });
const answer = (page: Page) => page.getByRole("status").filter({ hasText: "Answer to the test" });
const deliveries = (page: Page) => page.getByRole("region", { name: "Deliveries" }).getByRole("listitem");
const said = (page: Page, text: string) => expect(page.getByRole("status").filter({ hasText: text })).toBeVisible();

const verify = (message: Received | undefined, secret: string) =>
  verifyMessage<{ type: string }>(message?.body ?? "", message?.headers ?? {}, secret);

/** A webhook of a team, and its page. */
async function openWebhook(openPage: Parameters<typeof openConsole>[0], address: string, of?: Team) {
  const team = of ?? (await newTeam());
  const webhook = await team.stowage.webhooks.create({ url: address, types: ["apikey.created"], description: "" });
  const { page } = await openConsole(openPage, { path: `/webhooks/${webhook._id}`, team });
  await expect(heading(page, new URL(address).host)).toBeVisible();
  const { webhooks } = team.stowage;
  return { page, team, webhooks, ...webhook };
}

describe("Webhooks", () => {
  test("A team without one reads what they are for, and makes one whose secret is shown this once.", async ({
    openPage,
    problems,
  }) => {
    const receiver = await openReceiver();
    const { page, stowage } = await openConsole(openPage, { path: "/webhooks" });
    await expect(page.getByRole("heading", { name: "No webhooks yet" })).toBeVisible();
    await expect(page.getByRole("main")).toContainText("tells a server of yours what happens here");
    await button(page, "Create webhook").click();
    await dialog(page).getByLabel("Address").fill("ftp://example.com/");
    await dialog(page).getByLabel("Description").fill("Catalogue");
    await dialog(page).getByLabel("All").uncheck();
    await dialog(page).getByRole("button", { name: "Create webhook" }).click();
    await expect(page.getByRole("alert")).toHaveText("Choose one type of event at least.");
    await dialog(page).getByLabel("File processed").check();
    await dialog(page).getByLabel("File failed").check();
    problems.allow(/status of 400/);
    await dialog(page).getByRole("button", { name: "Create webhook" }).click();
    await expect(dialog(page).getByLabel("Address")).toBeFocused();
    await expect(dialog(page).getByLabel("Address")).toHaveAccessibleDescription(/^Must begin with https/);
    await expect(dialog(page).getByLabel("Description")).toHaveValue("Catalogue");
    await expect(dialog(page).getByLabel("File failed")).toBeChecked();
    await dialog(page).getByLabel("Address").fill(receiver.url);
    await dialog(page).getByRole("button", { name: "Create webhook" }).click();

    await expect(dialog(page)).toContainText("the console shows it this once");
    const secret = (await dialog(page).locator("code").textContent()) ?? "";
    expect(await copyBy(dialog(page).getByRole("button", { name: "Copy secret" }), secret)).toBe(secret);
    await said(page, "Copied secret.");
    await button(page, "Done").click();
    await expect(button(page, "Create webhook")).toBeFocused();
    const [made] = await stowage.webhooks.list();
    expect(made).toMatchObject({
      url: receiver.url,
      description: "Catalogue",
      types: ["file.completed", "file.failed"],
      status: "enabled",
    });
    await stowage.webhooks.test(made?._id ?? "");
    expect(await verify(receiver.received[0], secret)).toMatchObject({ type: "webhook.test" });

    const row = page.getByRole("row").filter({ hasText: receiver.url });
    await expect(row).toContainText("Catalogue");
    await expect(row.getByRole("cell")).toContainText(["File processed, File failed", "Enabled", "20"]);
    expect(await page.content()).not.toContain(secret);
    await row.getByRole("link").click();
    await expect(heading(page, new URL(receiver.url).host)).toBeFocused();
    await expect(page).toHaveURL(`${url}/console/webhooks/${made?._id}`);
  });

  test("A test says what came back, or why nothing did; what came back stays text.", async ({ openPage }) => {
    const receiver = await openReceiver();
    receiver.answer = { status: 418, body: "<h1>I am a teapot</h1>" };
    const { page, webhooks, _id } = await openWebhook(openPage, receiver.url);
    await button(page, "Send a test").click();
    await expect(answer(page)).toContainText(/Answered 418 after [\d,]+ ms/);
    await expect(answer(page)).toContainText("<h1>I am a teapot</h1>");
    await expect(page.getByRole("heading", { level: 1 })).toHaveCount(1);
    await expect(button(page, "Send a test")).toBeFocused();

    const closed = new URL(receiver.url);
    closed.port = "1";
    await webhooks.update(_id, { url: closed.href });
    await expect(heading(page, closed.host)).toBeVisible();
    await button(page, "Send a test").click();
    await expect(answer(page)).toContainText("The connection failed");
  });

  test("It is changed, disabled and enabled, and deleted.", async ({ openPage }) => {
    const receiver = await openReceiver();
    const { page, webhooks, _id } = await openWebhook(openPage, receiver.url);
    await button(page, "Change").click();
    await expect(dialog(page).getByLabel("Key created")).toBeChecked();
    await dialog(page).getByLabel("Description").fill("وصف 🎧");
    await dialog(page).getByLabel("All").check();
    // What another changes meanwhile takes nothing that was typed, and is not taken back.
    await webhooks.update(_id, { url: `${receiver.url}/2` });
    const address = page.getByRole("definition", { includeHidden: true }).first();
    await expect(address).toHaveText(`${receiver.url}/2`);
    // Tabs and histories show titles; a path may hold a secret.
    await expect(page).toHaveTitle(`${new URL(receiver.url).host} – Stowage`);
    await expect(dialog(page).getByLabel("Description")).toHaveValue("وصف 🎧");
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await said(page, "Saved.");
    await expect(button(page, "Change")).toBeFocused();
    await expect(page.getByRole("definition")).toContainText([receiver.url, "وصف 🎧", "All"]);
    expect(await webhooks.get(_id)).toMatchObject({ types: null, description: "وصف 🎧", url: `${receiver.url}/2` });

    await button(page, "Disable").click();
    await expect(page.getByText("Disabled", { exact: true })).toBeVisible();
    await expect(button(page, "Enable")).toBeFocused();
    expect(await webhooks.get(_id)).toMatchObject({ status: "disabled", disabledReason: "requested" });
    await page.keyboard.press("Enter");
    await expect(page.getByText("Enabled", { exact: true })).toBeVisible();
    expect(await webhooks.get(_id)).toMatchObject({ status: "enabled" });

    await button(page, "Delete").click();
    await expect(dialog(page)).toContainText("the log of its deliveries is lost");
    await dialog(page).getByRole("button", { name: "Delete webhook" }).click();
    await expect(heading(page, "Webhooks")).toBeFocused();
    await said(page, "Webhook deleted.");
    expect(await webhooks.list()).toEqual([]);
    await expect(page.getByRole("heading", { name: "No webhooks yet" })).toBeVisible();
  });

  test("A new secret is shown this once; the old one signs too, or is revoked at once.", async ({ openPage }) => {
    const receiver = await openReceiver();
    const { page, webhooks, _id, secret: first } = await openWebhook(openPage, receiver.url);
    const rotate = async (isOldRevoked: boolean) => {
      await button(page, "New secret").click();
      await dialog(page).getByLabel("Revoke the old one at once").setChecked(isOldRevoked);
      await dialog(page).getByRole("button", { name: "Make new secret" }).click();
      await expect(dialog(page)).toContainText("Copy the secret now");
      const secret = (await dialog(page).locator("code").textContent()) ?? "";
      await button(page, "Done").click();
      await expect(button(page, "New secret")).toBeFocused();
      await webhooks.test(_id);
      return { secret, message: receiver.received.at(-1) };
    };
    const second = await rotate(false);
    for (const secret of [first, second.secret]) await verify(second.message, secret);
    const third = await rotate(true);
    await verify(third.message, third.secret);
    for (const secret of [first, second.secret])
      await expect(verify(third.message, secret)).rejects.toBeInstanceOf(SignatureError);
  });

  test("One that is deleted elsewhere, or never was, says so.", async ({ openPage, problems }) => {
    const { page, webhooks, _id } = await openWebhook(openPage, "http://127.0.0.1:1/");
    problems.allow(/status of 404/);
    await webhooks.delete(_id);
    await expect(page.getByRole("heading", { name: "There is no webhook at this address." })).toBeVisible();
    await page.getByRole("link", { name: "All webhooks" }).click();
    await expect(heading(page, "Webhooks")).toBeFocused();
  });
});

describe("The log of deliveries", () => {
  test("It shows each delivery with its tries, follows what is pending, and sends again.", async ({ openPage }) => {
    const receiver = await openReceiver();
    receiver.answer = { status: 500, body: "out of <order>" };
    // Signing in makes a key, which is what this webhook is told of.
    const { page, team } = await openWebhook(openPage, receiver.url);
    await expect(deliveries(page)).toHaveCount(1);
    await expect(deliveries(page)).toContainText(/Key created Pending 1 try, next/);
    receiver.answer = { status: 200, body: "thanks" };
    await expect(deliveries(page)).toContainText("Key created Succeeded 2 tries");

    await tabTo(deliveries(page).locator("summary"));
    await page.keyboard.press("Enter");
    await expect(deliveries(page)).toContainText(/Answered 500 after .*out of <order>.*Answered 200 after .*thanks/s);
    const [event] = (await team.stowage.events.list({ type: "apikey.created", limit: 1 }).page()).items;
    await expect(deliveries(page).getByRole("link")).toHaveAttribute("href", `/console/events/${event?._id}`);

    expect(receiver.received).toHaveLength(2);
    await button(page, "Send again").click();
    await said(page, "It is being sent again.");
    await expect(deliveries(page)).toContainText("Succeeded 3 tries");
    await expect(button(page, "Send again")).toBeFocused();
    expect(receiver.received.map(({ headers }) => headers["webhook-id"])).toEqual(Array(3).fill(event?._id));

    // What happens next appears on top, and what is unfolded stays so.
    await team.stowage.keys.create({ name: "next" });
    await expect(deliveries(page)).toHaveCount(2);
    await expect(deliveries(page).first()).toContainText("Succeeded 1 try");
    await expect(button(page, "Send again")).toHaveCount(1);

    await deliveries(page).getByRole("link").click();
    await expect(heading(page, "Key created")).toBeFocused();
  });

  test("What failed since an event is sent again, once a webhook that was said to be gone is enabled.", async ({
    openPage,
    problems,
  }) => {
    const receiver = await openReceiver();
    const { page, webhooks, team, _id } = await openWebhook(openPage, receiver.url);
    await expect(deliveries(page)).toContainText("Succeeded");
    receiver.answer = { status: 410, body: "" };
    await team.stowage.keys.create({ name: "gone" });
    await expect(page.getByText("Disabled: its receiver said that it is gone")).toBeVisible();
    await expect(deliveries(page).first()).toContainText("Failed 1 try");
    const [failed] = (await webhooks.deliveries(_id).page()).items;

    problems.allow(/status of 409/);
    await deliveries(page).last().locator("summary").click();
    await button(page, "Replay what came after").click();
    await dialog(page).getByLabel("Only what failed").check();
    await dialog(page).getByRole("button", { name: "Send again" }).click();
    await expect(page.getByRole("alert")).toContainText("The webhook is disabled. Enable it and retry.");
    await page.keyboard.press("Escape");
    await expect(button(page, "Replay what came after")).toBeFocused();

    receiver.answer = { status: 200, body: "" };
    await button(page, "Enable").click();
    await expect(page.getByText("Enabled", { exact: true })).toBeVisible();
    await button(page, "Replay what came after").click();
    await dialog(page).getByLabel("Only what failed").check();
    await dialog(page).getByRole("button", { name: "Send again" }).click();
    await said(page, "1 delivery is being sent again.");
    await expect(deliveries(page).first()).toContainText("Succeeded 2 tries");
    expect(receiver.received.at(-1)?.headers["webhook-id"]).toBe(failed?.eventId);
    expect(receiver.received).toHaveLength(3);
  });

  test("A replay of many goes on where the service stopped, also after a failure.", async ({ openPage }) => {
    const { page, team } = await openWebhook(openPage, (await openReceiver()).url);
    const [first] = (await team.stowage.events.list({ order: "asc", limit: 1 }).page()).items;
    const later = first?._id.replace(/.$/, (digit) => (digit === "0" ? "1" : "0"));
    const asked: unknown[] = [];
    const steps = [{ deliveries: 1000, next: later }, null, { deliveries: 2, next: null }];
    await page.route(/\/replay$/, async (route) => {
      asked.push(route.request().postDataJSON());
      const data = steps.shift();
      if (!data) return route.abort("internetdisconnected");
      await route.fulfill({ json: { message: "", data } });
    });
    await button(page, "Replay").click();
    await dialog(page)
      .getByLabel("After the event")
      .fill(first?._id ?? "");
    await dialog(page).getByRole("button", { name: "Send again" }).click();
    await expect(page.getByRole("alert")).toContainText("Can't reach");
    await expect(dialog(page).getByText("1,000 so far.")).toBeVisible();
    await dialog(page).getByRole("button", { name: "Send again" }).click();
    await said(page, "1,002 deliveries are being sent again.");
    const step = (after: string | undefined) => ({ after, failedOnly: false });
    expect(asked).toEqual([step(first?._id), step(later), step(later)]);
    await expect(button(page, "Replay")).toBeFocused();
  });
});

test("Webhooks are used by keyboard alone.", async ({ openPage }) => {
  const receiver = await openReceiver();
  const { page, stowage } = await openConsole(openPage, { path: "/webhooks" });
  const press = async (target: ReturnType<typeof button>) => {
    await tabTo(target);
    await page.keyboard.press("Enter");
  };
  await press(button(page, "Create webhook"));
  await expect(dialog(page).getByLabel("Address")).toBeFocused();
  await page.keyboard.type(receiver.url);
  await tabTo(dialog(page).getByLabel("All"));
  await page.keyboard.press("Space");
  await tabTo(dialog(page).getByLabel("User deleted"));
  await page.keyboard.press("Space");
  await press(dialog(page).getByRole("button", { name: "Create webhook" }));
  await press(button(page, "Done"));
  expect(await stowage.webhooks.list()).toMatchObject([{ url: receiver.url, types: ["user.deleted"] }]);
  await press(page.getByRole("link", { name: receiver.url }));
  await expect(heading(page, new URL(receiver.url).host)).toBeFocused();
  await press(button(page, "Send a test"));
  await expect(answer(page)).toContainText("Answered 200");
  await press(button(page, "Replay"));
  await expect(dialog(page).getByLabel("After the event")).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(button(page, "Replay")).toBeFocused();
  await tabTo(button(page, "Delete"), "Shift+Tab");
  await page.keyboard.press("Enter");
  await press(dialog(page).getByRole("button", { name: "Delete webhook" }));
  await expect(heading(page, "Webhooks")).toBeFocused();
  expect(await stowage.webhooks.list()).toEqual([]);
});

test("Webhooks have no barriers in either theme, and fit 320 px.", async ({ openPage }) => {
  const receiver = await openReceiver();
  receiver.answer = { status: 500, body: `${"no space ".repeat(40)}${"x".repeat(400)}` };
  const team = await newTeam();
  const long = `${receiver.url}/${"path".repeat(60)}`;
  const { _id } = await team.stowage.webhooks.create({ url: long, description: "فهرس 🎧 ".repeat(12), types: null });
  const types = ["file.completed", "file.failed", "user.created", "user.deleted", "webhook.disabled"] as const;
  await team.stowage.webhooks.create({ url: receiver.url, description: "", types: [...types] });
  // Only what is enabled is sent to.
  await expect.poll(() => receiver.received.length).toBe(2);
  await team.stowage.webhooks.update(_id, { status: "disabled" });
  for (const theme of ["light", "dark"] as const) {
    const { page } = await openConsole(openPage, { path: "/webhooks", team, theme });
    const look = async (name: string) => {
      for (const width of [1280, 320]) {
        await page.setViewportSize({ width, height: 800 });
        await expectNoSidewaysScroll(page);
        await expectAccessible(page);
        await screenshot(page, name);
      }
    };
    await expect(page.getByRole("row")).toHaveCount(3);
    await look("webhooks");
    await button(page, "Create webhook").click();
    await dialog(page).getByLabel("All").uncheck();
    await look("webhooks-new");
    await page.keyboard.press("Escape");
    await page.getByRole("link", { name: long }).click();
    await button(page, "Send a test").click();
    await expect(answer(page)).toContainText("Answered 500");
    await deliveries(page).first().locator("summary").click();
    await expect(deliveries(page).first()).toContainText("no space");
    await look("webhook");
  }
});
