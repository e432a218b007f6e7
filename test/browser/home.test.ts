import { describe } from "vitest";
import { expectAccessible, expectNoSidewaysScroll, tabTo } from "./looks.ts";
import { expect, screenshot, test } from "./support.ts";

const LINKS = [
  { name: "Console", path: "/console" },
  { name: "API reference", path: "/reference" },
  { name: "openapi.json", path: "/openapi.json" },
];

describe("The home page", () => {
  test.for(LINKS)("Its link $name leads there.", async ({ name, path }, { openPage }) => {
    const page = await openPage();
    await expect(page.getByRole("heading", { level: 1, name: "Stowage" })).toBeVisible();
    const answered = page.waitForResponse((response) => new URL(response.url()).pathname === path);
    await page.getByRole("link", { name, exact: true }).click();
    expect((await answered).status()).toBe(200);
    await expect(page).toHaveURL((address) => address.pathname.startsWith(path));
  });

  test.for(["light", "dark"] as const)("It has no barriers in the %s theme.", async (theme, { openPage }) => {
    const page = await openPage({ theme });
    await expectAccessible(page);
    await screenshot(page, "home");
  });

  test("It fits a window of 320 px.", async ({ openPage }) => {
    const page = await openPage({ width: 320 });
    await expectNoSidewaysScroll(page);
    await screenshot(page, "home");
  });

  test("Its links are reached and followed with the keyboard.", async ({ openPage }) => {
    const page = await openPage();
    for (const { name } of LINKS) await tabTo(page.getByRole("link", { name, exact: true }));
    await tabTo(page.getByRole("link", { name: "Console" }), "Shift+Tab");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/console/);
  });
});
