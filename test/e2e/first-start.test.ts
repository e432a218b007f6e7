import { execFileSync } from "node:child_process";
import { appendFileSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test, vi } from "vitest";
import { cloneProject, freePort, isGroupAlive, runDev, runNpmDev, Server } from "../support/server.ts";

let server: Server;
beforeAll(async () => {
  server = await Server.start();
});
afterAll(() => server?.remove());

const secrets = () => readFileSync(join(server.folder, ".dev.vars"), "utf8");
const printedKey = () => server.output.match(/^Your secret key: (stow_sk_\w{38})$/m)?.[1] ?? "";
const printedCurl = () => server.output.match(/^ {2}(curl .*)$/m)?.[1] ?? "";
const hasCurl = (() => {
  try {
    return execFileSync("curl", ["--version"]).length > 0;
  } catch {
    return false;
  }
})();

async function uploads(key = printedKey()): Promise<{ originalName: string; _id: string }[]> {
  const response = await fetch(`${server.url}/docs/v1/uploads`, { headers: { Authorization: `Bearer ${key}` } });
  expect(response.status).toBe(200);
  return ((await response.json()) as { data: { originalName: string; _id: string }[] }).data;
}

test("the first start creates secrets that only their owner can read, and reports what it created", () => {
  expect(secrets()).toMatch(/^MASTER_KEY="[\w+/]{43}="\nOPERATOR_TOKEN="stow_op_[\w-]{32}"\n$/);
  if (process.platform !== "win32") expect(statSync(join(server.folder, ".dev.vars")).mode & 0o777).toBe(0o600);
  expect(server.output).toContain(server.url);
  expect(server.output).toMatch(/^Created: data in .*, secrets in \.dev\.vars, key$/m);
  expect(server.output).not.toContain("Kept:");
  expect(server.output).not.toMatch(/WARNING|ERROR|\[wrangler/);
});

test("the printed key works, and the state folder holds only the IDs of key and team", async () => {
  expect(await uploads()).toEqual([]);
  const kept = readFileSync(join(server.folder, ".wrangler/state/first-key.json"), "utf8");
  expect(kept).toMatch(/^\{"id":"[0-9a-f]{24}","teamId":"[0-9a-f]{24}"\}\n$/);
});

test("the printed curl command uploads a file", async () => {
  const line = printedCurl();
  if (hasCurl) {
    expect(execFileSync(line, { shell: true, cwd: server.folder, encoding: "utf8", stdio: "pipe" })).toMatch(
      /^HTTP\/1\.1 200 OK.*^Location: \/docs\/v1\/uploads\/[0-9a-f]{24}\r$.*"message":"File uploaded\./ims,
    );
  } else {
    const [, token, path, url] = line.match(/Bearer (\w+)['"] -F ['"]file=@"?([^"']+)"?['"] (\S+)$/) ?? [];
    const body = new FormData();
    body.append("file", new File([readFileSync(join(server.folder, path ?? ""))], "tone-vbr.mp3"));
    const response = await fetch(url ?? "", { method: "POST", headers: { Authorization: `Bearer ${token}` }, body });
    expect(response.status).toBe(200);
  }
  expect(await uploads()).toMatchObject([{ originalName: "tone-vbr.mp3" }]);
});

test("a second start keeps data, secrets, and key, and reports it", async () => {
  const before = { key: printedKey(), secrets: secrets(), uploads: await uploads() };
  await server.stop();
  await server.restart();
  expect(server.output).toMatch(/^Kept: data in .*, secrets in \.dev\.vars, key$/m);
  expect(server.output).not.toContain("Created:");
  expect(printedKey()).toBe(before.key);
  expect(secrets()).toBe(before.secrets);
  const after = await uploads();
  expect(after.map((file) => file._id)).toEqual(before.uploads.map((file) => file._id));
  const [file] = after;
  const headers = { Authorization: `Bearer ${before.key}` };
  const signed = await fetch(`${server.url}/docs/v1/uploads/${file?._id}`, { headers });
  const { signedUrl } = (await signed.json()) as { signedUrl: string };
  const opened = Buffer.from(await (await fetch(signedUrl)).arrayBuffer());
  expect(opened.equals(readFileSync(join(server.folder, "test/audio/tone-vbr.mp3")))).toBe(true);
});

test("a start without master key creates one and a new key of the same team, keeps the rest, and applies an added migration", async () => {
  const old = printedKey();
  const operator = server.operatorToken;
  await server.stop();
  // A file as people write it, with a comment and without a final newline.
  writeFileSync(join(server.folder, "migrations/9999_added.sql"), "create table added (id integer);");
  writeFileSync(join(server.folder, ".dev.vars"), `# mine\nMAX_TEAM_FILES=7\nOPERATOR_TOKEN=${operator}`);
  await server.restart();
  expect(secrets()).toMatch(/^# mine\nMAX_TEAM_FILES=7\nOPERATOR_TOKEN=stow_op_[\w-]{32}\nMASTER_KEY="[\w+/]{43}="\n$/);
  expect(server.output).toMatch(/^Created: secrets in \.dev\.vars, key$/m);
  expect(printedKey()).not.toBe(old);
  expect(await uploads()).toHaveLength(1);
  expect(await uploads(old)).toHaveLength(1);
  await server.stop();
  expect(server.sql("D1Database", "select count(*) as rows from added")).toEqual([{ rows: 0 }]);
});

test("SIGTERM to npm stops every process of npm run dev", async () => {
  await server.stop();
  const { child, exited, output } = runNpmDev(server.folder, { PORT: await freePort() });
  await vi.waitUntil(() => output().includes('"event":"recovery_finished"'), { timeout: 250_000 });
  child.kill("SIGTERM");
  await exited;
  await vi.waitUntil(() => !isGroupAlive(child), { timeout: 60_000 });
});

test("the start fails with the service's response if a setting in .dev.vars is invalid", async () => {
  const folder = cloneProject();
  appendFileSync(join(folder, ".dev.vars"), "OPERATOR_TOKEN=short\n");
  const { exited, output } = runDev(folder, { PORT: await freePort() });
  expect(await exited).toBe(1);
  expect(output()).toContain("The service responded 503");
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

test("the start fails with the reason if a migration fails", async () => {
  const folder = cloneProject();
  writeFileSync(join(folder, "migrations/9999_broken.sql"), "create tabel nonsense;");
  const { exited, output } = runDev(folder, { PORT: await freePort() });
  expect(await exited).toBe(1);
  expect(output()).toMatch(/9999_broken\.sql.*Couldn't apply the migrations\.\n$/s);
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

test("the start fails with the compiler's message if the build fails", async () => {
  const folder = cloneProject();
  appendFileSync(join(folder, "src/index.ts"), 'import "./missing.ts";\n');
  const { exited, output } = runDev(folder, { PORT: await freePort() });
  expect(await exited).toBe(1);
  expect(output()).toMatch(/Could not resolve "\.\/missing\.ts".*^The build failed\.\n$/ms);
  rmSync(folder, { recursive: true, maxRetries: 5 });
});

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
