import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import fs, {
  appendFileSync,
  chmodSync,
  existsSync,
  linkSync,
  lstatSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { createServer } from "node:http";
import { syncBuiltinESMExports } from "node:module";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { text } from "node:stream/consumers";
import { afterEach, describe, expect, inject, onTestFinished, test, vi } from "vitest";
import { DEFAULT_ROLE } from "../../src/access/scopes.ts";
import { loadConfig } from "../../src/client/command/config.ts";
import { Journal } from "../../src/client/command/journal.ts";
import { isIgnored, openFile, parsePattern } from "../../src/client/command/local-files.ts";
import { localNameOf } from "../../src/client/command/places.ts";
import { Progress } from "../../src/client/command/progress.ts";
import { findSurplus } from "../../src/client/command/syncing.ts";
import { type StoredFile, Stowage, type WebhookMessage } from "../../src/client/index.ts";
import { RESUMABLE_BYTES } from "../../src/client/internal.ts";
import { verifyMessage } from "../../src/client/signatures.ts";
import { MEBIBYTE, sha256 } from "../support/bytes.ts";
import { Line } from "../support/line.ts";
import { bytesOf, collect, newTeam, sample, type Team, upload, url } from "../support/team.ts";
import { isExhaustive } from "../support/tiers.ts";
import { expectFailure, linesOf, Machine, newMachine } from "./command-line.ts";
import { hangUp, json, openLine, refusal, type Step, scripted } from "./support.ts";

const stored = async ({ stowage }: Team) => collect(stowage.files.list());

const ZEROS = "0".repeat(64);
const UNKNOWN = "0".repeat(24);
const SONG = "1".repeat(24);
const OPEN = "http://stowage.invalid";
const DANGER = `stowage: ${OPEN} is not encrypted. Others on the network can read your key.`;

/** A service with one file, and a machine that uses it. It reports `later` as the digest after the first time. */
async function storing(
  bytes: Uint8Array | string,
  { digest = sha256(bytes), later = digest, step, name = "song.txt" }: Partial<Stored> = {},
) {
  let requests = 0;
  const service = await scripted((request, response) => {
    const data = { _id: SONG, folder: "", name, size: bytes.length, sha256: requests === 0 ? digest : later };
    if (request.url === "/bytes") return step ? step(request, response) : void response.end(bytes);
    if (request.url?.endsWith("/metadata")) requests += 1;
    response.end(JSON.stringify({ data, status: true, signedUrl: `${service.url}/bytes` }));
  });
  return { service, machine: new Machine("key", service.url) };
}

interface Stored {
  digest: string | null;
  later: string | null;
  step: Step;
  name: string;
}

/**
 * A service that takes uploads, unless `post` responds, and a machine with the files `a.bin`, `b.bin`, and `large.bin`.
 * Without metadata, it forbids the lookup.
 */
async function receiving(metadata: () => object | undefined, post?: Step) {
  const service = await scripted((request, response) => {
    const { method, url = "" } = request;
    if (method === "POST") post?.(request, response);
    if (response.writableEnded) return;
    const location = { Location: `/docs/v1/uploads/${url.endsWith("/resumable") ? "resumable/1.2" : "1"}` };
    if (method === "POST") response.writeHead(201, location);
    if (method === "PATCH")
      response.writeHead(204, { "Upload-Offset": "9000000", "Content-Location": "/docs/v1/uploads/1" });
    const data = url.endsWith("/metadata") ? metadata() : {};
    if (!data) response.statusCode = 403;
    response.end(JSON.stringify({ data }));
  });
  const machine = new Machine("key", service.url);
  for (const name of ["a.bin", "b.bin"]) machine.write(name, "bytes");
  machine.write("large.bin", Buffer.alloc(9_000_000));
  return { machine, posts: () => service.requests.filter(({ method }) => method === "POST") };
}

afterEach(() => vi.useRealTimers());

describe("every command", () => {
  const commandsOf = ({ file, doomed, event, webhook }: Record<"file" | "doomed" | "event" | "webhook", string>) => [
    "upload new.bin",
    "ls",
    `info ${file}`,
    `get ${file} -o got.bin --force`,
    "sync in",
    `mv ${file} --folder a/b`,
    `tag interview ${file}`,
    `untag interview ${file}`,
    `link ${file} --inline --name a.mp3`,
    `links ${file}`,
    `presign ${file} --expires-in 60`,
    `reprocess ${file}`,
    "uploads",
    "usage",
    "whoami",
    "completion bash",
    "keys",
    "keys create Player --public",
    "tokens create",
    "sessions",
    "users",
    "events --limit 2",
    `events --follow --after ${event} --limit 1`,
    "webhooks",
    `webhooks deliveries ${webhook}`,
    `webhooks secret ${webhook}`,
    `rm ${doomed} --yes`,
    "folders",
    `hold ${file} --reason Case`,
    `release ${file} --yes`,
    "retention",
  ];

  async function prepared() {
    const { team, machine } = await newMachine();
    const { stowage } = team;
    for (const name of ["new.bin", "in/a.bin"]) machine.write(name, bytesOf(1000));
    await stowage.users.create({ email: "ada@example.com", password: "correct horse battery" });
    const { _id: webhook } = await stowage.webhooks.create({ url: "http://127.0.0.1:9/", types: ["user.created"] });
    await stowage.sessions.create();
    const event = (await collect(stowage.events.list({ order: "asc" })))[0]?._id ?? "";
    // Creates the one delivery in the list.
    await stowage.users.create({ email: "bob@example.com", password: "correct horse battery" });
    const stop = new AbortController();
    const begun = { resumableFromBytes: 1, signal: stop.signal, onResumeUrl: () => stop.abort(new Error("enough")) };
    await expect(stowage.files.upload(new File(["text"], "begun.txt"), begun)).rejects.toThrow("enough");
    const doomed = [];
    for (const name of ["x", "y", "z"]) doomed.push((await stowage.files.upload(new File([name], name))).id);
    return { machine, doomed, ids: { file: await upload(team, "old.bin", bytesOf(2000)), webhook, event } };
  }

  test("prints columns on a terminal, otherwise fields with tabs, and JSON with --json", async () => {
    const { machine, doomed, ids } = await prepared();
    const commandsFor = (mode: number) => commandsOf({ ...ids, doomed: doomed[mode] ?? "" });
    for (const command of commandsFor(0)) {
      const fields = await machine.run(command);
      expect(fields, command).toMatchObject({ code: 0, stderr: "" });
      expect(fields.stdout, command).not.toContain("\u001b");
      if (!/^(get|presign|completion|folders|retention)/.test(command)) expect(fields.stdout, command).toContain("\t");
    }
    for (const command of commandsFor(1)) {
      const rows = await machine.run(`${command} --json`);
      expect(rows, command).toMatchObject({ code: 0, stderr: "", stdout: expect.stringContaining("\n") });
      for (const line of linesOf(rows.stdout)) expect(JSON.parse(line), command).toBeTypeOf("object");
    }
    for (const command of commandsFor(2)) {
      const { code, stdout } = await machine.run(command, { isTerminal: true });
      expect([code, stdout], command).toEqual([0, expect.stringMatching(/^[^\t]+\n$/)]);
    }
  });

  test("creates, suspends, resumes, and deletes teams for the operator, and explains which commands need a team", async () => {
    const machine = new Machine(inject("operatorToken"));
    const name = `Radio-${crypto.randomUUID()}`;
    const { _id: id, key } = await machine.json(`teams create ${name} --max-bytes 1000`);
    const usage = () => new Stowage({ url, key }).usage();
    expect(await machine.json(`teams --name ${name}`)).toMatchObject({ _id: id, maxBytes: 1000 });
    expect(await machine.json(`teams suspend ${id}`)).toMatchObject({ status: "suspended" });
    await expect(usage()).rejects.toMatchObject({ code: "team_suspended" });
    expect(await machine.json(`teams resume ${id}`)).toMatchObject({ status: "active" });
    const wrongName = await machine.run(`teams rm ${id}`, { input: "Radio\n" });
    expectFailure(wrongName, 1, "That is not the team's name. Nothing was deleted.");
    const edited = await machine.json(`teams update ${id} --name Lovelace-${name} --max-bytes 2MB`);
    expect(edited).toMatchObject({ name: `Lovelace-${name}`, maxBytes: 2_000_000 });
    await machine.run(`teams update ${id} --name ${name} --max-bytes default`);
    expect(await machine.json(`teams show ${id}`)).toMatchObject({ status: "active", name, maxBytes: null });
    expect(await machine.json(`keys create Second --team ${id}`)).toMatchObject({ teamId: id });
    expect(await machine.json(`keys --team ${id} --limit 1`)).toMatchObject({ name: "Second" });
    expect(await machine.json(`events --team ${id} --limit 1`)).toMatchObject({ type: "apikey.created" });
    machine.write("a.bin", "bytes");
    for (const args of ["ls", "upload a.bin", `info ${UNKNOWN}`, `cancel ${UNKNOWN} --yes`])
      expectFailure(await machine.run(args), 3, /^This command needs the API key of a team\./);
    expect(await machine.json(`teams rm ${id}`, `${name}\n`)).toEqual({ id, deleted: true });
    await expect(usage()).rejects.toMatchObject({ code: "token_invalid" });
  });

  test("invites new and known users with a link", async () => {
    const { team, machine } = await newMachine();
    const { stdout, stderr } = await machine.run("users invite ada@example.com --first Ada --role member");
    expect(stdout).toMatch(new RegExp(`^${url}/console/invitation#stow_in_\\S+\\n$`));
    expect(stderr).toMatch(/^stowage: The link works once, until \S+Z\.\n$/);
    const again = await machine.json("users invite ada@example.com");
    expect(again).toMatchObject({ url: `${url}/console/invitation#${again.token}` });
    const accept = (token: string) => team.stowage.acceptInvitation({ token, password: "correct horse battery" });
    await expect(accept(stdout.trim().split("#")[1] ?? "")).rejects.toMatchObject({ code: "token_invalid" });
    expect(await accept(again.token)).toMatchObject({ name: "Ada" });
    expect(await collect(team.stowage.users.list())).toMatchObject([{ _id: again._id, role: "member" }]);
    expectFailure(await machine.run("users invite ada@example.com --role admin"), 2, /is a user already/);
    expectFailure(await machine.run("users invite ada@example.com --send"), 1, /sends no emails/);
  });

  test("creates, edits, and deletes users, keys, and webhooks", async () => {
    const { team, machine } = await newMachine();
    const { stowage } = team;
    const json = machine.json.bind(machine);
    const user = await json("users create ada@example.com --first Ada", "correct horse battery\n");
    expect(user).toMatchObject({ firstName: "Ada", email: "ada@example.com" });
    expect(user.password).toBeUndefined();
    expect(await json("users update ada@example.com --last King")).toMatchObject({ lastName: "King" });
    expect(await json("users show ada@example.com")).toMatchObject({ _id: user._id });
    expectFailure(await machine.run("users show bob@example.com"), 4, "bob@example.com: Not found.");
    expect(await json(["users", "--name", "Ada K"])).toMatchObject({ _id: user._id });
    const hook = await json("webhooks create http://127.0.0.1:9/ --types user.deleted,user.created");
    expect(hook).toMatchObject({ types: ["user.deleted", "user.created"], secret: expect.stringMatching(/^whsec_/) });
    const tested = await machine.run(`webhooks test ${hook._id} --json`);
    const message = "The endpoint failed: connection_failed.";
    expect([tested.code, JSON.parse(tested.stderr)]).toMatchObject([1, { error: { message } }]);
    expect(JSON.parse(tested.stdout)).toMatchObject({ httpStatus: null });
    expect((await machine.run("users rm ada@example.com --yes")).stdout).toBe("ada@example.com\tdeleted\n");
    expect(await collect(stowage.users.list())).toEqual([]);
    const delivery = await json(`webhooks deliveries ${hook._id}`);
    expect(delivery).toMatchObject({ type: "user.deleted" });
    expect(await json(`webhooks redeliver ${delivery._id}`)).toMatchObject({
      _id: delivery._id,
      attempt: { httpStatus: null, error: "connection_failed" },
    });
    const [first] = await collect(stowage.events.list({ order: "asc" }));
    const replayed = await json(["webhooks", "replay", hook._id, "--after", first?._id ?? ""]);
    expect(replayed).toMatchObject({ deliveries: expect.any(Number) });
    const changed = await json(`webhooks update ${hook._id} --disable --endpoint http://127.0.0.1:10/`);
    expect(changed).toMatchObject({ status: "disabled", url: "http://127.0.0.1:10/", types: hook.types });
    await json(`webhooks rm ${hook._id} --yes`);
    expect(await collect(stowage.webhooks.list())).toEqual([]);
    const expires = `${new Date().getUTCFullYear() + 1}-01-01`;
    const given = `--max-file-bytes 5kB --file-types audio,image --expires ${expires}`;
    const made = await json(`keys create Player --public ${given}`);
    const limits = { maxFileBytes: 5000, fileTypes: ["audio file", "image file"] };
    expect(made).toMatchObject({ isPublic: true, limits, expiresAt: `${expires}T00:00:00.000Z` });
    const { stdout, stderr } = await machine.run(`keys rotate ${made.id} --overlap 0 --json`);
    const rotated = JSON.parse(stdout);
    expect(rotated).toMatchObject({ name: "Player", limits, key: expect.stringMatching(/^stow_pk_/) });
    const { expiresAt } = await stowage.keys.get(made.id);
    expect([JSON.parse(stderr), Date.parse(expiresAt)]).toEqual([
      { notice: `The old key expires at ${expiresAt}.` },
      Date.parse(rotated.createdAt),
    ]);
    expect(await collect(stowage.events.list({ type: "apikey.revealed" }))).toHaveLength(1);
    const remarks = linesOf((await machine.run("keys")).stdout).map((line) => line.split("\t")[4]);
    expect(remarks).toEqual([undefined, "expired", undefined]);
    for (const { id } of [made, rotated]) await json(`keys rm ${id} --yes`);
    const { id: session } = await stowage.sessions.create();
    expect(await json("sessions")).toMatchObject({ _id: session });
    await json(`sessions rm ${session} --yes`);
    expect(await collect(stowage.sessions.list())).toEqual([]);
    const ofToken =
      "--expires-in 60 --max-files 2 --max-file-bytes 5kB --file-types other,text --folder memos --tag a,b";
    const visitor = await json(`tokens create ${ofToken} --reference 7 --metadata {"a":1}`);
    expect(visitor).toMatchObject({ token: expect.stringMatching(/^stow_ut_/), maxFiles: 2 });
    const { id: memo } = await new Stowage({ url, key: visitor.token }).files.upload(bytesOf(10), { name: "memo.bin" });
    const properties = { folder: "memos", tags: ["a", "b"], reference: "7", metadata: { a: 1 } };
    expect(await stowage.files.get(memo)).toMatchObject(properties);
    await stowage.files.delete(memo);
    const scoped = await json(["keys", "create", "Reader", "--scopes", "files:read, files:download"]);
    expect(scoped).toMatchObject({ scopes: ["files:read", "files:download"] });
    const narrowed = await json(`keys update ${scoped.id} --scopes files:read --name Lister`);
    expect(narrowed).toMatchObject({ name: "Lister", scopes: ["files:read"] });
    await json(`keys rm ${scoped.id} --yes`);
    expect(await collect(stowage.keys.list())).toHaveLength(1);
  });

  test("creates and revokes links, and cancels unfinished uploads, but deletes no finished file", async () => {
    const { machine, ids } = await prepared();
    const { file = "" } = ids;
    const expires = `${new Date().getUTCFullYear() + 1}-01-01`;
    const link = await machine.json(`link ${file} --expires ${expires} --start 1:00.5 --end 90`);
    expect(link).toMatchObject({ fileId: file, expiresAt: `${expires}T00:00:00.000Z`, disposition: "attachment" });
    expect(link).toMatchObject({ startSeconds: 60.5, endSeconds: 90 });
    expect((await fetch(link.url)).status).toBe(200);
    expect(await machine.run(`unlink ${link._id} --yes`)).toMatchObject({ code: 0, stdout: `${link._id}\trevoked\n` });
    expect((await fetch(link.url)).status).toBe(404);
    const { stdout: signedUrl } = await machine.run(`presign ${file}`);
    expect((await (await fetch(signedUrl.trim())).arrayBuffer()).byteLength).toBe(2000);
    const { _id: begun } = await machine.json("uploads");
    expect(await machine.run(`cancel ${begun} --yes`)).toMatchObject({ code: 0, stdout: `${begun}\tcanceled\n` });
    expect(await machine.run("uploads")).toMatchObject({ code: 0, stdout: "" });
    expect(await machine.run(`cancel ${file} --yes`)).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("stowage rm"),
    });
    expect(await machine.run(`info ${file}`)).toMatchObject({ code: 0 });
  });

  test("takes the key of a profile or of an option, and sends none to another URL", async () => {
    const { key, teamId, stowage } = await newTeam();
    const other = await newTeam();
    const machine = new Machine(other.key);
    const whoami = (...args: string[]) => machine.json(["whoami", ...args]);
    await machine.run(["login", url, "--profile", "radio"], { input: `${key}\n` });
    const me = { url, kind: "secret", role: null, scopes: expect.any(Array), expiresAt: expect.any(String) };
    expect(await whoami()).toEqual({ ...me, teamId: other.teamId });
    expect(await whoami("--profile", "radio")).toEqual({ ...me, teamId });
    expect(await whoami("--url", url, "--key", key)).toMatchObject({ teamId });
    const { key: publicKey } = await stowage.keys.create({ name: "public", isPublic: true });
    expect(await whoami("--key", publicKey)).toEqual({ ...me, kind: "public", teamId, scopes: ["files:upload"] });
    const thief = await scripted(hangUp);
    const refused = await machine.run(["ls", "--url", thief.url]);
    expectFailure(refused, 2, "STOWAGE_KEY belongs to another URL. Use --key.");
    expect(thief.requests).toEqual([]);
    expect(await machine.run("logout --profile radio")).toMatchObject({ code: 0, stderr: "" });
    expect(await machine.run("ls --profile radio")).toMatchObject({ code: 2 });
    expect((await machine.run("ls --profile ../radio")).code).toBe(2);
    await stowage.usage();
  });

  test("shows requests with --debug without secrets, and no progress or notice with --quiet", async () => {
    const { machine } = await newMachine();
    machine.write("large.bin", bytesOf(9 * MEBIBYTE));
    symlinkSync("large.bin", machine.path("link.bin"));
    const args = ["upload", machine.folder, "--json", "--debug"];
    const sent = await machine.run(args);
    const { id } = JSON.parse(sent.stdout);
    const got = await machine.run(`get ${id} -o got.bin --debug`);
    expect(sent.stderr).toContain(`PATCH ${url}/docs/v1/uploads/resumable/${id}.***: 204`);
    expect(got.stderr).toMatch(/GET \S+: 200, /);
    for (const { stderr } of [sent, got]) expect(stderr).not.toMatch(/[0-9a-f]{24}\.[0-9a-f]{32}|Signature|stow_sk/);
    const quiet = await machine.run(["upload", machine.folder, "--quiet"], { isTerminal: true });
    expect(quiet).toMatchObject({ code: 0, stderr: "" });
  });

  test("completes commands, options, values, and IDs in bash, and prints scripts for zsh and fish", async () => {
    const { team, machine } = await newMachine();
    const id = await upload(team, "a.txt", "text");
    const { stdout } = await machine.run("completion bash");
    const lines = [
      "stowage up",
      "stowage keys cr",
      "stowage keys create --pub",
      "stowage ls --js",
      "stowage ls --status p",
      "stowage keys create a --scopes files:read,users:",
      "stowage users update --role vi",
      "stowage completion f",
      "stowage info ",
    ];
    // The command that the script calls, as `stowage` is not installed here.
    const script = `${stdout}
      stowage() { [ "$*" = "completion --ids files" ] && echo ${id}; }
      while IFS= read -r COMP_LINE; do
        COMP_POINT=\${#COMP_LINE}; COMP_WORDS=($COMP_LINE); _stowage; echo "\${COMPREPLY[*]}"
      done`;
    const { stdout: completed } = spawnSync("bash", ["-c", script], {
      encoding: "utf8",
      input: `${lines.join("\n")}\n`,
    });
    const found = linesOf(completed);
    expect(found.slice(0, -1)).toEqual([
      "upload uploads",
      "create",
      "--public",
      "--json",
      "pending processing",
      "read write",
      "viewer",
      "fish",
    ]);
    expect(found.at(-1)?.split(" ")).toContain(id);
    // Asks the service once a minute, and prints nothing if it can't be reached.
    expect(await machine.run("completion --ids files")).toMatchObject({ code: 0, stdout: `${id}\n` });
    await team.stowage.files.delete(id);
    expect((await machine.run("completion --ids files")).stdout).toBe(`${id}\n`);
    const away = await machine.run("completion --ids files", { env: { STOWAGE_URL: "http://127.0.0.1:9" } });
    expect(away).toEqual({ code: 0, stdout: "\n", stderr: "" });
    const zsh = await new Machine().run("completion zsh");
    expect(zsh.stdout).toContain("compdef _stowage stowage");
    // They are special in zsh.
    expect(zsh.stdout).not.toMatch(/\b(path|words)=/);
    const fish = await new Machine().run("completion fish");
    expect(fish.stdout).toContain(
      "__fish_seen_subcommand_from keys; and not __fish_seen_subcommand_from ls show create update rotate rm",
    );
  });

  test("lists files after the end and before the start of a day", async () => {
    const service = await scripted(json(200, { data: [] }));
    await new Machine("key", service.url).run("ls --after 2026-11-01 --before 2026-11-05");
    const query = new URL(service.requests[0]?.url ?? "", service.url).searchParams;
    expect(query.get("createdAfter")).toBe("2026-11-01T23:59:59.999Z");
    expect(query.get("createdBefore")).toBe("2026-11-05T00:00:00.000Z");
  });

  test("shows the attempts of a redelivered event field by field", async () => {
    const attempts = [{ at: "2026-11-01", httpStatus: 500 }];
    const service = await scripted(json(200, { data: { _id: "1", attempts, attempt: { httpStatus: 500 } } }));
    const { stdout } = await new Machine("key", service.url).run("webhooks redeliver 1");
    expect(linesOf(stdout)).toEqual([
      "_id\t1",
      "attempts.0.at\t2026-11-01",
      "attempts.0.httpStatus\t500",
      "attempt.httpStatus\t500",
      "id\t1",
    ]);
  });

  test("lists at most --limit items, without tokens", async () => {
    const { key, stowage } = await newTeam();
    const { key: token } = await stowage.keys.create({ name: "Player" });
    for (const json of [[], ["--json"]]) {
      const { stdout } = await new Machine(key).run(["keys", "--limit", "1", ...json]);
      expect(linesOf(stdout)).toHaveLength(1);
      expect(stdout).toContain("Player");
      expect(stdout).not.toContain(token);
    }
  });

  test("that deletes shows with --dry-run what it would delete, and deletes nothing", async () => {
    const { machine, ids, doomed } = await prepared();
    const { file, webhook } = ids;
    const { id: key } = await machine.json("keys create Old");
    const { _id: link } = await machine.json(`link ${file}`);
    for (const [command, id = ""] of [
      ["rm", doomed[0]],
      ["keys rm", key],
      ["webhooks rm", webhook],
      ["unlink", link],
      ["users rm", (await machine.json("users --email ada@example.com"))._id],
    ]) {
      const shown = await machine.run(`${command} ${id} --dry-run`);
      expect(shown, command).toEqual({ code: 0, stdout: `${id}\twould be deleted\n`, stderr: "" });
      expectFailure(await machine.run(`${command} ${id}`), 2, /Add --yes to do so without a question/);
      expect(await machine.run(`${command} ${id} --yes`), command).toMatchObject({ code: 0, stderr: "" });
    }
    for (const command of ["rm", "users rm", "webhooks rm"])
      expectFailure(await machine.run(`${command} ${UNKNOWN} --dry-run`), 4, `${UNKNOWN}: Not found.`);
  });

  test("for folders, holds, retention, keys, users and profiles shows and changes them", async () => {
    const { team, machine } = await newMachine();
    const id = await upload(team, "a.txt", "text");
    await machine.run(`mv ${id} --folder podcast/2026`);
    expect(await machine.run("folders")).toMatchObject({ code: 0, stdout: "podcast\n" });
    expect(await machine.run("folders ls /podcast/")).toMatchObject({ stdout: "podcast/2026\n" });
    expect((await machine.run("ls podcast/2026/")).stdout).toMatch(/podcast\/2026\/a\.txt\n$/);
    expectFailure(await machine.run("ls podcast --folder other"), 2, /^Give one folder/);
    expect(await machine.json("folders create empty")).toEqual({ folder: "empty" });
    expect((await machine.run("folders mv podcast/2026 archive")).stdout).toBe("archive\tmoved\n");
    expect(await team.stowage.files.get(id)).toMatchObject({ folder: "archive" });
    expect((await machine.run("hold archive/a.txt --reason Case")).stdout).toBe("archive/a.txt\theld\n");
    expectFailure(await machine.run("rm archive/a.txt --yes"), 1, "archive/a.txt: A hold forbids the deletion.");
    expect((await machine.run("folders rm archive --yes")).stdout).toBe("archive\tdeleted, except 1 held file\n");
    expectFailure(await machine.run("release archive/a.txt"), 2, /^Allow the deletion of 1 held file\? Add --yes/);
    const planned = await machine.run("release archive/a.txt --dry-run");
    expect(planned.stdout).toBe("archive/a.txt\twould be released\n");
    expect((await machine.run("release archive/a.txt --yes")).stdout).toBe("archive/a.txt\treleased\n");
    expect((await machine.run("folders rm archive --yes")).stdout).toBe("archive\tdeleted\n");
    expect(await stored(team)).toEqual([]);
    expect((await machine.run("retention")).stdout).toBe("off\n");
    expectFailure(
      await machine.run("retention 30"),
      2,
      /^Delete each file 30 days after its upload, and older ones soon\?/,
    );
    expect(await machine.run("retention 30 --dry-run")).toEqual({ code: 0, stdout: "", stderr: "" });
    expect((await machine.run("retention")).stdout).toBe("off\n");
    expect((await machine.run("retention 30 --yes")).stdout).toBe("30 days\n");
    expect(await machine.json("retention")).toEqual({ days: 30 });
    expect((await machine.run("retention off")).stdout).toBe("off\n");
    expectFailure(await machine.run("retention 0"), 2);
    const user = await machine.json("users create ada@example.com --first Ada", "correct horse battery\n");
    const shown = await machine.json(`users show ${user._id}`);
    expect(shown).toMatchObject({ email: "ada@example.com" });
    expect(shown.password).toBeUndefined();
    await team.stowage.users.update(user._id, { firstName: "A\u00ad\u200bda" });
    const exported = await team.stowage.users.export(user._id);
    expect(await machine.json("users export ada@example.com")).toEqual(exported);
    expect(JSON.parse((await machine.run(`users export ${user._id}`)).stdout)).toEqual(exported);
    const key = await machine.json("keys create Player");
    expect((await machine.json(`keys show ${key.id}`)).key).toBeUndefined();
    expect(await collect(team.stowage.events.list({ type: "apikey.revealed" }))).toEqual([]);
    expect((await machine.json(`keys show ${key.id} --reveal`)).key).toBe(key.key);
    await machine.run(["login", url, "--profile", "radio"], { input: `${team.key}\n` });
    expect(await machine.json("profiles")).toEqual({ profile: "radio", url, isUsed: false });
    const env = { STOWAGE_PROFILE: "radio", STOWAGE_KEY: "" };
    expect((await machine.run("profiles", { env })).stdout).toBe(`radio\t${url}\tused\n`);
    expect((await machine.run("whoami --json", { env })).code).toBe(0);
  });

  test("that sets a retention shows with --dry-run the files that are older, and what a hold keeps", async () => {
    const file = (name: string, digit: string) => ({ _id: digit.repeat(24), folder: "", name });
    const service = await scripted((request, response) => {
      const { url = "" } = request;
      const hold = url.includes("2".repeat(24)) ? { reason: "Case" } : null;
      const data = url.endsWith("/metadata") ? { hold } : [file("a.mp3", "1"), file("b.mp3", "2")];
      response.end(JSON.stringify({ data }));
    });
    const { code, stdout } = await new Machine("key", service.url).run("retention 30 --dry-run");
    expect([code, stdout]).toEqual([0, "a.mp3\twould delete\nb.mp3\theld, would stay: Case\n"]);
    const { searchParams } = new URL(service.requests[0]?.url ?? "", url);
    const age = Date.now() - Date.parse(searchParams.get("createdBefore") ?? "");
    expect(Math.round(age / 86_400_000)).toBe(30);
  });

  test("for transcripts sets, gets and deletes them", async () => {
    const { team, machine } = await newMachine();
    const id = await upload(team, "a.txt", "text");
    const vtt = "WEBVTT\n\n00:00.000 --> 00:01.000\nGood evening.\n";
    machine.write("a.vtt", Buffer.from(vtt));
    machine.write("none.vtt", Buffer.from("a"));
    machine.write("a.srt", Buffer.from("1\n00:00:00,000 --> 00:00:01,000\na\n"));
    expectFailure(await machine.run("transcript get a.txt"), 4, "a.txt: No transcript.");
    expect((await machine.run("transcript put a.vtt a.txt --language en")).stdout).toBe("a.txt\ttranscript set\n");
    expect(await machine.run(`transcript get ${id}`)).toMatchObject({ code: 0, stdout: vtt });
    expect((await team.stowage.files.get(id)).transcript).toMatchObject({ language: "en", size: vtt.length });
    expect((await machine.run("transcript put a.srt a.txt")).stdout).toBe("a.txt\ttranscript set\n");
    expect((await machine.run(`transcript get ${id}`)).stdout).toBe("WEBVTT\n\n00:00.000 --> 00:01.000\na\n");
    expectFailure(
      await machine.run("transcript put none.vtt a.txt"),
      1,
      /^none\.vtt: Line 1: Must begin with `WEBVTT`\./,
    );
    await machine.run("transcript put a.vtt a.txt --language en");
    expectFailure(await machine.run("transcript put a.txt a.vtt"), 1, /^No such file here: a\.txt\. Name the local/);
    expect(await machine.json("transcript get a.txt")).toEqual({ id, transcript: vtt });
    const shown = await machine.run("transcript rm a.txt --dry-run");
    expect(shown).toMatchObject({ code: 0, stdout: "a.txt\ttranscript would be deleted\n" });
    expectFailure(await machine.run("transcript rm a.txt"), 2, /^Delete the transcript of 1 file\? Add --yes/);
    expect(await machine.json("transcript rm a.txt --yes")).toEqual({ id, transcript: null });
    expectFailure(await machine.run("transcript rm a.txt --yes"), 4, "a.txt: No transcript.");
    for (const args of [`get ${UNKNOWN}`, `rm ${UNKNOWN} --yes`])
      expectFailure(await machine.run(`transcript ${args}`), 4, `${UNKNOWN}: Not found.`);
    expect((await team.stowage.files.get(id)).transcript).toBeNull();
  });

  test("for searches finds what is said, and marks it on a terminal", async () => {
    const { team, machine } = await newMachine();
    const { files } = team.stowage;
    const cues = ["<v Ada>The night shift", "<v Ada>begins. Take the lock.", "<v Ben>Which lock?"];
    const times = ["00:00.000 --> 00:03.500", "00:03.500 --> 00:06.000", "01:02:03.900 --> 01:02:05.000"];
    const vtt = ["WEBVTT", ...cues.map((text, i) => `${times[i]}\n${text}`)].join("\n\n");
    const { id } = await files.upload(new File(["a"], "a.txt"), { properties: { folder: "podcast" } });
    const { id: other } = await files.upload(new File(["b"], "b.txt"));
    for (const one of [id, other]) await files.setTranscript(one, vtt);
    await vi.waitFor(
      async () => {
        const page = await files.searchTranscripts("lock");
        expect([page.isComplete, page.items.length]).toEqual([true, 2]);
      },
      { timeout: 20_000 },
    );
    const found = await machine.run("search lock --folder podcast", { isTerminal: true });
    expect(found).toMatchObject({ code: 0, stderr: "" });
    expect(found.stdout.replaceAll("\u001b[1m", "<").replaceAll("\u001b[22m", ">").split("\n")).toEqual([
      `podcast/a.txt  ${id}`,
      "    0:03  Ada: Take the <lock>.",
      " 1:02:03  Ben: Which <lock>?",
      "",
    ]);
    const line = `${id}\t0\tAda\tThe night shift begins.\tpodcast/a.txt\n`;
    for (const args of ["search SHIFT begins --under podcast", "search begins shi --file podcast/a.txt"])
      expect(await machine.run(args), args).toEqual({ code: 0, stdout: line, stderr: "" });
    expect(await machine.json(["search", '"the lock"', "--file", other])).toMatchObject({
      file: { id: other },
      matchCount: 1,
      matches: [{ turns: [{ speaker: "Ada", text: "Take the lock.", marks: [[5, 13]] }] }],
    });
    const first = await machine.run("search lock --limit 1");
    expect(linesOf(first.stdout)).toHaveLength(2);
    expect(first).toMatchObject({ code: 0, stderr: "stowage: More files match. Add --limit 10 to see them.\n" });
    const none = { code: 0, stdout: "", stderr: "stowage: No transcript has these words.\n" };
    expect(await machine.run(`search lock --uploaded-by ${UNKNOWN}`)).toEqual(none);
    expectFailure(await machine.run("search lock --file c.txt"), 4, "c.txt: Not found.");
  });

  test.each([
    [{ isComplete: false, isFull: false }, "The search is still reading transcripts, so some may be missing."],
    [{ isComplete: false, isFull: true }, "The search has only the transcripts of the newest files:"],
  ])("for searches says if transcripts may be missing: %j", async (state, notice) => {
    const service = await scripted(json(200, { message: "", data: [], ...state }));
    const machine = new Machine("key", service.url);
    const { code, stdout, stderr } = await machine.run("search lock");
    expect([code, stdout]).toEqual([0, ""]);
    expect(linesOf(stderr)[1]).toContain(`stowage: ${notice}`);
    expect(linesOf((await machine.run("search lock --json")).stderr).map((one) => JSON.parse(one))[1]).toEqual({
      notice: expect.stringContaining(notice),
    });
  });

  test("is in a group of the overview", async () => {
    const { stdout } = await new Machine().run("--help");
    for (const heading of ["Files:", "Sharing:", "Team:", "Operator:", "This machine:"])
      expect(stdout).toContain(`\n${heading}\n`);
  });

  test("describes its arguments with --help, with examples", async () => {
    const machine = new Machine();
    const overview = await machine.run("--help");
    expect(overview).toMatchObject({ code: 0, stderr: "" });
    for (const name of new Set(
      commandsOf({ file: "", doomed: "", event: "", webhook: "" }).map((one) => one.split(" ")[0] ?? ""),
    )) {
      expect(overview.stdout).toContain(`  ${name} `);
      const { code, stdout } = await machine.run(`${name} --help`);
      expect(code).toBe(0);
      expect(stdout).toContain(`Usage: stowage ${name}`);
      expect(stdout).toContain("Examples:\n  stowage");
    }
  });
});

test.each(["users create", "users invite"])(
  "stowage %s --help names the default role, which the API has",
  async (command) => {
    const { stdout } = await new Machine().run(`${command} --help`);
    expect(stdout.replace(/\s+/g, " ")).toContain(`(default: ${DEFAULT_ROLE})`);
  },
);

describe("stowage upload", () => {
  test("sends folders, skips sent files, and resends changed and deleted ones", async () => {
    const { team, machine } = await newMachine();
    const names = ["in/a.bin", "in/b.bin", "in/deeper/c.bin"];
    for (const name of names) machine.write(name, bytesOf(3000));
    const first = await machine.run("upload in in/a.bin");
    expect(first).toMatchObject({ code: 0, stderr: "stowage: 3 uploaded.\n" });
    const printed = linesOf(first.stdout).map((line) => line.split("\t")[1]);
    expect(printed.toSorted()).toEqual(names.map((name) => join(name)));
    const files = await stored(team);
    expect(files.map((file) => file.originalName).toSorted()).toEqual(["a.bin", "b.bin", "c.bin"]);
    machine.write("in/a.bin", bytesOf(3001));
    await team.stowage.files.delete(files.find((file) => file.originalName === "b.bin")?._id ?? "");
    const second = await machine.run("upload in --json");
    const rows = linesOf(second.stdout).map((line) => JSON.parse(line));
    expect(rows.filter(({ skipped }) => skipped)).toMatchObject([{ path: machine.path("in/deeper/c.bin") }]);
    expect(rows).toHaveLength(3);
    expect(await stored(team)).toHaveLength(4);
  });

  test("keeps folders, which get --folder restores, and sets properties", async () => {
    const { team, machine } = await newMachine();
    for (const name of ["a.bin", "2026/a.bin", "2026/ü/b.bin"]) machine.write(`show/${name}`, bytesOf(900));
    machine.write("large.bin", bytesOf(RESUMABLE_BYTES));
    const given = ["--folder", "/podcast/", "--tag", "x,y", "--metadata", '{"season":2}'];
    expect(await machine.run(["upload", "show", ...given])).toMatchObject({ code: 0 });
    expect(await machine.run(["upload", "large.bin", ...given, "--reference", "r"])).toMatchObject({ code: 0 });
    const files = await stored(team);
    expect(files.map(({ folder, name }) => `${folder}/${name}`).toSorted()).toEqual([
      "podcast/large.bin",
      "podcast/show/2026/a.bin",
      "podcast/show/2026/ü/b.bin",
      "podcast/show/a.bin",
    ]);
    expect(files.every(({ tags }) => tags.join() === "x,y")).toBe(true);
    const [large] = await collect(team.stowage.files.list({ reference: "r" }));
    expect((await team.stowage.files.get(large?._id ?? "")).metadata).toEqual({ season: 2 });

    // The newest file with a name in a folder keeps it, and older ones get their IDs as well.
    const id = await upload(team, "a.bin", "second");
    await machine.run(`mv ${id} --folder podcast/show/2026`);
    expect(await machine.run("get --folder podcast/show -o out")).toMatchObject({ code: 0, stderr: "" });
    const older = files.find(({ folder, name }) => `${folder}/${name}` === "podcast/show/2026/a.bin");
    for (const [name, got] of [
      ["a.bin", "a.bin"],
      ["2026/a.bin", `2026/${older?._id}-a.bin`],
      ["2026/ü/b.bin", "2026/ü/b.bin"],
    ])
      expect(readFileSync(machine.path(`out/show/${got}`))).toEqual(readFileSync(machine.path(`show/${name}`)));
    expect(readFileSync(machine.path("out/show/2026/a.bin"), "utf8")).toBe("second");
    const again = await machine.run("get --folder podcast/show -o out");
    expect(linesOf(again.stdout).every((line) => line.endsWith("already there"))).toBe(true);
    expect(await machine.run("get --folder none")).toMatchObject({ code: 4 });
    for (const [args, path] of [
      [`${id} -o new/`, "new/a.bin"],
      [`${id} -o deep/er/b.bin`, "deep/er/b.bin"],
      [`${id} ${older?._id} -o both`, `both/a.bin`],
    ] as const) {
      const { stdout } = await machine.run(`get ${args}`);
      expect(linesOf(stdout)[0]).toBe(path);
      expect(existsSync(machine.path(path))).toBe(true);
    }
    mkdirSync(machine.path("elsewhere"));
    mkdirSync(machine.path("linked"));
    symlinkSync(machine.path("elsewhere"), machine.path("linked/show"));
    expectFailure(await machine.run("get --folder podcast/show -o linked"), 1, /is not a folder/);
    expect(readdirSync(machine.path("elsewhere"))).toEqual([]);
    for (const args of ["get", `get ${id} --folder a`, "get --folder podcast -o -"])
      expect((await machine.run(args)).code, args).toBe(2);

    machine.write("show/2026/new.bin", bytesOf(100));
    expect(linesOf((await machine.run("sync show --folder podcast")).stdout)).toHaveLength(4);
    const listed = await machine.run("ls --under podcast/show/2026 --sort name");
    expect(linesOf(listed.stdout).map((line) => line.split("\t").at(-1))).toEqual([
      // The newest one had other contents, so it was sent again.
      ...Array(3).fill("podcast/show/2026/a.bin"),
      "podcast/show/2026/ü/b.bin",
      "podcast/show/2026/new.bin",
    ]);
  });

  test("reports the options that it does not apply to a file that it has sent before", async () => {
    const { team, machine } = await newMachine();
    machine.write("a.bin", "bytes");
    const notApplied = async (args: string) => (await machine.json(args)).notApplied;
    expect(await notApplied("upload a.bin --folder old --tag x")).toEqual([]);
    expect(await notApplied("upload a.bin --folder old --tag x")).toEqual([]);
    expect(await notApplied("upload a.bin")).toEqual([]);
    const options = ["--folder", "new", "--tag", "y", "--reference", "r", "--metadata", '{"season":2}'];
    const { stdout } = await machine.run(["upload", "a.bin", ...options]);
    expect(stdout).toMatch(/\talready sent\tnot applied: --folder, --tag, --reference, --metadata \(use `stowage mv`/);
    expect(await stored(team)).toHaveLength(1);
  });

  test("tags, moves and renames files, and reports those that it can't change", async () => {
    const { team, machine } = await newMachine();
    const ids = [await upload(team, "a", "a"), await upload(team, "b", "b")];
    const [id = ""] = ids;
    const tagged = await machine.run(["tag", "x", ...ids, UNKNOWN]);
    expect(tagged).toMatchObject({ code: 4, stderr: `stowage: ${UNKNOWN}: Not found.\n` });
    expect(linesOf(tagged.stdout)).toEqual(ids.map((id) => `${id}\ttagged`));
    await machine.run(`tag y,z ${id}`);
    expect((await team.stowage.files.get(id)).tags).toEqual(["x", "y", "z"]);
    await machine.run(`untag x,y,z ${id}`);
    const moved = await machine.run(["mv", id, "--name", "new name", "--folder", "f"]);
    expect(moved).toMatchObject({ code: 0, stdout: `${id}\tf/new name\n` });
    expect((await machine.run("ls --tag x")).stdout).toMatch(/^[^\n]*\tb\n$/);
    await team.stowage.files.setTranscript(id, "WEBVTT\n\n00:00.000 --> 00:01.000\nHm.\n");
    expect((await machine.run("ls --has-transcript")).stdout).toMatch(/^[^\n]*\tf\/new name\n$/);
    expect((await machine.run("ls --search NAME")).stdout).toMatch(/^[^\n]*\tf\/new name\n$/);
    for (const args of [`mv ${ids.join(" ")}`, `mv ${ids.join(" ")} --name c`, "upload a --metadata []"])
      expectFailure(await machine.run(args), 2);
    expectFailure(await machine.run(`mv ${id} --name ..`), 1, /^\w+: The name must be a file name of /);
  });

  test("deletes the files that exist, and reports the others", async () => {
    const { team, machine } = await newMachine();
    const ids = [await upload(team, "a", "a"), await upload(team, "b", "b")];
    const removed = await machine.run(["rm", ids[0] ?? "", UNKNOWN, ids[1] ?? "", "--yes"]);
    expect(removed).toMatchObject({ code: 4, stderr: `stowage: ${UNKNOWN}: Not found.\n` });
    expect(linesOf(removed.stdout)).toEqual(ids.map((id) => `${id}\tdeleted`));
    expect(await machine.run(`unlink ${UNKNOWN} ${UNKNOWN} --yes`)).toMatchObject({ code: 4, stdout: "" });
    expect(await stored(team)).toEqual([]);
  });

  test("sends stdin under a name, and rejects empty input", async () => {
    const { team, machine } = await newMachine();
    const sent = await machine.run("upload - --name a.txt --wait --json", { input: "la la" });
    expect(sent).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(sent.stdout)).toMatchObject({ path: "-", size: 5, failure: null });
    expect(await stored(team)).toMatchObject([{ originalName: "a.txt", size: 5 }]);
    for (const args of [["-"], ["-", "a.bin"], ["a.bin", "--name", "b"]])
      expect((await machine.run(["upload", ...args])).code, args.join(" ")).toBeGreaterThan(0);
  });

  test.for(isExhaustive ? (["SIGKILL", "SIGINT"] as const) : (["SIGKILL"] as const))(
    "resumes after %s without new options, and resends less than 5.1 MiB",
    async (signal, { annotate }) => {
      const team = await newTeam();
      // Stalls after the first parts, so that bytes are left to send.
      const passedBytes = 23 * MEBIBYTE;
      const line = await openLine("stall", passedBytes);
      const machine = new Machine(team.key, line.url);
      const bytes = bytesOf(40 * MEBIBYTE);
      machine.write("large.bin", bytes);
      const first = machine.start("upload large.bin");
      // What the service has received, it may still be storing.
      const storedBytes = async () => (await collect(team.stowage.unfinishedUploads.list()))[0]?.offset ?? 0;
      const hasStalled = async () => line.faults > 0 && (await storedBytes()) >= 20 * MEBIBYTE;
      await vi.waitUntil(hasStalled, { timeout: 60_000, interval: 50 });
      first.child.kill(signal);
      const ended = await first.ended;
      if (signal === "SIGINT") {
        expect(ended).toMatchObject({ code: 130, stdout: "" });
        expect(linesOf(ended.stderr)).toEqual(["stowage: Interrupted. Run the same command again to resume."]);
      }
      line.stopFaults();
      const before = line.sentBytes;
      const { id, notApplied } = await machine.json("upload large.bin --tag late");
      expect(notApplied).toEqual(["--tag"]);
      expect(await team.stowage.files.get(id)).toMatchObject({ status: "completed", sha256: sha256(bytes) });
      expect(await stored(team)).toHaveLength(1);
      const twice = line.sentBytes - before - (bytes.length - passedBytes);
      await annotate(`${signal}: ${(twice / MEBIBYTE).toFixed(2)} MiB sent twice`);
      expect(twice).toBeLessThan(5.1 * MEBIBYTE);
    },
  );

  test("stores a small file once if it is killed before the response, with a journal that only its owner can read", async () => {
    const team = await newTeam();
    const line = await openLine("drop the answer", 50_000);
    const machine = new Machine(team.key, line.url);
    machine.write("other.bin", "bytes");
    await machine.run("upload other.bin");
    const journal = machine.path(`state/stowage/${readdirSync(machine.path("state/stowage"))[0]}`);
    // A power failure may leave half a line, which must not swallow the next.
    appendFileSync(journal, '["cut sh');
    machine.write("small.bin", bytesOf(60_000));
    const first = machine.start("upload small.bin");
    await vi.waitUntil(() => line.faults > 0, { timeout: 60_000 });
    first.child.kill("SIGKILL");
    await first.ended;
    expect(statSync(journal).mode & 0o777).toBe(0o600);
    expect(statSync(machine.path("state/stowage")).mode & 0o777).toBe(0o700);
    line.stopFaults();
    expect(await machine.run("upload small.bin")).toMatchObject({ code: 0, stderr: "" });
    expect(await stored(team)).toHaveLength(2);
  });

  test("shows progress bars with speed and time left on a terminal", async () => {
    const { machine } = await newMachine();
    machine.write("a.bin", bytesOf(70_000));
    const { code, stdout } = await machine.start("upload a.bin", { isTerminal: true }).ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(/a\.bin +\[[#-]{20}\] +\d+% +[\d.]+ k?M?B\/s +[\d:-]+/);
    expect(linesOf(stdout).at(-1)).toMatch(/[0-9a-f]{24} {2}a\.bin$/);
  });

  test("works with a public key, which can't read files", async () => {
    const team = await newTeam();
    const { key } = await team.stowage.keys.create({ name: "public", isPublic: true });
    const machine = new Machine(key);
    machine.write("a.bin", bytesOf(500));
    expect(await machine.run("upload a.bin")).toMatchObject({ code: 0, stderr: "" });
    const second = await machine.run("upload a.bin");
    expect(second.stdout).toContain("already sent");
    expect(await stored(team)).toHaveLength(1);
    machine.write("b.bin", bytesOf(500));
    expect(await machine.run("upload b.bin --wait")).toMatchObject({ code: 0, stderr: "" });
    // Only of its own uploads, a public key may read the status. Others without the scope may read none.
    const blind = await team.stowage.keys.create({ name: "blind", scopes: ["files:upload"] });
    const other = new Machine(blind.key);
    other.write("c.bin", bytesOf(500));
    const waiting = await other.run("upload c.bin --wait");
    expect(waiting.code).toBe(0);
    expect(linesOf(waiting.stderr)).toEqual([expect.stringContaining("This key can't read whether it was processed.")]);
  });

  test("sends the readable files, and reports links and missing, empty, or unreadable files", async () => {
    const { machine } = await newMachine();
    for (const name of ["in/a.bin", "in/deeper/c.bin", "in/z.bin"]) machine.write(name, bytesOf(100));
    // The name is not valid UTF-8, so the file can't be opened again, not even by root.
    writeFileSync(Buffer.concat([Buffer.from(machine.path("in/b")), Buffer.from([0xff])]), "lost");
    symlinkSync("a.bin", machine.path("in/link.bin"));
    symlinkSync("..", machine.path("in/up"));
    for (const name of ["empty.bin", "in/empty.bin", "in/.hidden", "in/.git/config"]) machine.write(name, "");
    const { code, stdout, stderr } = await machine.run("upload in /dev/null gone.bin empty.bin");
    expect(code).toBe(1);
    const problems = [
      "Skipped in/.git: it is hidden.",
      "Skipped in/.hidden: it is hidden.",
      "Skipped in/empty.bin: it is empty.",
      "Skipped in/link.bin: it is a link.",
      "Skipped in/up: it is a link.",
      "in/b\ufffd does not exist.",
      "/dev/null is neither a file nor a folder.",
      "gone.bin does not exist.",
      "empty.bin is empty (0 bytes).",
    ];
    expect(linesOf(stderr).at(-1)).toBe("stowage: 3 uploaded, 4 failed.");
    expect(linesOf(stderr).slice(0, -1).toSorted()).toEqual(
      problems.map((problem) => `stowage: ${problem}`).toSorted(),
    );
    expect(linesOf(stdout)).toHaveLength(3);
    expect(await machine.run("upload in/link.bin")).toMatchObject({ code: 0, stderr: "" });
  });

  test("resends files that changed in place, and skips those with another modification time only", async () => {
    const { team, machine } = await newMachine();
    const [name, other, large] = ["a.bin", "b.bin", "large.bin"];
    const change = (file: string, content: string | Uint8Array, date = "2026-01-01") =>
      utimesSync(machine.write(file, content), new Date(), new Date(date));
    const bytes = bytesOf(9_000_000);
    change(large, bytes);
    change(name, "bytes");
    await machine.run("upload a.bin large.bin");
    change(name, "other", "2026-01-02");
    change(other, "bytes");
    expect((await machine.run("upload a.bin b.bin")).stdout).not.toContain("already sent");
    expect(await stored(team)).toHaveLength(4);
    change(name, "other", "2026-01-03");
    change(large, bytes, "2026-01-03");
    for (const _ of [1, 2])
      expect((await machine.run("upload a.bin b.bin large.bin")).stdout.match(/already sent/g)).toHaveLength(3);
    // The modification time stays.
    change(name, "longer", "2026-01-03");
    expect((await machine.run("upload a.bin")).stdout).not.toContain("already sent");
  });

  test("resends a file whose stored bytes are damaged", async () => {
    let digest = sha256("bytes");
    const { machine, posts } = await receiving(() => ({ sha256: digest, failure: null, status: "completed" }));
    expect((await machine.run("upload a.bin")).code).toBe(0);
    expect((await machine.run("upload a.bin")).stdout).toContain("already sent");
    digest = ZEROS;
    expect((await machine.run("upload a.bin")).stdout).not.toContain("already sent");
    expect(posts()).toHaveLength(2);
  });

  test("fails if the file changes during the upload", async () => {
    const { machine } = await receiving(Object, () => appendFileSync(path, "more"));
    const path = machine.path("large.bin");
    const { size, mtimeMs } = statSync(path);
    const file = { path, size, changedAt: mtimeMs };
    const { signal } = new AbortController();
    expect(await openFile(file, signal)).toMatchObject({ source: path });
    expectFailure(await machine.run("upload large.bin"), 1, "large.bin: The file changed during the upload.");
    await expect(openFile(file, signal)).rejects.toThrow("The file changed during the upload.");
    await expect(openFile(file, AbortSignal.abort(new Error("enough")))).rejects.toThrow("enough");
  });

  test.each([
    ["audio_unreadable", "a.bin", 1],
    ["retries_exhausted", "large.bin", 1],
    ["bytes_altered", "large.bin", 6],
  ])("reports the processing failure %s of %s with --wait, and exits with %i", async (code, name, expected) => {
    const failure = { code, message: `Failed: ${code}.` };
    const { machine } = await receiving(() => ({ sha256: null, failure, status: "failed" }));
    const stdout = `1\t${name}\tprocessing failed: ${failure.message}\n`;
    expect(await machine.run(`upload ${name} --wait`)).toMatchObject({ code: expected, stdout });
  });

  test("names the files that will have no waveform with --wait", async () => {
    const { machine } = await newMachine();
    machine.write("a.m4a", sample("tone.m4a"));
    machine.write("b.mp3", sample("tone-vbr.mp3"));
    machine.write("c.txt", "text");
    const { stdout } = await machine.run("upload a.m4a b.mp3 c.txt --wait --parallel 1");
    const lines = linesOf(stdout).map((line) => line.split("\t").slice(1));
    expect(lines).toEqual([["a.m4a", "no waveform: the service can't decode MPEG-4/AAC in M4A"], ["b.mp3"], ["c.txt"]]);
  });

  test("stores small files once that three runs send at the same time", async () => {
    const { team, machine } = await newMachine();
    for (let count = 0; count < 20; count++) machine.write(`in/${count}.bin`, bytesOf(100_000));
    const runs = await Promise.all([1, 2, 3].map(() => machine.run("upload in")));
    for (const { code, stdout, stderr } of runs) {
      expect({ code, stderr }).toEqual({
        code: 0,
        stderr: expect.stringMatching(/^stowage: [^\n]*20? uploaded|already sent/),
      });
      expect(linesOf(stdout)).toHaveLength(20);
    }
    expect(await stored(team)).toHaveLength(20);
  });

  test("waits while another run uploads a large file, and then skips it", async () => {
    const { team, machine } = await newMachine();
    const path = machine.write("large.bin", Buffer.alloc(9_000_000));
    const { size, mtimeMs } = statSync(path);
    const file = { path, size, changedAt: mtimeMs };
    const other = new Journal(machine.path("state/stowage"), `${url}\n${team.teamId}`);
    const journal = machine.path(`state/stowage/${readdirSync(machine.path("state/stowage"))[0]}`);
    await other.claim(file, new AbortController().signal, () => {});
    const run = machine.run("upload large.bin");
    const claims = () => readFileSync(journal, "utf8").match(/"claim"/g)?.length;
    await vi.waitUntil(() => claims() === 2, { timeout: 60_000 });
    const { id } = await team.stowage.files.upload(path);
    other.save(file, { id, sha256: sha256(Buffer.alloc(9_000_000)) });
    other.unclaim(file);
    const { code, stdout, stderr } = await run;
    expect({ code, stdout }).toEqual({ code: 0, stdout: `${id}\tlarge.bin\talready sent\n` });
    expect(stderr).toMatch(/^stowage: .*waiting for another upload of this file \(process \d+\)\.\n$/);
    other.close();
  });

  test("lets the service compare checksums, and does not wait for processing", async () => {
    const { machine, posts } = await receiving(() => ({ sha256: null, failure: null, status: "pending" }));
    expect(await machine.run("upload a.bin large.bin --parallel 1")).toMatchObject({ code: 0 });
    const [small, large] = posts().map(({ headers }) => headers);
    expect(small?.["repr-digest"]).toBe(`sha-256=:${createHash("sha256").update("bytes").digest("base64")}:`);
    expect(large?.["upload-metadata"]).toContain(`sha256 ${btoa(sha256(Buffer.alloc(9_000_000)))}`);
  });

  test.each([
    [500, 1, "a.bin: "],
    [520, 5, "a.bin: "],
    [400, 6, "a.bin: Checksum mismatch. Upload it again."],
  ])(
    "sends the other files if the service responds %i to one, and exits with %i",
    async (status, expected, problem) => {
      let count = 0;
      const { machine } = await receiving(Object, (request, response) => {
        // Server errors are retried four times.
        if (++count <= (status === 400 ? 1 : 5))
          (status === 400 ? refusal(status, "digest_mismatch") : refusal(status, "internal", { "Retry-After": "0" }))(
            request,
            response,
          );
      });
      const run = await machine.run("upload a.bin b.bin large.bin --parallel 1");
      expect(run).toMatchObject({ code: expected, stdout: "1\tb.bin\n1\tlarge.bin\n" });
      expect(linesOf(run.stderr)).toEqual([expect.stringContaining(problem), "stowage: 2 uploaded, 1 failed."]);
    },
  );

  test("names the remedy if it can't write its journal", async () => {
    const { machine } = await newMachine();
    machine.write("a.bin", "bytes");
    machine.write("state", "a file");
    expectFailure(await machine.run("upload a.bin"), 1, /^.*state.* set XDG_STATE_HOME to a writable folder\.$/);
  });

  test.skipIf(process.platform === "win32")("keeps the whole name of a file with a backslash", async () => {
    const { team, machine } = await newMachine();
    machine.write("back\\slash.txt", "bytes");
    expect(await machine.run(["upload", "back\\slash.txt"])).toMatchObject({ code: 0, stderr: "" });
    expect((await stored(team)).map((file) => file.originalName)).toEqual(["back_slash.txt"]);
  });

  test("compacts its journal while another run uses it, and both runs keep their lines and claims", async () => {
    const folder = new Machine().path("journal");
    const size = () => statSync(join(folder, readdirSync(folder)[0] ?? "")).size;
    const { signal } = new AbortController();
    const file = { path: "/song.wav", size: 5, changedAt: 1 };
    const other = { ...file, path: "/other.wav" };
    const first = new Journal(folder, "scope");
    await first.claim(other, signal, () => {});
    for (let line = 0; line < 8000; line++) first.save(file, { id: "1", sha256: "a".repeat(64) });
    expect(size()).toBeGreaterThan(MEBIBYTE);
    const second = new Journal(folder, "scope");
    expect(size()).toBeLessThan(2000);
    const onWait = vi.fn();
    const claimed = second.claim(other, signal, onWait);
    first.save(other, { id: "2" });
    first.unclaim(other);
    await claimed;
    expect(onWait).toHaveBeenCalledExactlyOnceWith(process.pid);
    expect([second.find(file).id, second.find(other).id]).toEqual(["1", "2"]);
    for (const journal of [first, second]) journal.close();
  });

  test("leaves no draft of a compacted journal if another run appends a line meanwhile", () => {
    const folder = new Machine().path("journal");
    const file = { path: "/song.wav", size: 5, changedAt: 1 };
    const first = new Journal(folder, "scope");
    for (let line = 0; line < 8000; line++) first.save(file, { id: "1", sha256: "a".repeat(64) });
    const { writeFileSync: write } = fs;
    onTestFinished(() => {
      fs.writeFileSync = write;
      syncBuiltinESMExports();
    });
    fs.writeFileSync = (...args) => {
      write(...args);
      first.save(file, { id: "2" });
    };
    syncBuiltinESMExports();
    const second = new Journal(folder, "scope");
    expect(readdirSync(folder)).toHaveLength(1);
    expect(second.find(file).id).toBe("2");
    for (const journal of [first, second]) journal.close();
  });

  test.skipIf(!existsSync("/dev/full"))("reports a full disk of its journal once, and sends nothing", async () => {
    const { team, machine } = await newMachine();
    machine.write("in/a.bin", "bytes");
    await machine.run("upload in");
    const journal = machine.path(`state/stowage/${readdirSync(machine.path("state/stowage"))[0]}`);
    rmSync(journal);
    symlinkSync("/dev/full", journal);
    machine.write("in/b.bin", "bytes");
    machine.write("in/c.bin", Buffer.alloc(9_000_000));
    const { code, stderr } = await machine.run("upload in");
    expect({ code, lines: linesOf(stderr) }).toEqual({
      code: 1,
      lines: [expect.stringMatching(/\.jsonl can't be written: the disk is full\.$/), "stowage: 3 failed."],
    });
    expect(await stored(team)).toHaveLength(1);
  });

  test("does not resend a file if another server forbids the lookup of its upload", async () => {
    const { machine, posts } = await receiving(() => undefined);
    expect(await machine.run("upload a.bin")).toMatchObject({ code: 0, stderr: "" });
    expectFailure(await machine.run("upload a.bin"), 3);
    expect(posts()).toHaveLength(1);
  });

  test("exits with 1 if files fail for different reasons", async () => {
    const { machine } = await receiving(Object, refusal(400, "digest_mismatch"));
    machine.write("empty.bin", "");
    expect((await machine.run("upload a.bin")).code).toBe(6);
    expect((await machine.run("upload a.bin empty.bin")).code).toBe(1);
  });

  test.each([1, 3])("sends %i files at a time, which all are in flight at once", async (parallel) => {
    const waiting: (() => void)[] = [];
    let most = 0;
    const service = await scripted((request, response) => {
      if (request.method !== "POST") return void response.end(JSON.stringify({ data: [] }));
      waiting.push(() => response.setHeader("Location", "/docs/v1/uploads/1").end("{}"));
      most = Math.max(most, waiting.length);
      // No response until as many requests as possible wait. Another one would arrive within this time.
      if (waiting.length === parallel) setTimeout(() => waiting.splice(0).forEach((respond) => void respond()), 50);
    });
    const machine = new Machine("key", service.url);
    for (let count = 0; count < 6; count++) machine.write(`in/${count}.bin`, "bytes");
    expect((await machine.run(`upload in --parallel ${parallel}`)).code).toBe(0);
    expect(most).toBe(parallel);
    // One request per file, and one for the team.
    expect(service.requests).toHaveLength(7);
  });

  test.each(["0", "65", "1.5", "many"])("rejects --parallel %s", async (parallel) => {
    expectFailure(await new Machine("key", url).run(`upload in --parallel ${parallel}`), 2);
  });

  test("skips sent files if the URL is written in another way", async () => {
    const { machine } = await newMachine();
    machine.write("a.bin", "bytes");
    await machine.run("upload a.bin");
    const again = await machine.run("upload a.bin", { env: { STOWAGE_URL: `${url}/` } });
    expect(again.stdout).toContain("already sent");
  });

  test("sends many files in parallel, each once", async () => {
    const { team, machine } = await newMachine();
    for (let count = 0; count < 80; count++) machine.write(`in/${count}.bin`, `bytes ${count}`);
    const { code, stdout, stderr } = await machine.run("upload in --parallel 64");
    expect({ code, stderr }).toEqual({ code: 0, stderr: "stowage: 80 uploaded.\n" });
    expect(linesOf(stdout)).toHaveLength(80);
    expect(await stored(team)).toHaveLength(80);
  });

  test("stops if the service is unreachable", async () => {
    const { machine, posts } = await receiving(Object, refusal(503, "unavailable", { "Retry-After": "0" }));
    const { code, stderr } = await machine.run("upload a.bin b.bin large.bin --parallel 1");
    expect({ code, lines: linesOf(stderr) }).toEqual({
      code: 5,
      lines: ["stowage: a.bin: Refused: unavailable.", "stowage: 1 failed, 2 not sent."],
    });
    expect(posts()).toHaveLength(5);
  });

  test("stops at a full quota", async () => {
    const { machine, posts } = await receiving(Object, refusal(413, "quota_exceeded"));
    const { code, stderr } = await machine.run("upload a.bin b.bin large.bin --parallel 1");
    expect({ code, last: linesOf(stderr).at(-1) }).toEqual({ code: 1, last: "stowage: 1 failed, 2 not sent." });
    expect(posts()).toHaveLength(1);
  });

  test("reports a rejected key once for many files", async () => {
    const machine = new Machine("stow_sk_wrong");
    for (let count = 0; count < 20; count++) machine.write(`in/${count}.bin`, "bytes");
    const message = "The token is invalid, revoked, or expired. Run `stowage login`, or set STOWAGE_KEY.";
    expectFailure(await machine.run("upload in"), 3, message);
  });
});

describe("stowage sync", () => {
  const pathsOf = async (team: Team) =>
    (await stored(team)).map((file) => `${file.folder}/${file.name}`.normalize("NFC")).toSorted();

  test("sends what the service lacks or has with other contents, and nothing twice without a journal", async () => {
    const { team, machine } = await newMachine();
    const names = ["in/a.bin", "in/deeper/\u0065\u0301.bin", "in/b.bin"];
    for (const name of names) machine.write(name, bytesOf(1000));
    expect((await machine.run("sync in --folder x")).stderr).toBe("stowage: 3 uploaded.\n");
    rmSync(machine.path("state"), { recursive: true });
    const again = await machine.run("sync in --folder /x/");
    expect(again).toMatchObject({ code: 0, stderr: "stowage: 3 already sent.\n" });
    expect(await pathsOf(team)).toEqual(["x/in/a.bin", "x/in/b.bin", "x/in/deeper/\u00e9.bin"]);
    machine.write("in/a.bin", bytesOf(1000));
    // The journal knows the file, but not that it is elsewhere.
    const [b] = (await stored(team)).filter(({ name }) => name === "b.bin");
    await team.stowage.files.update(b?._id ?? "", { folder: "elsewhere" });
    const changed = await machine.run("sync in --folder x");
    expect(changed).toMatchObject({ code: 0, stderr: "stowage: 2 uploaded, 1 already sent.\n" });
    expect(await stored(team)).toHaveLength(5);
    expect((await machine.run("sync in --folder x")).stderr).toBe("stowage: 3 already sent.\n");
  });

  test("replaces a newer file of another machine, and never takes its own older one for the newest", async () => {
    const { team, machine } = await newMachine();
    machine.write("in/a.bin", "mine");
    await machine.run("sync in");
    const other = new Machine(team.key);
    other.write("in/a.bin", "other bytes");
    expect((await other.run("sync in")).stdout).not.toContain("already sent");
    const again = await machine.run("sync in --delete --yes");
    expect(again).toMatchObject({ code: 0, stderr: "stowage: 1 uploaded, 2 deleted.\n" });
    expect(await stored(team)).toMatchObject([{ folder: "in", name: "a.bin", size: 4 }]);
  });

  test("deletes with --delete what the machine lacks and old versions, after --dry-run has shown it", async () => {
    const { team, machine } = await newMachine();
    for (const name of ["a.bin", "old.bin", "kept.tmp", "drafts/c.bin"]) machine.write(`in/${name}`, bytesOf(500));
    const other = await upload(team, "old.bin", "outside");
    await machine.run("sync in");
    for (const name of ["old.bin", "kept.tmp"]) rmSync(machine.path(`in/${name}`));
    machine.write("in/a.bin", bytesOf(600));
    machine.write("in/.hidden", "text");
    machine.write("in/new.tmp", "text");
    const args = ["sync", "in", "--exclude", "*.tmp", "--exclude", "drafts/", "--delete"];
    const shown = await machine.run([...args, "--dry-run"]);
    expect(linesOf(shown.stdout).toSorted()).toEqual([
      "in/a.bin\twould delete",
      "in/a.bin\twould upload",
      "in/old.bin\twould delete",
    ]);
    expect(linesOf(shown.stderr)).toEqual([
      "stowage: Skipped in/.hidden: it is hidden.",
      "stowage: 1 to upload, 2 to delete.",
    ]);
    expect(await stored(team)).toHaveLength(5);
    const unasked = await machine.run(args);
    expect(unasked).toMatchObject({ code: 2, stderr: expect.stringContaining("Delete 2 files? Add --yes") });
    expect(await stored(team)).toHaveLength(6);
    const done = await machine.run([...args, "--yes", "--quiet"]);
    expect(done).toMatchObject({ code: 0, stderr: "" });
    expect(linesOf(done.stdout).toSorted()).toEqual(["in/a.bin\tdeleted", "in/old.bin\tdeleted"]);
    expect(await pathsOf(team)).toEqual(["/old.bin", "in/a.bin", "in/drafts/c.bin", "in/kept.tmp"]);
    expect(await team.stowage.files.get(other)).toMatchObject({ name: "old.bin" });
    expect(await stored(team)).toContainEqual(expect.objectContaining({ name: "a.bin", size: 600 }));
  });

  test("prints only changes with --quiet, and shows with --dry-run what a hold keeps", async () => {
    const { team, machine } = await newMachine();
    for (const name of ["a.bin", "held.bin", "old.bin"]) machine.write(`in/${name}`, bytesOf(500));
    await machine.run("sync in");
    expect(await machine.run("sync in --quiet")).toEqual({ code: 0, stdout: "", stderr: "" });
    for (const name of ["held.bin", "old.bin"]) rmSync(machine.path(`in/${name}`));
    expect((await machine.run(["hold", "in/held.bin", "--reason", "Case 12"])).stdout).toBe("in/held.bin\theld\n");
    const shown = await machine.run("sync in --delete --dry-run --quiet");
    expect(linesOf(shown.stdout).toSorted()).toEqual([
      "in/held.bin\theld, would stay: Case 12",
      "in/old.bin\twould delete",
    ]);
    expect(await stored(team)).toHaveLength(3);
    expect((await machine.run("release in/held.bin --yes")).stdout).toBe("in/held.bin\treleased\n");
  });

  test("asks before it deletes what others have uploaded, on a terminal", async () => {
    const { team, machine } = await newMachine();
    machine.write("in/a.bin", "bytes");
    await machine.run("sync in");
    const { key } = await team.stowage.keys.create({ name: "job" });
    const transcript = { name: "a.txt", properties: { folder: "in" } };
    await new Stowage({ url, key }).files.upload(new Blob(["text"]), transcript);
    const answer = async (text: string) => {
      const { child, ended, output } = machine.start("sync in --delete", { input: null, isTerminal: true });
      await vi.waitUntil(() => output().includes("(y/n)"), { timeout: 60_000 });
      child.stdin.write(`${text}\r`);
      return ended;
    };
    const refused = await answer("n");
    expect(refused.stdout).toContain("in/a.txt");
    expect(refused.stdout).toContain("Delete 1 file? Others uploaded 1 of them. (y/n)");
    expect(refused).toMatchObject({ code: 1, stdout: expect.stringContaining("Nothing was deleted.") });
    expect(await stored(team)).toHaveLength(2);
    expect((await answer("y")).stdout).toContain("deleted");
    expect(await pathsOf(team)).toEqual(["in/a.bin"]);
  });

  test("deletes nothing if something could not be read, and takes only folders", async () => {
    const { team, machine } = await newMachine();
    machine.write("in/a.bin", "bytes");
    await machine.run("sync in");
    rmSync(machine.path("in/a.bin"));
    const failed = await machine.run("sync in gone --delete");
    expect(failed).toMatchObject({ code: 1, stdout: "" });
    expect(linesOf(failed.stderr)).toEqual([
      "stowage: gone does not exist.",
      "stowage: Deleted nothing, because not everything was sent.",
    ]);
    expect(await stored(team)).toHaveLength(1);
    machine.write("b.bin", "bytes");
    expectFailure(await machine.run("sync b.bin"), 2, "b.bin is not a folder. Send files with `stowage upload`.");
    expectFailure(await machine.run("sync . --delete"), 2, /^--delete would apply to all files of the team\./);
    expect((await machine.run("sync in")).stderr).toBe("stowage: There are no files to send.\n");
  });

  test.each([
    ["*.tmp", "a/b.tmp", true],
    ["*.tmp", "a.tmp.wav", false],
    ["drafts/", "a/drafts/b.wav", true],
    ["a/*.wav", "a/b/c.wav", false],
    ["a/**/c.wav", "a/b/b/c.wav", true],
    ["a/**/c.wav", "a/bc.wav", false],
    ["take?.wav", "take1.wav", true],
    ["a.b", "aXb", false],
  ])("decides whether --exclude %s leaves out %s: %s", (pattern, path, expected) => {
    expect(isIgnored(path, parsePattern(pattern))).toBe(expected);
  });

  test.skipIf(process.platform === "win32")(
    "knows the files that get --folder renamed, and deletes none of them",
    async () => {
      const { team, machine } = await newMachine();
      const names = ['Who: "a" <b>?*|.mp3', "soft\u00adhyphen\u200b.mp3", ".env", "~home", "Case.txt", "case.txt"];
      for (const name of names) {
        await team.stowage.files.upload(new Blob([name]), { name, properties: { folder: "F/-deep" } });
      }
      const get = await machine.run("get --folder F -o out --json");
      const rows = linesOf(get.stdout).map((line) => JSON.parse(line));
      const renamed = new Map(rows.map(({ path, renamedFrom }) => [renamedFrom ?? path, path]));
      const caseId = rows.find(({ path }) => path.includes("-Case"))?.id;
      expect([...renamed].toSorted()).toEqual(
        [
          ["F/-deep/.env", "out/F/_-deep/_.env"],
          ["F/-deep/Case.txt", `out/F/_-deep/${caseId}-Case.txt`],
          ["F/-deep/case.txt", "out/F/_-deep/case.txt"],
          ["F/-deep/soft\u00adhyphen\u200b.mp3", "out/F/_-deep/soft\u00adhyphen\u200b.mp3"],
          ['F/-deep/Who: "a" <b>?*|.mp3', 'out/F/_-deep/Who: "a" <b>?*|.mp3'],
          ["F/-deep/~home", "out/F/_-deep/_~home"],
        ].toSorted(),
      );
      const before = (await stored(team)).map(({ _id }) => _id);
      const sync = await machine.run("sync out/F --delete --yes");
      expect(sync).toMatchObject({ code: 0, stderr: "stowage: 6 already sent.\n" });
      expect((await stored(team)).map(({ _id }) => _id)).toEqual(before);
      // A changed one replaces the original.
      machine.write("out/F/_-deep/_.env", "changed");
      const changed = await machine.run("sync out/F --delete --yes");
      expect(changed).toMatchObject({ code: 0, stderr: "stowage: 1 uploaded, 5 already sent, 1 deleted.\n" });
      expect((await stored(team)).filter(({ name }) => name === ".env")).toMatchObject([
        { folder: "F/-deep", size: 7 },
      ]);
      expect((await machine.run("get --folder F -o out")).stdout).toContain(
        "\trenamed from F/-deep/.env\talready there\n",
      );
    },
  );

  test.each([
    ["a:b?.mp3", "a_b_.mp3", "a:b?.mp3"],
    ["con.mp3", "_con.mp3", "con.mp3"],
    ["end. ", "end", "end. "],
    ["../a\u202e\u0007", "_.._a__", "_.._a__"],
    [".bashrc", "_.bashrc", "_.bashrc"],
    ["", "_", "_"],
  ])("a download writes %j as %j on Windows, and as %j elsewhere", (name, onWindows, elsewhere) => {
    expect([localNameOf(name, true), localNameOf(name, false)]).toEqual([onWindows, elsewhere]);
  });

  test("looks at each file once to find what to delete", () => {
    let looks = 0;
    const counted = <T extends object>(values: T) =>
      new Proxy(values, {
        get: (target, name, self) => {
          looks++;
          return Reflect.get(target, name, self);
        },
      });
    const uploadedBy = { keyId: SONG, userId: null };
    const count = 300;
    const versions = (i: number) => [counted({ _id: String(i), uploadedBy } as unknown as StoredFile)];
    const stored = new Map(Array.from({ length: count }, (_, i) => [`in/${i}`, versions(i)]));
    const skipped = counted(Array.from({ length: count }, (_, i) => `in/${i}x`));
    const surplus = findSurplus(stored, { local: [], sentPaths: new Set(), skipped, roots: ["in"], exclude: [] });
    expect(surplus).toHaveLength(count);
    expect(looks).toBeLessThan(10 * count);
  });

  test.skipIf(process.platform === "win32")("reports files that the service could not distinguish", async () => {
    const { machine } = await newMachine();
    for (const name of ["a\\b", "a_b", "x".repeat(201)]) machine.write(`in/${name}`, "bytes");
    const { code, stderr } = await machine.run("sync in");
    expect({ code, lines: linesOf(stderr).length }).toEqual({ code: 1, lines: 3 });
    expect(stderr).toContain("have the same path in the service.");
    expect(stderr).toContain("1 uploaded, 2 failed.");
  });
});

describe("a path", () => {
  test("names a file where an ID does, unless several files have it", async () => {
    const { team, machine } = await newMachine();
    machine.write("podcast/a.mp3", "first");
    machine.write("podcast/a.mp3.txt", "other");
    await machine.run("upload podcast");
    const path = "podcast/a.mp3";
    const { _id } = await machine.json(`info ${path}`);
    expect(await machine.run(`get ${path} -o -`)).toMatchObject({ code: 0, stdout: "first" });
    expect(await machine.run(`tag x ${path}`)).toMatchObject({ code: 0, stdout: `${path}\ttagged\n` });
    for (const command of ["reprocess", "link", "links", "presign"])
      expect((await machine.run(`${command} /${path}`)).code, command).toBe(0);
    expect(await machine.run(`mv ${path} --name ${SONG}`)).toMatchObject({ code: 0 });
    expect(await machine.run(`mv podcast/${SONG} --folder ${"x/y"}`)).toMatchObject({ code: 0 });
    await machine.run(`mv x/y/${SONG} --folder= --name ${SONG}`);
    expectFailure(await machine.run(`info ${SONG}`), 4);
    expect(await machine.json(`info /${SONG}`)).toMatchObject({ _id });
    const twins = [await upload(team, "b", "1"), await upload(team, "b", "2")];
    const ambiguous = await machine.run(["rm", "b", `/${SONG}`, "gone", "--yes", ...twins.slice(0, 1)]);
    expect(ambiguous).toMatchObject({ code: 1, stdout: `/${SONG}\tdeleted\n${twins[0]}\tdeleted\n` });
    expect(linesOf(ambiguous.stderr)).toEqual([
      `stowage: b: 2 files have this path. Use an ID: ${twins.join(", ")}.`,
      "stowage: gone: Not found.",
    ]);
  });
});

describe("stowage webhooks listen", () => {
  test("forwards the events of the given types in order, signed as by the service", async () => {
    const { team, machine } = await newMachine();
    const received: Promise<WebhookMessage>[] = [];
    const bodies: string[] = [];
    const secret = `whsec_${Buffer.alloc(32, 7).toString("base64")}`;
    const endpoint = createServer(async (request, response) => {
      const body = await text(request);
      bodies.push(body);
      received.push(verifyMessage(body, request.headers, secret));
      response.writeHead(received.length === 1 ? 500 : 204).end();
    }).listen(0, "localhost");
    onTestFinished(() => void endpoint.close());
    await once(endpoint, "listening");
    const to = `http://localhost:${(endpoint.address() as AddressInfo).port}/hook`;
    const id = await upload(team, "a.txt", "text");
    const [first] = await collect(team.stowage.events.list({ order: "asc" }));
    const args = `webhooks listen --forward-to ${to} --types file.uploaded,file.completed --after ${first?._id} --limit 2`;
    const run = await machine.run(args, { env: { STOWAGE_WEBHOOK_SECRET: secret } });
    expect(run).toMatchObject({
      code: 0,
      stderr: `stowage: Forwarding events to ${to}. Signing secret: STOWAGE_WEBHOOK_SECRET\n`,
    });
    expect(linesOf(run.stdout).map((line) => line.split("\t").slice(1))).toEqual([
      ["file.uploaded", id, "500"],
      ["file.completed", id, "204"],
    ]);
    const events = await collect(team.stowage.events.list({ order: "asc" }));
    const sent = events.filter(({ type }) => type === "file.uploaded" || type === "file.completed");
    expect(await Promise.all(received)).toEqual(
      // A message has no name, which is read with the event.
      sent.map(({ _id: id, createdAt: timestamp, type, teamId, actor: { name: _, ...actor }, subject, data }) => {
        return { id, timestamp, type, teamId, actor, subject, data };
      }),
    );
    // The service names a record by `_id` alone.
    for (const body of bodies) expect(Object.keys(JSON.parse(body).data)).not.toContain("id");
    const other = await machine.run(args.replace(to, "http://127.0.0.1:9").replace("limit 2", "limit 1"));
    expect(other.stdout).toMatch(/\t(ECONNREFUSED|bad port)\n$/);
    expect(other.stderr).toMatch(/Signing secret: whsec_[A-Za-z0-9+/]{43}=\n$/);
  });
});

describe("stowage webhooks listen --after", () => {
  test("forwards what happened after a time", async () => {
    const { team, machine } = await newMachine();
    await upload(team, "a.txt", "text");
    const args = "webhooks listen --forward-to http://127.0.0.1:9 --types file.uploaded --limit 1 --after";
    const run = await machine.run(`${args} ${new Date(Date.now() - 3_600_000).toISOString()}`);
    expect(run).toMatchObject({ code: 0, stdout: expect.stringContaining("\tfile.uploaded\t") });
  });
});

describe("stowage get", () => {
  test("writes a file under its name, and replaces existing ones only with --force", async () => {
    const { team, machine } = await newMachine();
    const bytes = bytesOf(300_000);
    const id = await upload(team, "song.bin", bytes);
    expect(await machine.run(`get ${id}`)).toMatchObject({ code: 0, stdout: "song.bin\n", stderr: "" });
    expect(readFileSync(machine.path("song.bin")).equals(bytes)).toBe(true);
    expect(await machine.run(`get ${id}`)).toMatchObject({ code: 0, stdout: "song.bin\talready there\n" });
    machine.write("song.bin", "mine");
    expectFailure(await machine.run(`get ${id}`), 1);
    expect(readFileSync(machine.path("song.bin"), "utf8")).toBe("mine");
    expect(await machine.run(`get ${id} --force`)).toMatchObject({ code: 0 });
    expect(readFileSync(machine.path("song.bin")).equals(bytes)).toBe(true);
    expect(readdirSync(machine.folder).filter((name) => name.endsWith(".part"))).toEqual([]);
  });

  test("resumes a partial file, and deletes it if its checksum differs", async () => {
    const { team, machine } = await newMachine();
    const bytes = bytesOf(300_000);
    const id = await upload(team, "song.bin", bytes);
    const part = machine.path(`song.bin.${id}.part`);
    writeFileSync(part, bytes.subarray(0, 200_000));
    expect(await machine.run(`get ${id} -o song.bin`)).toMatchObject({ code: 0 });
    expect(readFileSync(machine.path("song.bin")).equals(bytes)).toBe(true);
    // Only the rest is downloaded, so the damaged beginning stays.
    machine.write(`other.bin.${id}.part`, Buffer.alloc(200_000, 1));
    expectFailure(await machine.run(`get ${id} -o other.bin`), 6);
    expect(readdirSync(machine.folder).filter((name) => name.startsWith("other"))).toEqual([]);
  });

  test.skipIf(process.platform === "win32")(
    "reports a full disk, and leaves no incomplete file under the name",
    async () => {
      const { team, machine } = await newMachine();
      const id = await upload(team, "song.bin", bytesOf(300_000));
      // Limits each file to 50 or 100 KiB, depending on the shell. A full disk would need its own file system.
      expectFailure(
        await machine.start(`get ${id}`, { script: 'ulimit -f 100 && exec "$@"' }).ended,
        1,
        /^song\.bin\.[0-9a-f]{24}\.part exceeds the file size limit of this system\.$/,
      );
      expect(existsSync(machine.path("song.bin"))).toBe(false);
      expect(await machine.run(`get ${id}`)).toMatchObject({ code: 0 });
    },
  );

  test("never writes through a link", async () => {
    const { team, machine } = await newMachine();
    const bytes = bytesOf(3000);
    const id = await upload(team, "song.bin", bytes);
    for (const name of [`song.bin.${id}.part`, "song.bin"]) {
      symlinkSync("outside.bin", machine.path(name));
      for (const outside of [undefined, Buffer.from("mine"), ...(name === "song.bin" ? [] : [bytes])]) {
        if (outside) machine.write("outside.bin", outside);
        expectFailure(await machine.run(`get ${id}`), 1);
        expect(existsSync(machine.path("outside.bin"))).toBe(outside !== undefined);
        if (outside) expect(readFileSync(machine.path("outside.bin")).equals(outside)).toBe(true);
      }
      if (name !== "song.bin") rmSync(machine.path(name));
      rmSync(machine.path("outside.bin"));
    }
    expect(await machine.run(`get ${id} --force`)).toMatchObject({ code: 0, stderr: "" });
    expect(lstatSync(machine.path("song.bin")).isFile()).toBe(true);
    expect(existsSync(machine.path("outside.bin"))).toBe(false);
  });

  test("writes to stdout with -o -, checks the checksum, and garbles no terminal unless forced", async () => {
    const { team, machine } = await newMachine();
    const id = await upload(team, "song.txt", "la la la");
    expect(await machine.run(`get ${id} -o -`)).toMatchObject({ code: 0, stdout: "la la la" });
    const { machine: deceived } = await storing("la la la", { digest: sha256("lo lo lo") });
    const altered = await deceived.run(`get ${SONG} -o -`);
    expect(altered).toMatchObject({ code: 6, stdout: "la la la" });
    expect(linesOf(altered.stderr)).toHaveLength(1);
    const rejected = await machine.run(`get ${id} -o -`, { isTerminal: true });
    expectFailure(rejected, 2, "Files can garble a terminal. Redirect stdout, or add --force.");
    const forced = await machine.run(`get ${id} -o - --force`, { isTerminal: true });
    expect(forced).toMatchObject({ code: 0, stdout: "la la la" });
  });

  test.each([
    ["no file outside of the folder", "../..\\song.txt", "_.._.._song.txt"],
    ["no hidden file", ".bashrc", "_.bashrc"],
  ])(
    "writes %s, because the uploader chooses the name, and discards a partial file that is too long",
    async (_, name, local) => {
      const { machine } = await storing("la la la", { name });
      machine.write(`${local}.${SONG}.part`, "la la la la la");
      const stdout = `${local}\trenamed from ${name}\n`;
      expect(await machine.run(`get ${SONG}`)).toMatchObject({ code: 0, stdout, stderr: "" });
      expect(readdirSync(machine.folder)).toEqual([local]);
    },
  );

  test("checks a file that is processed during the download", async () => {
    const { machine } = await storing("la la la", { digest: null, later: sha256("lo lo lo") });
    expectFailure(await machine.run(`get ${SONG}`), 6);
    expect(readdirSync(machine.folder)).toEqual([]);
  });

  test.each(["song.txt", "-"])("resumes after a disconnect, with the output %s", async (output) => {
    const bytes = Buffer.from("la la la");
    let isBroken = true;
    const { service, machine } = await storing(bytes, {
      step: (request, response) => {
        const from = Number(/\d+/.exec(request.headers.range ?? "")?.[0] ?? 0);
        response.writeHead(from > 0 ? 206 : 200, { "Content-Length": bytes.length - from });
        if (isBroken) response.write(bytes.subarray(0, 3), () => response.destroy());
        else response.end(bytes.subarray(from));
        isBroken = false;
      },
    });
    const { code, stdout, stderr } = await machine.run(`get ${SONG} -o ${output}`);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(output === "-" ? stdout : readFileSync(machine.path("song.txt"), "utf8")).toBe("la la la");
    expect(service.requests.filter(({ headers }) => headers.range === "bytes=3-")).toHaveLength(1);
  });

  test.each([
    ["5 if the connection always breaks", 5, false],
    ["1 if the server ignores ranges", 1, true],
  ])("exits with %s", async (_, code, isDeaf) => {
    const bytes = Buffer.from("la la la");
    const { machine } = await storing(bytes, {
      step: ({ headers }, response) => {
        if (headers.range === undefined) {
          response.writeHead(200, { "Content-Length": bytes.length });
          response.write(bytes.subarray(0, 3), () => response.destroy());
        } else if (isDeaf) response.end(bytes);
        else {
          response.writeHead(206, { "Content-Length": bytes.length - 3 }).flushHeaders();
          setImmediate(() => response.destroy());
        }
      },
    });
    expectFailure(await machine.run(`get ${SONG}`), code);
    expect(readFileSync(machine.path(`song.txt.${SONG}.part`), "utf8")).toBe("la ");
  });

  test("replaces no file that appears under the name during the download", async () => {
    const { machine } = await storing("la", {
      step: (_, response) => {
        machine.write("song.txt", "mine");
        response.end("la");
      },
    });
    expectFailure(await machine.run(`get ${SONG}`), 1, /^song\.txt already exists/);
    expect(readFileSync(machine.path("song.txt"), "utf8")).toBe("mine");
  });

  test("downloads --parallel files at a time, and passes those that fail", async () => {
    const { team, machine } = await newMachine();
    const ids = await Promise.all([1, 2, 3].map((number) => upload(team, `${number}.txt`, `la ${number}`)));
    const got = await machine.run(["get", ...ids, "--parallel", "3"]);
    expect(got).toMatchObject({ code: 0, stderr: "" });
    expect(linesOf(got.stdout).toSorted()).toEqual(["1.txt", "2.txt", "3.txt"]);
    const missing = await machine.run(["get", UNKNOWN, ...ids, "--parallel", "1", "--force"]);
    expect(missing).toMatchObject({ code: 4, stderr: `stowage: ${UNKNOWN}: Not found.\n` });
    expect(linesOf(missing.stdout)).toEqual([1, 2, 3].map((number) => `${number}.txt\talready there`));
    machine.write("2.txt", "mine");
    const different = await machine.run(["get", UNKNOWN, ...ids, "--parallel", "1"]);
    expect(different).toMatchObject({ code: 1, stdout: expect.stringContaining("3.txt\talready there") });
  });

  test("stops if the others would fail, too", async () => {
    const service = await scripted(refusal(401, "token_invalid"));
    const machine = new Machine("key", service.url);
    expectFailure(await machine.run(["get", UNKNOWN, "1".repeat(24), "--parallel", "1"]), 3);
    expect(service.requests).toHaveLength(1);
  });

  test("writes several files into a folder, but not into one file", async () => {
    const { team, machine } = await newMachine();
    const name = "\ud83d\udc68\u200d\ud83d\udc67 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.txt";
    const ids = [await upload(team, "a.txt", Buffer.from("a")), await upload(team, name, Buffer.from("b"))];
    machine.write("one.txt", "one");
    const rejected = await machine.run(["get", ...ids, "-o", "one.txt", "--force"]);
    expect(rejected).toMatchObject({ code: 2, stdout: "" });
    mkdirSync(machine.path("out"));
    expect(await machine.run(["get", ...ids, "-o", "out"])).toMatchObject({ code: 0, stderr: "" });
    expect(readdirSync(machine.path("out")).toSorted()).toEqual(["a.txt", name].toSorted());
  });

  test("never truncates the partial file of a parallel run", async () => {
    const team = await newTeam();
    const bytes = bytesOf(3_000_000);
    const id = await upload(team, "song.bin", bytes);
    const machine = new Machine(team.key);
    // The other run has completed the file and is about to rename it.
    const partial = machine.path(`song.bin.${id}.part`);
    writeFileSync(partial, "");
    const other = new Machine(team.key);
    linkSync(partial, other.path("seen.bin"));
    let isCut = false;
    let watch: NodeJS.Timeout | undefined;
    const line = await Line.open(url, (connection) => {
      // At its first request, this run hasn't looked at the partial file.
      if (connection === 0) {
        writeFileSync(partial, bytes);
        watch = setInterval(() => {
          isCut ||= statSync(other.path("seen.bin")).size !== bytes.length;
        }, 1);
      }
      return { fault: "none", afterBytes: 0 };
    });
    onTestFinished(() => {
      clearInterval(watch);
      return line.close();
    });
    expect((await machine.run(`get ${id}`, { env: { STOWAGE_URL: line.url } })).code).toBe(0);
    expect(isCut).toBe(false);
    expect(readFileSync(machine.path("song.bin")).equals(bytes)).toBe(true);
  });
});

test("a progress bar stops at 100%, and counts no speed for resumed bytes", () => {
  vi.useFakeTimers({ toFake: ["setInterval", "clearInterval", "performance"] });
  const terminal = new PassThrough();
  const drawn = vi.spyOn(terminal, "write").mockReturnValue(true);
  const progress = new Progress(Object.assign(terminal, { isTTY: true }), 1000);
  const bar = progress.begin("song.bin", 1000);
  bar.resumeAt(500);
  vi.advanceTimersByTime(1000);
  expect(drawn.mock.lastCall?.[0]).toMatch(/\[#{10}-{10}\] +50% +0 B\/s/);
  bar.advance(2000);
  vi.advanceTimersByTime(100);
  expect(drawn.mock.lastCall?.[0]).toMatch(/\[#{20}\] +100%/);
  progress.close();
});

test("stowage info shows the files that exist, and reports the others", async () => {
  const { team, machine } = await newMachine();
  const id = await upload(team, "a.txt", "text");
  const { code, stdout, stderr } = await machine.run(`info ${UNKNOWN} gone.txt ${id}`);
  expect([code, linesOf(stderr)]).toEqual([4, [`stowage: ${UNKNOWN}: Not found.`, "stowage: gone.txt: Not found."]]);
  expect(stdout).toContain(id);
});

describe("a failure", () => {
  test.each([
    ["an unknown command", "nope", 2, "Unknown command 'nope'."],
    ["a misspelled command", "uplaod a.bin", 2, "Unknown command 'uplaod'. (Did you mean upload?)"],
    ["an unknown option", "ls --nope", 2],
    ["a missing argument", "get", 2],
    ["an argument that does not apply", "usage recordings/", 2],
    ["an option of another subcommand", "webhooks ls --enable", 2],
    ["a second name", "keys create Web player", 2],
    ["an invalid date", "ls --after someday", 2],
    ["a number for a date", "ls --after 5", 2],
    ["a local time for a date", "ls --after 2026-11-01T08:00", 2],
    ["an unknown ID", `info ${UNKNOWN}`, 4, `${UNKNOWN}: Not found.`],
    ["an unknown ID of a file to delete", `rm ${UNKNOWN} --yes`, 4, `${UNKNOWN}: Not found.`],
    ["a time in words", `link ${UNKNOWN} --start soon`, 2, /It must be seconds, or a time such as 1:30\.$/],
    ["a past date", `link ${UNKNOWN} --expires 2026-01-01`, 1, `${UNKNOWN}: The expiry date must be in the future.`],
    ["an unknown type", "ls --type song", 2, /"song" is not one of audio, video, .+\.$/],
    ["scopes of a public key", "keys create a --public --scopes files:read", 2, /Leave out --scopes\.$/],
    ["teams without the operator token", "teams", 3, /needs the operator token/],
    ["an empty tag", ["tag", "a,,b", UNKNOWN], 2, /must be values separated by commas\.$/],
    ["an unknown scope", "keys create a --scopes files:read,files:fly", 2, /"files:fly" is not one of files:upload, /],
    ["an unknown event type", "webhooks create http://a.invalid --types file.lost", 2, /"file\.lost" is not one of /],
    ["an unknown status", "ls --status lost", 2],
    ["an invalid size", "keys create a --public --max-file-bytes 5XB", 2, /such as 5000, 50MB, or 2GiB\.$/],
    ["a malformed time", "events --after yesterday", 2, /UTC date such as/],
    ["a deletion without a question", `rm ${UNKNOWN}`, 2, /^Delete 1 file\? Add --yes/],
    ["limits of a secret key", "keys create a --max-file-bytes 3", 1],
  ] as [string, string | string[], number, (string | RegExp)?][])(
    "a failure of %s prints one line on stderr, and has its exit code",
    async (_, args, ...expected) => {
      expectFailure(await (await newMachine()).machine.run(args), ...expected);
    },
  );

  test("an invalid input is reported with its fields in sentences", async () => {
    const errors = [
      { path: "teamId", message: "Required for the operator." },
      { path: "firstName", message: "Unknown field." },
    ];
    const service = await scripted(json(400, { code: "invalid_input", message: "Correct the fields.", errors }));
    const message = "The team ID is required for the operator. first name: Unknown field.";
    expectFailure(await new Machine("key", service.url).run("users"), 1, message);
  });

  test("a longer outage is reported once, and events are followed after it", async () => {
    const away = refusal(503, "unavailable", { "Retry-After": "0" });
    const event = json(200, { data: [{ _id: "2", createdAt: "", type: "file.completed", subject: { id: "1" } }] });
    const service = await scripted(away, away, away, away, away, away, away, event);
    const env = { STOWAGE_RETRY_SECONDS: "60" };
    const run = await new Machine("key", service.url).run(`events --follow --after ${UNKNOWN} --limit 1`, { env });
    const stderr = "stowage: Refused: unavailable. Retrying for up to 60 s. Press Ctrl-C to stop.\n";
    expect(run).toEqual({ code: 0, stdout: "2\t\tfile.completed\t1\n", stderr });
  });

  test.each([
    ["hangs up", hangUp, /^Can't reach http:\/\/localhost:\d+ \(.+\)\.$/],
    ["is unavailable", refusal(503, "unavailable", { "Retry-After": "0" }), "Refused: unavailable."],
    ["asks to wait for an hour", refusal(429, "rate_limited", { "Retry-After": "3600" }), "Refused: rate_limited."],
  ])("a service that %s causes one line and exit code 5", async (_, step, message) => {
    const service = await scripted(step);
    expectFailure(await new Machine("key", service.url).run("usage"), 5, message);
  });

  test("a service that lacks a feature causes exit code 1, because a repetition would fail, too", async () => {
    const service = await scripted(refusal(501, "not_available"));
    expectFailure(await new Machine("key", service.url).run("usage"), 1, "Refused: not_available.");
  });

  test("a key with invalid characters causes a failure, and no request", async () => {
    const service = await scripted(hangUp);
    expectFailure(await new Machine("sch\u00f6n\u2026", service.url).run("usage"), 3);
    expect(service.requests).toEqual([]);
  });

  test.skipIf(!existsSync("/dev/full"))("of writing stdout to a full disk prints one line", async () => {
    const machine = new Machine();
    const { code, stderr } = await machine.start("--help", { script: 'exec "$@" > /dev/full' }).ended;
    expect({ code, stderr }).toEqual({ code: 1, stderr: "stowage: stdout can't be written: the disk is full.\n" });
  });

  test("does not occur if the reader of stdout closes the pipe", async () => {
    const { child, ended } = new Machine().start("--help");
    child.stdout.destroy();
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  test("is one line on stderr, without control characters of the response", async () => {
    const message = "No such file: \u001b]0;owned\u0007\u202e";
    const service = await scripted(json(404, { code: "not_found", message }));
    const run = await new Machine("key", service.url).run(`info ${SONG}`);
    expectFailure(run, 4, `${SONG}: No such file: \ufffd]0;owned\ufffd\ufffd`);
  });

  test("is an object on stderr with --json, with its code and the request, and so is a notice", async () => {
    const errors = [{ path: "limit", message: "Must be a number." }];
    const service = await scripted(json(400, { code: "invalid_input", message: "Correct the fields.", errors }));
    const machine = new Machine("key", service.url);
    const failed = await machine.run("ls --json");
    expect([failed.code, failed.stdout]).toEqual([1, ""]);
    const message = "The limit must be a number.";
    const details = { code: "invalid_input", status: 400, requestId: "request-1", errors };
    expect(JSON.parse(failed.stderr)).toEqual({ error: { kind: "failed", exitCode: 1, message, ...details } });
    const misused = await machine.run("nope --json");
    const usage = { kind: "usage", exitCode: 2, code: "usage" };
    expect([misused.code, JSON.parse(misused.stderr)]).toMatchObject([2, { error: usage }]);
    const outage = await scripted(refusal(503, "unavailable", { "Retry-After": "0" }));
    const env = { STOWAGE_RETRY_SECONDS: "10" };
    const late = await new Machine("key", outage.url).run("usage --json", { env });
    const [notice = "", error = ""] = linesOf(late.stderr);
    expect(JSON.parse(notice)).toEqual({ notice: expect.stringContaining("Retrying for up to 10 s.") });
    expect(JSON.parse(error)).toMatchObject({ error: { kind: "unreachable", exitCode: 5, code: "unavailable" } });
  });

  test("with a local cause has a code, and the path or ID that it is about, with --json", async () => {
    const { team, machine } = await newMachine();
    const id = await upload(team, "a.txt", "text");
    machine.write("in/long.txt", "text");
    machine.write("empty.txt", "");
    const errorOf = async (args: string) => JSON.parse((await machine.run(`${args} --json`)).stderr).error;
    for (const [args, expected] of [
      ["upload gone.mp3", { code: "ENOENT", path: "gone.mp3" }],
      ["upload empty.txt", { code: "failed", path: "empty.txt" }],
      ["rm gone.mp3 --yes", { code: "not_found", path: "gone.mp3" }],
      ["info gone.mp3", { code: "not_found", path: "gone.mp3" }],
      ["get gone/a.mp3", { code: "not_found", path: "gone/a.mp3" }],
      ["get --folder gone", { code: "not_found", path: "gone" }],
      [`get ${id} -o empty.txt`, { code: "failed", id }],
      [`rm ${UNKNOWN} --yes`, { code: "not_found", id: UNKNOWN }],
      [`transcript get ${id}`, { code: "not_found", id }],
      ["transcript put gone.vtt a.txt", { code: "ENOENT", path: "gone.vtt" }],
      ["users show gone@example.com", { code: "not_found", path: "gone@example.com" }],
    ] as const)
      expect(await errorOf(args), args).toMatchObject(expected);
  });

  test.each(["Infinity", "1e9", "-1", "soon", "999999999"])("reports STOWAGE_RETRY_SECONDS=%s", async (seconds) => {
    const machine = new Machine("key", OPEN);
    const run = await machine.run("usage", { env: { STOWAGE_RETRY_SECONDS: seconds } });
    expectFailure(run, 2, /^STOWAGE_RETRY_SECONDS must be a number of seconds from 0 to \d+\.$/);
  });

  test.each(["SIGINT", "SIGTERM"] as const)("by %s prints one line, and has exit code 130", async (signal) => {
    const service = await scripted(() => {});
    const { child, ended } = new Machine("key", service.url).start("usage");
    await vi.waitUntil(() => service.requests.length > 0, { timeout: 60_000 });
    child.kill(signal);
    expect(await ended).toEqual({ code: 130, stdout: "", stderr: "stowage: Interrupted.\n" });
  });

  test("control characters of a file name never reach a terminal", async () => {
    const name = "\u001b]0;owned\u0007\u202e\u009b31m";
    const createdAt = new Date().toISOString();
    const file = { _id: "1", createdAt, status: "", fileType: "", folder: "", name, size: 1, durationSeconds: null };
    const service = await scripted(json(200, { data: [file] }));
    const machine = new Machine("key", service.url);
    for (const isTerminal of [true, false]) {
      const { stdout } = await machine.run("ls", { isTerminal });
      expect(stdout).toContain("]0;owned");
      for (const character of ["\u001b", "\u0007", "\u202e"]) expect(stdout).not.toContain(character);
    }
    const { stdout } = await machine.run("ls --json");
    expect(stdout).toMatch(/^[\x20-\x7e]+\n$/);
    expect(JSON.parse(stdout).name).toBe(name);
  });
});

test("stowage completion completes IDs only, because shells expand what they complete", async () => {
  const service = await scripted(json(200, { data: [{ _id: "$(touch owned)" }, { _id: SONG }] }));
  const machine = new Machine("key", service.url);
  for (const source of ["the service", "the cache"])
    expect((await machine.run("completion --ids files")).stdout, source).toBe(`${SONG}\n`);
});

test("stowage webhooks replay continues with --all until all events are resent", async () => {
  const parts = [
    { deliveries: 150, next: "2".repeat(24) },
    { deliveries: 7, next: null },
  ];
  const steps = parts.map((data) => json(200, { data }));
  const one = await scripted(...steps);
  const first = await new Machine("key", one.url).json(`webhooks replay ${SONG} --after 2026-11-20`);
  expect(first).toEqual(parts[0]);
  const all = await scripted(...steps);
  const total = await new Machine("key", all.url).json(`webhooks replay ${SONG} --after 2026-11-20 --all`);
  expect(total).toEqual({ deliveries: 157, next: null });
  expect(all.requests).toHaveLength(2);
});

describe("stowage login", () => {
  const login = `login ${url}`;

  test("saves URL and key where only their owner can read them, and sends the key only to that URL", async () => {
    const { key } = await newTeam();
    const machine = new Machine();
    expect(await machine.run(login, { input: `${key}\n` })).toMatchObject({ code: 0, stderr: "" });
    const file = machine.path("config/stowage/config.json");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(machine.path("config/stowage")).mode & 0o777).toBe(0o700);
    expect(await machine.run("usage")).toMatchObject({ code: 0, stderr: "" });
    const other = await scripted(hangUp);
    expectFailure(await machine.run("ls", { env: { STOWAGE_URL: other.url } }), 2);
    expect(other.requests).toEqual([]);
    chmodSync(file, 0o644);
    expectFailure(await machine.run("usage"), 2, /^Other users can read/);
  });

  test("prompts for a key on a terminal without showing it", async () => {
    const { key } = await newTeam();
    const machine = new Machine();
    const { child, ended, output } = machine.start(login, { isTerminal: true, input: null });
    await vi.waitUntil(() => output().includes("API key: "), { timeout: 60_000 });
    child.stdin.write(`${key}\r`);
    expect(await ended).toMatchObject({ code: 0, stdout: expect.not.stringContaining(key) });
    expect(await machine.run("usage")).toMatchObject({ code: 0, stderr: "" });
  });

  test("warns if the URL is not encrypted", async () => {
    const { code, stderr } = await new Machine().run(`login ${OPEN}`);
    expect({ code, lines: linesOf(stderr) }).toEqual({ code: 2, lines: [DANGER, "stowage: API key: no input."] });
    for (const safe of ["https://stowage.invalid", "http://127.0.0.1:9", "http://[::1]:9", "http://a.localhost"])
      expectFailure(await new Machine().run(`login ${safe}`), 2, "API key: no input.");
  });

  test.each([
    ["n", "Canceled. Nothing was sent.", 1],
    ["y", "API key: ", 2],
  ])("asks on a terminal whether to continue without encryption, and obeys %s", async (answer, next, code) => {
    const { child, ended, output } = new Machine().start(`login ${OPEN}`, { isTerminal: true, input: null });
    await vi.waitUntil(() => output().includes("Continue anyway? (y/n): "), { timeout: 60_000 });
    expect(output()).toContain(DANGER);
    child.stdin.write(`${answer}\r`);
    await vi.waitUntil(() => output().includes(next), { timeout: 60_000 });
    child.stdin.end("\r");
    expect((await ended).code).toBe(code);
  });

  test("saves no rejected key, and leaves no draft if the config file can't be replaced", async () => {
    const machine = new Machine();
    expectFailure(await machine.run(login, { input: "stow_sk_wrong\n" }), 3);
    expect(existsSync(machine.path("config/stowage/config.json"))).toBe(false);
    mkdirSync(machine.path("config/stowage/config.json"), { recursive: true });
    expectFailure(await machine.run(login, { input: `${(await newTeam()).key}\n` }), 1);
    expect(readdirSync(machine.path("config/stowage"))).toEqual(["config.json"]);
  });

  test("logs in a user with a password, which keeps its spaces and is shown nowhere", async () => {
    const { team, machine } = await newMachine();
    const [email, password] = ["ada@example.com", "  correct horse battery "];
    await machine.run(`users create ${email}`, { input: `${password}\n` });
    await expect(team.stowage.logIn({ teamId: team.teamId, email, password })).resolves.toBeTruthy();
    const user = new Machine();
    const run = await user.run(`${login} --team ${team.teamId} --email ${email}`, { input: `${password}\n` });
    expect(run).toEqual({ code: 0, stderr: "", stdout: expect.not.stringContaining("horse") });
    expect(await user.run("ls")).toMatchObject({ code: 0, stdout: "" });
    const input = `${password}\n${password}!\n`;
    expect(await user.run("password", { input })).toEqual({ code: 0, stderr: "", stdout: "Changed your password.\n" });
    await expect(team.stowage.logIn({ teamId: team.teamId, email, password: `${password}!` })).resolves.toBeTruthy();
    expectFailure(await user.run("password", { input: "wrong password\nanother password\n" }), 1);
  });

  test("is listed with the others by profiles if a config file is damaged, and the damaged one is reported", async () => {
    const machine = new Machine();
    const saved = JSON.stringify({ url, key: "stow_sk_secret" });
    for (const [name, text] of [
      ["config", saved],
      ["config.a", "{"],
      ["config.b", saved],
    ] as const)
      chmodSync(machine.write(`config/stowage/${name}.json`, text), 0o600);
    const { code, stdout, stderr } = await machine.run("profiles");
    expect([code, linesOf(stdout).map((line) => line.split("\t")[0])]).toEqual([2, ["b", "-"]]);
    expect(stderr).toMatch(/^stowage: .*config\.a\.json is damaged\. Run `stowage login` again\.\n$/);
  });

  test.each(["http://LOCALHOST:80/x/", "http://localhost/x/console/files", "http://localhost/x///"])(
    "sends the key of http://localhost/x to %s, which is the same service",
    async (given) => {
      const env = { STOWAGE_URL: "http://localhost/x", STOWAGE_KEY: "key" };
      expect(loadConfig(env, { url: given }).key).toBe("key");
      vi.stubEnv("STOWAGE_URL", env.STOWAGE_URL).stubEnv("STOWAGE_KEY", env.STOWAGE_KEY);
      onTestFinished(() => void vi.unstubAllEnvs());
      expect(new Stowage({ url: given }).url).toBe(env.STOWAGE_URL);
      expect(() => new Stowage({ url: "http://localhost/y" })).toThrow("No key.");
    },
  );

  test.each(["null", "[]", '{"url":5}', '{"url": "https://stowage.example", "key": "stow_sk_secret"'])(
    "names the remedy for a damaged config file, without showing its content: %s",
    async (text) => {
      const machine = new Machine();
      chmodSync(machine.write("config/stowage/config.json", text), 0o600);
      expectFailure(await machine.run("usage"), 2, /^(?!.*secret).* is damaged\. Run `stowage login` again\.$/);
    },
  );
});
