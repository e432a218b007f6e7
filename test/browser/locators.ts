import type { Locator, Page } from "@playwright/test";

/* Locators for elements of most pages of the console. */

export const heading = (page: Page, name: string): Locator => page.getByRole("heading", { level: 1, name });
export const dialog = (page: Page): Locator => page.getByRole("dialog");
export const button = (page: Page, name: string): Locator => page.getByRole("button", { name, exact: true });
export const row = (page: Page, name: string): Locator => page.getByRole("row").filter({ hasText: name });
