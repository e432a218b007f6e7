/** A copy of the project that a tool may change: its files in Git, as they are now, with the same packages. */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, symlinkSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

const root = join(import.meta.dirname, "../..");

/** @returns the copy's folder, which the caller removes */
export function copyProject(): string {
  const project = mkdtempSync(join(tmpdir(), "stowage-copy-"));
  const tracked = execFileSync("git", ["ls-files"], { cwd: root, encoding: "utf8" }).trim().split("\n");
  for (const path of tracked) if (existsSync(join(root, path))) cpSync(join(root, path), join(project, path));
  symlinkSync(join(root, "node_modules"), join(project, "node_modules"));
  return project;
}
