import { execFile, execFileSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { promisify } from "node:util";
import type { Comparison } from "./overhead.ts";
import { MEGABYTE, ROOT, type Server } from "./server.ts";

const run = promisify(execFile);
/** The CLI's default number of parallel uploads. */
const CONCURRENCY = "8";

/** The built CLI against curl, with the same files as form uploads. Writes files into the folder. */
export async function clientComparisons(server: Server, folder: string): Promise<Comparison[]> {
  execFileSync(process.execPath, [join(ROOT, "src/dev/build-client.ts")]);
  const { token } = await server.createTeam();
  const large = createFiles(join(folder, "large"), 1, 95 * MEGABYTE);
  const small = createFiles(join(folder, "small"), 200, 64 * 1024);
  let states = 0;
  const command = (files: string[]) => {
    // A journal of an earlier round would skip the files.
    const home = { HOME: folder, XDG_STATE_HOME: join(folder, `state-${states++}`) };
    const env = { ...process.env, ...home, STOWAGE_URL: server.url, STOWAGE_KEY: token };
    return run(process.execPath, [join(ROOT, "dist/client/command.js"), "upload", ...files], { env });
  };
  const curl = (files: string[]) => {
    const config = join(folder, "curl.txt");
    const head = `url = "${new URL("/docs/v1/uploads", server.url)}"\nheader = "Authorization: Bearer ${token}"\nfail`;
    const requests = files.map((path) => `${head}\noutput = "${join(folder, "out.json")}"\nform = "file=@${path}"`);
    writeFileSync(config, requests.join("\nnext\n"));
    return run("curl", ["--silent", "--fail-early", "--parallel", "--parallel-max", CONCURRENCY, "--config", config]);
  };
  const upload = (name: string, goal: number, files: string[]): Comparison => {
    const prepare = () => server.process.settled();
    const bare = { work: () => curl(files), prepare };
    const ours = { work: () => command(files), prepare };
    return { name, goal, connections: 1, count: 1, requests: files.length, bare, ours };
  };
  return [upload("CLI: 95 MB", 0.9, large), upload("CLI: 200 files of 64 KB", 1, small)];
}

function createFiles(folder: string, count: number, bytes: number): string[] {
  mkdirSync(folder);
  return Array.from({ length: count }, (_, index) => {
    const path = join(folder, `${index}.bin`);
    writeFileSync(path, randomBytes(bytes));
    return path;
  });
}
