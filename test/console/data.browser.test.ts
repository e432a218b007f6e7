import { describe } from "vitest";
import { expectGoodLooks } from "../support/browser/appearance.ts";
import { chooseAction, exhaustive, PASSWORD, startUpload, test } from "../support/browser/console.ts";
import { hold, respond } from "../support/browser/fakes.ts";
import { button, dialog, heading, link, row } from "../support/browser/locators.ts";
import { reloadHolding } from "../support/browser/scripts.ts";
import { chooseFiles, expect, expectAnnounced } from "../support/browser/support.ts";
import { collect, newTeam, sample, upload, url } from "../support/team.ts";

/* How the console loads, shares, and forgets data. */

describe("Data of a page", () => {
  exhaustive("changes without a reload in a session that can't read events", async ({ at }) => {
    const team = await newTeam();
    const { key } = await team.stowage.keys.create({
      name: "files",
      scopes: ["files:upload", "files:read", "files:download", "files:write", "files:delete"],
    });
    const { page } = await at("/files", { team: { ...team, key } });
    await chooseFiles(page, () => startUpload(page), { name: "one.txt", mimeType: "", buffer: Buffer.from("One") });
    const card = page.getByRole("region", { name: "Uploads" });
    await expect(card.getByText(/^1 of 1 uploaded$/)).toBeVisible();
    await expect(link(page, "one.txt").first()).toBeVisible();
    await expect(row(page, "one.txt")).not.toContainText(/Queued|Processing/);
    // Changes of others arrive by polling.
    await upload(team, "two.txt", "Two");
    await expect(row(page, "two.txt")).toBeVisible();
  });

  exhaustive("appears although changes arrive faster than it loads", async ({ at }) => {
    const { page, stowage } = await at("/usage");
    await expect(page.getByText("Connecting…")).toHaveCount(0);
    await page.route(/\/auth\/v1\/apikeys\?/, async (route) => {
      // Longer than the time between two changes.
      for (let created = 0; created < 3; created++) await stowage.keys.create({ name: "more" });
      await route.continue();
    });
    await link(page, "Keys").click();
    await expect(row(page, "more").first()).toBeVisible();
  });

  test("shows the first event of a log that was empty, although nothing has followed the log yet", async ({ at }) => {
    const { page, team } = await at("/usage");
    let store = () => {};
    const isStored = new Promise<void>((resolve) => {
      store = resolve;
    });
    let positions = 0;
    await page.route(/\/auth\/v1\/events\?/, async (route) => {
      const { searchParams } = new URL(route.request().url());
      // The page asks for its position in the log, and only once.
      if (searchParams.get("limit") === "1" && positions++ === 0) return respond(route, { data: [] });
      await isStored;
      return route.continue().catch(() => undefined);
    });
    await page.goto("/console/files");
    await expect(heading(page, "Files")).toBeVisible();
    await expect(page.locator(".skeleton")).toHaveCount(0);
    await upload(team, "first.txt", "text");
    store();
    await expect(row(page, "first.txt")).toBeVisible();
  });

  test("says how long the service rejects requests, and loads afterwards", async ({ at, problems }) => {
    problems.allow(429);
    const { page } = await at("/usage");
    // The test ends the wait, so no machine is too slow to see it.
    await page.clock.install();
    await page.reload();
    await expect(page.getByRole("meter")).toHaveCount(2);
    let isLimited = true;
    await page.route(/\/auth\/v1\/users/, (route) => {
      if (!isLimited) return route.continue();
      isLimited = false;
      return respond(route, { code: "rate_limited", headers: { "Retry-After": "100" } });
    });
    await link(page, "Users").click();
    const notice = page.getByRole("status").filter({ hasText: /Too many requests\. Trying again in \d+ s\./ });
    await expect(notice).toBeVisible();
    // A screen reader would read the seconds as they pass.
    expect(await notice.ariaSnapshot()).toMatch(/Too many requests\. Trying again soon\.$/);
    await page.clock.fastForward("02:00");
    await expect(page.getByRole("heading", { name: "No users yet" })).toBeVisible();
    await expect(page.getByText("Too many requests.")).toHaveCount(0);
  });

  exhaustive("counts the seconds of a limit only while there is one", async ({ at, problems }) => {
    problems.allow(429);
    const { page } = await at("/usage");
    await page.addInitScript(() => {
      const counting = new Set<number>();
      Reflect.set(window, "counting", counting);
      const { setInterval, clearInterval } = window;
      window.setInterval = ((work: () => void, milliseconds: number) => {
        const timer = setInterval(work, milliseconds);
        if (milliseconds === 1000) counting.add(timer);
        return timer;
      }) as typeof window.setInterval;
      window.clearInterval = (timer) => {
        counting.delete(timer as number);
        clearInterval(timer);
      };
    });
    const counting = () => page.evaluate(() => (Reflect.get(window, "counting") as Set<number>).size);
    await page.reload();
    await expect.poll(counting).toBe(0);
    await page.route(/\/auth\/v1\/users/, (route) =>
      respond(route, { code: "rate_limited", headers: { "Retry-After": "2" } }),
    );
    await link(page, "Users").click();
    await expect(page.getByText("Too many requests.")).toBeVisible();
    await expect.poll(counting).toBe(1);
    await page.unroute(/\/auth\/v1\/users/);
    await expect(page.getByText("Too many requests.")).toHaveCount(0);
    await expect.poll(counting).toBe(0);
  });

  exhaustive("is shown at once when its page is opened again", async ({ at }) => {
    const { page } = await at("/keys");
    await expect(row(page, "test")).toBeVisible();
    await link(page, "Usage").click();
    await expect(heading(page, "Usage")).toBeVisible();
    // No response ever arrives.
    await page.route(/\/auth\/v1\/apikeys/, () => {});
    await link(page, "Keys").click();
    await expect(row(page, "test")).toBeVisible();
  });

  exhaustive("is forgotten at sign-out, because the page is reloaded", async ({ at }) => {
    const { page } = await at("/keys");
    await page.evaluate(() => Reflect.set(window, "isOld", true));
    await page.getByRole("button", { name: "Sign out" }).click();
    await expect(heading(page, "Sign in")).toBeVisible();
    await expectAnnounced(page, "Signed out");
    expect(await page.evaluate(() => Reflect.get(window, "isOld"))).toBeUndefined();
    await expect(page).toHaveURL(`${url}/console/`);
  });
});

exhaustive("a link opens in a new tab with the session of the first", async ({ at, problems }) => {
  // Signing out in one tab ends the session of the other, whose request may come before it knows.
  problems.tolerate(401);
  const { page, stowage } = await at("/files");
  const other = await page.context().newPage();
  await other.goto("/console/usage");
  await expect(heading(other, "Usage")).toBeVisible();
  await expect(other.getByRole("meter")).toHaveCount(2);
  expect(await collect(stowage.sessions.list())).toHaveLength(1);
  // A link to another team asks for a session of that team.
  // The console would save its session again once it has loaded.
  await other.goto("/");
  await other.evaluate(() => sessionStorage.clear());
  await other.goto(`/console/usage?team=${"0".repeat(24)}`);
  await other.getByText("Email and password", { exact: true }).click();
  await expect(other.getByLabel("Team ID")).toHaveValue("0".repeat(24));
  // Once every tab is signed out, a new one asks for a key.
  await page.getByRole("button", { name: "Sign out" }).click();
  await expect(heading(page, "Sign in")).toBeVisible();
  await other.close();
  const third = await page.context().newPage();
  await third.goto("/console/usage");
  await expect(heading(third, "Sign in")).toBeVisible();
});

exhaustive("times are English in any browser, because the words are, and grow while a page is open", async ({ at }) => {
  const { page } = await at("/keys", { locale: "de-DE" });
  await expect(row(page, "test").getByRole("time").last()).toHaveText(/^[A-Z][a-z]{2} \d+, \d{4}$/);
  await page.clock.install();
  await page.reload();
  await expect(row(page, "test").getByRole("time").first()).toHaveText(/just now|1 minute ago/);
  await page.clock.fastForward("15:00");
  await expect(row(page, "test").getByRole("time").first()).toHaveText(/1[5-7] minutes ago/);
});

describe("Action", () => {
  test("says above the page why it failed, until the user dismisses it", async ({ at, problems }) => {
    problems.allow(403);
    const { page } = await at("/files/:id", { files: ["song.txt"] });
    await page.route(/\/reprocess$/, (route) => respond(route, { code: "forbidden", message: "Not yours." }));
    await chooseAction(page, "Actions for this file", "Reprocess");
    const failure = page.getByRole("status").getByText("Not yours.");
    await expect(failure).toBeVisible();
    await button(page, "Dismiss").click();
    await expect(failure).toHaveCount(0);
  });

  test("asks in a dialog, which closes with its page", async ({ at }) => {
    const { page } = await at("/usage");
    await link(page, "Keys").click();
    await chooseAction(page, "Actions for test", "Edit");
    await expect(page.getByRole("dialog")).toBeVisible();
    await page.goBack();
    await expect(heading(page, "Usage")).toBeVisible();
    await expect(page.getByRole("dialog")).toHaveCount(0);
  });
});

describe("Palette", () => {
  test("finds pages, folders, and files by keyboard, and opens them", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "Night drive.mp3", sample("tone-vbr.mp3"));
    await team.stowage.files.update(id, { folder: "Nights" });
    const { page } = await at("/usage", { team });
    await page.keyboard.press("Control+k");
    const field = page.getByRole("combobox", { name: "Find files, what is said in them, folders, pages, and actions" });
    await expect(field).toBeFocused();
    await page.keyboard.type("night");
    const results = page.getByRole("listbox", { name: "Results" }).getByRole("option");
    await expect(results).toContainText(["Nights", "Night drive.mp3"]);
    await page.keyboard.press("ArrowDown");
    await page.keyboard.press("Enter");
    await expect(heading(page, "Night drive.mp3")).toBeVisible();
    await page.keyboard.press("Control+k");
    await expect(field).toBeFocused();
    await page.keyboard.type("webh");
    await expect(field).toHaveValue("webh");
    await expect(results).toHaveText(["WebhooksG W", "Create webhookAction"]);
    await page.keyboard.press("Enter");
    await expect(heading(page, "Webhooks")).toBeVisible();
    await page.keyboard.press("?");
    const sheet = page.getByRole("dialog", { name: "Keyboard shortcuts" });
    await expect(sheet).toContainText("G then WGo to webhooks");
    const heights = await sheet.locator("kbd").evaluateAll((keys) => keys.map((key) => key.clientHeight));
    expect(new Set(heights).size).toBe(1);
    await expectGoodLooks(page, "shortcuts");
  });

  test("finds users, keys, and webhooks by name, which lead to their pages", async ({ at }) => {
    const team = await newTeam();
    const { users, keys, webhooks } = team.stowage;
    const names = { firstName: "Ada", lastName: "Lovelace" };
    await users.create({ ...names, email: "al@example.com", password: PASSWORD });
    await keys.create({ name: "Ada's laptop" });
    await webhooks.create({ url: "http://127.0.0.1:9/", description: "Ada's endpoint" });
    const { page } = await at("/usage", { team });
    const find = async (words: string, expected: string[]) => {
      await page.keyboard.press("Control+k");
      await page.keyboard.type(words);
      await expect(dialog(page).getByRole("option")).toHaveText(expected);
    };
    await find("ada", ["Ada Lovelaceal@example.comUser", "Ada's laptopKey", "Ada's endpointWebhook"]);
    await expectGoodLooks(page, "palette-records");
    await page.keyboard.press("ArrowUp");
    await page.keyboard.press("Enter");
    await expect(heading(page, "Ada's endpoint")).toBeVisible();
    await find("al@example", ["Ada Lovelaceal@example.comUser"]);
    await page.keyboard.press("Enter");
    await expect(page.getByRole("rowheader")).toHaveText("Ada Lovelaceal@example.com");
    await find("laptop", ["Ada's laptopKey"]);
    await page.keyboard.press("Enter");
    await expect(heading(page, "Keys")).toBeVisible();
  });

  test("turns the keys of letters and signs off and on, by the sheet of shortcuts", async ({ at }) => {
    const { page } = await at("/usage");
    const sheet = page.getByRole("dialog", { name: "Keyboard shortcuts" });
    const openSheet = async () => {
      await page.keyboard.press("Control+k");
      await page.keyboard.type("shortcuts");
      await page.keyboard.press("Enter");
      await expect(sheet).toBeVisible();
    };
    await openSheet();
    const box = sheet.getByRole("checkbox", { name: "Use letters and signs as shortcuts" });
    await box.uncheck();
    await page.keyboard.press("Escape");
    await expect(sheet).toHaveCount(0);
    await page.reload();
    await expect(heading(page, "Usage")).toBeVisible();
    for (const key of ["?", "g", "k"]) await page.keyboard.press(key);
    await openSheet();
    await expect(page).toHaveURL(/\/usage$/);
    await box.check();
    await page.keyboard.press("Escape");
    await expect(sheet).toHaveCount(0);
    for (const key of ["g", "k"]) await page.keyboard.press(key);
    await expect(heading(page, "Keys")).toBeVisible();
  });

  test("has what is typed right after it is opened, before any other script has loaded", async ({ at }) => {
    const { page } = await at("/files");
    const release = await reloadHolding(page);
    await expect(heading(page, "Files")).toBeVisible();
    await page.keyboard.press("Control+k");
    await page.keyboard.type("usage");
    await page.keyboard.press("Enter");
    release();
    await expect(page).toHaveURL(/\/usage$/);
    await expect(heading(page, "Usage")).toBeVisible();
  });

  exhaustive("shows new files, and the title and artist of a file, in which it marks the match", async ({ at }) => {
    const team = await newTeam();
    await upload(team, "Night drive.mp3", sample("tone-vbr.mp3"));
    const { page } = await at("/usage", { team });
    await page.keyboard.press("Control+k");
    const results = page.getByRole("listbox", { name: "Results" }).getByRole("option");
    await expect(results.last()).toHaveText("Night drive.mp3Übergröße·日本 – StowageRecent file");
    await page.keyboard.type("stowag");
    await expect(results).toHaveText(["Night drive.mp3Übergröße·日本 – StowageFile"]);
    await expect(results.locator("mark")).toHaveText("Stowag");
    await expectGoodLooks(page, "palette");
  });

  exhaustive(
    "opens the first result by Enter, although an arrow key was pressed before there was one",
    async ({ at }) => {
      const { page, team } = await at("/usage");
      await page.keyboard.press("Control+k");
      await expect(dialog(page).getByRole("option", { name: "Usage" })).toBeVisible();
      const file = await upload(team, "one.txt", "Text");
      await team.stowage.files.update(file, { tags: ["harbor"] });
      const { release, isHeld } = await hold(page, "GET", /search=harbor/);
      await dialog(page).getByRole("combobox").fill("harbor");
      await isHeld;
      // Not the newest file, which is listed without a search.
      await expect(dialog(page).getByText("Searching transcripts…")).toBeVisible();
      await page.keyboard.press("ArrowDown");
      release();
      await expect(dialog(page).getByRole("option", { name: /one.txt/ })).toBeVisible();
      await page.keyboard.press("Enter");
      await expect(heading(page, "one.txt")).toBeVisible();
    },
  );

  exhaustive("finds files, folders, and pages by words in any order, and marks each", async ({ at }) => {
    const team = await newTeam();
    await upload(team, "Wind – Noor 1991.txt", "Text");
    await team.stowage.files.createFolder("harbor/Night Ferry");
    const { page } = await at("/usage", { team });
    await page.keyboard.press("Control+k");
    const options = dialog(page).getByRole("option");
    const field = page.getByRole("combobox");
    await field.fill("1991 wind");
    await expect(options).toHaveText(/^Wind – Noor 1991\.txt/);
    await expect(options.locator("mark")).toHaveText(["Wind", "1991"]);
    await field.fill("key create");
    await expect(options.first()).toContainText("Create key");
    await field.fill("ferry harbor");
    // Also in another folder.
    await expect(options).toHaveText(["harbor/Night FerryFolder"]);
    await field.fill("harb");
    await expect(options.filter({ hasText: "harbor" })).toHaveCount(2);
    await field.fill("nowhere");
    await expect(dialog(page).getByText("Nothing found for “nowhere”")).toBeVisible();
  });

  exhaustive("opens the forms for a key, a user, and a folder above the page", async ({ at }) => {
    const { page } = await at("/usage");
    for (const [typed, title] of [
      ["create key", "Create key"],
      ["invite", "Invite user"],
      ["new folder", "New folder"],
    ] as const) {
      await page.keyboard.press("Control+k");
      await expect(page.getByRole("combobox", { name: "Find files" })).toBeFocused();
      await page.keyboard.type(typed);
      await page.keyboard.press("Enter");
      await expect(page.getByRole("dialog", { name: title })).toBeVisible();
      await page.keyboard.press("Escape");
      await expect(dialog(page)).toHaveCount(0);
    }
    await expect(page).toHaveURL(/\/console\/usage$/);
  });
});

exhaustive("lists of users and keys have two lines without labels on a phone", async ({ at }) => {
  const team = await newTeam();
  await team.stowage.users.create({
    firstName: "Ada",
    lastName: "",
    email: "ada@example.com",
    password: PASSWORD,
  });
  const { page } = await at("/users", { team, width: 390, height: 844 });
  for (const [path, facts] of [
    ["users", ["ada@example.com", "Viewer"]],
    ["keys", ["Full access", /now|ago/]],
  ] as const) {
    await page.goto(`/console/${path}`);
    const rows = page.locator("tbody tr");
    for (const fact of facts) await expect(rows.filter({ hasText: fact }).first()).toBeVisible();
    for (const { height } of await rows.evaluateAll((all) => all.map((one) => one.getBoundingClientRect().toJSON())))
      expect(height, path).toBeLessThanOrEqual(65);
    await expectGoodLooks(page, `phone-${path}`);
  }
  // The whole date of the expiry, also on the narrowest phone.
  await page.setViewportSize({ width: 320, height: 640 });
  const cut = await page
    .locator("tbody td:has(time)")
    .evaluateAll((cells) =>
      cells.filter(({ scrollWidth, clientWidth }) => clientWidth > 0 && scrollWidth > clientWidth),
    );
  expect(cut).toEqual([]);
});
