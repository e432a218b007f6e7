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

/** Inflates the Chromium of the npm package (Linux on x64), once per version. @returns its folder */
function inflatePackaged(): string {
  const { version } = JSON.parse(readFileSync(join(packaged, "package.json"), "utf8"));
  const folder = join(root, `node_modules/.cache/chromium-${version}`);
  if (existsSync(folder)) return folder;
  mkdirSync(join(folder, ".."), { recursive: true });
  const unfinished = mkdtempSync(`${folder}-`);
  // The package inflates into the temporary folder. A separate process gets a separate one.
  const script = `
    import chromium, { inflate } from "@sparticuz/chromium";
    await Promise.all([chromium.executablePath(), inflate(process.argv[1])]);
  `;
  const libraries = join(packaged, "bin/al2023.tar.br");
  execFileSync(process.execPath, ["--input-type=module", "--eval", script, libraries], {
    cwd: root,
    env: { ...process.env, TMPDIR: unfinished },
  });
  // The packaged file names folders of another system.
  writeFileSync(
    join(unfinished, "fonts/fonts.conf"),
    '<?xml version="1.0"?><fontconfig><dir prefix="relative">fonts</dir></fontconfig>\n',
  );
  try {
    renameSync(unfinished, folder);
  } catch (error) {
    // Another run has inflated it in the meantime.
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
  // A minimal system lacks libraries, which the package also contains.
  yield { path, env: { ...env, LD_LIBRARY_PATH: join(folder, "al2023/lib") } };
}

/**
 * Starts the first Chromium that works: BROWSER_PATH, the system's, or the npm package's. It resolves no host except this
 * machine, and has a user's security settings.
 * @param args more arguments of the command line
 * @returns the reason if none works
 */
export async function startChromium(args: string[] = []): Promise<BrowserServer | string> {
  const problems: string[] = [];
  for (const { path, env } of candidates()) {
    try {
      return await chromium.launchServer({
        executablePath: path,
        args: [
          "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE localhost, EXCLUDE 127.0.0.1",
          // A microphone that beeps, which pages may use.
          "--use-fake-device-for-media-stream",
          "--use-fake-ui-for-media-stream",
          ...args,
        ],
        // Without a UTF-8 locale, it can't save a file under its name.
        env: { ...process.env, LC_ALL: "C.UTF-8", ...env },
        // The end of the test run stops it.
        handleSIGINT: false,
        handleSIGTERM: false,
        handleSIGHUP: false,
      });
    } catch (error) {
      problems.push(`${path}: ${error}`);
    }
  }
  return ["No browser can be started. Install Chrome, Chromium or Edge, or set BROWSER_PATH.", ...problems].join("\n");
}
