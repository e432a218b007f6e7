import { describe } from "vitest";
import { expectGoodLooks, tabTo } from "./appearance.ts";
import { expect, test } from "./support.ts";

const LINKS = [
  { name: "Open the console", path: "/console" },
  { name: "API reference", path: "/reference" },
  { name: "openapi.json", path: "/openapi.json" },
];

describe("Home page", () => {
  test.for(LINKS)("links to $name", async ({ name, path }, { openPage }) => {
    const page = await openPage();
    await expect(page.getByRole("heading", { level: 1, name: "Audio uploads for your product." })).toBeVisible();
    const answered = page.waitForResponse((response) => new URL(response.url()).pathname === path);
    await page.getByRole("link", { name, exact: true }).click();
    expect((await answered).status()).toBe(200);
    await expect(page).toHaveURL((url) => url.pathname.startsWith(path));
  });

  test("is accessible in both themes and fits 320 px", async ({ openPage }) => {
    await expectGoodLooks(await openPage(), "home");
  });

  test("works with only a keyboard", async ({ openPage }) => {
    const page = await openPage();
    for (const { name } of LINKS) await tabTo(page.getByRole("link", { name, exact: true }));
    await tabTo(page.getByRole("link", { name: "Open the console" }), "Shift+Tab");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/console/);
  });
});
