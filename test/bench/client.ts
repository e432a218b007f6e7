import { execFile, execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { MEGABYTE, type Scope, summarize } from "./measures.ts";
import { ROOT, type Server } from "./server.ts";

const run = promisify(execFile);
/** The CLI's default number of parallel uploads. */
const CONCURRENCY = "8";

/** Times the built CLI against curl with the same files as form uploads, in turns. Null if curl is not installed. */
export async function measureClient(server: Server, { isQuick, log }: Scope) {
  if (spawnSync("curl", ["--version"]).error) return null;
  execFileSync(process.execPath, [join(ROOT, "src/dev/build-client.ts")]);
  const folder = mkdtempSync(join(tmpdir(), "stowage-bench-"));
  const { token } = await server.createTeam();
  const large = createFiles(join(folder, "large"), 1, 95 * MEGABYTE);
  const small = createFiles(join(folder, "small"), 200, 64 * 1024);
  const cases = [
    { name: "95 MB", files: large, goal: 0.85 },
    { name: "200 files of 64 KB", files: small, goal: 0.9 },
  ];
  let states = 0;
  const upload = (files: string[]) => {
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
  const secondsOf = async (work: () => Promise<unknown>) => {
    await server.process.settled();
    const startedAt = performance.now();
    await work();
    const seconds = (performance.now() - startedAt) / 1000;
    await server.idle();
    return seconds;
  };
  try {
    const rows = [];
    for (const { name, files, goal } of cases) {
      log(`client: ${name}`);
      const works = { curl: () => curl(files), command: () => upload(files) };
      const rounds: { curl: number; command: number }[] = [];
      // The first round warms both up and is not counted.
      for (let round = 0; round <= (isQuick ? 1 : 5); round++) {
        const seconds = { curl: 0, command: 0 };
        for (const side of round % 2 === 0 ? (["curl", "command"] as const) : (["command", "curl"] as const)) {
          seconds[side] = await secondsOf(works[side]);
        }
        if (round > 0) rounds.push(seconds);
      }
      rows.push({ name, goal, ...summarize(rounds.map(({ curl, command }) => [1 / curl, 1 / command])) });
    }
    return rows;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function createFiles(folder: string, count: number, bytes: number): string[] {
  mkdirSync(folder);
  return Array.from({ length: count }, (_, index) => {
    const path = join(folder, `${index}.bin`);
    writeFileSync(path, randomBytes(bytes));
    return path;
  });
}
