import { describe } from "vitest";
import { expectAccessible, expectNoSidewaysScroll } from "./looks.ts";
import { expect, screenshot, test } from "./support.ts";

describe("The console as a page", () => {
  test.for(["light", "dark"] as const)("It has no barriers in the %s theme.", async (theme, { openPage }) => {
    const page = await openPage({ path: "/console", theme });
    await expect(page.getByRole("main")).toBeVisible();
    await expectAccessible(page);
    await screenshot(page, "console");
  });

  test("It fits a window of 320 px.", async ({ openPage }) => {
    const page = await openPage({ path: "/console", width: 320 });
    await expect(page.getByRole("main")).toBeVisible();
    await expectNoSidewaysScroll(page);
    await screenshot(page, "console");
  });
});
