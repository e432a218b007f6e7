import type { Locator, Page } from "@playwright/test";
import { describe, inject, onTestFinished } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { expectGoodLooks, findSpills, findTooWide, stretchTexts } from "../support/browser/appearance.ts";
import { chooseAction, exhaustive, PASSWORD, signIn, startUpload, test } from "../support/browser/console.ts";
import { button, dialog, player, row } from "../support/browser/locators.ts";
import { OFFLINE } from "../support/browser/problems.ts";
import { tone } from "../support/browser/sounds.ts";
import { chooseFiles, expect } from "../support/browser/support.ts";
import { Receiver } from "../support/receiver.ts";
import { newTeam, sample, type Team, upload } from "../support/team.ts";

/* Each page is accessible and fits 320 px, whatever its texts contain. Tests of a page check the rest of its states. */

/** A word that no rule of hyphenation helps. */
const UNBREAKABLE = "ZentralinstitutfürDonaudampfschifffahrtsgesellschaftskapitänsmützenverwaltung";
const LONG = "A name as long as one may be ".repeat(4).slice(0, 100);

/** The name of a look, its path, and what shows that it has loaded, after what a user does. */
type Look = [name: string, path: string, open: (page: Page) => Promise<unknown>];

const rowCount = (count: number) => (page: Page) => expect(page.getByRole("row")).toHaveCount(count);
const shows = (text: string) => (page: Page) => expect(page.getByText(text).first()).toBeVisible();

async function expectLooks(page: Page, looks: Look[]): Promise<void> {
  for (const [name, path, open] of looks) {
    await page.goto(path);
    await open(page);
    await expectGoodLooks(page, name);
  }
}

describe("Pages without a session", () => {
  test("are accessible and fit 320 px", async ({ openPage, problems }) => {
    problems.allow(404);
    const team = await newTeam();
    const { pageUrl } = await team.stowage.links.create(await upload(team, `${LONG}.txt`, "text"));
    await expectLooks(await openPage(), [
      ["home", "/", shows("Audio uploads for your product.")],
      ["sign-in", `/console/keys?team=${team.teamId}`, shows("Team ID")],
      ["share-other", new URL(pageUrl).pathname, shows("Download")],
      ["not-found", "/nothing-here", shows("This page doesn't exist")],
    ]);
  });

  exhaustive("are accessible and fit 320 px in the reference of the API", async ({ openPage }) => {
    await expectGoodLooks(await openPage({ path: "/reference" }), "reference");
  });
});

describe("Pages of the console", () => {
  test("are accessible and fit 320 px, with long names and in any script", async ({ at }) => {
    const team = await newTeam();
    const { files, keys, users, webhooks, events } = team.stowage;
    const receiver = await Receiver.open((reply) => {
      reply.writeHead(500).end(`${"no space ".repeat(40)}${"x".repeat(400)}`);
    });
    onTestFinished(() => receiver.close());
    for (const name of [LONG, "مفتاح الموقع", "🎧🎚️ Mixer", "web"])
      await keys.create({ name, isPublic: name === "web" });
    for (const [firstName, lastName] of [
      ["مريم", "الإسطرلابي"],
      [LONG, LONG],
      ["🎼", "Clara"],
    ] as const) {
      const email = `${"long".repeat(10)}.${firstName.length}@example.com`;
      await users.create({ firstName, lastName, email, password: PASSWORD });
    }
    for (const name of ["plain.mp3", "مقابلة مع المؤلف.mp3", "🎧 late night.flac"])
      await files.upload(new File([`of ${name}`], name));
    const url = `${receiver.url}/${"path".repeat(60)}`;
    const types = ["user.created", "user.deleted", "webhook.disabled"] as const;
    await webhooks.create({ url: receiver.url, description: "", types: [...types] });
    const { _id } = await webhooks.create({ url, description: "فهرس 🎧 ".repeat(12), types: ["file.uploaded"] });
    await files.upload(new File(["long"], `${"long".repeat(50)}.wav`));
    await expect.poll(() => receiver.received.length).toBeGreaterThan(0);
    // Nothing more happens that it receives.
    await webhooks.update(_id, { types: [...types] });
    const [event] = (await events.list({ type: "file.uploaded", limit: 1 })).items;
    const { page } = await at("/files", { team });
    await expectLooks(page, [
      ["files", "/console/files", rowCount(5)],
      ["keys", "/console/keys", () => expect(row(page, LONG)).toBeVisible()],
      ["keys-new", "/console/keys", () => button(page, "Create key").click()],
      ["users", "/console/users", rowCount(4)],
      ["usage", "/console/usage", () => expect(page.getByRole("meter")).toHaveCount(2)],
      [
        "events",
        "/console/events",
        () =>
          button(page, /^Details of/)
            .first()
            .click(),
      ],
      ["event", `/console/events/${event?._id}`, shows("Older")],
      ["session", "/console/session", shows("This session")],
      ["webhooks", "/console/webhooks", rowCount(3)],
      [
        "webhooks-new",
        "/console/webhooks",
        async () => {
          await button(page, "Create webhook").first().click();
          await dialog(page).getByLabel("All events").uncheck();
        },
      ],
      [
        "webhook",
        `/console/webhooks/${_id}`,
        async () => {
          await button(page, "Send test event").click();
          await expect(page.getByRole("status").filter({ hasText: "Test event:" })).toContainText("500 · ");
          await page.getByRole("list", { name: "Deliveries" }).getByRole("button").first().click();
          await expect(page.getByRole("region", { name: "Delivery", exact: true })).toContainText("no space");
        },
      ],
    ]);
  });

  test("are accessible and fit 320 px for the operator", async ({ openPage }) => {
    const name = `Radio ${crypto.randomUUID()}`;
    await new Stowage({ url: inject("url"), key: inject("operatorToken") }).teams.create({ name });
    const page = await openPage({ path: `/console/teams?name=${encodeURIComponent(name)}` });
    await signIn(page, inject("operatorToken"));
    await rowCount(2)(page);
    await expectGoodLooks(page, "teams");
    await page.getByRole("link", { name }).click();
    await expect(page.getByRole("definition").first()).toBeVisible();
    await expectGoodLooks(page, "team");
  });
});

/** Where the line of a text stands, in CSS pixels from the top. */
const baselineOf = (text: Locator): Promise<number> =>
  text.evaluate((element) => {
    const mark = document.createElement("span");
    mark.style.cssText = "display: inline-block; inline-size: 0; block-size: 0";
    element.prepend(mark);
    const { bottom } = mark.getBoundingClientRect();
    mark.remove();
    return bottom;
  });

describe("Texts beside each other stand on one line", () => {
  const expectOneLine = async (...texts: Locator[]) => {
    const [first = 0, ...others] = await Promise.all(texts.map(baselineOf));
    for (const [place, other] of others.entries())
      expect(Math.abs(other - first), `${texts[place + 1]}`).toBeLessThan(1);
  };

  test("above and below the title of a file, beside the buttons of a clip, and in a table", async ({ at }) => {
    const team = await newTeam();
    const id = await upload(team, "minute.wav", tone(65));
    await team.stowage.files.update(id, { folder: "box", tags: ["raw"] });
    await team.stowage.files.hold(id, "Legal case");
    await team.stowage.keys.create({ name: "Nightly export", scopes: ["files:read"] });
    const { page } = await at(`/files/${id}`, { team });
    const crumb = page.getByRole("navigation", { name: "Breadcrumbs" }).getByRole("listitem").first();
    // The slash after it has no element.
    const heights = await crumb.evaluate((item) => [
      getComputedStyle(item, "::after").lineHeight,
      getComputedStyle(item.querySelector("a") as Element).lineHeight,
    ]);
    expect(new Set(heights).size).toBe(1);
    const facts = page.locator(".page-title .fact-row");
    await expectOneLine(
      facts.getByText("1:05"),
      facts.getByRole("link", { name: "raw" }),
      facts.getByText(/^by /),
      facts.getByText("Held"),
    );
    const marking = page.locator(".player-marking");
    await expectOneLine(marking.getByRole("status"), marking.getByRole("button", { name: "Set start" }));
    await button(page, "Edit details").click();
    const [name, value] = await Promise.all(
      ["Name of field 1", "Value of field 1"].map((label) => dialog(page).getByLabel(label).boundingBox()),
    );
    expect((value?.y ?? 0) - (name?.y ?? 0) - (name?.height ?? 0)).toBeGreaterThanOrEqual(4);
    await page.goto("/console/keys");
    const access = row(page, "Nightly export").getByText("Secret").first();
    await expectOneLine(access, access.locator("xpath=.."));
  });

  test("and the boxes of selected files in the middle of their rows, on a phone", async ({ at }) => {
    const { page } = await at("/files", { files: ["one.txt"], width: 390 });
    await chooseAction(page, "Actions for one.txt", "Select");
    const middleOf = async (target: Locator) => {
      const { y = 0, height = 0 } = (await target.boundingBox()) ?? {};
      return y + height / 2;
    };
    // The actions are in words, and in place of the tabs.
    const bar = page.getByRole("region", { name: "Selected files" });
    await expect(bar.getByRole("button")).toHaveText(["Download", "Rename", "Move", "", ""]);
    const { y = 0, height = 0 } = (await bar.boundingBox()) ?? {};
    expect(y + height).toBe(await page.evaluate(() => innerHeight));
    const box = page.getByRole("checkbox", { name: "Select one.txt" });
    expect(Math.abs((await middleOf(box)) - (await middleOf(row(page, "one.txt"))))).toBeLessThan(1.5);
  });
});

describe("With forced colors", () => {
  /** The background and the color of an element as it is painted. */
  const paintOf = (target: Locator) =>
    target.evaluate((element) => {
      const { backgroundColor, color } = getComputedStyle(element);
      return [backgroundColor, color];
    });
  /** The colors of a selection, and those of a page. */
  const systemColors = (page: Page) =>
    page.evaluate(() => {
      const probe = document.createElement("i");
      document.body.append(probe);
      const colors = ["Highlight", "HighlightText", "CanvasText"].map((color) => {
        probe.style.cssText = `forced-color-adjust: none; color: ${color}`;
        return getComputedStyle(probe).color;
      });
      probe.remove();
      return colors as [string, string, string];
    });

  test("shows what is selected, and which file plays", async ({ at }) => {
    const team = await newTeam();
    const receiver = await Receiver.open((reply) => void reply.writeHead(200).end());
    onTestFinished(() => receiver.close());
    const { _id } = await team.stowage.webhooks.create({ url: receiver.url, types: ["apikey.created"] });
    for (const name of ["one", "two"]) await team.stowage.keys.create({ name });
    await upload(team, "minute.wav", tone(65));
    await upload(team, "other.wav", tone(5));
    const { page } = await at(`/webhooks/${_id}`, { team });
    await page.emulateMedia({ forcedColors: "active" });
    const [highlight, highlightText, canvasText] = await systemColors(page);
    const selected = [highlight, highlightText];
    expect(new Set([highlight, highlightText, canvasText]).size).toBe(3);
    const isSelected = (target: Locator) => expect.poll(() => paintOf(target)).toEqual(selected);
    const isPlain = async (target: Locator) => expect((await paintOf(target))[0]).not.toBe(highlight);

    const sections = page.getByRole("navigation", { name: "Sections" });
    await isSelected(sections.getByRole("link", { name: "Webhooks" }));
    await isPlain(sections.getByRole("link", { name: "Files" }));
    const segments = page.getByRole("group", { name: "Show" }).locator("label");
    await isSelected(segments.filter({ hasText: "All" }));
    await isPlain(segments.filter({ hasText: "Failing" }));
    const deliveries = page.getByRole("list", { name: "Deliveries" }).getByRole("button");
    await expect(deliveries).toHaveCount(2);
    await deliveries.last().click();
    await isSelected(deliveries.last());
    // Also the parts in it that have other colors.
    expect((await paintOf(deliveries.last().locator(".quiet").first()))[1]).toBe(highlightText);
    await isPlain(deliveries.first());
    await page.setViewportSize({ width: 390, height: 800 });
    await isSelected(sections.getByRole("link", { name: "Webhooks" }));
    await isPlain(sections.getByRole("link", { name: "Files" }));
    await page.setViewportSize({ width: 1280, height: 800 });

    await sections.getByRole("link", { name: "Files" }).click();
    await button(page, "Play minute.wav").click();
    const outlineOf = (name: string) => row(page, name).evaluate((row) => getComputedStyle(row).outline);
    await expect.poll(() => outlineOf("minute.wav")).toBe(`${highlight} dashed 2px`);
    expect(await outlineOf("other.wav")).toContain("none");
    const bars = player(page).locator("canvas");
    const strokeOf = () => bars.evaluate((canvas) => [getComputedStyle(canvas).fill, getComputedStyle(canvas).stroke]);
    await expect.poll(strokeOf).toEqual([highlight, canvasText]);
    // The canvas is drawn again when the colors change.
    const hasPainted = (color: string) =>
      bars.evaluate((canvas: HTMLCanvasElement, color) => {
        const { data = [] } = canvas.getContext("2d")?.getImageData(0, 0, canvas.width, canvas.height) ?? {};
        const [red, green, blue] = (color.match(/\d+/g) ?? []).map(Number);
        return [...data].some(
          (_, at) =>
            at % 4 === 0 && data[at] === red && data[at + 1] === green && data[at + 2] === blue && data[at + 3] === 255,
        );
      }, color);
    await player(page).getByRole("button", { name: "Pause minute.wav" }).click();
    await expect.poll(() => hasPainted(canvasText)).toBe(true);
    await page.emulateMedia({ forcedColors: "none" });
    await expect.poll(() => hasPainted(canvasText)).toBe(false);
  });
});

/** The width of a desktop, of a phone, and of the narrowest one. */
const WIDTHS = [1440, 390, 320];

describe("No part passes the edge of its dialog, card, or row, in long texts and wide fonts,", () => {
  const expectInside = async (page: Page) => {
    for (const width of WIDTHS) {
      await page.setViewportSize({ width, height: 800 });
      expect(await findSpills(page), `parts beyond an edge at ${width} px`).toEqual([]);
    }
    await page.setViewportSize({ width: 1440, height: 800 });
  };

  test("although no name in it can be broken", async ({ at }) => {
    const operator = new Stowage({ url: inject("url"), key: inject("operatorToken") });
    const created = await operator.teams.create({ name: UNBREAKABLE });
    const key = created.apiKey.key ?? "";
    const stowage = new Stowage({ url: inject("url"), key });
    const team: Team = { stowage, key, teamId: created.team._id };
    const id = await upload(team, `${UNBREAKABLE}.wav`, sample("tone.wav"));
    await stowage.files.setWaveform(id, [[0.1, 0.9, 0.3]]).catch(() => undefined);
    const folder = `${UNBREAKABLE}/${UNBREAKABLE}`;
    await stowage.files.createFolder(folder);
    await stowage.files.update(await upload(team, `${UNBREAKABLE}.txt`, "text"), {
      folder,
      tags: [UNBREAKABLE.slice(0, 60)],
    });
    await stowage.files.update(id, {
      tags: [UNBREAKABLE.slice(0, 60), "raw"],
      reference: UNBREAKABLE,
      metadata: { [UNBREAKABLE.slice(0, 40)]: UNBREAKABLE },
    });
    await stowage.files.hold(id, UNBREAKABLE);
    await stowage.links.create(id, { name: UNBREAKABLE, startSeconds: 0.5, endSeconds: 1.5 });
    await stowage.keys.create({ name: UNBREAKABLE });
    await stowage.users.create({
      firstName: UNBREAKABLE,
      lastName: UNBREAKABLE,
      password: PASSWORD,
      email: `${UNBREAKABLE.slice(0, 60).replace("ü", "u")}@example.com`,
    });
    const webhook = await stowage.webhooks.create({
      url: `https://hooks.example.com/${encodeURIComponent(UNBREAKABLE)}`,
      description: UNBREAKABLE,
      types: ["user.deleted"],
    });
    const [event] = (await stowage.events.list({ type: "file.uploaded", limit: 1 })).items;
    const { page } = await at("/session", { team, width: 1440 });
    const shownDialog = () => expect(dialog(page)).toBeVisible();
    const choose = (action: string) => async () => {
      await button(page, /^Actions for /)
        .first()
        .click();
      await page.getByRole("menuitem", { name: action, exact: true }).click();
      await shownDialog();
    };
    const press = (name: string) => async () => {
      await button(page, name).first().click();
      await shownDialog();
    };
    const pages: [path: string, open?: () => Promise<unknown>][] = [
      ["session"],
      ["files"],
      [`files?folder=${encodeURIComponent(UNBREAKABLE)}`],
      [`files?folder=${encodeURIComponent(folder)}`],
      [`files?search=${UNBREAKABLE}`],
      [`files?tag=${UNBREAKABLE.slice(0, 60)}`],
      [
        "files",
        async () => {
          await chooseAction(page, "Add", "New folder");
          await shownDialog();
        },
      ],
      ["files", choose("Rename")],
      ["files", choose("Move")],
      ["files", choose("Delete")],
      [`files/${id}`],
      [`files/${id}`, () => page.getByText("Technical details").click()],
      [`files/${id}`, () => page.getByRole("region", { name: "Share" }).getByText("Options").click()],
      [`files/${id}?t=0.5,1.5`],
      [`files/${id}`, press("Edit details")],
      [`files/${id}`, choose("Edit tags")],
      [`files/${id}`, choose("Edit hold")],
      [`files/${id}`, choose("Move")],
      ["users"],
      ["users", press("Invite user")],
      ["users", choose("Delete")],
      ["keys"],
      ["keys", press("Create key")],
      ["keys", choose("Revoke")],
      ["webhooks"],
      ["webhooks", press("Create webhook")],
      [`webhooks/${webhook._id}`],
      [`webhooks/${webhook._id}`, choose("Edit")],
      [`webhooks/${webhook._id}`, choose("Delete")],
      ["events"],
      [
        "events",
        () =>
          button(page, /^Details of/)
            .first()
            .click(),
      ],
      [`events/${event?._id}`],
      ["usage"],
    ];
    const faults: string[] = [];
    for (const [path, open] of pages) {
      await page.setViewportSize({ width: 1440, height: 800 });
      await page.goto(`/console/${path}`);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await expect(page.locator(".skeleton")).toHaveCount(0);
      await open?.();
      for (const width of [390, 320]) {
        await page.setViewportSize({ width, height: 800 });
        const found = [...(await findTooWide(page)), ...(await findSpills(page))];
        const name = path.replaceAll(encodeURIComponent(UNBREAKABLE), "…");
        faults.push(...found.map((fault) => `${name}${open ? ` after ${open}` : ""}, ${width} px: ${fault}`));
      }
    }
    expect(faults).toEqual([]);
  });

  exhaustive("in the dialogs of keys, users, webhooks, and folders", async ({ at }) => {
    const team = await newTeam();
    await upload(team, `${LONG}.txt`, "text");
    await team.stowage.files.createFolder("Aufnahmeleitungsbesprechung/Hintergrundgeräusche");
    const { page } = await at("/keys", { team, width: 1440 });
    await button(page, "Create key").click();
    await stretchTexts(page);
    await expectInside(page);
    for (const [name, type] of [
      [LONG, "public"],
      ["Schlüsselverwaltungsanwendung", "files"],
    ] as const) {
      await page.goto("/console/keys");
      await button(page, "Create key").click();
      await dialog(page).getByLabel("Name").fill(name);
      await dialog(page).locator(`[value="${type}"]`).check();
      await dialog(page).getByRole("button", { name: "Create key" }).click();
      await expect(dialog(page)).toContainText("Copy this key now.");
      await stretchTexts(page);
      await expectInside(page);
    }
    await page.goto("/console/users");
    await button(page, "Invite user").first().click();
    await dialog(page)
      .getByLabel("Email")
      .fill(`${"long".repeat(10)}@example.com`);
    await button(page, "Create and copy link").click();
    await expect(button(page, "Copy invitation")).toBeVisible();
    await stretchTexts(page);
    await expectInside(page);
    await page.goto("/console/webhooks");
    await button(page, "Create webhook").first().click();
    await dialog(page).getByLabel("All events").uncheck();
    await stretchTexts(page);
    await expectInside(page);
    await page.goto("/console/files");
    await page.getByRole("checkbox", { name: `Select ${LONG}.txt` }).check();
    await button(page, "Move").click();
    await expect(dialog(page).getByRole("listitem")).not.toHaveCount(0);
    await stretchTexts(page);
    await expectInside(page);
  });

  exhaustive("in the lists, the page of a file, and the card of uploads", async ({ at, problems }) => {
    problems.allow(OFFLINE);
    const team = await newTeam();
    const id = await upload(team, `${"long".repeat(50)}.mp3`, sample("tone-vbr.mp3"));
    await team.stowage.files.update(id, { tags: ["Hintergrundgeräusche", "Musik"], folder: "" });
    await upload(team, `${LONG}.txt`, "text");
    await team.stowage.users.create({ firstName: LONG, lastName: LONG, email: "a@example.com", password: PASSWORD });
    await team.stowage.keys.create({ name: LONG });
    const { page } = await at("/files", { team, width: 1440 });
    await page.route(/\/docs\/v1\/uploads$/, (route) =>
      route.request().method() === "POST" ? route.abort("internetdisconnected") : route.fallback(),
    );
    for (const path of ["files", `files/${id}`, "users", "keys", "events", "usage", "session"]) {
      await page.goto(`/console/${path}`);
      await expect(page.getByRole("heading", { level: 1 })).toBeVisible();
      await expect(page.locator(".skeleton")).toHaveCount(0);
      if (path === "files") {
        const waiting = { name: `${LONG}.wav`, mimeType: "audio/wav", buffer: Buffer.from("waits") };
        await chooseFiles(page, () => startUpload(page), waiting);
        await expect(page.getByText("Waiting for connection.")).toBeVisible();
      }
      await stretchTexts(page);
      await expectInside(page);
    }
  });
});
