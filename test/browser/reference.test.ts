import { readFileSync } from "node:fs";
import { join } from "node:path";
import type { Locator, Page, Route } from "@playwright/test";
import { describe } from "vitest";
import { newTeam } from "../support/team.ts";
import { expectAccessible, expectNoSidewaysScroll, tabTo, watchLayoutShift } from "./looks.ts";
import { openConsole } from "./signed-in.ts";
import { copyBy, expect, screenshot, test, url } from "./support.ts";

interface Described {
  operationId: string;
  summary: string;
  responses: Record<string, unknown>;
}

const api = (await (await fetch(`${url}/openapi.json`)).json()) as {
  paths: Record<string, Record<string, Described>>;
  components: { schemas: Record<string, { properties?: Record<string, unknown> }> };
};
const operations = Object.entries(api.paths).flatMap(([path, methods]) =>
  Object.entries(methods).map(([method, described]) => ({ path, method: method.toUpperCase(), ...described })),
);
const sound = join(import.meta.dirname, "../audio/tone-vbr.mp3");

const partOf = (page: Page, summary: string) => page.getByRole("article", { name: summary, exact: true });
const searchField = (page: Page) => page.getByRole("combobox", { name: "Search the reference" });

/** The form that tries an operation, opened. */
async function tryIt(page: Page, summary: string): Promise<Locator> {
  await page.getByRole("button", { name: `Try it: ${summary}`, exact: true }).click();
  return page.getByRole("form", { name: `Try: ${summary}`, exact: true });
}

describe("The reference as a page", () => {
  test.for(["light", "dark"] as const)(
    "It has no barriers in the %s theme, with what it can open.",
    async (theme, { openPage, problems }) => {
      problems.allow(/status of 401/);
      const page = await openPage({ path: "/reference", theme });
      await expect(page.getByRole("heading", { name: "Schemas" })).toBeVisible();
      await screenshot(page, "reference");
      for (const [summary, shown] of [
        ["Get user details", "status"],
        ["Delete a file", "alertdialog"],
      ] as const) {
        const form = await tryIt(page, summary);
        await form.getByLabel("Token").fill("stow_sk_wrong");
        await form.getByLabel("id required").fill("0193477c0a5e2b7f4d1c8e90");
        await form.getByRole("button", { name: "Send" }).click();
        await expect(form.getByRole(shown)).not.toBeEmpty();
      }
      await partOf(page, "Update a user").getByText("version_mismatch").click();
      await searchField(page).fill("file");
      await expect(page.getByRole("option").first()).toBeVisible();
      // At its top, where the page's bar hides no part of a target, whose size would then be the rest.
      await page.evaluate(() => scrollTo(0, 0));
      await expectAccessible(page);
      await screenshot(page, "reference-opened");
    },
  );

  test("It fits a window of 320 px, with all that it can open.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference", width: 320 });
    await expect(page.getByRole("heading", { name: "Schemas" })).toBeVisible();
    await expectNoSidewaysScroll(page);
    await screenshot(page, "reference");
    await page.getByRole("button", { name: "Contents" }).click();
    await expect(page.getByRole("navigation", { name: "Contents" }).getByText("Upload a file")).toBeVisible();
    await tryIt(page, "Create a webhook");
    await page
      .getByRole("article")
      .locator("summary")
      .evaluateAll((all) => {
        for (const one of all) (one as HTMLElement).click();
      });
    await searchField(page).fill("disabledReason");
    await expect(page.getByRole("option").first()).toBeVisible();
    await expectNoSidewaysScroll(page);
  });

  test("Its layout does not move while it loads.", async ({ openPage }) => {
    const page = await openPage();
    const shifted = await watchLayoutShift(page);
    await page.goto("/reference");
    await expect(page.getByRole("heading", { name: "Schemas" })).toBeVisible();
    expect(await shifted()).toBeLessThan(0.01);
  });

  test("A document that does not come, or is none, is said, and asked for again.", async ({ openPage, problems }) => {
    problems.allow(/status of 503/, /ERR_CONNECTION_REFUSED/);
    const page = await openPage();
    const answers: [string, (route: Route) => Promise<void>][] = [
      ["/openapi.json was answered 503.", (route) => route.fulfill({ status: 503 })],
      ["The service can't be reached.", (route) => route.abort("connectionrefused")],
      [
        "/openapi.json is not of the shape that this page shows.",
        (route) => route.fulfill({ json: { openapi: "3.1.0" } }),
      ],
    ];
    const [first] = answers;
    await page.route("/openapi.json", (route) => first?.[1](route), { times: 1 });
    await page.goto("/reference");
    for (const [place, [message]] of answers.entries()) {
      await expect(page.getByRole("alert")).toHaveText(`${message}Try again`);
      const next = answers[place + 1]?.[1];
      if (next) await page.route("/openapi.json", next, { times: 1 });
      await page.getByRole("button", { name: "Try again" }).click();
    }
    expect(problems.take().join("\n")).toMatch(/^Not caught: TypeError/);
    await expect(page.getByRole("heading", { name: "Schemas" })).toBeVisible();
  });
});

describe("What the reference has", () => {
  test("Every operation of the document is there, with its address, its answers and a link to it.", async ({
    openPage,
  }) => {
    const page = await openPage({ path: "/reference" });
    await expect(page.getByRole("heading", { name: "Schemas" })).toBeVisible();
    await expect(page.getByRole("article")).toHaveCount(operations.length);
    const contents = page.getByRole("navigation", { name: "Contents" });
    for (const { operationId, summary, method, path, responses } of operations) {
      const part = partOf(page, summary);
      await expect(part).toHaveAttribute("id", operationId);
      const text = await part.innerText();
      for (const shown of [method, path, ...Object.keys(responses)]) expect(text, operationId).toContain(shown);
      await expect(contents.getByRole("link", { name: `${method} ${summary}`, exact: true })).toHaveAttribute(
        "href",
        `#${operationId}`,
      );
    }
  });

  test("Every schema of the document is there once, with its fields.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    for (const [name, { properties = {} }] of Object.entries(api.components.schemas)) {
      const schema = page.getByRole("region", { name, exact: true });
      await expect(schema).toHaveCount(1);
      for (const field of Object.keys(properties))
        await expect(schema.getByText(field, { exact: true }).first()).toBeAttached();
    }
  });

  test("An operation tells its token, its fields with their limits, and what is answered.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const part = partOf(page, "Create a user");
    await expect(part).toContainText("Token: secret key");
    await expect(part.getByRole("listitem").filter({ hasText: "password" }).first()).toContainText(
      "required8 to 256 characters",
    );
    await part.getByText("email_taken").click();
    await expect(part).toContainText("A user with this email already exists.");
    await part.getByRole("link", { name: "email_taken" }).click();
    await expect(page.getByRole("row", { name: /email_taken/ })).toBeFocused();
  });

  test("The tokens and the error codes are told before the operations.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const tokens = page.getByRole("region", { name: "Authentication" });
    for (const name of ["secret key", "public key", "operator token"])
      await expect(tokens.getByText(name, { exact: true })).toBeVisible();
    const codes = page.getByRole("table", { name: "Error codes" });
    await expect(
      codes.getByRole("row", { name: "rate_limited 429 Too many requests. Retry after the seconds in Retry-After." }),
    ).toBeVisible();
  });

  test.for([
    ["curl", "curl 'ORIGIN/docs/v1/usage' \\\n  -H \"Authorization: Bearer $STOWAGE_KEY\""],
    [
      "JavaScript",
      'const response = await fetch("ORIGIN/docs/v1/usage", {\n  headers: { Authorization: `Bearer $KEY` },\n});\nconst answer = await response.json();',
    ],
    ["Client", "const { bytes, maxBytes } = await stowage.usage();"],
  ] as const)("The example as %s is copied.", async ([language, text], { openPage }) => {
    const page = await openPage({ path: "/reference" });
    const part = partOf(page, "Get the team's usage");
    await part.getByText(language, { exact: true }).first().click();
    const copy = part.getByRole("button", { name: `Copy ${language}: Get the team's usage` });
    const expected = text.replace("ORIGIN", url).replace("$KEY", "$" + "{key}");
    expect(await copyBy(copy, expected)).toBe(expected);
    await expect(page.getByRole("status").filter({ hasText: "Copied" })).toBeVisible();
  });
});

describe("Addresses within the reference", () => {
  test("A link to an operation leads there, the title follows, and back leads back.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference#createUser" });
    await expect(partOf(page, "Create a user")).toBeInViewport();
    await expect(partOf(page, "Create a user")).toBeFocused();
    await expect(page).toHaveTitle("Create a user – Stowage API reference");
    await page.getByRole("navigation", { name: "Contents" }).getByRole("link", { name: "Delete a file" }).click();
    await expect(partOf(page, "Delete a file")).toBeInViewport();
    await expect(page).toHaveTitle("Delete a file – Stowage API reference");
    await page.goBack();
    await expect(page).toHaveTitle("Create a user – Stowage API reference");
    await expect(partOf(page, "Create a user")).toBeInViewport();
  });

  test("A link to a field opens what it is folded in.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference#schema-FileMetadata.audio.durationSeconds" });
    const field = page.getByRole("listitem").filter({ hasText: "durationSeconds" }).last();
    await expect(field).toBeFocused();
    await expect(field).toBeInViewport();
    await expect(page).toHaveTitle("FileMetadata – Stowage API reference");
  });

  test("The contents show what is being read.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const contents = page.getByRole("navigation", { name: "Contents" });
    await partOf(page, "List webhooks").evaluate((part) => part.scrollIntoView());
    const link = contents.getByRole("link", { name: "List webhooks" });
    await expect(link).toHaveAttribute("aria-current", "location");
    await expect(link).toBeInViewport();
    await expect(contents.locator("[aria-current]")).toHaveCount(1);
  });
});

describe("The search", () => {
  test("It finds an operation, a path, a field and an error code, by the keyboard alone.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    await expect(page.getByRole("heading", { name: "Schemas" })).toBeVisible();
    const find = async (query: string, option: RegExp, target: Locator) => {
      await page.keyboard.press("/");
      await expect(searchField(page)).toBeFocused();
      await page.keyboard.type(query);
      const chosen = page.getByRole("option", { selected: true });
      for (let presses = 0; presses < 30; presses++) {
        if (option.test((await chosen.textContent()) ?? "")) break;
        await page.keyboard.press("ArrowDown");
      }
      await expect(chosen).toHaveText(option);
      await expect(searchField(page)).toHaveAttribute("aria-activedescendant", (await chosen.getAttribute("id")) ?? "");
      await page.keyboard.press("Enter");
      await expect(target).toBeFocused();
      await expect(target).toBeInViewport();
      await expect(page.getByRole("option")).toHaveCount(0);
    };
    await find("rotate secret", /^OperationRotate a webhook's secret/, partOf(page, "Rotate a webhook's secret"));
    await find("/uploads/{id}/metadata", /^OperationGet a file's metadata/, partOf(page, "Get a file's metadata"));
    const field = page.getByRole("listitem").filter({ hasText: "failedOnly" }).last();
    await find("failedonly", /^FieldfailedOnly/, field);
    await find("quota", /^Errorquota_exceeded/, page.getByRole("row", { name: /^quota_exceeded/ }));
  });

  test("It marks what was found, says how much, and ends with Escape.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    await searchField(page).fill("sign");
    await expect(page.getByRole("option").first().locator("mark")).toHaveText(/sign/i);
    const count = await page.getByRole("option").count();
    await expect(page.getByRole("search").getByRole("status")).toHaveText(`${count} found.`);
    await page.keyboard.press("ArrowUp");
    await expect(page.getByRole("option").last()).toHaveAttribute("aria-selected", "true");
    await searchField(page).fill("(no such thing");
    await expect(page.getByRole("search").getByRole("status")).toHaveText("Nothing found.");
    await page.keyboard.press("Escape");
    await expect(searchField(page)).toHaveValue("");
    await expect(page.getByRole("search").getByRole("status")).toHaveText("");
  });
});

describe("A call that is tried", () => {
  test("It is answered with status, request id and formatted JSON, and no token is shown.", async ({ openPage }) => {
    const { key } = await newTeam();
    const page = await openPage({ path: "/reference" });
    const form = await tryIt(page, "Get the team's usage");
    await form.getByLabel("Token").fill(key);
    await form.getByRole("button", { name: "Send" }).click();
    await expect(form.getByRole("status")).toHaveText(/^200 in \d+ msRequest [0-9a-f-]{36}$/);
    await expect(form.getByRole("region", { name: /^Answer/ })).toContainText('"files": 0,');
    await form.getByText("Headers", { exact: true }).click();
    await expect(form).toContainText("no-store");
    expect(await page.content()).not.toContain(key);
    expect(
      await page.evaluate(() =>
        JSON.stringify([{ ...localStorage }, { ...sessionStorage }, document.cookie, location.href]),
      ),
    ).not.toContain(key);
    // Another call takes the same token.
    await expect((await tryIt(page, "List files")).getByLabel("Token")).toHaveValue(key);
  });

  test("It uploads a file.", async ({ openPage }) => {
    const { key, stowage } = await newTeam();
    const page = await openPage({ path: "/reference" });
    const form = await tryIt(page, "Upload a file");
    await form.getByLabel("Token").fill(key);
    await form.getByLabel("File", { exact: true }).setInputFiles(sound);
    await expect(form).toContainText("-F 'file=@tone-vbr.mp3'");
    await form.getByRole("button", { name: "Send" }).click();
    await expect(form.getByRole("status")).toContainText("200 in");
    const { items } = await stowage.files.list().page();
    expect(items.map(({ originalName }) => originalName)).toEqual(["tone-vbr.mp3"]);
    const { size } = await stowage.files.get(items[0]?._id ?? "");
    expect(size).toBe(readFileSync(sound).length);
  });

  test("Its body is made of fields or written as JSON.", async ({ openPage }) => {
    const { key, stowage } = await newTeam();
    const page = await openPage({ path: "/reference" });
    const form = await tryIt(page, "Create a user");
    await form.getByLabel("Token").fill(key);
    await form.getByLabel("firstName").fill("Grace");
    await form.getByLabel("lastName").fill("");
    await form.getByRole("button", { name: "Send" }).click();
    await expect(form.getByRole("status")).toContainText("200 in");
    await expect(form.getByRole("button", { name: "Copy This request: Create a user" })).toBeVisible();
    await form.getByLabel("As JSON").check();
    await form.getByLabel("JSON", { exact: true }).fill('{ "email": "b@example.com", "password": "correct horse" }');
    await form.getByRole("button", { name: "Send" }).click();
    await expect(form.getByRole("region", { name: /^Answer/ })).toContainText("b@example.com");
    const { items } = await stowage.users.list().page();
    expect(items.map(({ firstName, lastName, email }) => [firstName, lastName, email])).toEqual([
      ["Grace", "", "ada@example.com"],
      ["", "", "b@example.com"],
    ]);
  });

  test("It begins a resumable upload, and sends its bytes.", async ({ openPage }) => {
    const { key, stowage } = await newTeam();
    const page = await openPage({ path: "/reference" });
    const begin = await tryIt(page, "Begin a resumable upload");
    await begin.getByLabel("Token").fill(key);
    await begin.getByLabel("Upload-Length required").fill(String(readFileSync(sound).length));
    await begin.getByRole("button", { name: "Send" }).click();
    await expect(begin.getByRole("status")).toContainText("201 in");
    await expect(begin).toContainText("No body.");
    await begin.getByText("Headers", { exact: true }).click();
    const [, upload = ""] =
      /resumable\/(\S+)/.exec(await begin.getByText("/docs/v1/uploads/resumable/").last().innerText()) ?? [];
    const more = await tryIt(page, "Send more of a resumable upload");
    await more.getByLabel("upload required").fill(upload);
    await more.getByLabel("File, or a piece of one").setInputFiles(sound);
    await more.getByRole("button", { name: "Send", exact: true }).click();
    await expect(more.getByRole("status")).toContainText("204 in");
    expect((await stowage.files.list().page()).items).toHaveLength(1);
  });

  test("It shows message and request id where it is refused.", async ({ openPage, problems }) => {
    problems.allow(/status of 401/);
    const page = await openPage({ path: "/reference" });
    const form = await tryIt(page, "List files");
    await form.getByLabel("Token").fill("stow_sk_wrong");
    await form.getByRole("button", { name: "Send" }).click();
    await expect(form.getByRole("status")).toHaveText(
      /^401 in \d+ ms: The token is invalid, revoked, or expired\.Request [0-9a-f-]{36}$/,
    );
  });

  test("It asks first where it deletes, and does nothing where that is not meant.", async ({ openPage }) => {
    const { key, stowage } = await newTeam();
    const { _id } = await stowage.users.create({ email: "a@example.com", password: "correct horse" });
    const page = await openPage({ path: "/reference" });
    const form = await tryIt(page, "Delete a user");
    await form.getByLabel("Token").fill(key);
    await form.getByLabel("id required").fill(_id);
    await form.getByRole("button", { name: "Send" }).click();
    const question = form.getByRole("alertdialog");
    await expect(question.getByRole("button", { name: "Cancel" })).toBeFocused();
    await page.keyboard.press("Enter");
    await expect(question).toHaveCount(0);
    await expect(form.getByRole("button", { name: "Send" })).toBeFocused();
    expect((await stowage.users.get(_id))._id).toBe(_id);
    await form.getByRole("button", { name: "Send" }).click();
    await question.getByRole("button", { name: "Send DELETE" }).click();
    await expect(form.getByRole("status")).toContainText("200 in");
    expect((await stowage.users.list().page()).items).toEqual([]);
  });

  test("It is sent once, however often it is asked for, until it ends or is stopped.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const held: Route[] = [];
    await page.route("/auth/v1/users", (route) => void held.push(route));
    const form = await tryIt(page, "Create a user");
    await form.getByLabel("Token").fill("x");
    const send = form.getByRole("button", { name: "Send" });
    for (let times = 0; times < 3; times++) await send.press("Enter");
    await expect(form.getByRole("status")).toHaveText("Sending…");
    await form.getByRole("button", { name: "Stop" }).click();
    await expect(form.getByRole("status")).toBeEmpty();
    await expect(send).toBeFocused();
    expect(held).toHaveLength(1);
    await send.press("Enter");
    await expect.poll(() => held.length).toBe(2);
    await held[1]?.fulfill({ json: {} });
    await expect(form.getByRole("status")).toContainText("200 in");
  });

  test("It says of a token that no header can hold that it is none, and sends nothing.", async ({ openPage }) => {
    const page = await openPage();
    await page.evaluate(() => sessionStorage.setItem("stowage.session", "{"));
    // What is kept of a session and can't be read is as none, here and in the console.
    await page.goto("/console");
    await expect(page.getByRole("button", { name: "Sign in" })).toBeVisible();
    await page.goto("/reference");
    const form = await tryIt(page, "List files");
    await form.getByLabel("Token").fill("ключ");
    await form.getByRole("button", { name: "Send" }).click();
    await expect(form.getByRole("status")).toHaveText("This is no key: a key has no spaces and no such letters.");
  });

  test("It says where no answer comes.", async ({ openPage, problems }) => {
    problems.allow(/ERR_CONNECTION_REFUSED/);
    const page = await openPage({ path: "/reference" });
    const form = await tryIt(page, "List files");
    await form.getByLabel("Token").fill("x");
    await page.route(/\/docs\/v1\/uploads$/, (route) => route.abort("connectionrefused"));
    await form.getByRole("button", { name: "Send" }).click();
    await expect(form.getByRole("status")).toHaveText("The service can't be reached.");
  });

  test("It shows of a body that is long, or no text, how long it is.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    const form = await tryIt(page, "List files");
    await form.getByLabel("Token").fill("x");
    const answers = [
      { contentType: "application/json", body: JSON.stringify("x".repeat(300_000)) },
      { contentType: "application/octet-stream", body: "bytes" },
    ];
    await page.route(/\/docs\/v1\/uploads$/, (route) => route.fulfill(answers.shift()));
    for (const size of ["300 kB", "5 B"]) {
      await form.getByRole("button", { name: "Send" }).click();
      await expect(form).toContainText(`Body of ${size}, not shown.`);
    }
  });

  test("It can be made with the keyboard alone, and with the console's key.", async ({ openPage }) => {
    const { page, stowage } = await openConsole(openPage, { path: "" });
    await page.goto("/reference#listApiKeys");
    await expect(partOf(page, "List API keys")).toBeFocused();
    await tabTo(page.getByRole("button", { name: "Try it: List API keys", exact: true }));
    await page.keyboard.press("Enter");
    const form = page.getByRole("form", { name: "Try: List API keys" });
    await tabTo(form.getByRole("button", { name: "Use the console's key" }));
    await page.keyboard.press("Enter");
    await tabTo(form.getByRole("button", { name: "Send" }));
    await page.keyboard.press("Enter");
    await expect(form.getByRole("status")).toContainText("200 in");
    const { items } = await stowage.keys.list().page();
    await expect(form.getByLabel("Token")).toHaveValue(items.find(({ name }) => name === "Console")?.key ?? "none");
  });

  test("The way to the content is short for whoever has no pointer.", async ({ openPage }) => {
    const page = await openPage({ path: "/reference" });
    await expect(page.getByRole("heading", { name: "Schemas" })).toBeVisible();
    await tabTo(page.getByRole("link", { name: "Skip to the content" }));
    await page.keyboard.press("Enter");
    await expect(page.getByRole("main")).toBeFocused();
  });
});
