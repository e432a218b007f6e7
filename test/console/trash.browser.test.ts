import { describe, inject } from "vitest";
import { expectAccessible, expectGoodLooks, expectNoSidewaysScroll } from "../support/browser/appearance.ts";
import { type ConsoleOptions, chooseAction, test as consoleTest, uploadNamed } from "../support/browser/console.ts";
import { alter, hold, respond } from "../support/browser/fakes.ts";
import { button, dialog, fact, heading, link, rows } from "../support/browser/locators.ts";
import { expect, expectAnnounced } from "../support/browser/support.ts";
import { collect, newTeam, type Team } from "../support/team.ts";
import { isExhaustive } from "../support/tiers.ts";

/* The console of a service that has a trash, and the holds and times of deletion of files. */

const server = inject("trash");
const DAYS = server.days;

const newTrashTeam = () => newTeam(server);

/** Opens the console of the service with a trash, which it knows when it knows the team. */
const test = consoleTest.extend("atTrash", ({ at }) => async (path: string, options: ConsoleOptions = {}) => {
  const opened = await at(path, { team: await newTrashTeam(), ...options });
  await expect(opened.page.getByRole("link", { name: "test Stowage", exact: true })).toBeVisible();
  return opened;
});

/** Moves files to the trash. @returns their ids */
async function trashNamed(team: Team, ...names: string[]): Promise<string[]> {
  const ids = await uploadNamed(team, ...names);
  await team.stowage.files.batch({ action: "delete", ids });
  return ids;
}

const exhaustive = test.runIf(isExhaustive);

const namesIn = async ({ stowage }: Team) => (await collect(stowage.files.list())).map(({ name }) => name);
const namesInTrash = async ({ stowage }: Team) => (await collect(stowage.trash.list())).map(({ name }) => name);

describe("Files that the service itself sends", () => {
  // A service without signed URLs of the storage has the same links.
  exhaustive("are saved, several at once", async ({ atTrash }) => {
    const team = await newTrashTeam();
    await uploadNamed(team, "2.txt", "1.txt");
    const { page } = await atTrash("/files", { team });
    const saved: string[] = [];
    page.on("download", (download) => saved.push(download.suggestedFilename()));
    await page.getByRole("checkbox", { name: "Select all" }).check();
    await page.getByRole("region", { name: "Selected files" }).getByRole("button", { name: "Download" }).click();
    await expect.poll(() => saved.toSorted()).toEqual(["1.txt", "2.txt"]);
  });
});

describe("Trash page", () => {
  test("lists deleted files, restores and erases them, and says how long files are kept", async ({ atTrash }) => {
    const team = await newTrashTeam();
    const ids = await uploadNamed(team, "one.txt", "two.txt", "three.txt", "four.txt");
    await team.stowage.files.update(ids[0] ?? "", { folder: "podcast/2026" });
    await team.stowage.files.batch({ action: "delete", ids });
    const { page } = await atTrash("/files", { team });
    await link(page, "Trash").click();
    await expect(link(page, "Trash")).toHaveAttribute("aria-current", "page");
    await expect(rows(page)).toHaveText([/^four\.txt/, /^three\.txt/, /^two\.txt/, "one.txtpodcast/2026"]);
    await expect(page.getByRole("row").filter({ hasText: "one.txt" }).getByRole("cell")).toHaveText([
      "",
      "15 B",
      "just now",
      `in ${DAYS} days`,
      "Restore",
      "",
    ]);
    await expectGoodLooks(page, "trash");
    await button(page, "Restore one.txt").click();
    await expectAnnounced(page, "Restored 1 file");
    await expect(rows(page)).toHaveCount(3);
    await button(page, "Show").click();
    await expect(heading(page, "one.txt")).toBeVisible();
    await page.goBack();
    await expect(rows(page)).toHaveCount(3);
    expect(await team.stowage.files.get(ids[0] ?? "")).toMatchObject({ folder: "podcast/2026" });

    await page.getByRole("checkbox", { name: "Select two.txt" }).check();
    await page.getByRole("row").filter({ hasText: "three.txt" }).click();
    await expectGoodLooks(page, "trash-selected");
    await page.setViewportSize({ width: 390, height: 800 });
    await expectNoSidewaysScroll(page);
    await page.setViewportSize({ width: 1280, height: 800 });
    await button(page, "Restore").click();
    await expectAnnounced(page, "Restored 2 files");
    await expect(rows(page)).toHaveText([/^four\.txt/]);
    // Several files are shown in the list of their folder.
    await button(page, "Show").click();
    await expect(rows(page)).toHaveText([/^three\.txt/, /^two\.txt/]);
    await page.goBack();
    await expect(rows(page)).toHaveText([/^four\.txt/]);

    await chooseAction(page, "Actions for four.txt", "Erase");
    await expect(dialog(page)).toHaveAccessibleName("Erase 1 file?");
    await expect(dialog(page)).toContainText("This can't be undone.");
    await button(page, "Erase 1 file").click();
    await expectAnnounced(page, "Erased 1 file");
    await expect(heading(page, "Trash")).toBeFocused();
    await expect(page.getByText(`Deleted files stay here for ${DAYS} days, and can be restored.`)).toBeVisible();
    await expectGoodLooks(page, "trash-empty");
    expect((await namesIn(team)).sort()).toEqual(["one.txt", "three.txt", "two.txt"]);
    expect(await namesInTrash(team)).toEqual([]);
  });

  exhaustive("is emptied a page at a time, stops, and continues after a failure", async ({ atTrash, problems }) => {
    problems.allow(403);
    const team = await newTrashTeam();
    await trashNamed(team, "one.txt", "two.txt", "three.txt", "four.txt", "five.txt");
    const { page } = await atTrash("/trash", { team });
    await expect(rows(page)).toHaveCount(5);
    // The pages of the service are as long as a test needs them.
    await page.route(/\/docs\/v1\/trash\?/, (route) =>
      route.continue({
        url: route
          .request()
          .url()
          .replace(/limit=\d+/, "limit=2"),
      }),
    );
    const batches: { files: number; release: (isRejected?: boolean) => Promise<void> }[] = [];
    await page.route("**/uploads/batch", (route) => {
      const { ids, ...action } = route.request().postDataJSON() as { ids: string[] };
      expect(action).toEqual({ action: "delete", permanent: true });
      const release = (isRejected = false) =>
        isRejected ? respond(route, { code: "forbidden", message: "Not you." }) : route.continue();
      batches.push({ files: ids.length, release });
    });
    await button(page, "Empty trash").click();
    await expect(dialog(page)).toHaveAccessibleName(/^Erase 5 files \(\d+ B\)\?$/);
    await expect(dialog(page)).toContainText("All files in the trash are erased.");
    const confirm = () => dialog(page).getByRole("button", { name: "Empty trash" }).click();
    await confirm();
    await expect.poll(() => batches.length).toBe(1);
    await dialog(page).getByRole("button", { name: "Stop" }).click();
    await batches[0]?.release();
    await expect(dialog(page).getByRole("progressbar", { name: "Erased 2" })).toBeVisible();
    await confirm();
    await expect.poll(() => batches.length).toBe(2);
    await batches[1]?.release(true);
    await expect(dialog(page).getByRole("alert")).toContainText("Not you.");
    await expectAccessible(page);
    await confirm();
    for (const place of [2, 3]) {
      await expect.poll(() => batches.length).toBe(place + 1);
      await batches[place]?.release();
    }
    await expectAnnounced(page, "Erased 5 files");
    await expect(dialog(page)).toHaveCount(0);
    await expect(heading(page, "Trash")).toBeVisible();
    await expect(page.getByRole("heading", { name: "The trash is empty" })).toBeVisible();
    expect(batches.map(({ files }) => files)).toEqual([2, 2, 2, 1]);
    expect(await namesInTrash(team)).toEqual([]);
  });

  exhaustive("says how many files are held", async ({ atTrash }) => {
    const team = await newTrashTeam();
    const [, held] = await trashNamed(team, "one.txt", "two.txt");
    const { page } = await atTrash("/trash", { team });
    await page.route("**/uploads/batch", (route) =>
      alter<{ _id: string }[]>(route, (results) =>
        results.map((result) => (result._id === held ? { _id: held, ok: false, code: "file_held" } : result)),
      ),
    );
    await button(page, "Empty trash").click();
    await dialog(page).getByRole("button", { name: "Empty trash" }).click();
    await expectAnnounced(page, "Erased 1 file. 1 held file can't be deleted");
  });

  exhaustive("follows what others delete, restore and erase", async ({ atTrash }) => {
    const {
      page,
      team,
      ids: [one = "", two = ""],
    } = await atTrash("/trash", { files: ["one.txt", "two.txt"] });
    await expect(page.getByRole("heading", { name: "The trash is empty" })).toBeVisible();
    await team.stowage.files.delete(one);
    await team.stowage.files.delete(two);
    await expect(rows(page)).toHaveText([/^two\.txt/, /^one\.txt/]);
    await team.stowage.trash.restore(one);
    await expect(rows(page)).toHaveText([/^two\.txt/]);
    await team.stowage.trash.delete(two);
    await expect(rows(page)).toHaveCount(0);
  });

  test("keeps the tags of its files from the filter of files, as others delete and restore them", async ({
    atTrash,
  }) => {
    const team = await newTrashTeam();
    const [one = "", two = ""] = await uploadNamed(team, "one.txt", "two.txt");
    const { files, trash } = team.stowage;
    for (const [id, tag] of [
      [one, "draft"],
      [two, "music"],
    ] as const)
      await files.update(id, { tags: [tag] });
    const { page } = await atTrash("/files", { team });
    const tags = page.getByRole("combobox", { name: "Tag" }).getByRole("option");
    await expect(tags).toHaveText(["All tags", "draft", "music"]);
    await files.delete(one);
    await expect(tags).toHaveText(["All tags", "music"]);
    await trash.restore(one);
    await expect(tags).toHaveText(["All tags", "draft", "music"]);
    await files.update(two, { tags: ["live", "Music"] });
    await expect(tags).toHaveText(["All tags", "draft", "live", "Music"]);
  });

  exhaustive("is found in the palette, if the session may delete files", async ({ atTrash }) => {
    const { page, team } = await atTrash("/files");
    await button(page, "Find… Ctrl K").click();
    await page
      .getByRole("combobox", { name: "Find files, what is said in them, folders, pages, and actions" })
      .fill("trash");
    await page.keyboard.press("Enter");
    await expect(heading(page, "Trash")).toBeFocused();

    const { key } = await team.stowage.keys.create({ name: "reader", scopes: ["files:read"] });
    const reader = await atTrash("/files", { team: { ...team, key } });
    await expect(heading(reader.page, "Files")).toBeVisible();
    await expect(link(reader.page, "Trash")).toHaveCount(0);
    await reader.page.goto(`${server.url}/console/trash`);
    await expect(heading(reader.page, "No access")).toBeVisible();
  });

  exhaustive("isn't offered by a service without a trash", async ({ at }) => {
    const { page } = await at("/trash");
    await expect(heading(page, "Page not found")).toBeVisible();
    await link(page, "Go to the start page").click();
    await expect(page.getByRole("heading", { name: "No files yet" })).toBeVisible();
    await expect(link(page, "Trash")).toHaveCount(0);
  });
});

describe("Emptying the trash", () => {
  test("shows its end, and can be stopped, although the user goes back meanwhile", async ({ atTrash }) => {
    const team = await newTrashTeam();
    await trashNamed(team, "one.txt", "two.txt");
    const { page } = await atTrash("/files", { team });
    await link(page, "Trash").click();
    await expect(rows(page)).toHaveCount(2);
    const { release, isHeld } = await hold(page, "POST", /uploads\/batch$/);
    await button(page, "Empty trash").click();
    await dialog(page).getByRole("button", { name: "Empty trash" }).click();
    await isHeld;
    await page.goBack();
    await expect(heading(page, "Files")).toBeVisible();
    await expect(dialog(page).getByRole("button", { name: "Stop" })).toBeVisible();
    release();
    await expectAnnounced(page, "Erased 2 files");
    await expect(dialog(page)).toHaveCount(0);
    expect(await namesInTrash(team)).toEqual([]);
  });
});

describe("Deleting files with a trash", () => {
  test("moves files to the trash without a question, and undoes it", async ({ atTrash }) => {
    const { page, team } = await atTrash("/files", { files: ["one.txt", "two.txt", "three.txt"] });
    await chooseAction(page, "Actions for one.txt", "Delete");
    await expectAnnounced(page, "Moved 1 file to the trash");
    await expect(rows(page)).toHaveText(["three.txt", "two.txt"]);
    expect(await namesInTrash(team)).toEqual(["one.txt"]);
    await expectAccessible(page);
    await button(page, "Undo").click();
    await expectAnnounced(page, "Change undone");
    await expect(rows(page)).toHaveText(["three.txt", "two.txt", "one.txt"]);

    await link(page, "three.txt").focus();
    await page.keyboard.press("Delete");
    await expect(rows(page)).toHaveText(["two.txt", "one.txt"]);
    await expect(link(page, "two.txt")).toBeFocused();
    await page.keyboard.press("x");
    await page.getByRole("checkbox", { name: "Select one.txt" }).check();
    await button(page, "Delete 2 files").click();
    await expectAnnounced(page, "Moved 2 files to the trash");
    await expect(rows(page)).toHaveCount(0);
    expect(await namesInTrash(team)).toHaveLength(3);
  });

  exhaustive("moves all files except held ones to the trash", async ({ atTrash }) => {
    const team = await newTrashTeam();
    const [held = ""] = await uploadNamed(team, "held.txt", "one.txt", "two.txt");
    await team.stowage.files.hold(held, "Legal case");
    const { page } = await atTrash("/files", { team });
    await page.getByRole("checkbox", { name: "Select all" }).check();
    await button(page, "Delete 3 files").click();
    await expectAnnounced(page, "Moved 2 files to the trash. 1 held file can't be deleted");
    await expect(rows(page)).toHaveText(["held.txt"]);
    await chooseAction(page, "Actions for held.txt", "Delete");
    await expectAnnounced(page, "1 held file can't be deleted on the page");
    await button(page, "Undo").click();
    await expect(rows(page)).toHaveText(["two.txt", "one.txt", "held.txt"]);
  });

  exhaustive("returns from the page of a file to the list, and restores it by Undo", async ({ atTrash }) => {
    const {
      page,
      team,
      ids: [id = ""],
    } = await atTrash("/files", { files: ["one.txt"] });
    await link(page, "one.txt").click();
    await chooseAction(page, "Actions for this file", "Delete");
    await expectAnnounced(page, "Moved 1 file to the trash");
    await expect(heading(page, "Files")).toBeFocused();
    await expect(rows(page)).toHaveCount(0);
    await button(page, "Undo").click();
    await link(page, "one.txt").click();
    await expect(heading(page, "one.txt")).toBeVisible();
    await team.stowage.files.update(id, { name: "renamed.txt" });
    await expect(heading(page, "renamed.txt")).toBeVisible();
  });

  exhaustive("stays on the page of a file that was held a moment ago", async ({ atTrash }) => {
    const team = await newTrashTeam();
    const [id = ""] = await uploadNamed(team, "one.txt");
    const { page } = await atTrash(`/files/${id}`, { team });
    await page.route("**/uploads/batch", async (route) => {
      await team.stowage.files.hold(id, "Legal case");
      await route.continue();
    });
    await chooseAction(page, "Actions for this file", "Delete");
    await expectAnnounced(page, "1 held file can't be deleted");
    await expect(fact(page, "Hold")).toContainText("Legal case");
    await expect(fact(page, "Deletion")).toHaveText("Held");
  });

  exhaustive("keeps the question about a folder, and says where its files go", async ({ atTrash }) => {
    const team = await newTrashTeam();
    const [one = "", held = ""] = await uploadNamed(team, "one.txt", "held.txt");
    for (const id of [one, held]) await team.stowage.files.update(id, { folder: "box" });
    await team.stowage.files.hold(held, "Legal case");
    const { page } = await atTrash("/files", { team });
    await chooseAction(page, "Actions for the folder box", "Delete");
    await expect(dialog(page)).toContainText("The files in it move to the trash");
    await expect(dialog(page)).not.toContainText("undone");
    await button(page, "Delete folder").click();
    await expectAnnounced(page, "Deleted box, except for 1 held file");
    await expect.poll(() => namesInTrash(team)).toEqual(["one.txt"]);
    expect(await namesIn(team)).toEqual(["held.txt"]);
  });
});

describe("List of files", () => {
  exhaustive("follows what others delete, restore and hold", async ({ atTrash }) => {
    const {
      page,
      team,
      ids: [one = "", two = ""],
    } = await atTrash("/files", { files: ["one.txt", "two.txt"] });
    await expect(rows(page)).toHaveCount(2);
    await team.stowage.files.delete(one);
    await expect(rows(page)).toHaveText(["two.txt"]);
    await team.stowage.files.hold(two, "Legal case");
    await team.stowage.trash.restore(one);
    await expect(rows(page)).toHaveText(["two.txt", "one.txt"]);
  });
});

describe("File page", () => {
  test("holds a file, says why and who can release it, and doesn't delete it until then", async ({ atTrash }) => {
    const team = await newTrashTeam();
    const [id = ""] = await uploadNamed(team, "one.txt");
    const { page } = await atTrash(`/files/${id}`, { team });
    await chooseAction(page, "Actions for this file", "Hold");
    await expect(dialog(page)).toHaveAccessibleName("Hold “one.txt”");
    await dialog(page).getByLabel("Reason").fill("Legal case 2026-17");
    await expectGoodLooks(page, "file-hold");
    await button(page, "Hold file").click();
    await expectAnnounced(page, "File held");
    await expect(fact(page, "Hold")).toHaveText(
      "Legal case 2026-17Held by test, just now. Only an admin, or an app with a secret key, can release it.",
    );
    await expectGoodLooks(page, "file-held");
    await button(page, "Actions for this file").click();
    const deletion = page.getByRole("menuitem", { name: "Delete (the file is held)" });
    await expect(deletion).toHaveAttribute("aria-disabled", "true");
    await page.getByRole("menuitem", { name: "Edit hold" }).click();
    await expect(dialog(page).getByLabel("Reason")).toHaveValue("Legal case 2026-17");
    await dialog(page).getByLabel("Reason").fill("Audit");
    await page.keyboard.press("Enter");
    await expect(fact(page, "Hold")).toContainText("Audit");
    expect((await team.stowage.files.get(id)).hold).toMatchObject({ reason: "Audit" });

    await chooseAction(page, "Actions for this file", "Release hold");
    await expectAnnounced(page, "Hold released");
    await expect(fact(page, "Hold")).toHaveCount(0);
    await button(page, "Actions for this file").click();
    await expect(page.getByRole("menuitem", { name: "Delete", exact: true })).toBeVisible();
  });

  exhaustive("shows and changes the time of the deletion", async ({ atTrash }) => {
    const team = await newTrashTeam();
    const [id = ""] = await uploadNamed(team, "one.txt");
    const deleteAfter = "2030-05-17T10:20:30.456Z";
    await team.stowage.files.update(id, { deleteAfter });
    const { page } = await atTrash(`/files/${id}`, { team });
    await expect(fact(page, "Deletion")).toHaveText(/^Will be deleted on May 17, 2030/);
    const edit = async (values: Record<string, string>) => {
      await page.getByRole("button", { name: "Edit details" }).click();
      for (const [label, value] of Object.entries(values)) await dialog(page).getByLabel(label).fill(value);
      await button(page, "Save").click();
      await expect(dialog(page)).toHaveCount(0);
      return team.stowage.files.get(id);
    };
    expect(await edit({ Reference: "episode-12" })).toMatchObject({ reference: "episode-12", deleteAfter });
    const changed = await edit({ "Delete automatically on": "2031-06-18T09:15" });
    expect(Date.parse(changed.deleteAfter ?? "")).toBe(
      await page.evaluate(() => new Date("2031-06-18T09:15").getTime()),
    );
    await expect(fact(page, "Deletion")).toHaveText(/^Will be deleted on Jun 18, 2031/);
    await page.getByRole("button", { name: "Edit details" }).click();
    await expectGoodLooks(page, "file-metadata-deletion");
    await button(page, "Cancel").click();
    expect(await edit({ "Delete automatically on": "" })).toMatchObject({ deleteAfter: null });
    await expect(fact(page, "Deletion")).toHaveCount(0);
  });
});

describe("Usage page", () => {
  exhaustive("states the part of the storage in the trash, and leads there", async ({ atTrash }) => {
    const { page, team } = await atTrash("/usage");
    await expect(page.getByRole("meter")).toHaveCount(2);
    await expect(page.getByText("in the trash")).toHaveCount(0);
    await trashNamed(team, "one.txt", "two.txt");
    await expect(page.getByText("Includes 2 files (30 B) in the trash")).toBeVisible();
    await expectGoodLooks(page, "usage-trash");
    await link(page, "2 files (30 B) in the trash").click();
    await expect(rows(page)).toHaveCount(2);
  });
});
