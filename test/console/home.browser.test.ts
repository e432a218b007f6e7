import { describe } from "vitest";
import { tabTo } from "../support/browser/appearance.ts";
import { exhaustive, expect, test } from "../support/browser/support.ts";

const LINKS = {
  "Open the console": "/console",
  "API reference": "/reference",
  Guide: "/guide.md",
  "Client and command line": "/client.md",
  "openapi.json": "/openapi.json",
};

describe("Home page", () => {
  test("links to the console, the reference, and the documents", async ({ openPage }) => {
    const page = await openPage();
    await expect(page.getByRole("heading", { level: 1, name: "Audio uploads for your product." })).toBeVisible();
    for (const [name, path] of Object.entries(LINKS)) {
      await page.goto("/");
      const answered = page.waitForResponse((response) => new URL(response.url()).pathname === path);
      await page.getByRole("link", { name, exact: true }).click();
      expect((await answered).status()).toBe(200);
      await expect(page).toHaveURL((url) => url.pathname.startsWith(path));
    }
  });

  test("serves documents whose links lead to others that it serves", async ({ openPage }) => {
    const { request } = (await openPage()).context();
    for (const document of ["/guide.md", "/client.md"]) {
      const response = await request.get(document);
      expect([response.status(), response.headers()["content-type"]]).toEqual([200, "text/markdown; charset=utf-8"]);
      const linked = [...(await response.text()).matchAll(/\]\((?!https?:)([^)#]+)/g)].map(([, path = ""]) => path);
      const headers = { Accept: "text/html" };
      for (const path of linked) expect((await request.get(path, { headers })).status(), path).toBe(200);
    }
  });

  test("shows a picture of the console on a wide page, and does not load it on a phone", async ({ openPage }) => {
    const page = await openPage();
    const picture = page.getByRole("img", { name: "The list of files in the console" });
    await picture.scrollIntoViewIfNeeded();
    await expect.poll(() => picture.evaluate((one) => (one as HTMLImageElement).naturalWidth)).toBeGreaterThan(0);
    const phone = await openPage({ width: 390 });
    await phone.evaluate(() => scrollTo(0, document.body.scrollHeight));
    await expect(phone.locator(".shot img")).toBeHidden();
    const loaded = await phone.evaluate(() => performance.getEntriesByType("resource").map(({ name }) => name));
    expect(loaded.filter((name) => name.endsWith(".webp"))).toEqual([]);
  });

  exhaustive("works with only a keyboard", async ({ openPage }) => {
    const page = await openPage();
    for (const name of Object.keys(LINKS)) await tabTo(page.getByRole("link", { name, exact: true }));
    await tabTo(page.getByRole("link", { name: "Open the console" }), "Shift+Tab");
    await page.keyboard.press("Enter");
    await expect(page).toHaveURL(/\/console/);
  });
});
