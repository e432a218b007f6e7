import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { afterAll, beforeAll, describe, expect, test, vi } from "vitest";
import { findMissingMigrations, listMigrations, statementsOf } from "../../src/dev/migrations.ts";
import { clonePreparedProject, cloneProject } from "../support/project.ts";
import { freePort, isGroupAlive, runDev, runNpmDev, Server } from "../support/server.ts";
import { exhaustive, isExhaustive } from "../support/tiers.ts";

/* `npm run dev`: the data that it creates, prints and keeps. */

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

const migrations = join(import.meta.dirname, "../../migrations");
const hasCurl = (() => {
  try {
    return execFileSync("curl", ["--version"]).length > 0;
  } catch {
    return false;
  }
})();

async function get({ url }: Server, path: string, key: string) {
  const response = await fetch(url + path, { headers: { Authorization: `Bearer ${key}` } });
  expect(response.status).toBe(200);
  return response.json() as Promise<{ data: Listed[]; signedUrl: string }>;
}

const idsOf = ({ files }: Start) => files.map(({ _id }) => _id);
const secretsFile = (folder: string) => join(folder, ".dev.vars");
const keyFile = (folder: string) => join(folder, ".wrangler/state/first-key.json");

async function observe(server: Server): Promise<Start> {
  const { output, operatorToken, folder } = server;
  const key = output.match(/^Your secret key: (stow_sk_\w{40})$/m)?.[1] ?? "";
  const { data: files } = await get(server, "/docs/v1/uploads", key);
  return { output, operatorToken, key, files, secrets: readFileSync(secretsFile(folder), "utf8") };
}

/** Runs the printed curl command, or sends the same request on a machine without curl. */
async function runPrintedCurl({ output, folder }: Server): Promise<string> {
  const line = output.match(/^ {2}(curl .*)$/m)?.[1] ?? "";
  if (hasCurl) return execFileSync(line, { shell: true, cwd: folder, encoding: "utf8", stdio: "pipe" });
  const [, token, path, url] = line.match(/Bearer (\w+)['"] -F ['"]file=@"?([^"']+)"?['"] (\S+)$/) ?? [];
  const body = new FormData();
  body.append("file", new File([readFileSync(join(folder, path ?? ""))], "tone-vbr.mp3"));
  const response = await fetch(url ?? "", { method: "POST", headers: { Authorization: `Bearer ${token}` }, body });
  const headers = [...response.headers].map(([name, value]) => `${name}: ${value}\r\n`).join("");
  return `HTTP/1.1 ${response.status} OK\r\n${headers}\r\n${await response.text()}`;
}

/** Uploads a file, stops the server, changes its folder, and starts it again. */
async function startAgain(server: Server, change: (first: Start) => void = () => {}) {
  await runPrintedCurl(server);
  const first = await observe(server);
  await server.stop();
  change(first);
  await server.restart();
  return { first, second: await observe(server) };
}

describe("The first start in a fresh clone", () => {
  let server: Server;
  beforeAll(async () => {
    server = await Server.start([], {}, { folder: cloneProject() });
  });
  afterAll(() => server?.remove());

  test("creates secrets that only their owner can read, and reports what it created", async () => {
    const { output, secrets } = await observe(server);
    expect(secrets).toMatch(/^MASTER_KEY="[\w+/]{43}="\nOPERATOR_TOKEN="stow_op_[\w-]{32}"\n$/);
    if (process.platform !== "win32") expect(statSync(secretsFile(server.folder)).mode & 0o777).toBe(0o600);
    expect(output).toContain(server.url);
    expect(output).toMatch(/^Created: data in .*, secrets in \.dev\.vars, key$/m);
    expect(output).not.toContain("Kept:");
    expect(output).not.toMatch(/WARNING|ERROR|\[wrangler/);
  });

  test("prints a key that works, and keeps it in a file that only its owner can read", async () => {
    const { key } = await observe(server);
    const path = keyFile(server.folder);
    expect(JSON.parse(readFileSync(path, "utf8"))).toEqual({ teamId: expect.stringMatching(/^[0-9a-f]{24}$/), key });
    if (process.platform !== "win32") expect(statSync(path).mode & 0o777).toBe(0o600);
  });

  test("prints a curl command that uploads a file", async () => {
    expect(await runPrintedCurl(server)).toMatch(
      /^HTTP\/1\.1 200 OK.*^Location: \/docs\/v1\/uploads\/[0-9a-f]{24}\r$.*"message":"File uploaded\./ims,
    );
    expect((await observe(server)).files).toMatchObject([{ originalName: "tone-vbr.mp3" }]);
  });

  test("is followed by one that keeps data, secrets, and key, and reports it", async () => {
    const { first, second } = await startAgain(server);
    expect(second.output).toMatch(/^Kept: data in .*, secrets in \.dev\.vars, key$/m);
    expect(second.output).not.toContain("Created:");
    expect([second.key, second.secrets, idsOf(second)]).toEqual([first.key, first.secrets, idsOf(first)]);
    const { signedUrl } = await get(server, `/docs/v1/uploads/${second.files[0]?._id}`, second.key);
    const downloaded = Buffer.from(await (await fetch(signedUrl)).arrayBuffer());
    expect(downloaded.equals(readFileSync(join(server.folder, "test/audio/tone-vbr.mp3")))).toBe(true);
  });
});

exhaustive(
  "a start without a master key creates one, keeps the rest, and applies an added migration",
  async ({ onTestFinished }) => {
    const server = await Server.start();
    onTestFinished(() => server.remove());
    const { first, second } = await startAgain(server, ({ operatorToken }) => {
      writeFileSync(join(server.folder, "migrations/9999_added.sql"), "create table added (id integer);");
      // A file as people write it, with a comment and without a final newline.
      writeFileSync(secretsFile(server.folder), `# mine\nMAX_TEAM_FILES=7\nOPERATOR_TOKEN=${operatorToken}`);
    });
    const kept = /^# mine\nMAX_TEAM_FILES=7\nOPERATOR_TOKEN=stow_op_[\w-]{32}\nMASTER_KEY="[\w+/]{43}="\n$/;
    expect(second.secrets).toMatch(kept);
    expect(second.output).toMatch(/^Created: secrets in \.dev\.vars$/m);
    expect(second.output).toMatch(/^Kept: data in .*, key$/m);
    expect([second.key, idsOf(second)]).toEqual([first.key, idsOf(first)]);
    expect(server.sql("D1Database", "select count(*) as rows from added")).toEqual([{ rows: 0 }]);
  },
);

exhaustive("SIGTERM to npm stops every process of npm run dev", async () => {
  const folder = await clonePreparedProject();
  const { child, exited, output } = runNpmDev(folder, { PORT: await freePort() });
  await vi.waitUntil(() => output().includes('"event":"recovery_finished"'), { timeout: 250_000 });
  child.kill("SIGTERM");
  await exited;
  await vi.waitUntil(() => !isGroupAlive(child), { timeout: 60_000 });
  rmSync(folder, { recursive: true, maxRetries: 5 });
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
const unusableIn = (state: string) =>
  `The data in ${state} is not of this version of Stowage: delete that folder to begin with empty data, or set STATE_DIR to another one.`;

/** Writes a database that no start can use. @returns its file */
function writeDatabase(state: string, write: (database: DatabaseSync) => void): string {
  const databases = join(state, "v3/d1/miniflare-D1DatabaseObject");
  mkdirSync(databases, { recursive: true });
  const file = join(databases, `${"0".repeat(64)}.sqlite`);
  const database = new DatabaseSync(file);
  write(database);
  database.close();
  return file;
}

test.each(unusable)("data of %s is rejected in one sentence, and stays as it is", (_, write) => {
  const state = mkdtempSync(join(tmpdir(), "stowage state "));
  const file = writeDatabase(state, write);
  const before = readFileSync(file);
  expect(() => findMissingMigrations(file, migrations, state)).toThrow(unusableIn(state));
  expect(readFileSync(file).equals(before)).toBe(true);
  rmSync(state, { recursive: true, maxRetries: 5 });
});

test("the start fails with that sentence if the data is of another project, and changes nothing", async () => {
  const folder = cloneProject();
  const state = join(folder, "other state");
  const file = writeDatabase(state, (database) => database.exec("create table notes (id integer)"));
  const before = readFileSync(file);
  const port = await freePort();
  const { exited, output } = runDev(folder, { PORT: port, STATE_DIR: state });
  expect(await exited).toBe(1);
  expect(output()).toBe(`Starting on port ${port} …\n${unusableIn(state)}\n`);
  expect(readFileSync(file).equals(before)).toBe(true);
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

/** Applies the migrations, and records them as wrangler does. */
function migrate(database: DatabaseSync): void {
  database.exec("create table d1_migrations (id integer primary key, name text)");
  for (const name of listMigrations(migrations)) {
    for (const statement of statementsOf(migrations, name)) database.exec(statement);
    database.prepare("insert into d1_migrations (name) values (?)").run(name);
  }
}

describe("npm run dev", () => {
  let folder: string;
  beforeAll(() => {
    folder = cloneProject();
  });
  afterAll(() => rmSync(folder, { recursive: true, maxRetries: 5 }));

  test("ignores an unknown option with a message", async () => {
    const { exited, output } = runDev(folder, { PORT: "0" }, ["--prot", "1"]);
    expect(await exited).toBe(1);
    expect(output()).toBe('Ignored the unknown option --prot.\nPORT is "0"; it must be 1 to 65535.\n');
  });

  test.each(isExhaustive ? ["0", "65536", "http", "-1", "80.5"] : ["65536", "http"])(
    "rejects PORT=%s",
    async (port) => {
      const { exited, output } = runDev(folder, { PORT: port });
      expect(await exited).toBe(1);
      expect(output()).toBe(`PORT is "${port}"; it must be 1 to 65535.\n`);
    },
  );

  test("rejects a port that is in use", async () => {
    const other = createServer();
    const port = await freePort();
    await new Promise<void>((listening) => other.listen(Number(port), "localhost", listening));
    const { exited, output } = runDev(folder, { PORT: port });
    expect(await exited).toBe(1);
    expect(output()).toBe(
      `Port ${port} is in use. Choose another one, and other data: PORT=8788 STATE_DIR=.wrangler/second npm run dev\n`,
    );
    other.close();
  });
});
