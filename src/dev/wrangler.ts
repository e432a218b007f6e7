import { spawn } from "node:child_process";
import { join } from "node:path";

export interface WranglerResult {
  code: number;
  stdout: string;
  /** stdout and stderr. */
  output: string;
}

export type Wrangler = (args: string[], env?: Record<string, string>) => Promise<WranglerResult>;

/** Runs wrangler in a project. Without a terminal, it asks nothing, and confirms migrations. */
export const wranglerIn =
  (root: string, processEnv = process.env): Wrangler =>
  (args, env = {}) => {
    const script = join(root, "node_modules/wrangler/bin/wrangler.js");
    const child = spawn(process.execPath, [script, ...args], {
      cwd: root,
      env: { ...processEnv, WRANGLER_HIDE_BANNER: "true", ...env },
      stdio: ["ignore", "pipe", "pipe"],
    });
    let stdout = "";
    let output = "";
    child.stdout.on("data", (chunk) => {
      stdout += chunk;
      output += chunk;
    });
    child.stderr.on("data", (chunk) => {
      output += chunk;
    });
    return new Promise((done) => child.on("close", (code) => done({ code: code ?? 1, stdout, output })));
  };
