import type { Locator, Page } from "@playwright/test";

/* Locators for elements of most pages of the console. */

export const heading = (page: Page, name: string | RegExp): Locator => page.getByRole("heading", { level: 1, name });
export const dialog = (page: Page): Locator => page.getByRole("dialog");
export const button = (page: Page, name: string | RegExp): Locator =>
  page.getByRole("button", typeof name === "string" ? { name, exact: true } : { name });
export const link = (page: Page, name: string | RegExp): Locator => page.getByRole("link", { name });
export const row = (page: Page, name: string): Locator => page.getByRole("row").filter({ hasText: name });
export const rows = (page: Page): Locator => page.getByRole("rowheader");
/** The names in a list of files, without titles, tags, and folders. */
export const names = (page: Page): Locator => rows(page).getByRole("link");
/** A fact of a file, by its label. */
export const fact = (page: Page, name: string): Locator =>
  page.getByRole("definition").filter({ has: page.locator(`xpath=preceding-sibling::dt[.="${name}"]`) });
export const player = (page: Page): Locator => page.getByRole("region", { name: "Player" });
export const position = (page: Page | ReturnType<Page["frameLocator"]>): Locator =>
  page.getByRole("slider", { name: "Position" });
/** The position of the sound in seconds. */
export const secondsOf = (page: Page): Promise<number> =>
  page.locator("audio").evaluate(({ currentTime }: HTMLAudioElement) => currentTime);
