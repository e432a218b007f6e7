import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { listMigrations, statementsOf } from "../../src/dev/migrations.ts";
import { cloneProject } from "../support/project.ts";
import { freePort, isGroupAlive, runDev, runNpmDev, Server } from "../support/server.ts";

/* Tests what `npm run dev` creates, prints and keeps. The starts take seconds, so the tests look at the same three. */

interface Listed {
  _id: string;
  originalName: string;
}

/** The output of a start, and the files that it left. */
interface Start {
  output: string;
  secrets: string;
  key: string;
  operatorToken: string;
  files: Listed[];
}

let server: Server;
let first: Start;
let second: Start;
/** The start after MASTER_KEY was removed, a setting set, and a migration added. */
let third: Start;
let keyFile: string;
let keyFileMode: number;
let uploadOutput: string;
let secretsMode: number;
let addedRows: unknown;
let downloaded: Buffer;

const hasCurl = (() => {
  try {
    return execFileSync("curl", ["--version"]).length > 0;
  } catch {
    return false;
  }
})();

async function get(path: string, key: string) {
  const response = await fetch(server.url + path, { headers: { Authorization: `Bearer ${key}` } });
  expect(response.status).toBe(200);
  return response.json() as Promise<{ data: Listed[]; signedUrl: string }>;
}
const filesOf = async (key: string) => (await get("/docs/v1/uploads", key)).data;

async function observe(): Promise<Start> {
  const { output, operatorToken } = server;
  const key = output.match(/^Your secret key: (stow_sk_\w{40})$/m)?.[1] ?? "";
  return { output, operatorToken, key, files: await filesOf(key), secrets: readFileSync(secretsFile(), "utf8") };
}
const secretsFile = () => join(server.folder, ".dev.vars");

/** Runs the printed curl command, or sends the same request on a machine without curl. */
async function runPrintedCurl(output: string): Promise<string> {
  const line = output.match(/^ {2}(curl .*)$/m)?.[1] ?? "";
  if (hasCurl) return execFileSync(line, { shell: true, cwd: server.folder, encoding: "utf8", stdio: "pipe" });
  const [, token, path, url] = line.match(/Bearer (\w+)['"] -F ['"]file=@"?([^"']+)"?['"] (\S+)$/) ?? [];
  const body = new FormData();
  body.append("file", new File([readFileSync(join(server.folder, path ?? ""))], "tone-vbr.mp3"));
  const response = await fetch(url ?? "", { method: "POST", headers: { Authorization: `Bearer ${token}` }, body });
  const headers = [...response.headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return `HTTP/1.1 ${response.status} OK\r\n${headers}\r\n${await response.text()}`;
}

beforeAll(async () => {
  server = await Server.start([], {}, { folder: cloneProject() });
  secretsMode = statSync(secretsFile()).mode & 0o777;
  const keyPath = join(server.folder, ".wrangler/state/first-key.json");
  keyFile = readFileSync(keyPath, "utf8");
  keyFileMode = statSync(keyPath).mode & 0o777;
  first = await observe();
  uploadOutput = await runPrintedCurl(first.output);
  await server.stop();
  await server.restart();
  second = await observe();
  const { signedUrl } = await get(`/docs/v1/uploads/${second.files[0]?._id}`, second.key);
  downloaded = Buffer.from(await (await fetch(signedUrl)).arrayBuffer());
  await server.stop();
  writeFileSync(join(server.folder, "migrations/9999_added.sql"), "create table added (id integer);");
  // A file as people write it, with a comment and without a final newline.
  writeFileSync(secretsFile(), `# mine\nMAX_TEAM_FILES=7\nOPERATOR_TOKEN=${second.operatorToken}`);
  await server.restart();
  third = await observe();
  await server.stop();
  addedRows = server.sql("D1Database", "select count(*) as rows from added");
});
afterAll(() => server?.remove());

describe("The first start", () => {
  test("creates secrets that only their owner can read, and reports what it created", () => {
    expect(first.secrets).toMatch(/^MASTER_KEY="[\w+/]{43}="\nOPERATOR_TOKEN="stow_op_[\w-]{32}"\n$/);
    if (process.platform !== "win32") expect(secretsMode).toBe(0o600);
    expect(first.output).toContain(server.url);
    expect(first.output).toMatch(/^Created: data in .*, secrets in \.dev\.vars, key$/m);
    expect(first.output).not.toContain("Kept:");
    expect(first.output).not.toMatch(/WARNING|ERROR|\[wrangler/);
  });

  test("prints a key that works, and keeps it in a file that only its owner can read", () => {
    expect(first.files).toEqual([]);
    expect(JSON.parse(keyFile)).toEqual({ teamId: expect.stringMatching(/^[0-9a-f]{24}$/), key: first.key });
    if (process.platform !== "win32") expect(keyFileMode).toBe(0o600);
  });

  test("prints a curl command that uploads a file", () => {
    expect(uploadOutput).toMatch(
      /^HTTP\/1\.1 200 OK.*^Location: \/docs\/v1\/uploads\/[0-9a-f]{24}\r$.*"message":"File uploaded\./ims,
    );
    expect(second.files).toMatchObject([{ originalName: "tone-vbr.mp3" }]);
  });
});

describe("Another start", () => {
  test("keeps data, secrets, and key, and reports it", () => {
    expect(second.output).toMatch(/^Kept: data in .*, secrets in \.dev\.vars, key$/m);
    expect(second.output).not.toContain("Created:");
    expect([second.key, second.secrets]).toEqual([first.key, first.secrets]);
    expect(downloaded.equals(readFileSync(join(server.folder, "test/audio/tone-vbr.mp3")))).toBe(true);
  });

  test("without a master key creates one, keeps the rest, and applies an added migration", () => {
    const kept = /^# mine\nMAX_TEAM_FILES=7\nOPERATOR_TOKEN=stow_op_[\w-]{32}\nMASTER_KEY="[\w+/]{43}="\n$/;
    expect(third.secrets).toMatch(kept);
    expect(third.output).toMatch(/^Created: secrets in \.dev\.vars$/m);
    expect(third.output).toMatch(/^Kept: data in .*, key$/m);
    expect([third.key, third.files]).toEqual([second.key, second.files]);
    expect(addedRows).toEqual([{ rows: 0 }]);
  });
});

test("SIGTERM to npm stops every process of npm run dev", async () => {
  const { child, exited, output } = runNpmDev(server.folder, { PORT: await freePort() });
  await vi.waitUntil(() => output().includes('"event":"recovery_finished"'), { timeout: 250_000 });
  child.kill("SIGTERM");
  await exited;
  await vi.waitUntil(() => !isGroupAlive(child), { timeout: 60_000 });
});

const unusable: [data: string, write: (database: DatabaseSync) => void][] = [
  [
    "an older version, whose migration had the same name",
    (database) => {
      migrate(database);
      const [trigger] = database.prepare("select name from sqlite_schema where type = 'trigger'").all();
      database.exec(`drop trigger ${trigger?.name}`);
    },
  ],
  [
    "a newer version",
    (database) => {
      migrate(database);
      database.exec("insert into d1_migrations (name) values ('9998_newer.sql')");
    },
  ],
  [
    "an older version, whose ids had no number of a database",
    (database) => {
      migrate(database);
      const insert = database.prepare(
        "insert into teams (id, name, status, created_at, updated_at) values (?, 'a', 'active', 1, 1)",
      );
      insert.run("0193477be89f4d2e6b8a0c13");
    },
  ],
  ["another project", (database) => database.exec("create table notes (id integer)")],
];
test.each(unusable)("the start fails in one sentence if the data is of %s, and changes nothing", async (_, write) => {
  const folder = cloneProject();
  const state = join(folder, "other state");
  const databases = join(state, "v3/d1/miniflare-D1DatabaseObject");
  mkdirSync(databases, { recursive: true });
  const file = join(databases, `${"0".repeat(64)}.sqlite`);
  const database = new DatabaseSync(file);
  write(database);
  database.close();
  const before = readFileSync(file);
  const port = await freePort();
  const { exited, output } = runDev(folder, { PORT: port, STATE_DIR: state });
  expect(await exited).toBe(1);
  expect(output()).toBe(
    `Starting on port ${port} …\nThe data in ${state} is not of this version of Stowage: delete that folder to begin with empty data, or set STATE_DIR to another one.\n`,
  );
  expect(readFileSync(file).equals(before)).toBe(true);
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

/** Applies the migrations, and records them as wrangler does. */
function migrate(database: DatabaseSync): void {
  const folder = join(import.meta.dirname, "../../migrations");
  database.exec("create table d1_migrations (id integer primary key, name text)");
  for (const name of listMigrations(folder)) {
    for (const statement of statementsOf(folder, name)) database.exec(statement);
    database.prepare("insert into d1_migrations (name) values (?)").run(name);
  }
}

test("an unknown option is ignored with a message", async () => {
  const { exited, output } = runDev(server.folder, { PORT: "0" }, ["--prot", "1"]);
  expect(await exited).toBe(1);
  expect(output()).toBe('Ignored the unknown option --prot.\nPORT is "0"; it must be 1 to 65535.\n');
});

test.each(["0", "65536", "http", "-1", "80.5"])("PORT=%s is rejected", async (port) => {
  const { exited, output } = runDev(server.folder, { PORT: port });
  expect(await exited).toBe(1);
  expect(output()).toBe(`PORT is "${port}"; it must be 1 to 65535.\n`);
});

test("a port that is in use is rejected", async () => {
  const other = createServer();
  const port = await freePort();
  await new Promise<void>((listening) => other.listen(Number(port), "localhost", listening));
  const { exited, output } = runDev(server.folder, { PORT: port });
  expect(await exited).toBe(1);
  expect(output()).toBe(
    `Port ${port} is in use. Choose another one, and other data: PORT=8788 STATE_DIR=.wrangler/second npm run dev\n`,
  );
  other.close();
});
