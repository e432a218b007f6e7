import type { Page, Route } from "@playwright/test";
import { describe, inject } from "vitest";

import { Stowage, StowageError } from "../../src/client/index.ts";
import type { SavedSession } from "../../src/console/framework/token.ts";
import { expectAccessible, expectGoodLooks, expectLinkColor, tabTo } from "../support/browser/appearance.ts";
import { chooseAction, exhaustive, PASSWORD, signIn, submitKey, test } from "../support/browser/console.ts";
import { alter, respond } from "../support/browser/fakes.ts";
import { button, dialog, heading, row, rows } from "../support/browser/locators.ts";
import { OFFLINE } from "../support/browser/problems.ts";
import { readStorage } from "../support/browser/storage.ts";
import {
  allowWritesInEvents,
  copyBy,
  expect,
  expectAnnounced,
  failRequests,
  nextCopied,
} from "../support/browser/support.ts";
import { collect, newTeam, type Team, url } from "../support/team.ts";

const sessionsOf = ({ stowage }: Team) => collect(stowage.sessions.list());

const EMPTY_STORAGE = JSON.stringify([{}, {}, "", []]);
/** The method of the last sign-in is remembered on the device. */
const SIGNED_OUT_STORAGE = JSON.stringify([{}, { "stowage.sign-in": JSON.stringify("key") }, "", []]);

describe("Signing in", () => {
  test("creates a session from a secret key, stores only its token, and ends it at sign-out", async ({ openPage }) => {
    const team = await newTeam();
    const page = await openPage({ path: "/console/usage?from=link" });
    await signIn(page, team.key);
    // The requested page appears after signing in.
    await expect(heading(page, "Usage")).toBeVisible();
    expect(page.url()).toBe(`${url}/console/usage?from=link`);
    expect(await sessionsOf(team)).toHaveLength(1);
    const kept = await readStorage(page);
    expect(kept).not.toContain(team.key);
    expect(kept).toMatch(/stow_ss_/);
    expect(page.url() + (await page.content())).not.toContain(team.key);
    await page.reload();
    await expect(heading(page, "Usage")).toBeVisible();

    // Requests without the key would be rejected.
    const rejected: string[] = [];
    page.on("request", (request) => {
      const isApi = /\/(auth|docs)\/v1\//.test(request.url());
      if (isApi && !request.headers().authorization) rejected.push(request.url());
    });
    await button(page, "Sign out").click();
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect.poll(() => sessionsOf(team)).toEqual([]);
    expect(rejected).toEqual([]);
    expect(await readStorage(page)).toBe(SIGNED_OUT_STORAGE);
    await page.reload();
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect(page.getByLabel("Secret key")).toBeFocused();
  });

  test("saves by the form what the other tests of the console begin with", async ({ at, openPage }) => {
    const { page, team, session } = await at("/usage");
    const byForm = await openPage({ path: "/console/usage" });
    await signIn(byForm, team.key);
    const saved = (one: Page): Promise<SavedSession> =>
      one.evaluate(() => JSON.parse(sessionStorage.getItem("stowage.session") ?? "null"));
    /** Without what differs between two sessions of one key. */
    const common = ({ key: _, keyId: __, expiresAt: ___, me, ...others }: SavedSession) => ({
      ...others,
      me: { ...me, keyId: "", expiresAt: "" },
    });
    expect(common(await saved(byForm))).toEqual(common(session));
    expect(await saved(page)).toEqual(session);
  });

  exhaustive.for([-2, 2])("keeps the session if the browser's clock is %d days off", async (days, { openPage }) => {
    const team = await newTeam();
    const page = await openPage({ path: "/console/usage" });
    await page.addInitScript((offset) => {
      const { now } = Date;
      globalThis.Date = new Proxy(Date, {
        construct: (Real, given) => (given.length > 0 ? new Real(...(given as [number])) : new Real(now() + offset)),
        get: (Real, name) => (name === "now" ? () => now() + offset : Reflect.get(Real, name)),
      });
    }, days * 86_400_000);
    await page.reload();
    await submitKey(page, team.key);
    await expect(heading(page, "Usage")).toBeVisible();
    await page.reload();
    await expect(heading(page, "Usage")).toBeVisible();
  });

  exhaustive(
    "asks for a password if the URL names the team, and explains a wrong one",
    async ({ openPage, problems }) => {
      const team = await newTeam();
      const email = "Ada@example.com";
      await team.stowage.users.create({ firstName: "Ada", lastName: "L", email, password: PASSWORD, role: "admin" });
      problems.allow(401);
      const page = await openPage({ path: `/console/users?team=${team.teamId}` });
      await expect(page.getByLabel("Team ID")).toHaveValue(team.teamId);
      await page.getByRole("textbox", { name: "Email" }).fill(email);
      await page.getByLabel("Password", { exact: true }).fill("wrong horse");
      await button(page, "Sign in").click();
      await expect(page.getByRole("alert")).toHaveText(/Incorrect team ID, email or password\.$/);
      // The form keeps its values.
      await expect(page.getByRole("textbox", { name: "Email" })).toHaveValue(email);
      await expect(page.getByLabel("Team ID")).toHaveValue(team.teamId);
      await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
      await button(page, "Sign in").click();
      await expect(row(page, email)).toBeVisible();
      expect(await readStorage(page)).not.toContain(PASSWORD);

      // On this device, the team's name then takes the place of its ID.
      await expect.poll(() => readStorage(page)).toMatch(/stowage\.team.*name[\\":]*test/);
      await button(page, "Sign out").click();
      await expect(page.getByText("Team: test")).toBeVisible();
      await expect(page.getByLabel("Team ID")).toHaveCount(0);
      await expectAccessible(page);
      await page.getByRole("textbox", { name: "Email" }).fill(email);
      await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
      await button(page, "Sign in").click();
      await button(page, "Sign out").click();
      await button(page, "Change").click();
      await expect(page.getByLabel("Team ID")).toBeFocused();
      await expect(page.getByLabel("Team ID")).toHaveValue("");
      // A sign-in link, or an invitation that contains one, has the ID.
      await page.getByLabel("Team ID").fill(`Sign in: ${url}/console/sign-in?team=${team.teamId} Email: ada@x`);
      await expect(page.getByLabel("Team ID")).toHaveValue(team.teamId);
    },
  );

  exhaustive("sends a link to reset a password, or says that it can't", async ({ openPage, problems }) => {
    const team = await newTeam();
    problems.allow(501);
    const page = await openPage({ path: `/console/usage?team=${team.teamId}`, width: 320 });
    await page.getByRole("textbox", { name: "Email" }).fill("ada@example.com");
    await expectLinkColor(button(page, "Forgot your password?"));
    await button(page, "Forgot your password?").click();
    await expect(heading(page, "Reset your password")).toBeVisible();
    await expect(page.getByLabel("Password", { exact: true })).toHaveCount(0);
    await expect(page.getByRole("textbox", { name: "Email" })).toHaveValue("ada@example.com");
    await button(page, "Send link").click();
    await expect(page.getByRole("alert")).toContainText("sends no emails. Ask your admin");
    await expectGoodLooks(page, "sign-in-reset");
    // The service of the tests has no binding for emails.
    const asked: unknown[] = [];
    await page.route("**/auth/v1/password/forgot", (route) => {
      asked.push(route.request().postDataJSON());
      return respond(route, {});
    });
    await button(page, "Send link").click();
    await expect(page.getByRole("main").getByRole("status")).toContainText(
      "If a user has this email, we've sent a link",
    );
    expect(asked).toEqual([{ teamId: team.teamId, email: "ada@example.com" }]);
    await button(page, "Back to sign-in").click();
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect(page.getByText("we've sent a link")).toHaveCount(0);
  });

  test("shows only teams and keys to the operator, stores no token, and logs no error", async ({ openPage }) => {
    const team = await newTeam();
    const page = await openPage({ path: "/console" });
    const methods = new Set<string>();
    page.on("request", (request) => methods.add(request.method()));
    await submitKey(page, inject("operatorToken"));
    await expect(heading(page, "Teams")).toBeVisible();
    const sections = page.getByRole("navigation", { name: "Sections" }).getByRole("link");
    await expect(sections).toHaveText(["Teams", "Keys"]);
    await sections.last().click();
    expect([...methods]).toEqual(["GET"]);
    expect(await readStorage(page)).toBe(SIGNED_OUT_STORAGE);

    await page.getByRole("searchbox", { name: "Team ID" }).fill(team.teamId);
    await expect(rows(page)).toHaveText([/^teststow_sk_.{4}….{4}$/]);
    await expect(page).toHaveURL(`${url}/console/keys?team=${team.teamId}`);

    await button(page, "Create key").click();
    await page.getByLabel("Name").fill("New team");
    await dialog(page).getByLabel("Team ID").fill("");
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    await expect(dialog(page)).toContainText("Team ID:");
    const [key, newTeamId] = await dialog(page).locator("code").allTextContents();
    const made = await new Stowage({ url, key }).keys.list();
    expect(made.items).toMatchObject([{ name: "New team", teamId: newTeamId }]);
    expect(newTeamId).not.toBe(team.teamId);
    await button(page, "Done").click();

    await page.keyboard.press("?");
    await expect(dialog(page)).toContainText("G then TGo to teams");
    // None of the list of files and of the player, which the operator doesn't have.
    await expect(dialog(page).getByRole("heading", { level: 3 })).toHaveText(["Everywhere"]);
    await page.keyboard.press("Escape");

    await page.reload();
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect(page.getByLabel("Secret key")).toHaveAccessibleDescription(/The operator token isn't kept/);
  });

  exhaustive("does not let a link choose the team of a key that the operator creates", async ({ openPage }) => {
    const [team, other] = [await newTeam(), await newTeam()];
    const page = await openPage({ path: `/console/keys?team=${team.teamId}` });
    await submitKey(page, inject("operatorToken"));
    await expect(rows(page)).toHaveText([/^teststow_sk_/]);
    await button(page, "Create key").click();
    await expect(dialog(page).getByLabel("Team ID")).toHaveValue("");
    await expect(dialog(page)).toContainText(`You followed a link for team ${team.teamId}`);
    await page.keyboard.press("Escape");
    await page.getByRole("searchbox", { name: "Team ID" }).fill(other.teamId);
    await expect(page).toHaveURL(new RegExp(`team=${other.teamId}$`));
    await button(page, "Create key").click();
    await expect(dialog(page).getByLabel("Team ID")).toHaveValue(other.teamId);
  });

  exhaustive(
    "needs no team ID at the sign-in address of a team, which then leads to the files",
    async ({ openPage }) => {
      const team = await newTeam();
      const email = "ada@example.com";
      await team.stowage.users.create({ firstName: "", lastName: "", email, password: PASSWORD });
      const page = await openPage({ path: `/console/sign-in?team=${team.teamId}` });
      await expect(page.getByLabel("Team ID")).toHaveValue(team.teamId);
      await page.getByLabel("Email", { exact: true }).fill(email);
      await page.getByLabel("Password", { exact: true }).fill(PASSWORD);
      await button(page, "Sign in").click();
      await expect(heading(page, "Files")).toBeVisible();
      await expect(page).toHaveURL(`${url}/console/`);
    },
  );

  exhaustive("works without storage in the browser, until the page is closed", async ({ openPage }) => {
    const { key } = await newTeam();
    const page = await openPage();
    await page.addInitScript(() => {
      for (const name of ["localStorage", "sessionStorage"])
        Object.defineProperty(window, name, {
          get: () => {
            throw new DOMException("Denied.", "SecurityError");
          },
        });
    });
    await page.goto("/console");
    await signIn(page, key);
    await expect(heading(page, "Files")).toBeVisible();
  });

  exhaustive("ends after seconds if the service doesn't respond to the sign-out, with a message", async ({ at }) => {
    const { page } = await at("/files");
    await page.route(/\/auth\/v1\/logout/, () => {});
    await button(page, "Sign out").click();
    await expect(heading(page, "Signing out…")).toBeVisible();
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect(page.getByText("You're signed out, but the session couldn't be ended")).toBeVisible();
  });

  test("explains why it rejects a public key, an unknown key, and other text", async ({ openPage, problems }) => {
    const { stowage } = await newTeam();
    const { key } = await stowage.keys.create({ name: "web", isPublic: true });
    const { key: secret } = await stowage.keys.create({ name: "server" });
    problems.allow(401);
    const page = await openPage({ path: "/console" });
    await submitKey(page, key);
    await expect(page.getByRole("alert")).toContainText("Public keys can only upload files.");
    await submitKey(page, `${secret.slice(0, -1)}${secret.endsWith("x") ? "y" : "x"}`);
    // A request ID wouldn't help after a typo.
    await expect(page.getByRole("alert")).toHaveText(/^That key isn't valid\. Check that you copied all of it\.$/);
    await submitKey(page, "ключ 🔑");
    await expect(page.getByRole("alert")).toHaveText(/^That doesn't look like a key\./);
    expect(await readStorage(page)).toBe(EMPTY_STORAGE);
  });

  exhaustive("signs in as soon as a complete key is pasted", async ({ openPage }) => {
    const { key } = await newTeam();
    const page = await openPage({ path: "/console" });
    const paste = (text: string) =>
      page.getByLabel("Team ID").evaluate((input, pasted) => {
        const clipboardData = new DataTransfer();
        clipboardData.setData("text", pasted);
        input.dispatchEvent(new ClipboardEvent("paste", { bubbles: true, cancelable: true, clipboardData }));
      }, text);
    await expect(page.getByLabel("Team ID")).toBeFocused();
    await paste(key.slice(0, -1));
    await expect(heading(page, "Sign in")).toBeVisible();
    await paste(`${key}\n`);
    await expect(heading(page, "Files")).toBeVisible();
  });

  exhaustive("asks to sign in after the session is revoked, and returns to the page", async ({ at, problems }) => {
    const { page, team } = await at("/users?search=ada");
    await expect(page.getByRole("heading", { name: "No matching users" })).toBeVisible();
    problems.allow(401);
    for (const { _id } of await sessionsOf(team)) await team.stowage.sessions.delete(_id);
    await expect(heading(page, "Sign in")).toBeVisible();
    await expect(page.getByRole("status").filter({ hasText: "Your session has expired." })).toBeVisible();
    await submitKey(page, team.key);
    await expect(page.getByRole("heading", { name: "No matching users" })).toBeVisible();
    await expect(page.getByLabel("Search users")).toHaveValue("ada");
  });
});

describe("Keys", () => {
  test("creates a key, shows it once, copies it, masks it, and revokes it", async ({ at }) => {
    const { page, team } = await at("/keys");
    await button(page, "Create key").click();
    await dialog(page).getByLabel("Name").fill("Web player 🎧");
    await dialog(page)
      .getByRole("radio", { name: /^Upload only/ })
      .check();
    await dialog(page).getByLabel("Expires in").selectOption("30 days");
    await dialog(page).getByRole("button", { name: "Create key" }).click();
    await expect(dialog(page)).toContainText("The console won't show it again.");
    const shown = await dialog(page).locator("code").textContent();
    expect(await copyBy(dialog(page).getByRole("button", { name: "Copy key" }), shown ?? "")).toBe(shown);
    // Outside a modal dialog, screen readers would ignore it.
    await expectAnnounced(page, "Copied key in a dialog");
    await expect(dialog(page).getByText(`const form = new FormData();`)).toContainText(`Bearer ${shown}`);
    await button(page, "Done").click();
    await expect(button(page, "Create key")).toBeFocused();

    const made = (await collect(team.stowage.keys.list())).find(({ name }) => name === "Web player 🎧");
    expect(made).toMatchObject({ isPublic: true });
    expect((await team.stowage.keys.get(made?.id ?? "")).key).toBe(shown);
    const days = (Date.parse(made?.expiresAt ?? "") - Date.parse(made?.createdAt ?? "")) / 86_400_000;
    expect(days).toBeGreaterThan(29.9);
    expect(days).toBeLessThanOrEqual(30);
    await expect(row(page, "Web player")).toContainText("Public");
    await expect(row(page, "Web player").getByRole("code")).toHaveText(/^stow_pk_.{4}….{4}$/);
    for (const key of [team.key, shown]) expect(await page.content()).not.toContain(key);

    await chooseAction(page, "Actions for Web player 🎧", "Revoke");
    await dialog(page).getByRole("button", { name: "Cancel" }).click();
    await expect(button(page, "Actions for Web player 🎧")).toBeFocused();
    await chooseAction(page, "Actions for Web player 🎧", "Revoke");
    await expect(dialog(page)).toContainText("their unfinished uploads are canceled");
    const steps = () => page.evaluate(() => history.length);
    const before = await steps();
    await dialog(page).getByRole("button", { name: "Revoke key" }).click();
    await expect(row(page, "Web player")).toHaveCount(0);
    // Only a deletion on the page of its record leaves that.
    expect(await steps()).toBe(before);
    // The focus moves to the row that takes the place of the deleted one.
    await expect(button(page, "Actions for test")).toBeFocused();
    expect((await collect(team.stowage.keys.list())).map(({ name }) => name)).toEqual(["test"]);
  });

  exhaustive("shows the settings for a new secret key, and copies them only if asked", async ({ at }) => {
    const { page, team } = await at("/keys");
    const copied = nextCopied(page);
    await button(page, "Create key").click();
    await dialog(page).getByLabel("Name").fill("server");
    await dialog(page)
      .getByRole("radio", { name: /^All actions on files/ })
      .check();
    await page.keyboard.press("Enter");
    const shown = await dialog(page).locator("code").first().textContent();
    await dialog(page).getByText("JavaScript", { exact: true }).click();
    await button(page, "Copy JavaScript sample").click();
    // It is the first text that reaches the clipboard.
    expect(await copied).toMatch(/^import /);
    await dialog(page).getByText(".env", { exact: true }).click();
    await expect(dialog(page).locator("pre")).toHaveText(
      `STOWAGE_URL=${new URL(page.url()).origin}\nSTOWAGE_KEY=${shown}`,
    );
    await expectAnnounced(page, "Copied JavaScript sample in a dialog");
    const made = (await collect(team.stowage.keys.list())).find(({ name }) => name === "server");
    expect(made?.scopes.every((scope) => scope.startsWith("files:"))).toBe(true);
  });

  test("warns on every page of keys that expire within a week, but not of those for a few days, or replaced", async ({
    at,
  }) => {
    const team = await newTeam();
    const inDays = (days: number) => new Date(Date.now() + days * 86_400_000).toISOString();
    const created = [
      await team.stowage.keys.create({ name: "Backend" }),
      await team.stowage.keys.create({ name: "CI" }),
    ];
    await team.stowage.keys.create({ name: "Demo", expiresAt: inDays(2) });
    const { page } = await at("/files", { team });
    const notice = page.getByText(/expires? within a week\./);
    await expect(page.getByRole("heading", { name: "Files", exact: true })).toBeVisible();
    await expect(notice).toHaveCount(0);
    // No key gets old in a test.
    let aging = created.map(({ id }) => id);
    await page.route(/\/auth\/v1\/apikeys(\?|$)/, (route) =>
      alter<{ id: string }[]>(route, (keys) =>
        keys.map((key) => (aging.includes(key.id) ? { ...key, createdAt: inDays(-362), expiresAt: inDays(3) } : key)),
      ),
    );
    await page.reload();
    await expect(notice).toHaveText(/^2 API keys expire within a week\./);
    await expectAccessible(page);
    aging = aging.slice(0, 1);
    await page.reload();
    await expect(notice).toHaveText(/^An API key expires within a week\./);
    await page.getByRole("link", { name: "Rotate it" }).click();
    await row(page, "Backend").getByRole("button").click();
    await page.getByRole("menuitem", { name: "Rotate" }).click();
    await page
      .getByRole("dialog")
      .getByRole("button", { name: /^Rotate/ })
      .click();
    await expect(notice).toHaveCount(0);
  });

  exhaustive("orders keys by their expiry, and folds expired ones", async ({ at }) => {
    const team = await newTeam();
    const inSeconds = (seconds: number) => new Date(Date.now() + seconds * 1000).toISOString();
    await team.stowage.keys.create({ name: "Later", expiresAt: inSeconds(30 * 86_400) });
    await team.stowage.keys.create({ name: "Soon", expiresAt: inSeconds(86_400) });
    const { id } = await team.stowage.keys.create({ name: "Past", expiresAt: inSeconds(86_400) });
    const { page } = await at("/keys", { team });
    // The API creates no key that has expired.
    await page.route(/\/auth\/v1\/apikeys(\?|$)/, (route) =>
      alter<{ id: string }[]>(route, (keys) =>
        keys.map((key) => (key.id === id ? { ...key, expiresAt: inSeconds(-60) } : key)),
      ),
    );
    await page.reload();
    const names = rows(page).locator("bdi");
    await expect(names).toHaveText(["Later", "test", "Soon"]);
    await page.getByText("Expired (1)").click();
    await expect(page.getByRole("table", { name: "Expired keys" }).getByRole("rowheader")).toContainText("Past");
    await expectAccessible(page);
  });

  exhaustive("shows the long email of a key's creator on one line, in full as its title", async ({ at }) => {
    const team = await newTeam();
    const user = { email: `${"long".repeat(12)}@example.com`, password: PASSWORD };
    await team.stowage.users.create({ ...user, role: "admin" });
    const { key } = await team.stowage.logIn({ teamId: team.teamId, ...user });
    await new Stowage({ url, key }).keys.create({ name: "Nightly import" });
    const { page } = await at("/keys", { team });
    const creator = row(page, "Nightly import").getByTitle(user.email);
    const lineHeight = await creator.evaluate((element) => Number.parseFloat(getComputedStyle(element).lineHeight));
    await expect.poll(async () => (await creator.boundingBox())?.height).toBeLessThan(1.5 * lineHeight);
    await expect(creator).toHaveCSS("text-overflow", "ellipsis");
  });

  exhaustive.for([768, 1024, 1280])(
    "keeps names, keys, and creators in one line each at %d px",
    async (width, { at }) => {
      const team = await newTeam();
      await team.stowage.keys.create({ name: "Nightly import of the archive", scopes: ["files:read", "files:upload"] });
      const { page } = await at("/keys", { team, width });
      const lines = () =>
        row(page, "Nightly import")
          .locator("bdi, code, time")
          .evaluateAll((all) => all.map((element) => Math.round(element.getClientRects().length)));
      await expect.poll(lines).toEqual([1, 1, 1, 1, 1]);
      const creator = await row(page, "Nightly import").getByText("test", { exact: true }).boundingBox();
      expect(creator?.width).toBeGreaterThan(20);
    },
  );

  exhaustive("shows keys that are created and revoked elsewhere", async ({ at }) => {
    const { page, stowage } = await at("/keys");
    await expect(row(page, "test")).toBeVisible();
    const { id } = await stowage.keys.create({ name: "From elsewhere" });
    await expect(row(page, "From elsewhere")).toBeVisible();
    await stowage.keys.delete(id);
    await expect(row(page, "From elsewhere")).toHaveCount(0);
  });
});

describe("Users", () => {
  test("creates, edits, and deletes a user, and keeps the form if the API rejects it", async ({ at, problems }) => {
    const { page, team } = await at("/users");
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    problems.allow(400, 412);
    const { stowage } = team;

    await button(page, "Invite user").first().click();
    await dialog(page).getByLabel("Email").fill("ada@example.com");
    await dialog(page).getByLabel("First name").fill("Ada");
    await button(page, "Set a password instead").click();
    await dialog(page).getByLabel("Password").fill("short");
    await dialog(page).getByRole("button", { name: "Create user" }).click();
    await expect(dialog(page).getByLabel("Password")).toBeFocused();
    // Only the field shows its error.
    await expect(page.getByRole("alert")).toHaveCount(0);
    await expect(dialog(page).getByLabel("Password")).toHaveAccessibleDescription(/8 to 256 characters/);
    await expect(dialog(page).getByLabel("First name")).toHaveValue("Ada");
    await dialog(page).getByLabel("Password").fill(PASSWORD);
    await dialog(page).getByRole("button", { name: "Create user" }).click();
    await expect(dialog(page)).toHaveAccessibleName("Invite Ada");
    const invitation = `Sign in: ${url}/console/sign-in?team=${team.teamId}\nEmail: ada@example.com\nPassword: ${PASSWORD}`;
    await expect(dialog(page).getByText("Sign in:")).toHaveText(invitation);
    expect(await copyBy(dialog(page).getByRole("button", { name: "Copy invitation" }), PASSWORD)).toBe(invitation);
    await button(page, "Done").click();
    await expect(row(page, "ada@example.com").getByRole("rowheader")).toContainText("Ada");
    await expect(row(page, "ada@example.com")).not.toContainText("No password yet");
    await expect(button(page, "Invite user").first()).toBeFocused();
    const [made] = await collect(stowage.users.list());
    expect(made).toMatchObject({ firstName: "Ada", lastName: "", email: "ada@example.com" });
    const id = made?._id ?? "";
    await new Stowage({ url, key: null }).logIn({ teamId: team.teamId, email: "ada@example.com", password: PASSWORD });

    // Somebody else edits the user while the dialog is open.
    await chooseAction(page, "Actions for Ada", "Edit");
    await dialog(page).getByLabel("Last name").fill("Lovelace");
    await stowage.users.update(id, { lastName: "Byron" });
    await expect(page.getByRole("rowheader", { includeHidden: true })).toContainText("Ada Byron");
    await expect(dialog(page).getByLabel("Last name")).toHaveValue("Lovelace");
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await expect(page.getByRole("alert")).toContainText("has changed since");
    expect((await stowage.users.get(id)).lastName).toBe("Byron");
    await page.keyboard.press("Escape");
    await expect(button(page, "Actions for Ada Byron")).toBeFocused();

    await chooseAction(page, "Actions for Ada Byron", "Edit");
    await expect(dialog(page).getByLabel("Last name")).toHaveValue("Byron");
    await dialog(page).getByLabel("Last name").fill("Lovelace");
    await dialog(page).getByLabel("New password").fill(`${PASSWORD} 2`);
    await dialog(page).getByRole("button", { name: "Save" }).click();
    await expect(rows(page)).toContainText("Ada Lovelace");
    await new Stowage({ url, key: null }).logIn({
      teamId: team.teamId,
      email: "ada@example.com",
      password: `${PASSWORD} 2`,
    });

    await chooseAction(page, "Actions for Ada Lovelace", "Delete");
    await expect(dialog(page)).toContainText("The API keys they created are revoked");
    await dialog(page).getByRole("button", { name: "Delete user" }).click();
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    await expect(heading(page, "Users")).toBeFocused();
    await expect(stowage.users.get(id)).rejects.toBeInstanceOf(StowageError);
  });

  test("invites a user with a link, with which they set a password and sign in", async ({ openPage, at, problems }) => {
    const { page, team } = await at("/users");
    await button(page, "Invite user").first().click();
    await expect(dialog(page).getByLabel("Email")).toBeFocused();
    await dialog(page).getByLabel("Email").fill("grace@example.com");
    await expectAccessible(page);
    const copied = await allowWritesInEvents(page);
    await dialog(page).getByRole("button", { name: "Create and copy link" }).click();
    await expect(dialog(page)).toHaveAccessibleName("Invite grace@example.com");
    await expectAnnounced(page, "Copied invitation in a dialog");
    const text = (await copied()) ?? "";
    const [, link = "", later] =
      /^Choose a password: (\S+)\nEmail: grace@example\.com\nSign in later: (\S+)$/.exec(text) ?? [];
    // Only the link, in one line.
    await expect(dialog(page).locator("code")).toHaveText(link);
    expect((await dialog(page).locator("code").boundingBox())?.height).toBeLessThan(60);
    expect(later).toBe(`${url}/console/sign-in?team=${team.teamId}`);
    expect(link.split("#")[0]).toBe(`${url}/console/invitation`);
    expect(await copyBy(dialog(page).getByRole("button", { name: "Copy invitation" }), link)).toBe(text);
    await expectAccessible(page);
    await button(page, "Done").click();
    // The email takes the place of the name, and isn't repeated.
    await expect(row(page, "grace@example.com").getByRole("rowheader")).toHaveText("grace@example.comNo password yet");

    // Another browser, without a session.
    problems.allow(400, 401);
    const guest = await openPage({ path: link.slice(url.length) });
    await expect(heading(guest, "Welcome to test")).toBeVisible();
    await expect(guest.getByRole("main")).toContainText("You sign in as grace@example.com, with the role Viewer.");
    await expectAccessible(guest);
    await guest.getByLabel("Choose a password").fill("short");
    await button(guest, "Set password and sign in").click();
    await expect(guest.getByLabel("Choose a password")).toHaveAccessibleDescription(/8 to 256 characters/);
    await guest.getByLabel("Choose a password").fill(PASSWORD);
    await button(guest, "Set password and sign in").click();
    await expect(heading(guest, "Files")).toBeVisible();
    expect(guest.url()).not.toContain("stow_in_");
    await expect.poll(() => readStorage(guest)).toMatch(/stowage\.team.*name[\\":]*test/);
    await guest.goBack();
    await expect(guest.getByText("stow_in_")).toHaveCount(0);
    await new Stowage({ url, key: null }).logIn({
      teamId: team.teamId,
      email: "grace@example.com",
      password: PASSWORD,
    });

    const late = await openPage({ path: link.slice(url.length) });
    await expect(late.getByRole("alert")).toHaveText(/^This link has expired or was already used\./);
    await expect(late.getByLabel("Choose a password")).toHaveCount(0);
  });

  exhaustive(
    "says that the password is set if only the sign-in after it fails, and repeats that",
    async ({ openPage, problems }) => {
      problems.allow(403);
      const { stowage } = await newTeam();
      const { _id } = await stowage.users.create({ firstName: "", lastName: "", email: "grace@example.com" });
      const guest = await openPage({ path: (await stowage.users.invite(_id)).url.slice(url.length) });
      await guest.route(/\/auth\/v1\/me$/, (route) => respond(route, { code: "forbidden", message: "Not now." }));
      await guest.getByLabel("Choose a password").fill(PASSWORD);
      await button(guest, "Set password and sign in").click();
      await expect(guest.getByRole("alert")).toContainText("Not now.");
      await expect(guest.getByText("Your password is set.")).toBeVisible();
      await guest.unroute(/\/auth\/v1\/me$/);
      await button(guest, "Sign in").click();
      await expect(heading(guest, "Files")).toBeVisible();
    },
  );

  exhaustive("resets a password with a link, and accepts one while somebody else is signed in", async ({ at }) => {
    const { page, team } = await at("/users");
    const { _id } = await team.stowage.users.create({ email: "ada@example.com", password: PASSWORD, role: "admin" });
    await chooseAction(page, "Actions for ada@example.com", "Reset password");
    await expect(dialog(page)).toHaveAccessibleName("Reset password of ada@example.com");
    await expect(dialog(page)).toContainText("Their current password works until then.");
    await button(page, "Create and copy link").click();
    await expect(dialog(page).getByText("Link to set a new password")).toBeVisible();
    // The service of the tests sends no emails.
    await expect(button(page, "Send email instead")).toHaveCount(0);
    const { url: link } = await team.stowage.users.invite(_id);
    await page.goto(link);
    await expect(heading(page, "Reset your password")).toBeVisible();
    await page.getByLabel("New password").fill(`${PASSWORD} 2`);
    await button(page, "Set password and sign in").click();
    await expect(page.getByRole("link", { name: "ada@example.com" })).toBeVisible();
    await expect(heading(page, "Files")).toBeVisible();
    await new Stowage({ url, key: null }).logIn({
      teamId: team.teamId,
      email: "ada@example.com",
      password: `${PASSWORD} 2`,
    });
  });

  exhaustive("invites by email if the service can, else keeps the user", async ({ openPage, problems }) => {
    problems.allow(403);
    const team = await newTeam();
    const page = await openPage({ path: "/console/users" });
    await page.route(`**/auth/v1/teams/${team.teamId}`, (route) =>
      alter<object>(route, (data) => ({ ...data, sendsEmail: true })),
    );
    await submitKey(page, team.key);
    await button(page, "Invite user").first().click();
    await dialog(page).getByLabel("Email").fill("grace@example.com");
    let hadForm = false;
    const fail = async (route: Route) => {
      hadForm = await dialog(page).getByLabel("Email").isVisible();
      await respond(route, { code: "forbidden" });
    };
    await page.route("**/invitations", fail, { times: 1 });
    await button(page, "Create and copy link").click();
    await expect(dialog(page).getByRole("alert")).toBeVisible();
    // While the link was being created, the form stayed.
    expect(hadForm).toBe(true);
    await expect(dialog(page)).toContainText("With a link, grace@example.com chooses a password and signs in.");
    await button(page, "Create and copy link").click();
    const sent: unknown[] = [];
    await page.route("**/invitations", (route) => {
      sent.push(route.request().postDataJSON());
      return respond(route, { data: { sent: true } });
    });
    await button(page, "Send email instead").click();
    await expectAnnounced(page, "Sent an email to grace@example.com");
    expect(sent).toEqual([{ email: true }]);
    expect(await collect(team.stowage.users.list())).toHaveLength(1);
  });

  exhaustive("keeps the spaces around a password that an admin sets", async ({ at }) => {
    const { page, team } = await at("/users");
    await button(page, "Invite user").first().click();
    await dialog(page).getByLabel("Email").fill("grace@example.com");
    await button(page, "Set a password instead").click();
    const password = ` ${PASSWORD} `;
    await dialog(page).getByLabel("Password", { exact: true }).fill(password);
    await button(page, "Create user").click();
    await button(page, "Done").click();
    await new Stowage({ url, key: null }).logIn({ teamId: team.teamId, email: "grace@example.com", password });
  });

  exhaustive("searches a large team by email only once the address is complete", async ({ at }) => {
    const team = await newTeam();
    const create = (firstName: string) =>
      team.stowage.users.create({ firstName, lastName: "", email: `${firstName}@example.com` });
    for (const name of ["Ada", "Bob"]) await create(name);
    // More than fit on a page.
    for (let first = 0; first < 100; first += 10)
      await Promise.all(Array.from({ length: 10 }, (_, place) => create(`user${first + place}`)));
    const { page } = await at("/users", { team });
    await expect(rows(page)).toHaveCount(100);
    const asked: string[] = [];
    page.on("request", (request) => {
      const email = new URL(request.url()).searchParams.get("email");
      if (email !== null) asked.push(email);
    });
    const field = page.getByLabel("Search users");
    await field.fill("ada@");
    await expect(rows(page)).toHaveCount(1);
    await field.fill("zed");
    await expect(page.getByText("with the same capital letters")).toBeVisible();
    await field.fill("bob@example.com");
    await expect(rows(page)).toContainText("Bob");
    await expect(page.getByRole("alert")).toHaveCount(0);
    expect(asked).toEqual(["bob@example.com"]);
  });

  exhaustive("finds users by any part of their name or email, and keeps the search in the URL", async ({ at }) => {
    const team = await newTeam();
    for (const [firstName, email] of [
      ["Ada", "ada@example.com"],
      ["Adam", "adam@example.com"],
      ["Грейс", "grace@example.com"],
    ] as const)
      await team.stowage.users.create({ firstName, lastName: "", email, password: PASSWORD });
    const { page } = await at("/users", { team });
    const names = rows(page).locator(".two-lines > bdi");
    await expect(names).toHaveText(["Ada", "Adam", "Грейс"]);
    const field = page.getByLabel("Search users");
    await field.fill("da");
    await expect(names).toHaveText(["Ada", "Adam"]);
    await expect(page).toHaveURL(`${url}/console/users?search=da`);
    await field.fill("M@example.com");
    await expect(names).toHaveText(["Adam"]);
    await expect(field).toBeFocused();
    await page.reload();
    await expect(names).toHaveText(["Adam"]);
    await expect(field).toHaveValue("M@example.com");
    await page.getByRole("link", { name: "Clear filters" }).click();
    await expect(names).toHaveText(["Ada", "Adam", "Грейс"]);
    await expect(field).toHaveValue("");
    await expect(heading(page, "Users")).toBeFocused();
  });
});

describe("Usage", () => {
  exhaustive("shows no numbers of uploads while it can't load them", async ({ at, problems }) => {
    problems.allow(OFFLINE);
    const { page } = await at("/keys");
    await failRequests(page, /\/auth\/v1\/events/);
    await page.getByRole("link", { name: "Usage" }).click();
    const chart = page.getByRole("region", { name: "Uploads" });
    await expect(chart).toContainText("Can't reach Stowage.");
    await expect(chart).not.toContainText(/Loading|No uploads|in the last/);
  });

  test("shows the used part of each limit and the uploads of each day, and updates them", async ({ at }) => {
    const { page, stowage } = await at("/usage");
    const files = page.getByRole("region", { name: "Files" });
    await expect(files).toContainText("0 of");
    await stowage.files.upload(new File([new Uint8Array(1_500_000)], "zeros.bin"));
    await expect(files).toContainText("1 of");
    await expect(page.getByRole("region", { name: "Storage" })).toContainText("1.5 MB of");
    const chart = page.getByRole("region", { name: "Uploads" });
    await expect(chart).toContainText("1 file (1.5 MB) in the last 30 days");
    await expect(chart.getByRole("img", { name: /^Uploads per day\. Most on .*: 1\.5 MB\.$/ })).toBeVisible();
    const { bytes, maxBytes } = await stowage.usage();
    const meter = page.getByRole("meter", { name: "Storage" });
    expect(await meter.evaluate((element: HTMLMeterElement) => [element.value, element.max])).toEqual([
      bytes,
      maxBytes,
    ]);
  });

  exhaustive("lists unfinished uploads, and cancels those that are not complete by then", async ({ at, problems }) => {
    problems.allow(403);
    const team = await newTeam();
    const start = async (name: string, bytes = "") => {
      const response = await fetch(`${url}/docs/v1/uploads/resumable`, {
        method: "POST",
        headers: {
          Authorization: `Bearer ${team.key}`,
          "Content-Type": "application/offset+octet-stream",
          "Tus-Resumable": "1.0.0",
          "Upload-Length": "1500000",
          "Upload-Metadata": `filename ${btoa(name)}`,
        },
        body: bytes,
      });
      return `${url}${response.headers.get("Location")}`;
    };
    await start("stopped.wav", "0".repeat(300_000));
    const uploadUrl = await start("running.wav");
    const { page } = await at("/usage", { team });
    await expect(row(page, "stopped.wav")).toContainText("300 kB of 1.5 MB");
    await expect(row(page, "stopped.wav")).toContainText("test");
    await expectAccessible(page);
    await chooseAction(page, "Actions for stopped.wav", "Cancel upload");
    await dialog(page).getByRole("button", { name: "Cancel upload" }).click();
    await expect(row(page, "stopped.wav")).toHaveCount(0);
    const unfinished = async () => (await collect(team.stowage.unfinishedUploads.list())).map(({ name }) => name);
    expect(await unfinished()).toEqual(["running.wav"]);

    await chooseAction(page, "Actions for running.wav", "Cancel upload");
    await team.stowage.files.upload(new File([new Uint8Array(1_500_000)], "running.wav"), {
      resumableFromBytes: 1,
      resumeUrl: uploadUrl,
    });
    await dialog(page).getByRole("button", { name: "Cancel upload" }).click();
    await expect(page.getByText("“running.wav” had already finished uploading")).toBeVisible();
    expect((await collect(team.stowage.files.list())).map(({ originalName }) => originalName)).toEqual(["running.wav"]);
  });
});

exhaustive("keys and users work by keyboard", async ({ openPage }) => {
  const { key, stowage } = await newTeam();
  const page = await openPage({ path: "/console" });
  await expect(page.getByLabel("Team ID")).toBeFocused();
  await tabTo(page.getByRole("radio", { name: "Email and password" }), "Shift+Tab");
  await page.keyboard.press("ArrowRight");
  await tabTo(page.getByLabel("Secret key"));
  await page.keyboard.type(key);
  await page.keyboard.press("Enter");
  await expect(heading(page, "Files")).toBeFocused();

  await tabTo(page.getByRole("link", { name: "Skip to content" }), "Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(page.getByRole("main")).toBeFocused();
  await tabTo(page.getByRole("link", { name: "Keys" }), "Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(heading(page, "Keys")).toBeFocused();
  await expect(page).toHaveTitle("Keys – Stowage");

  await tabTo(button(page, "Create key"));
  await page.keyboard.press("Space");
  await expect(dialog(page).getByLabel("Name")).toBeFocused();
  await page.keyboard.press("Escape");
  await expect(button(page, "Create key")).toBeFocused();
  await page.keyboard.press("Space");
  await page.keyboard.type("By keyboard");
  // The fewest permissions are the default.
  await tabTo(dialog(page).getByRole("radio", { name: /^Upload only/ }));
  await page.keyboard.press("ArrowDown");
  await expect(dialog(page).getByRole("radio", { name: /^View and download/ })).toBeChecked();
  await page.keyboard.press("ArrowUp");
  await tabTo(dialog(page).getByRole("button", { name: "Create key" }));
  await page.keyboard.press("Enter");
  await expect(dialog(page)).toContainText("Copy this key now.");
  await tabTo(dialog(page).getByRole("button", { name: "Done" }));
  await page.keyboard.press("Enter");
  await expect(button(page, "Create key")).toBeFocused();
  await tabTo(button(page, "Actions for By keyboard"));
  await page.keyboard.press("Enter");
  await expect(page.getByRole("menuitem", { name: "Edit" })).toBeFocused();
  await page.keyboard.press("End");
  await page.keyboard.press("Enter");
  await tabTo(dialog(page).getByRole("button", { name: "Revoke key" }));
  await page.keyboard.press("Enter");
  await expect(row(page, "By keyboard")).toHaveCount(0);
  await expect(button(page, "Actions for test")).toBeFocused();
  expect((await collect(stowage.keys.list())).map(({ name }) => name)).toEqual(["test"]);

  await tabTo(page.getByRole("link", { name: "Users" }), "Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(heading(page, "Users")).toBeFocused();
  await tabTo(button(page, "Sign out"), "Shift+Tab");
  await page.keyboard.press("Enter");
  await expect(page.getByLabel("Secret key")).toBeFocused();
});
