import { execFile } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { cloneProject } from "../support/project.ts";

test("a deployment has the upload element, and the demonstration only if the development server builds it", async () => {
  const folder = cloneProject();
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  const build = async (STOWAGE_DEMO: string) => {
    const env = { ...process.env, STOWAGE_DEMO };
    await promisify(execFile)(process.execPath, [join(folder, "src/console/build.js")], { env });
    return readdirSync(join(folder, ".wrangler/console/assets")).filter((name) => /^(upload|demo)/.test(name));
  };
  expect(await build("true")).toEqual(["demo.css", "demo.html", "demo.js", "upload.js"]);
  expect(await build("")).toEqual(["upload.js"]);
});
