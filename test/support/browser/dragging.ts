import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import type { Locator } from "@playwright/test";
import { onTestFinished } from "vitest";

/**
 * Drags real files over the middle of an element, as from the desktop.
 * @param files their bytes by path; `album/one.mp3` is in the folder `album`, which is dragged as one item, and
 * `album/none/` is an empty folder
 */
export async function dragFiles(target: Locator, files: Record<string, Uint8Array>) {
  const folder = mkdtempSync(join(tmpdir(), "stowage dragged "));
  // Pages read files while they send them, so the folder stays until the test ends.
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, bytes] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    if (name.endsWith("/")) mkdirSync(join(folder, name));
    else writeFileSync(join(folder, name), bytes);
  }
  const names = new Set(Object.keys(files).map((name) => name.split("/")[0] ?? ""));
  const data = { items: [], files: [...names].map((name) => join(folder, name)), dragOperationsMask: 1 };

  await target.scrollIntoViewIfNeeded();
  const box = await target.boundingBox();
  if (!box) throw new Error(`${target} is not visible.`);
  const at = { x: box.x + box.width / 2, y: box.y + box.height / 2, data };
  const page = target.page();
  const session = await page.context().newCDPSession(page);
  const send = (type: "dragEnter" | "dragOver" | "drop" | "dragCancel") =>
    session.send("Input.dispatchDragEvent", { type, ...at });
  await send("dragEnter");
  await send("dragOver");
  return { drop: () => send("drop"), leave: () => send("dragCancel") };
}

export async function dropFiles(target: Locator, files: Record<string, Uint8Array>): Promise<void> {
  const { drop } = await dragFiles(target, files);
  await drop();
}
