import { execFile, execFileSync, spawnSync } from "node:child_process";
import { randomBytes } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { type Extent, MEGABYTE, median } from "./measures.ts";
import { ROOT, type Server } from "./server.ts";

const run = promisify(execFile);
/** As many as the command sends at a time. */
const AT_ONCE = "8";

/**
 * Seconds of the built command and of curl, by turns. curl sends the same files as forms, and asks nothing before or after.
 * Null where there is no curl.
 */
export async function measureClient(server: Server, { isQuick, say }: Extent) {
  if (spawnSync("curl", ["--version"]).error) return null;
  execFileSync(process.execPath, [join(ROOT, "src/dev/build-client.ts")]);
  const folder = mkdtempSync(join(tmpdir(), "stowage-bench-"));
  const { token } = await server.foundTeam();
  const large = filesOf(folder, "large", 1, 95 * MEGABYTE);
  const small = filesOf(folder, "small", 200, 64 * 1024);
  const kinds = [
    { name: "95 MB", files: large, options: [], goal: null },
    { name: "95 MB, unchecked", files: large, options: ["--no-check"], goal: 0.9 },
    { name: "200 files of 64 KB", files: small, options: [], goal: 0.8 },
  ];
  let state = 0;
  const upload = (files: string[], options: string[]) => {
    // What it keeps of an earlier round would let it skip the files.
    const home = { HOME: folder, XDG_STATE_HOME: join(folder, `state ${state++}`) };
    const env = { ...process.env, ...home, STOWAGE_URL: server.url, STOWAGE_KEY: token };
    return run(process.execPath, [join(ROOT, "dist/client/command.js"), "upload", ...options, ...files], { env });
  };
  const config = join(folder, "curl.txt");
  const curl = (files: string[]) => {
    const request = (path: string) =>
      [
        `url = "${new URL("/docs/v1/uploads", server.url)}"`,
        `header = "Authorization: Bearer ${token}"`,
        `form = "file=@${path}"`,
        `output = "${join(folder, "answer.json")}"`,
        "fail",
      ].join("\n");
    writeFileSync(config, files.map(request).join("\nnext\n"));
    return run("curl", ["--silent", "--fail-early", "--parallel", "--parallel-max", AT_ONCE, "--config", config]);
  };
  const timed = async (work: () => Promise<unknown>) => {
    await server.process.settled();
    const startedAt = performance.now();
    await work();
    const seconds = (performance.now() - startedAt) / 1000;
    await server.idle();
    return seconds;
  };
  try {
    const rows = [];
    for (const { name, files, options, goal } of kinds) {
      say(`client: ${name}`);
      const rounds: { curl: number; command: number }[] = [];
      // The first warms both up.
      for (let round = 0; round <= (isQuick ? 1 : 5); round++) {
        const works = { curl: () => curl(files), command: () => upload(files, options) };
        const order = round % 2 === 0 ? (["curl", "command"] as const) : (["command", "curl"] as const);
        const seconds = { curl: 0, command: 0 };
        for (const side of order) seconds[side] = await timed(works[side]);
        if (round > 0) rounds.push(seconds);
      }
      const ratios = rounds.map(({ curl, command }) => curl / command);
      rows.push({
        name,
        curlSeconds: median(rounds.map(({ curl }) => curl)),
        commandSeconds: median(rounds.map(({ command }) => command)),
        ratio: median(ratios),
        least: Math.min(...ratios),
        most: Math.max(...ratios),
        goal,
      });
    }
    return rows;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}

function filesOf(folder: string, name: string, count: number, bytes: number): string[] {
  mkdirSync(join(folder, name));
  return Array.from({ length: count }, (_, index) => {
    const path = join(folder, name, `${index}.bin`);
    writeFileSync(path, randomBytes(bytes));
    return path;
  });
}
