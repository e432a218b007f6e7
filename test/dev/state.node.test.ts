import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { expect, onTestFinished, test } from "vitest";
import { sha256 } from "../support/bytes.ts";
import { type Call, createCall, form } from "../support/client.ts";
import { clonePreparedProject } from "../support/project.ts";
import { Server } from "../support/server.ts";

/*
 * The state of the first release: databases, bytes and secrets of a local server, which `npm run freeze` writes. This version
 * must start on it. Until the release, there is none.
 */

const STATE = join(import.meta.dirname, "../state");
const TRASH = ["--var", "TRASH_DAYS:7"];

interface Facts {
  token: string;
  listed: { id: string; name: string; sha256: string };
  trashed: { id: string; name: string; sha256: string };
}

const callWith = (server: Server, token: string): Call => {
  const call = createCall(fetch, server.url);
  return (method, path, options) => call(method, path, { token, ...options });
};

/** Leaves one file of the database, as small as it can be. */
function shrink(file: string): void {
  const database = new DatabaseSync(file);
  database.exec("vacuum");
  database.exec("pragma wal_checkpoint(truncate)");
  database.close();
}

async function play(server: Server, call: Call, id: string): Promise<string> {
  const { body } = await call("GET", `/docs/v1/uploads/${id}`);
  const { pathname } = new URL(body.signedUrl);
  return sha256(new Uint8Array(await (await fetch(new URL(pathname, server.url))).arrayBuffer()));
}

test.runIf(process.env.STOWAGE_WRITE_STATE)("writes the state", async () => {
  const server = await Server.start(TRASH);
  onTestFinished(() => server.remove());
  const { token } = await server.newTeam();
  const call = callWith(server, token);
  const put = async (name: string, properties: object) => {
    const body = new FormData();
    body.append("properties", JSON.stringify(properties));
    for (const [part, file] of form(name, `bytes of ${name}`)) body.append(part, file);
    const { id } = await call("POST", "/docs/v1/uploads", { body });
    await expect
      .poll(async () => (await call("GET", `/docs/v1/uploads/${id}/status`)).body.data.status, { timeout: 60_000 })
      .toBe("completed");
    return { id, name, sha256: sha256(new TextEncoder().encode(`bytes of ${name}`)) };
  };
  const listed = await put("listed.txt", { folder: "a/b", tags: ["x"], reference: "r", metadata: { a: 1 } });
  const trashed = await put("trashed.txt", { folder: "a", tags: ["y"] });
  await call("PUT", `/docs/v1/uploads/${listed.id}/waveform`, { json: { channels: [Array(16).fill(0.5)] } });
  await call("POST", "/auth/v1/users", { json: { email: "ada@example.com", password: "correct horse battery" } });
  await call("POST", "/auth/v1/webhooks", { json: { url: "https://hooks.example.com/in" } });
  await call("DELETE", `/docs/v1/uploads/${trashed.id}`);
  await server.stop();
  rmSync(STATE, { recursive: true, force: true });
  mkdirSync(STATE);
  for (const store of ["d1", "r2"]) {
    cpSync(join(server.folder, ".wrangler/state/v3", store), join(STATE, "state/v3", store), { recursive: true });
  }
  for (const file of readdirSync(STATE, { recursive: true, encoding: "utf8" })) {
    if (file.endsWith(".sqlite")) shrink(join(STATE, file));
  }
  cpSync(join(server.folder, ".dev.vars"), join(STATE, "secrets.env"));
  const facts: Facts = { token, listed, trashed };
  writeFileSync(join(STATE, "facts.json"), `${JSON.stringify(facts, null, 2)}\n`);
});

test.skipIf(process.env.STOWAGE_WRITE_STATE || !existsSync(STATE))(
  "this version starts on the state of the first release: it lists, plays, restores and deletes",
  async () => {
    const folder = await clonePreparedProject(join(STATE, "state"));
    cpSync(join(STATE, "secrets.env"), join(folder, ".dev.vars"));
    const server = await Server.start(TRASH, {}, { folder });
    onTestFinished(() => server.remove());
    const { token, listed, trashed }: Facts = JSON.parse(readFileSync(join(STATE, "facts.json"), "utf8"));
    const call = callWith(server, token);
    const ids = async (path: string) => (await call("GET", path)).body.data.map(({ _id }: { _id: string }) => _id);
    expect(await ids("/docs/v1/uploads?tag=x&folder=a/b")).toEqual([listed.id]);
    expect(await ids("/docs/v1/trash")).toEqual([trashed.id]);
    expect(await play(server, call, listed.id)).toBe(listed.sha256);
    expect((await call("GET", `/docs/v1/uploads/${listed.id}/waveform`)).status).toBe(200);
    expect((await call("POST", `/docs/v1/trash/${trashed.id}/restore`)).body.data).toMatchObject({ tags: ["y"] });
    expect(await play(server, call, trashed.id)).toBe(trashed.sha256);
    expect((await call("GET", "/auth/v1/users?limit=1")).body).toMatchObject([{ email: "ada@example.com" }]);
    for (const { id } of [listed, trashed]) {
      expect((await call("DELETE", `/docs/v1/uploads/${id}?permanent=true`)).status).toBe(200);
    }
    expect((await call("GET", "/docs/v1/usage")).body.data).toMatchObject({ trashFiles: 0 });
    expect((await call("POST", "/docs/v1/uploads", { body: form("new.txt", "new") })).status).toBe(200);
  },
);
