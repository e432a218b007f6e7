import type { Page } from "@playwright/test";
import { describe, inject, onTestFinished } from "vitest";
import { Stowage } from "../../src/client/stowage.ts";
import { Receiver } from "../support/receiver.ts";
import { newTeam, sample, upload } from "../support/team.ts";
import { expectGoodLooks, findSpills, stretchTexts } from "./appearance.ts";
import { exhaustive, PASSWORD, signIn, test } from "./console.ts";
import { button, dialog, row } from "./locators.ts";
import { expect } from "./support.ts";

/* Each page is accessible and fits 320 px, whatever its texts contain. Tests of a page check the rest of its states. */

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
    problems.allow(/status of 404/);
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
    const [event] = (await events.list({ type: "file.uploaded", limit: 1 }).page()).items;
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
          await expect(page.getByRole("status").filter({ hasText: "Test response" })).toContainText("500 · ");
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
    problems.allow(/ERR_/);
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
        const chooser = page.waitForEvent("filechooser");
        await button(page, "Upload files").click();
        await (await chooser).setFiles({ name: `${LONG}.wav`, mimeType: "audio/wav", buffer: Buffer.from("waits") });
        await expect(page.getByText("Waiting for connection.")).toBeVisible();
      }
      await stretchTexts(page);
      await expectInside(page);
    }
  });
});
