import { execFile } from "node:child_process";
import { readdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, onTestFinished } from "vitest";
import { cloneProject } from "../support/project.ts";
import { exhaustive } from "../support/tiers.ts";

exhaustive(
  "the pages of a deployment have the upload element, and leave those of a development server with its demonstration",
  async () => {
    const folder = cloneProject();
    onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
    const build = (STOWAGE_DEMO: string) => {
      const env = { ...process.env, STOWAGE_DEMO };
      return promisify(execFile)(process.execPath, [join(folder, "src/console/build.js")], { env });
    };
    const builtIn = (name: string) =>
      readdirSync(join(folder, ".wrangler", name, "assets")).filter((file) => /^(upload(-[a-z]+)?|demo)\./.test(file));
    await build("true");
    await build("");
    expect(builtIn("console-dev")).toEqual([
      "demo.css",
      "demo.html",
      "demo.js",
      "upload-de.js",
      "upload-recorder.js",
      "upload.js",
    ]);
    expect(builtIn("console")).toEqual(["upload-de.js", "upload-recorder.js", "upload.js"]);
  },
);
