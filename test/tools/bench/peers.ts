import { execFileSync, spawn } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { type Call, Load, repeat } from "./load.ts";
import { median } from "./overhead.ts";
import { createLink, formOf, formUpload, get, MEGABYTE, type Scope, SMALL_FILE, startServer } from "./server.ts";

/*
 * The same five operations against PocketBase and Directus, each a process on this machine with SQLite and files on disk. They are
 * installed in the folder that STOWAGE_PEERS names, which takes minutes and needs Go and the registries of Go and npm.
 */

const POCKETBASE = "github.com/pocketbase/pocketbase@v0.36.8";
const DIRECTUS = ["directus@11.17.4", "sqlite3@5.1.7"];
const EMAIL = "admin@example.com";
const PASSWORD = "correct horse battery";
const TOKEN = "token-of-the-bench-0123456789";
const CONNECTIONS = 16;
const RANGE_BYTES = 100_000;
const LISTED = 20;
const PORTS = { PocketBase: 8190, Directus: 8191 };

const song = Buffer.alloc(5 * MEGABYTE, 7);
const large = Buffer.alloc(80 * MEGABYTE, 7);

interface Peer {
  name: string;
  load: Load;
  calls: Record<string, Call>;
  close(): Promise<unknown>;
}

const OPERATIONS: [name: string, volume: { connections: number; seconds?: number; count?: number }][] = [
  ["get user", { connections: CONNECTIONS, seconds: 1 }],
  ["list 20 files", { connections: CONNECTIONS, seconds: 1 }],
  ["upload 64 KB", { connections: CONNECTIONS, seconds: 1 }],
  ["upload 80 MB", { connections: 2, count: 2 }],
  ["download 100 KB of 5 MB", { connections: CONNECTIONS, seconds: 1 }],
];

const jsonOf = (path: string, value: unknown, headers: Record<string, string> = {}): Call => ({
  method: "POST",
  path,
  headers: { ...headers, "Content-Type": "application/json" },
  body: [Buffer.from(JSON.stringify(value))],
});

/** Starts a program, and waits until it responds. */
async function serve(folder: string, command: string, args: string[], port: number, env = {}) {
  const child = spawn(command, args, { cwd: folder, env: { ...process.env, ...env }, stdio: "ignore" });
  const url = new URL(`http://127.0.0.1:${port}`);
  while (!(await fetch(url, { redirect: "manual" }).catch(() => null))) {
    if (child.exitCode !== null) throw new Error(`${command} ended.`);
    await sleep(100);
  }
  const load = new Load(url);
  const closed = new Promise((resolve) => child.once("exit", resolve));
  const close = () => {
    load.close();
    child.kill();
    return closed;
  };
  return { load, close };
}

const MAIN = `package main
import "github.com/pocketbase/pocketbase"
func main() { if err := pocketbase.New().Start(); err != nil { panic(err) } }
`;

async function startPocketBase(folder: string): Promise<Peer> {
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, "main.go"), MAIN);
  const run = (command: string, ...args: string[]) => execFileSync(command, args, { cwd: folder, stdio: "ignore" });
  writeFileSync(join(folder, "go.mod"), "module peers\n");
  run("go", "get", POCKETBASE);
  run("go", "build", "-o", "pocketbase", ".");
  run("./pocketbase", "superuser", "upsert", EMAIL, PASSWORD);
  const address = `127.0.0.1:${PORTS.PocketBase}`;
  const { load, close } = await serve(folder, "./pocketbase", ["serve", `--http=${address}`], PORTS.PocketBase);
  const send = async (call: Call) => JSON.parse((await load.send(call)).text);
  const { token } = await send(
    jsonOf("/api/collections/_superusers/auth-with-password", { identity: EMAIL, password: PASSWORD }),
  );
  const headers = { Authorization: token };
  const fields = [{ name: "file", type: "file", maxSize: 100 * MEGABYTE, maxSelect: 1 }];
  await load.send(jsonOf("/api/collections", { name: `docs${Date.now()}`, type: "base", fields }, headers));
  const { items } = await send({ method: "GET", path: "/api/collections?sort=-created&perPage=1", headers });
  const files = `/api/collections/${items[0].name}/records`;
  const email = `user-${Date.now()}@example.com`;
  const user = { email, password: PASSWORD, passwordConfirm: PASSWORD };
  const { id } = await send(jsonOf("/api/collections/users/records", user, headers));
  const uploaded = await send(formOf(song, headers, files));
  await repeat(LISTED, 1, () => load.send(formOf(SMALL_FILE, headers, files)));
  const path = `/api/files/${items[0].name}/${uploaded.id}/${uploaded.file}`;
  const calls: Call[] = [
    { method: "GET", path: `/api/collections/users/records/${id}`, headers },
    { method: "GET", path: `${files}?perPage=${LISTED}&sort=-id`, headers },
    formOf(SMALL_FILE, headers, files),
    formOf(large, headers, files),
    rangeOf(path, headers),
  ];
  return { name: "PocketBase", load, close, calls: named(calls) };
}

async function startDirectus(folder: string): Promise<Peer> {
  mkdirSync(folder, { recursive: true });
  const env = {
    ...{ PORT: `${PORTS.Directus}`, HOST: "127.0.0.1", SECRET: "secret", TELEMETRY: "false", LOG_LEVEL: "error" },
    ...{ DB_CLIENT: "sqlite3", DB_FILENAME: join(folder, `${Date.now()}.db`), FILES_MAX_UPLOAD_SIZE: "100mb" },
    ...{ ADMIN_EMAIL: EMAIL, ADMIN_PASSWORD: PASSWORD, ADMIN_TOKEN: TOKEN },
  };
  const run = (command: string, ...args: string[]) =>
    execFileSync(command, args, { cwd: folder, env: { ...process.env, ...env }, stdio: "ignore" });
  writeFileSync(join(folder, "package.json"), "{}");
  run("npm", "install", "--no-audit", "--no-fund", "--legacy-peer-deps", ...DIRECTUS);
  run("npm", "exec", "--", "directus", "bootstrap");
  const { load, close } = await serve(folder, "npm", ["exec", "--", "directus", "start"], PORTS.Directus, env);
  const headers = { Authorization: `Bearer ${TOKEN}` };
  const send = async (call: Call) => JSON.parse((await load.send(call)).text).data;
  const me = await send({ method: "GET", path: "/users/me", headers });
  const uploaded = await send(formOf(song, headers, "/files"));
  await repeat(LISTED, 1, () => load.send(formOf(SMALL_FILE, headers, "/files")));
  const calls: Call[] = [
    { method: "GET", path: `/users/${me.id}`, headers },
    { method: "GET", path: `/files?limit=${LISTED}&sort=-uploaded_on`, headers },
    formOf(SMALL_FILE, headers, "/files"),
    formOf(large, headers, "/files"),
    rangeOf(`/assets/${uploaded.id}`, headers),
  ];
  return { name: "Directus", load, close, calls: named(calls) };
}

async function startOurs(): Promise<Peer> {
  const { load, createTeam, seed, close } = await startServer();
  const team = await createTeam("idle");
  const listing = await createTeam();
  await seed("files", listing, LISTED);
  await seed("users", listing, 1);
  const { location } = await load.send(formUpload(song, team));
  const { path } = await createLink(load, location, team);
  const { text } = await load.send(get("/auth/v1/users", listing));
  const calls: Call[] = [
    get(`/auth/v1/users/${JSON.parse(text).data[0]._id}`, listing),
    get(`/docs/v1/uploads?limit=${LISTED}`, listing),
    formUpload(SMALL_FILE, team),
    formUpload(large, team),
    rangeOf(path, get(path, team).headers ?? {}),
  ];
  return { name: "Stowage", load, close, calls: named(calls) };
}

const rangeOf = (path: string, headers: Record<string, string>): Call => ({
  method: "GET",
  path,
  headers: { ...headers, Range: `bytes=1000000-${1_000_000 + RANGE_BYTES - 1}` },
  status: 206,
});

const named = (calls: Call[]) =>
  Object.fromEntries(OPERATIONS.map(([name], i): [string, Call] => [name, calls[i] as Call]));

/** @returns for each operation the requests a second of each, medians of rounds in turns */
export async function measurePeers({ isQuick, log }: Scope) {
  const folder = process.env.STOWAGE_PEERS;
  if (!folder) throw new Error("Name a folder for PocketBase and Directus in STOWAGE_PEERS.");
  const peers: Peer[] = [];
  const start = async (starting: Promise<Peer>) => {
    const peer = await starting;
    peers.push(peer);
    log(`peers: ${peer.name} runs`);
  };
  try {
    await start(startOurs());
    await start(startPocketBase(join(folder, "pocketbase")));
    await start(startDirectus(join(folder, "directus")));
    const rows = [];
    for (const [name, volume] of OPERATIONS) {
      log(`peers: ${name}`);
      const rates: Record<string, number[]> = Object.fromEntries(peers.map((peer) => [peer.name, []]));
      // The first round warms all up and is not counted.
      for (let round = 0; round <= (isQuick ? 2 : 5); round++) {
        for (const { name: peer, load, calls } of peers) {
          const rate = await load.run(() => load.send(calls[name] as Call, false), volume);
          if (round > 0) rates[peer]?.push(rate);
        }
      }
      rows.push({ name, rates: Object.fromEntries(Object.entries(rates).map(([peer, all]) => [peer, median(all)])) });
    }
    return { names: peers.map(({ name }) => name), rows };
  } finally {
    for (const { close } of peers) await close();
  }
}
