import { execFileSync } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { delimiter, join } from "node:path";
import { type BrowserServer, chromium } from "@playwright/test";

const root = join(import.meta.dirname, "../..");
const packaged = join(root, "node_modules/@sparticuz/chromium");

const COMMANDS = [
  ...["google-chrome", "google-chrome-stable", "chromium", "chromium-browser"],
  ...["microsoft-edge", "microsoft-edge-stable"],
];
const PROGRAMS = {
  darwin: [
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Microsoft Edge.app/Contents/MacOS/Microsoft Edge",
  ],
  win32: [process.env.PROGRAMFILES, process.env["PROGRAMFILES(X86)"], process.env.LOCALAPPDATA].flatMap(
    (folder = "") => [
      join(folder, "Google/Chrome/Application/chrome.exe"),
      join(folder, "Microsoft/Edge/Application/msedge.exe"),
    ],
  ),
};

interface Candidate {
  path: string;
  env?: Record<string, string>;
}

/** The folder of the Chromium in the npm package, which is for Linux on x64: inflated once for each version. */
function inflatePackaged(): string {
  const { version } = JSON.parse(readFileSync(join(packaged, "package.json"), "utf8"));
  const folder = join(root, `node_modules/.cache/chromium-${version}`);
  if (existsSync(folder)) return folder;
  mkdirSync(join(folder, ".."), { recursive: true });
  const unfinished = mkdtempSync(`${folder}-`);
  // The package inflates into the folder for temporary files: in a process of its own, it is one of its own.
  const script = `
    import chromium, { inflate } from "@sparticuz/chromium";
    await Promise.all([chromium.executablePath(), inflate(process.argv[1])]);
  `;
  const libraries = join(packaged, "bin/al2023.tar.br");
  execFileSync(process.execPath, ["--input-type=module", "--eval", script, libraries], {
    cwd: root,
    env: { ...process.env, TMPDIR: unfinished },
  });
  // Its own file names folders that it is not in.
  writeFileSync(
    join(unfinished, "fonts/fonts.conf"),
    '<?xml version="1.0"?><fontconfig><dir prefix="relative">fonts</dir></fontconfig>\n',
  );
  try {
    renameSync(unfinished, folder);
  } catch (error) {
    // Another run was faster.
    rmSync(unfinished, { recursive: true });
    if (!existsSync(folder)) throw error;
  }
  return folder;
}

function* candidates(): Generator<Candidate> {
  if (process.env.BROWSER_PATH) return yield { path: process.env.BROWSER_PATH };
  const folders = (process.env.PATH ?? "").split(delimiter);
  const commands = COMMANDS.flatMap((name) => folders.map((folder) => join(folder, name)));
  const { [process.platform as keyof typeof PROGRAMS]: programs = commands } = PROGRAMS;
  for (const path of new Set(programs.filter((program) => existsSync(program)))) yield { path };
  if (process.platform !== "linux" || process.arch !== "x64") return;
  const folder = inflatePackaged();
  const path = join(folder, "chromium");
  const env = { FONTCONFIG_FILE: join(folder, "fonts/fonts.conf") };
  yield { path, env };
  // A bare system lacks libraries, which the package has too.
  yield { path, env: { ...env, LD_LIBRARY_PATH: join(folder, "al2023/lib") } };
}

/**
 * Starts the first Chromium that works: of BROWSER_PATH, of the system, of the npm package. It finds no host but this
 * machine, and is as strict as a user's.
 * @returns why there is none, if so
 */
export async function startChromium(): Promise<BrowserServer | string> {
  const problems: string[] = [];
  for (const { path, env } of candidates()) {
    try {
      return await chromium.launchServer({
        executablePath: path,
        args: ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1"],
        env: { ...process.env, ...env },
        // It is the end of the run that ends it.
        handleSIGINT: false,
        handleSIGTERM: false,
        handleSIGHUP: false,
      });
    } catch (error) {
      problems.push(`${path}: ${error}`);
    }
  }
  return problems.join("\n") || "There is none on this system. Install Chrome, Chromium or Edge, or set BROWSER_PATH.";
}
