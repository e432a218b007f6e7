import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import {
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
import { join } from "node:path";
import { PassThrough } from "node:stream";
import { afterEach, describe, expect, inject, test, vi } from "vitest";
import { Journal } from "../../src/client/command/journal.ts";
import { openFile } from "../../src/client/command/local-files.ts";
import { Progress } from "../../src/client/command/progress.ts";
import { RESUMABLE_BYTES, Stowage } from "../../src/client/stowage.ts";
import { bytesOf, collect, newTeam, type Team, upload, url } from "../support/team.ts";
import { linesOf, Machine } from "./command-line.ts";
import { hangUp, json, openLine, refusal, type Step, scripted } from "./support.ts";

const MEBIBYTE = 1024 * 1024;
const sha256 = (bytes: Uint8Array) => createHash("sha256").update(bytes).digest("hex");
const stored = async ({ stowage }: Team) => collect(stowage.files.list());

/** A service with one file. It reports `digest` first and `later` afterwards; `step` sends the bytes. */
async function storing(
  bytes: Uint8Array | string,
  digest: string | null,
  later = digest,
  step?: Step,
  name = "song.txt",
) {
  let requests = 0;
  const service = await scripted((request, response) => {
    const metadata = { _id: "1", name, size: bytes.length };
    if (request.url?.endsWith("/metadata")) {
      response.end(JSON.stringify({ data: { ...metadata, sha256: requests++ === 0 ? digest : later } }));
    } else if (request.url === "/bytes") step ? step(request, response) : response.end(bytes);
    else response.end(JSON.stringify({ status: true, signedUrl: `${service.url}/bytes` }));
  });
  return service;
}

afterEach(() => vi.useRealTimers());

describe("every command", () => {
  const commands: [string, (ids: Record<string, string>) => string[]][] = [
    ["upload", () => ["upload", "new.bin"]],
    ["ls", () => ["ls"]],
    ["info", ({ file = "" }) => ["info", file]],
    ["get", ({ file = "" }) => ["get", file, "-o", "got.bin", "--force"]],
    ["sync", () => ["sync", "."]],
    ["mv", ({ file = "" }) => ["mv", file, "--folder", "a/b"]],
    ["tag", ({ file = "" }) => ["tag", "interview", file]],
    ["untag", ({ file = "" }) => ["untag", "interview", file]],
    ["link", ({ file = "" }) => ["link", file, "--inline", "--name", "a.mp3"]],
    ["links", ({ file = "" }) => ["links", file]],
    ["presign", ({ file = "" }) => ["presign", file, "--expires-in", "60"]],
    ["reprocess", ({ file = "" }) => ["reprocess", file]],
    ["uploads", () => ["uploads"]],
    ["usage", () => ["usage"]],
    ["whoami", () => ["whoami"]],
    ["completion", () => ["completion", "bash"]],
    ["keys", () => ["keys"]],
    ["keys create", () => ["keys", "create", "Player", "--public"]],
    ["sessions", () => ["sessions"]],
    ["users", () => ["users"]],
    ["events", () => ["events", "--limit", "2"]],
    ["events --follow", ({ event = "" }) => ["events", "--follow", "--after", event, "--limit", "1"]],
    ["webhooks", () => ["webhooks"]],
    ["webhooks deliveries", ({ webhook = "" }) => ["webhooks", "deliveries", webhook]],
    ["webhooks secret", ({ webhook = "" }) => ["webhooks", "secret", webhook]],
    ["rm", ({ doomed = "" }) => ["rm", doomed]],
  ];

  async function prepared() {
    const team = await newTeam();
    const machine = new Machine(team.key);
    writeFileSync(machine.path("new.bin"), bytesOf(1000));
    await team.stowage.users.create({ email: "ada@example.com", password: "correct horse battery" });
    const { _id: webhook } = await team.stowage.webhooks.create({
      url: "http://127.0.0.1:9/",
      types: ["user.created"],
    });
    await team.stowage.sessions.create();
    const event = (await collect(team.stowage.events.list({ order: "asc" })))[0]?._id ?? "";
    // Creates the one delivery in the list.
    await team.stowage.users.create({ email: "bob@example.com", password: "correct horse battery" });
    const stop = new AbortController();
    const begun = { resumableFromBytes: 1, signal: stop.signal, onResumeUrl: () => stop.abort(new Error("enough")) };
    await expect(team.stowage.files.upload(new File(["text"], "begun.txt"), begun)).rejects.toThrow("enough");
    const ids = { file: await upload(team, "old.bin", bytesOf(2000)), doomed: await upload(team, "x", bytesOf(9)) };
    return { machine, ids: { ...ids, webhook, event } };
  }

  test("prints fields with tabs, or JSON with --json, without a terminal", async () => {
    const { machine, ids } = await prepared();
    for (const [name, argsOf] of commands) {
      const shown = name === "rm" ? { code: 0, stdout: "\t", stderr: "" } : await machine.run(argsOf(ids));
      expect(shown, name).toMatchObject({ code: 0, stderr: "" });
      expect(shown.stdout, name).not.toContain("\u001b");
      if (!["get", "presign", "completion"].includes(name)) expect(shown.stdout, name).toContain("\t");
      const json = await machine.run([...argsOf(ids), "--json"]);
      expect(json, name).toMatchObject({ code: 0, stderr: "" });
      expect(linesOf(json.stdout).length, name).toBeGreaterThan(0);
      for (const line of linesOf(json.stdout)) expect(JSON.parse(line), name).toBeTypeOf("object");
    }
  });

  test("creates, suspends, resumes, and deletes teams for the operator", async () => {
    const machine = new Machine(inject("operatorToken"));
    const json = async (args: string[], input = "") => {
      const { code, stdout, stderr } = await machine.run([...args, "--json"], { input });
      return { code, stderr, ...(stdout && JSON.parse(stdout)) };
    };
    const name = `Radio ${crypto.randomUUID()}`;
    const { _id: id, key } = await json(["teams", "create", name, "--max-bytes", "1000"]);
    expect(await json(["teams", "--name", name])).toMatchObject({ _id: id, maxBytes: 1000 });
    expect(await json(["teams", "suspend", id])).toMatchObject({ status: "suspended" });
    await expect(new Stowage({ url, key }).usage()).rejects.toMatchObject({ code: "team_suspended" });
    expect(await json(["teams", "resume", id])).toMatchObject({ status: "active" });
    expect(await json(["teams", "rm", id], "Radio\n")).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("not the"),
    });
    expect(await json(["teams", "show", id])).toMatchObject({ status: "active" });
    expect(await json(["keys", "create", "Second", "--team", id])).toMatchObject({ teamId: id });
    expect(await json(["keys", "--team", id, "--limit", "1"])).toMatchObject({ name: "Second" });
    expect(await json(["events", "--team", id, "--limit", "1"])).toMatchObject({ type: "apikey.created" });
    writeFileSync(machine.path("a.bin"), "bytes");
    for (const args of [["ls"], ["upload", "a.bin"], ["info", "0".repeat(24)]])
      expect(await json(args)).toEqual({
        code: 3,
        stderr: expect.stringMatching(/^stowage: .*needs the API key of a team/),
      });
    expect(await json(["teams", "rm", id], `${name}\n`)).toMatchObject({ code: 0, status: "deleting" });
    await expect(new Stowage({ url, key }).usage()).rejects.toMatchObject({ code: "token_invalid" });
  });

  test("creates, edits, and deletes users, keys, and webhooks", async () => {
    const { key, stowage } = await newTeam();
    const machine = new Machine(key);
    const json = async (args: string[], input?: string) => {
      const { code, stdout, stderr } = await machine.run([...args, "--json"], input === undefined ? {} : { input });
      expect({ code, stderr }, args.join(" ")).toEqual({ code: 0, stderr: "" });
      return JSON.parse(stdout);
    };
    const user = await json(["users", "create", "ada@example.com", "--first", "Ada"], "correct horse battery\n");
    expect(user).toMatchObject({ firstName: "Ada", email: "ada@example.com" });
    expect(user.password).toBeUndefined();
    expect(await json(["users", "update", user._id, "--last", "King"])).toMatchObject({ lastName: "King" });
    expect(await json(["users", "--name", "Ada K"])).toMatchObject({ _id: user._id });
    const hook = await json(["webhooks", "create", "http://127.0.0.1:9/", "--types", "user.deleted,user.created"]);
    expect(hook).toMatchObject({ types: ["user.deleted", "user.created"], secret: expect.stringMatching(/^whsec_/) });
    expect(await json(["webhooks", "test", hook._id])).toMatchObject({ httpStatus: null });
    await json(["users", "rm", user._id]);
    expect(await collect(stowage.users.list())).toEqual([]);
    const delivery = await json(["webhooks", "deliveries", hook._id]);
    expect(delivery).toMatchObject({ type: "user.deleted" });
    expect(await json(["webhooks", "redeliver", delivery._id])).toMatchObject({ _id: delivery._id });
    const [first] = await collect(stowage.events.list({ order: "asc" }));
    const replayed = await json(["webhooks", "replay", hook._id, "--after", first?._id ?? ""]);
    expect(replayed).toMatchObject({ deliveries: expect.any(Number) });
    const changed = await json(["webhooks", "update", hook._id, "--disable", "--endpoint", "http://127.0.0.1:10/"]);
    expect(changed).toMatchObject({ status: "disabled", url: "http://127.0.0.1:10/", types: hook.types });
    await json(["webhooks", "rm", hook._id]);
    expect(await stowage.webhooks.list()).toEqual([]);
    const expires = `${new Date().getUTCFullYear() + 1}-01-01`;
    const given = [
      "--max-files",
      "3",
      "--max-file-bytes",
      "5000",
      "--file-types",
      "audio, image",
      "--expires",
      expires,
    ];
    const made = await json(["keys", "create", "Player", "--public", ...given]);
    const limits = { maxFiles: 3, maxFileBytes: 5000, fileTypes: ["audio file", "image file"] };
    expect(made).toMatchObject({ isPublic: true, limits, expiresAt: `${expires}T00:00:00.000Z` });
    const rotated = await json(["keys", "rotate", made.id, "--overlap", "0"]);
    expect(rotated).toMatchObject({ name: "Player", limits, key: expect.stringMatching(/^stow_pk_/) });
    expect(rotated.oldKeyExpiresAt).toBe((await stowage.keys.get(made.id)).expiresAt);
    const remarks = linesOf((await machine.run(["keys"])).stdout).map((line) => line.split("\t")[4]);
    expect(remarks).toEqual([undefined, "expired", undefined]);
    for (const { id } of [made, rotated]) await json(["keys", "rm", id]);
    const { id: session } = await stowage.sessions.create();
    expect(await json(["sessions"])).toMatchObject({ _id: session });
    await json(["sessions", "rm", session]);
    expect(await collect(stowage.sessions.list())).toEqual([]);
    const scoped = await json(["keys", "create", "Reader", "--scopes", "files:read, files:download"]);
    expect(scoped).toMatchObject({ scopes: ["files:read", "files:download"] });
    const narrowed = await json(["keys", "update", scoped.id, "--scopes", "files:read", "--name", "Lister"]);
    expect(narrowed).toMatchObject({ name: "Lister", scopes: ["files:read"] });
    await json(["keys", "rm", scoped.id]);
    expect(await collect(stowage.keys.list())).toHaveLength(1);
  });

  test("creates and revokes links, and cancels unfinished uploads, but deletes no finished file", async () => {
    const { machine, ids } = await prepared();
    const { file = "" } = ids;
    const json = async (...args: string[]) => JSON.parse((await machine.run([...args, "--json"])).stdout);
    const expires = `${new Date().getUTCFullYear() + 1}-01-01`;
    const link = await json("link", file, "--expires", expires);
    expect(link).toMatchObject({ fileId: file, expiresAt: `${expires}T00:00:00.000Z`, disposition: "attachment" });
    expect((await fetch(link.url)).status).toBe(200);
    expect(await machine.run(["unlink", link._id])).toMatchObject({ code: 0, stdout: `${link._id}\trevoked\n` });
    expect((await fetch(link.url)).status).toBe(404);
    const { stdout: signedUrl } = await machine.run(["presign", file]);
    expect((await (await fetch(signedUrl.trim())).arrayBuffer()).byteLength).toBe(2000);
    const { _id: begun } = await json("uploads");
    expect(await machine.run(["cancel", begun])).toMatchObject({ code: 0, stdout: `${begun}\tcanceled\n` });
    expect(await machine.run(["uploads"])).toMatchObject({ code: 0, stdout: "" });
    expect(await machine.run(["cancel", file])).toMatchObject({
      code: 1,
      stderr: expect.stringContaining("stowage rm"),
    });
    expect(await machine.run(["info", file])).toMatchObject({ code: 0 });
  });

  test("takes the key of a profile or of an option, and sends none to another URL", async () => {
    const { key, teamId, stowage } = await newTeam();
    const other = await newTeam();
    const machine = new Machine(other.key);
    const whoami = async (...args: string[]) => JSON.parse((await machine.run(["whoami", "--json", ...args])).stdout);
    await machine.run(["login", url, "--profile", "radio"], { input: `${key}\n` });
    const me = { url, kind: "secret", role: null, scopes: expect.any(Array), expiresAt: expect.any(String) };
    expect(await whoami()).toEqual({ ...me, teamId: other.teamId });
    expect(await whoami("--profile", "radio")).toEqual({ ...me, teamId });
    expect(await whoami("--url", url, "--key", key)).toMatchObject({ teamId });
    const { key: publicKey } = await stowage.keys.create({ name: "public", isPublic: true });
    expect(await whoami("--key", publicKey)).toEqual({ ...me, kind: "public", teamId, scopes: ["files:upload"] });
    const thief = await scripted(hangUp);
    expect(await machine.run(["ls", "--url", thief.url])).toMatchObject({ code: 2 });
    expect(thief.requests).toEqual([]);
    expect(await machine.run(["logout", "--profile", "radio"])).toMatchObject({ code: 0, stderr: "" });
    expect(await machine.run(["ls", "--profile", "radio"])).toMatchObject({ code: 2 });
    expect((await machine.run(["ls", "--profile", "../radio"])).code).toBe(2);
    await stowage.usage();
  });

  test("shows requests with --debug without secrets, and no progress or notice with --quiet", async () => {
    const { key } = await newTeam();
    const machine = new Machine(key);
    writeFileSync(machine.path("large.bin"), bytesOf(9 * MEBIBYTE));
    symlinkSync("large.bin", machine.path("link.bin"));
    const args = ["upload", machine.folder, "--json", "--debug"];
    const sent = await machine.run(args);
    const { id } = JSON.parse(sent.stdout);
    const got = await machine.run(["get", id, "-o", "got.bin", "--debug"]);
    expect(sent.stderr).toContain(`PATCH ${url}/docs/v1/uploads/resumable/${id}.***: 204`);
    expect(got.stderr).toMatch(/GET \S+: 200, /);
    for (const { stderr } of [sent, got]) expect(stderr).not.toMatch(/[0-9a-f]{24}\.[0-9a-f]{32}|Signature|stow_sk/);
    const quiet = await machine.run(["upload", machine.folder, "--quiet"], { isTerminal: true });
    expect(quiet).toMatchObject({ code: 0, stderr: "" });
  });

  test("completes commands and options in bash, and prints scripts for zsh and fish", async () => {
    const { stdout } = await new Machine().run(["completion", "bash"]);
    const script = `${stdout}
      for words in "stowage up" "stowage keys cr" "stowage keys create --pub" "stowage ls --js"; do
        COMP_WORDS=($words); COMP_CWORD=$((\${#COMP_WORDS[@]} - 1)); _stowage; echo "\${COMPREPLY[*]}"
      done`;
    const { stdout: completed } = spawnSync("bash", ["-c", script], { encoding: "utf8" });
    expect(linesOf(completed)).toEqual(["upload uploads", "create", "--public", "--json"]);
    const zsh = await new Machine().run(["completion", "zsh"]);
    expect(zsh.stdout).toContain("compdef _stowage stowage");
    // They are special in zsh.
    expect(zsh.stdout).not.toMatch(/\b(path|words)=/);
    const fish = await new Machine().run(["completion", "fish"]);
    expect(fish.stdout).toContain(
      "__fish_seen_subcommand_from keys; and not __fish_seen_subcommand_from ls create update rotate rm",
    );
  });

  test("lists files after the end and before the start of a day", async () => {
    const service = await scripted(json(200, { data: [] }));
    await new Machine("key", service.url).run(["ls", "--after", "2026-11-01", "--before", "2026-11-05"]);
    const query = new URL(service.requests[0]?.url ?? "", service.url).searchParams;
    expect(query.get("createdAfter")).toBe("2026-11-01T23:59:59.999Z");
    expect(query.get("createdBefore")).toBe("2026-11-05T00:00:00.000Z");
  });

  test("shows the attempts of a redelivered event field by field", async () => {
    const attempts = [{ at: "2026-11-01", httpStatus: 500 }];
    const service = await scripted(json(200, { data: { _id: "1", attempts } }));
    const { stdout } = await new Machine("key", service.url).run(["webhooks", "redeliver", "1"]);
    expect(linesOf(stdout)).toEqual(["_id\t1", "attempts.0.at\t2026-11-01", "attempts.0.httpStatus\t500"]);
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

  test("prints columns on a terminal", async () => {
    const { machine, ids } = await prepared();
    for (const [name, argsOf] of commands) {
      const { code, stdout } = await machine.run(argsOf(ids), { isTerminal: true });
      expect(code, `${name}: ${stdout}`).toBe(0);
      expect(stdout, name).not.toContain("\t");
      expect(linesOf(stdout).length, name).toBeGreaterThan(0);
    }
  });

  test("describes its arguments with --help, with examples", async () => {
    const machine = new Machine();
    const overview = await machine.run(["--help"]);
    expect(overview).toMatchObject({ code: 0, stderr: "" });
    for (const name of new Set(commands.map(([name]) => name.split(" ")[0] ?? ""))) {
      expect(overview.stdout).toContain(`  ${name} `);
      const { code, stdout } = await machine.run([name, "--help"]);
      expect(code).toBe(0);
      expect(stdout).toContain(`Usage: stowage ${name}`);
      expect(stdout).toContain("Examples:\n  stowage");
    }
  });
});

describe("stowage upload", () => {
  test("sends folders, skips sent files, and resends changed and deleted ones", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    mkdirSync(machine.path("in/deeper"), { recursive: true });
    const names = ["in/a.bin", "in/b.bin", "in/deeper/c.bin"];
    for (const name of names) writeFileSync(machine.path(name), bytesOf(3000));
    const first = await machine.run(["upload", "in", "in/a.bin"]);
    expect(first).toMatchObject({ code: 0, stderr: "" });
    expect(
      linesOf(first.stdout)
        .map((line) => line.split("\t")[1])
        .toSorted(),
    ).toEqual(names.map((name) => join(name)));
    const files = await stored(team);
    expect(files.map((file) => file.originalName).toSorted()).toEqual(["a.bin", "b.bin", "c.bin"]);
    writeFileSync(machine.path("in/a.bin"), bytesOf(3001));
    await team.stowage.files.delete(files.find((file) => file.originalName === "b.bin")?._id ?? "");
    const second = await machine.run(["upload", "in", "--json"]);
    const skipped = linesOf(second.stdout)
      .map((line) => JSON.parse(line))
      .map(({ path, skipped }) => [path, skipped]);
    expect(Object.fromEntries(skipped)).toEqual({
      [machine.path("in/a.bin")]: false,
      [machine.path("in/b.bin")]: false,
      [machine.path("in/deeper/c.bin")]: true,
    });
    expect(await stored(team)).toHaveLength(4);
  });

  test("keeps folders, which get --folder restores, and sets properties", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    mkdirSync(machine.path("show/2026/ü"), { recursive: true });
    for (const name of ["a.bin", "2026/a.bin", "2026/ü/b.bin"])
      writeFileSync(machine.path(`show/${name}`), bytesOf(900));
    writeFileSync(machine.path("large.bin"), bytesOf(RESUMABLE_BYTES));
    const given = ["--folder", "/podcast/", "--tag", "x", "--tag", "y", "--metadata", '{"season":2}'];
    expect(await machine.run(["upload", "show", ...given])).toMatchObject({ code: 0, stderr: "" });
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

    // The second file with a name in a folder gets its ID as well.
    const id = await upload(team, "a.bin", "second");
    await machine.run(["mv", id, "--folder", "podcast/show/2026"]);
    expect(await machine.run(["get", "--folder", "podcast/show", "-o", "out"])).toMatchObject({ code: 0, stderr: "" });
    for (const name of ["a.bin", "2026/a.bin", "2026/ü/b.bin"])
      expect(readFileSync(machine.path(`out/show/${name}`))).toEqual(readFileSync(machine.path(`show/${name}`)));
    expect(readFileSync(machine.path(`out/show/2026/${id}-a.bin`), "utf8")).toBe("second");
    const again = await machine.run(["get", "--folder", "podcast/show", "-o", "out"]);
    expect(linesOf(again.stdout).every((line) => line.endsWith("already there"))).toBe(true);
    expect(await machine.run(["get", "--folder", "none"])).toMatchObject({ code: 4 });
    mkdirSync(machine.path("elsewhere"));
    mkdirSync(machine.path("linked"));
    symlinkSync(machine.path("elsewhere"), machine.path("linked/show"));
    const linked = await machine.run(["get", "--folder", "podcast/show", "-o", "linked"]);
    expect(linked).toMatchObject({ code: 1, stderr: expect.stringContaining("is not a folder") });
    expect(readdirSync(machine.path("elsewhere"))).toEqual([]);
    for (const args of [["get"], ["get", id, "--folder", "a"], ["get", "--folder", "podcast", "-o", "-"]])
      expect((await machine.run(args)).code, args.join(" ")).toBe(2);

    writeFileSync(machine.path("show/2026/new.bin"), bytesOf(100));
    expect(linesOf((await machine.run(["sync", "show", "--folder", "podcast"])).stdout)).toHaveLength(4);
    const listed = await machine.run(["ls", "--under", "podcast/show/2026", "--sort", "name"]);
    expect(linesOf(listed.stdout).map((line) => line.split("\t").at(-1))).toEqual([
      "podcast/show/2026/a.bin",
      "podcast/show/2026/a.bin",
      "podcast/show/2026/ü/b.bin",
      "podcast/show/2026/new.bin",
    ]);
  });

  test("tags, moves and renames files, and reports those that it can't change", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const ids = [await upload(team, "a", "a"), await upload(team, "b", "b")];
    const unknown = "0".repeat(24);
    const tagged = await machine.run(["tag", "x", ...ids, unknown]);
    expect(tagged).toMatchObject({ code: 4, stderr: `stowage: ${unknown}: Not found.\n` });
    expect(linesOf(tagged.stdout)).toEqual(ids.map((id) => `${id}\ttagged`));
    await machine.run(["untag", "x", ids[0] ?? ""]);
    expect(await machine.run(["mv", ids[0] ?? "", "--name", "new name", "--folder", "f"])).toMatchObject({ code: 0 });
    const listing = async (...args: string[]) =>
      linesOf((await machine.run(["ls", ...args])).stdout).map((line) => line.split("\t").at(-1));
    expect(await listing("--tag", "x")).toEqual(["b"]);
    expect(await listing("--search", "NAME")).toEqual(["f/new name"]);
    expect((await machine.run(["mv", ...ids])).code).toBe(2);
    expect((await machine.run(["mv", ...ids, "--name", "c"])).code).toBe(2);
    expect((await machine.run(["mv", ids[0] ?? "", "--name", ".."])).stderr).toContain("The name must be a file name");
    expect((await machine.run(["upload", "a", "--metadata", "[]"])).code).toBe(2);
  });

  test("sends stdin under a name, and rejects empty input", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const sent = await machine.run(["upload", "-", "--name", "a.txt", "--wait", "--json"], { input: "la la" });
    expect(sent).toMatchObject({ code: 0, stderr: "" });
    expect(JSON.parse(sent.stdout)).toMatchObject({ path: "-", size: 5, failure: null });
    expect(await stored(team)).toMatchObject([{ originalName: "a.txt", size: 5 }]);
    for (const args of [["-"], ["-", "a.bin"], ["a.bin", "--name", "b"]])
      expect((await machine.run(["upload", ...args])).code, args.join(" ")).toBeGreaterThan(0);
  });

  test.for(["SIGKILL", "SIGINT"] as const)(
    "resumes after %s, and resends less than 5.1 MiB",
    async (signal, { annotate }) => {
      const team = await newTeam();
      // Stalls after the first parts, so that bytes are left to send.
      const passedBytes = 23 * MEBIBYTE;
      const line = await openLine("stall", passedBytes);
      const machine = new Machine(team.key, line.url);
      const bytes = bytesOf(40 * MEBIBYTE);
      writeFileSync(machine.path("large.bin"), bytes);
      const first = machine.start(["upload", "large.bin"]);
      await vi.waitUntil(() => line.faults > 0, { timeout: 60_000 });
      first.child.kill(signal);
      const ended = await first.ended;
      if (signal === "SIGINT") {
        expect(ended).toMatchObject({ code: 130, stdout: "" });
        expect(linesOf(ended.stderr)).toEqual(["stowage: Interrupted. Run the same command again to resume."]);
      }
      line.heal();
      const before = line.sentBytes;
      const second = await machine.run(["upload", "large.bin", "--json"]);
      expect(second).toMatchObject({ code: 0, stderr: "" });
      const { id } = JSON.parse(second.stdout);
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
    writeFileSync(machine.path("other.bin"), "bytes");
    await machine.run(["upload", "other.bin"]);
    const journal = machine.path(`state/stowage/${readdirSync(machine.path("state/stowage"))[0]}`);
    // A power failure may leave half a line, which must not swallow the next.
    appendFileSync(journal, '["cut sh');
    writeFileSync(machine.path("small.bin"), bytesOf(60_000));
    const first = machine.start(["upload", "small.bin"]);
    await vi.waitUntil(() => line.faults > 0, { timeout: 60_000 });
    first.child.kill("SIGKILL");
    await first.ended;
    expect(statSync(journal).mode & 0o777).toBe(0o600);
    expect(statSync(machine.path("state/stowage")).mode & 0o777).toBe(0o700);
    line.heal();
    expect(await machine.run(["upload", "small.bin"])).toMatchObject({ code: 0, stderr: "" });
    expect(await stored(team)).toHaveLength(2);
  });

  test("shows progress bars with speed and time left on a terminal", async () => {
    const machine = new Machine((await newTeam()).key);
    writeFileSync(machine.path("a.bin"), bytesOf(70_000));
    const { code, stdout } = await machine.start(["upload", "a.bin"], { isTerminal: true }).ended;
    expect(code).toBe(0);
    expect(stdout).toMatch(/a\.bin +\[[#-]{20}\] +\d+% +[\d.]+ k?M?B\/s +[\d:-]+/);
    expect(linesOf(stdout).at(-1)).toMatch(/[0-9a-f]{24} {2}a\.bin$/);
  });

  test("works with a public key, which can't read files", async () => {
    const team = await newTeam();
    const { key } = await team.stowage.keys.create({ name: "public", isPublic: true });
    const machine = new Machine(key);
    writeFileSync(machine.path("a.bin"), bytesOf(500));
    expect(await machine.run(["upload", "a.bin"])).toMatchObject({ code: 0, stderr: "" });
    const second = await machine.run(["upload", "a.bin"]);
    expect(second.stdout).toContain("already sent");
    expect(await stored(team)).toHaveLength(1);
    writeFileSync(machine.path("b.bin"), bytesOf(500));
    const waiting = await machine.run(["upload", "b.bin", "--wait"]);
    expect(waiting.code).toBe(0);
    expect(linesOf(waiting.stderr)).toEqual([expect.stringContaining("This key can't read whether it was processed.")]);
  });

  test("reports missing and empty files, and sends the others", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    writeFileSync(machine.path("a.bin"), bytesOf(500));
    writeFileSync(machine.path("empty.bin"), "");
    const { code, stdout, stderr } = await machine.run(["upload", "a.bin", "gone.bin", "empty.bin"]);
    expect(code).toBe(1);
    expect(linesOf(stderr)).toEqual([
      "stowage: gone.bin does not exist.",
      `stowage: ${machine.path("empty.bin")} is empty (0 bytes).`,
    ]);
    expect(linesOf(stdout)).toHaveLength(1);
    expect(await stored(team)).toHaveLength(1);
  });

  test("sends the readable files of a folder, and reports links and the unreadable", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    mkdirSync(machine.path("in/deeper"), { recursive: true });
    // The name is not valid UTF-8, so the file can't be opened again, not even by root.
    writeFileSync(Buffer.concat([Buffer.from(machine.path("in/b")), Buffer.from([0xff])]), "lost");
    for (const name of ["in/a.bin", "in/deeper/c.bin", "in/z.bin"]) writeFileSync(machine.path(name), bytesOf(100));
    symlinkSync("a.bin", machine.path("in/link.bin"));
    symlinkSync("..", machine.path("in/up"));
    const { code, stdout, stderr } = await machine.run(["upload", "in", "/dev/null"]);
    expect(code).toBe(1);
    expect(linesOf(stderr).toSorted()).toEqual(
      [
        `stowage: Skipped ${machine.path("in/link.bin")}: it is a link.`,
        `stowage: Skipped ${machine.path("in/up")}: it is a link.`,
        `stowage: ${machine.path("in/b\ufffd")} does not exist.`,
        "stowage: /dev/null is neither a file nor a folder.",
      ].toSorted(),
    );
    expect(linesOf(stdout)).toHaveLength(3);
    expect(await machine.run(["upload", "in/link.bin"])).toMatchObject({ code: 0, stderr: "" });
  });

  test("resends files that changed in place, in time or size", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const [name, other] = [machine.path("a.bin"), machine.path("b.bin")];
    writeFileSync(name, "bytes");
    await machine.run(["upload", name]);
    writeFileSync(name, "other");
    utimesSync(name, new Date(), new Date("2026-01-01"));
    writeFileSync(other, "bytes");
    expect((await machine.run(["upload", name, other])).stdout).not.toContain("already sent");
    expect(await stored(team)).toHaveLength(3);
    expect((await machine.run(["upload", name, other])).stdout.match(/already sent/g)).toHaveLength(2);
    writeFileSync(name, "longer");
    utimesSync(name, new Date(), new Date("2026-01-01"));
    expect((await machine.run(["upload", name])).stdout).not.toContain("already sent");
  });

  test("skips a file whose modification time changed but not its content", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    for (const size of [500, 9_000_000]) {
      const path = machine.path(`${size}.bin`);
      writeFileSync(path, bytesOf(size));
      expect((await machine.run(["upload", path])).code).toBe(0);
      utimesSync(path, new Date(), new Date("2026-01-01"));
      for (const _ of [1, 2]) expect((await machine.run(["upload", path])).stdout).toContain("already sent");
    }
    expect(await stored(team)).toHaveLength(2);
  });

  test("resends a file whose stored bytes are damaged", async () => {
    const bytes = Buffer.from("bytes");
    let digest = sha256(bytes);
    const service = await scripted((request, response) => {
      if (request.method === "POST") response.setHeader("Location", "/docs/v1/uploads/1");
      const metadata = { sha256: digest, failure: null, status: "completed" };
      response.end(JSON.stringify({ data: request.url?.endsWith("/metadata") ? metadata : [] }));
    });
    const machine = new Machine("key", service.url);
    writeFileSync(machine.path("a.bin"), bytes);
    expect((await machine.run(["upload", "a.bin"])).code).toBe(0);
    digest = "0".repeat(64);
    expect((await machine.run(["upload", "a.bin"])).stdout).not.toContain("already sent");
    expect(service.requests.filter(({ method }) => method === "POST")).toHaveLength(2);
  });

  test("fails if the file changes during the upload", async () => {
    const machine = new Machine("key");
    const path = machine.path("recording.wav");
    writeFileSync(path, Buffer.alloc(9_000_000));
    const { size, mtimeMs } = statSync(path);
    const file = { path, size, changedAt: mtimeMs };
    const { signal } = new AbortController();
    const { blob } = await openFile(file, signal);
    const service = await scripted((request, response) => {
      if (request.method === "POST") appendFileSync(path, "more");
      if (request.method === "POST")
        response.writeHead(201, { Location: `${service.url}/docs/v1/uploads/resumable/1.2` });
      response.end(JSON.stringify({ data: [] }));
    });
    const run = await machine.run(["upload", "recording.wav"], { env: { STOWAGE_URL: service.url } });
    expect(run).toMatchObject({
      code: 1,
      stdout: "",
      stderr: expect.stringMatching(/^.*The file changed during the upload\.\n$/),
    });
    await expect(blob.arrayBuffer()).rejects.toThrow();
    await expect(openFile(file, signal)).rejects.toThrow("The file changed during the upload.");
    await expect(openFile(file, AbortSignal.abort(new Error("enough")))).rejects.toThrow("enough");
  });

  test("reports failed processing with --wait, and exits with 1", async () => {
    const bytes = Buffer.from("bytes");
    const failure = { code: "audio_unreadable", message: "The audio can't be read." };
    const service = await scripted((request, response) => {
      if (request.method === "POST") response.setHeader("Location", "/docs/v1/uploads/1");
      const metadata = { sha256: sha256(bytes), failure, status: "failed" };
      response.end(JSON.stringify({ data: request.url?.endsWith("/metadata") ? metadata : [] }));
    });
    const machine = new Machine("key", service.url);
    writeFileSync(machine.path("a.bin"), bytes);
    const { code, stdout } = await machine.run(["upload", "a.bin", "--wait"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: `1\ta.bin\tprocessing failed: ${failure.message}\n` });
  });

  test("stores small files once that three runs send at the same time", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    mkdirSync(machine.path("in"));
    for (let count = 0; count < 20; count++) writeFileSync(machine.path(`in/${count}.bin`), bytesOf(100_000));
    const runs = await Promise.all([1, 2, 3].map(() => machine.run(["upload", "in"])));
    for (const { code, stdout, stderr } of runs) {
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(linesOf(stdout)).toHaveLength(20);
    }
    expect(await stored(team)).toHaveLength(20);
  });

  test("stores a large file once that two runs send at the same time", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    writeFileSync(machine.path("large.bin"), bytesOf(12_000_000));
    const runs = await Promise.all([1, 2].map(() => machine.run(["upload", "large.bin"])));
    expect(runs.map(({ code }) => code)).toEqual([0, 0]);
    expect(runs.filter(({ stdout }) => stdout.includes("already sent"))).toHaveLength(1);
    expect(runs.map(({ stderr }) => stderr).join("")).toMatch(/^stowage: .*waiting for another upload of this file/);
    expect(await stored(team)).toHaveLength(1);
  });

  /** A service that takes resumable uploads, and never processes them by itself. */
  const unprocessed = (metadata: object) =>
    scripted((request, response) => {
      if (request.method === "POST") response.writeHead(201, { Location: "/docs/v1/uploads/resumable/1.2" });
      if (request.method === "PATCH")
        response.writeHead(204, { "Upload-Offset": "9000000", "Content-Location": "/docs/v1/uploads/1" });
      response.end(JSON.stringify({ data: request.url?.endsWith("/metadata") ? metadata : [] }));
    });

  test("does not wait until a large file is processed, and lets the service compare its checksum", async () => {
    const service = await unprocessed({ sha256: null, failure: null, status: "pending" });
    const machine = new Machine("key", service.url);
    const bytes = Buffer.alloc(9_000_000);
    writeFileSync(machine.path("large.bin"), bytes);
    expect(await machine.run(["upload", "large.bin"])).toMatchObject({ code: 0, stderr: "" });
    const created = service.requests.find(({ method }) => method === "POST");
    expect(created?.headers["upload-metadata"]).toContain(`sha256 ${btoa(sha256(bytes))}`);
  });

  test.each([
    ["retries_exhausted", 1],
    ["bytes_altered", 6],
  ])("reports the processing failure %s of a large file with --wait, and exits with %i", async (code, expected) => {
    const failure = { code, message: `Failed: ${code}.` };
    const service = await unprocessed({ sha256: null, failure, status: "failed" });
    const machine = new Machine("key", service.url);
    writeFileSync(machine.path("large.bin"), Buffer.alloc(9_000_000));
    const run = await machine.run(["upload", "large.bin", "--wait"]);
    expect(run).toMatchObject({ code: expected, stdout: `1\tlarge.bin\tprocessing failed: ${failure.message}\n` });
  });

  test.each([
    [500, 1],
    [520, 5],
  ])("sends the other files if the service responds %i to one, and exits with %i", async (status, expected) => {
    let posts = 0;
    const service = await scripted((request, response) => {
      if (request.method === "POST" && ++posts <= 5) {
        json(status, "", { "Retry-After": "0" })(request, response);
      } else {
        if (request.method === "POST") response.setHeader("Location", `/docs/v1/uploads/${posts}`);
        response.end(JSON.stringify({ data: [] }));
      }
    });
    const machine = new Machine("key", service.url);
    for (const name of ["a.bin", "b.bin", "c.bin"]) writeFileSync(machine.path(name), "bytes");
    const run = await machine.run(["upload", "a.bin", "b.bin", "c.bin", "--parallel", "1"]);
    expect(run.code).toBe(expected);
    expect(linesOf(run.stdout).map((line) => line.split("\t")[1])).toEqual(["b.bin", "c.bin"]);
    expect(linesOf(run.stderr)).toEqual([expect.stringContaining("a.bin: ")]);
  });

  test("names the remedy if it can't write its journal", async () => {
    const machine = new Machine((await newTeam()).key);
    writeFileSync(machine.path("a.bin"), "bytes");
    writeFileSync(machine.path("state"), "a file");
    const { code, stdout, stderr } = await machine.run(["upload", "a.bin"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^stowage: .*state.* set XDG_STATE_HOME to a writable folder\.\n$/);
  });

  test.skipIf(process.platform === "win32")("keeps the whole name of a file with a backslash", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    writeFileSync(machine.path("back\\slash.txt"), "bytes");
    expect(await machine.run(["upload", "back\\slash.txt"])).toMatchObject({ code: 0, stderr: "" });
    expect((await stored(team)).map((file) => file.originalName)).toEqual(["back_slash.txt"]);
  });

  test("compacts its journal unless another run uses it, and both runs keep their lines", () => {
    const folder = new Machine().path("journal");
    const size = () => statSync(join(folder, readdirSync(folder)[0] ?? "")).size;
    const file = { path: "/song.wav", size: 5, changedAt: 1 };
    const other = { ...file, path: "/other.wav" };
    const first = new Journal(folder, "scope");
    for (let line = 0; line < 8000; line++) first.save(file, { id: "1", sha256: "a".repeat(64) });
    expect(size()).toBeGreaterThan(MEBIBYTE);
    const second = new Journal(folder, "scope");
    expect(size()).toBeGreaterThan(MEBIBYTE);
    for (const journal of [first, second]) journal.close();
    const third = new Journal(folder, "scope");
    expect(size()).toBeLessThan(1000);
    third.save(other, { id: "2" });
    const fourth = new Journal(folder, "scope");
    expect([fourth.find(file).id, fourth.find(other).id]).toEqual(["1", "2"]);
    for (const journal of [third, fourth]) journal.close();
  });

  test.skipIf(!existsSync("/dev/full"))("reports a full disk of its journal once, and sends nothing", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    mkdirSync(machine.path("in"));
    writeFileSync(machine.path("in/a.bin"), "bytes");
    await machine.run(["upload", "in"]);
    const journal = machine.path(`state/stowage/${readdirSync(machine.path("state/stowage"))[0]}`);
    rmSync(journal);
    symlinkSync("/dev/full", journal);
    writeFileSync(machine.path("in/b.bin"), "bytes");
    writeFileSync(machine.path("in/c.bin"), Buffer.alloc(9_000_000));
    const { code, stdout, stderr } = await machine.run(["upload", "in"]);
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(linesOf(stderr)).toEqual([expect.stringContaining(`${journal} can't be written: the disk is full.`)]);
    expect(await stored(team)).toHaveLength(1);
  });

  test("does not resend a file if another server forbids the lookup of its upload", async () => {
    const service = await scripted((request, response) => {
      if (request.method === "POST") response.setHeader("Location", "/docs/v1/uploads/1");
      if (request.url?.endsWith("/metadata")) response.statusCode = 403;
      response.end(JSON.stringify({ data: [] }));
    });
    const machine = new Machine("key", service.url);
    writeFileSync(machine.path("a.bin"), bytesOf(500));
    expect(await machine.run(["upload", "a.bin"])).toMatchObject({ code: 0, stderr: "" });
    const { code, stdout, stderr } = await machine.run(["upload", "a.bin"]);
    expect({ code, stdout }).toEqual({ code: 3, stdout: "" });
    expect(linesOf(stderr)).toHaveLength(1);
    expect(service.requests.filter(({ method }) => method === "POST")).toHaveLength(1);
  });

  test("exits with 6 if the service received other bytes, and with 1 if another file fails for another reason", async () => {
    const service = await scripted((request, response) => {
      if (request.method === "POST") refusal(400, "digest_mismatch")(request, response);
      else response.end(JSON.stringify({ data: [] }));
    });
    const machine = new Machine("key", service.url);
    writeFileSync(machine.path("a.bin"), "bytes");
    writeFileSync(machine.path("empty.bin"), "");
    const { code, stdout, stderr } = await machine.run(["upload", "a.bin"]);
    expect({ code, stdout }).toEqual({ code: 6, stdout: "" });
    expect(linesOf(stderr)).toEqual([`stowage: ${machine.path("a.bin")}: Checksum mismatch. Upload it again.`]);
    const digest = createHash("sha256").update("bytes").digest("base64");
    const posted = service.requests.find(({ method }) => method === "POST");
    expect(posted?.headers["repr-digest"]).toBe(`sha-256=:${digest}:`);
    expect((await machine.run(["upload", "a.bin", "empty.bin"])).code).toBe(1);
  });

  test("sends --parallel files at a time, and rejects other values than 1 to 64", async () => {
    let open = 0;
    let most = 0;
    const service = await scripted((request, response) => {
      if (request.method !== "POST") return void response.end(JSON.stringify({ data: [] }));
      open += 1;
      most = Math.max(most, open);
      setTimeout(() => {
        open -= 1;
        response.setHeader("Location", "/docs/v1/uploads/1").end("{}");
      }, 20);
    });
    const machine = new Machine("key", service.url);
    mkdirSync(machine.path("in"));
    for (let count = 0; count < 6; count++) writeFileSync(machine.path(`in/${count}.bin`), "bytes");
    expect((await machine.run(["upload", "in", "--parallel", "1"])).code).toBe(0);
    expect(most).toBe(1);
    for (const parallel of ["0", "65", "1.5", "many"]) {
      expect((await machine.run(["upload", "in", "--parallel", parallel])).code, parallel).toBe(2);
    }
  });

  test("sends many files in parallel, each once", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    mkdirSync(machine.path("in"));
    for (let count = 0; count < 120; count++) writeFileSync(machine.path(`in/${count}.bin`), `bytes ${count}`);
    const { code, stdout, stderr } = await machine.run(["upload", "in", "--parallel", "64"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(linesOf(stdout)).toHaveLength(120);
    expect(await stored(team)).toHaveLength(120);
  });

  test("stops if the service is unreachable", async () => {
    const away = refusal(503, "unavailable", { "Retry-After": "0" });
    const service = await scripted((request, response) => {
      if (request.method === "POST") away(request, response);
      else response.end(JSON.stringify({ data: [] }));
    });
    const machine = new Machine("key", service.url);
    for (const name of ["a.bin", "b.bin", "c.bin"]) writeFileSync(machine.path(name), "bytes");
    const { code, stdout, stderr } = await machine.run(["upload", "a.bin", "b.bin", "c.bin", "--parallel", "1"]);
    expect({ code, stdout }).toEqual({ code: 5, stdout: "" });
    expect(linesOf(stderr)).toHaveLength(1);
    expect(service.requests.filter(({ method }) => method === "POST")).toHaveLength(5);
  });

  test("reports a rejected key once for many files", async () => {
    const machine = new Machine("stow_sk_wrong");
    mkdirSync(machine.path("in"));
    for (let count = 0; count < 20; count++) writeFileSync(machine.path(`in/${count}.bin`), "bytes");
    const { code, stdout, stderr } = await machine.run(["upload", "in"]);
    expect({ code, stdout }).toEqual({ code: 3, stdout: "" });
    expect(linesOf(stderr)).toEqual([
      "stowage: The token is invalid, revoked, or expired. Run `stowage login`, or set STOWAGE_KEY.",
    ]);
  });
});

describe("stowage get", () => {
  test("writes a file under its name, and replaces existing ones only with --force", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const bytes = bytesOf(300_000);
    const id = await upload(team, "song.bin", bytes);
    expect(await machine.run(["get", id])).toMatchObject({ code: 0, stdout: "song.bin\n", stderr: "" });
    expect(readFileSync(machine.path("song.bin")).equals(bytes)).toBe(true);
    expect(await machine.run(["get", id])).toMatchObject({ code: 0, stdout: "song.bin\talready there\n" });
    writeFileSync(machine.path("song.bin"), "mine");
    const rejected = await machine.run(["get", id]);
    expect(rejected).toMatchObject({ code: 1, stdout: "" });
    expect(linesOf(rejected.stderr)).toHaveLength(1);
    expect(readFileSync(machine.path("song.bin"), "utf8")).toBe("mine");
    expect(await machine.run(["get", id, "--force"])).toMatchObject({ code: 0 });
    expect(readFileSync(machine.path("song.bin")).equals(bytes)).toBe(true);
    expect(readdirSync(machine.folder).filter((name) => name.endsWith(".part"))).toEqual([]);
  });

  test("resumes a partial file, and deletes it if its checksum differs", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const bytes = bytesOf(300_000);
    const id = await upload(team, "song.bin", bytes);
    const part = machine.path(`song.bin.${id}.part`);
    writeFileSync(part, bytes.subarray(0, 200_000));
    expect(await machine.run(["get", id, "-o", "song.bin"])).toMatchObject({ code: 0 });
    expect(readFileSync(machine.path("song.bin")).equals(bytes)).toBe(true);
    // Only the rest is downloaded, so the damaged beginning stays.
    writeFileSync(machine.path(`other.bin.${id}.part`), Buffer.alloc(200_000, 1));
    const altered = await machine.run(["get", id, "-o", "other.bin"]);
    expect(altered).toMatchObject({ code: 6, stdout: "" });
    expect(linesOf(altered.stderr)).toHaveLength(1);
    expect(readdirSync(machine.folder).filter((name) => name.startsWith("other"))).toEqual([]);
  });

  test.skipIf(process.platform === "win32")(
    "reports a full disk, and leaves no incomplete file under the name",
    async () => {
      const team = await newTeam();
      const machine = new Machine(team.key);
      const id = await upload(team, "song.bin", bytesOf(300_000));
      // Limits each file to 50 or 100 KiB, depending on the shell. A full disk would need its own file system.
      const { code, stdout, stderr } = await machine.start(["get", id], { script: 'ulimit -f 100 && exec "$@"' }).ended;
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      expect(stderr).toMatch(/^stowage: song\.bin\.[0-9a-f]{24}\.part exceeds the file size limit of this system\.\n$/);
      expect(existsSync(machine.path("song.bin"))).toBe(false);
      expect(await machine.run(["get", id])).toMatchObject({ code: 0 });
    },
  );

  test("never writes through a link", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const bytes = bytesOf(3000);
    const id = await upload(team, "song.bin", bytes);
    for (const name of [`song.bin.${id}.part`, "song.bin"]) {
      symlinkSync("outside.bin", machine.path(name));
      for (const outside of [undefined, Buffer.from("mine"), ...(name === "song.bin" ? [] : [bytes])]) {
        if (outside) writeFileSync(machine.path("outside.bin"), outside);
        const { code, stdout, stderr } = await machine.run(["get", id]);
        expect({ code, stdout }, name).toEqual({ code: 1, stdout: "" });
        expect(linesOf(stderr)).toHaveLength(1);
        expect(existsSync(machine.path("outside.bin"))).toBe(outside !== undefined);
        if (outside) expect(readFileSync(machine.path("outside.bin")).equals(outside)).toBe(true);
      }
      if (name !== "song.bin") rmSync(machine.path(name));
      rmSync(machine.path("outside.bin"));
    }
    expect(await machine.run(["get", id, "--force"])).toMatchObject({ code: 0, stderr: "" });
    expect(lstatSync(machine.path("song.bin")).isFile()).toBe(true);
    expect(existsSync(machine.path("outside.bin"))).toBe(false);
  });

  test("writes to stdout with -o -, and checks the checksum", async () => {
    const team = await newTeam();
    const id = await upload(team, "song.txt", Buffer.from("la la la"));
    expect(await new Machine(team.key).run(["get", id, "-o", "-"])).toMatchObject({ code: 0, stdout: "la la la" });
    const service = await storing("la la la", sha256(Buffer.from("lo lo lo")));
    const altered = await new Machine("key", service.url).run(["get", "1", "-o", "-"]);
    expect(altered).toMatchObject({ code: 6, stdout: "la la la" });
    expect(linesOf(altered.stderr)).toHaveLength(1);
  });

  test("writes no bytes to a terminal unless forced", async () => {
    const service = await storing("la la la", sha256(Buffer.from("la la la")));
    const machine = new Machine("key", service.url);
    const rejected = await machine.run(["get", "1", "-o", "-"], { isTerminal: true });
    expect(rejected).toMatchObject({ code: 2, stdout: "", stderr: expect.stringContaining("Redirect stdout") });
    const forced = await machine.run(["get", "1", "-o", "-", "--force"], { isTerminal: true });
    expect(forced).toMatchObject({ code: 0, stdout: "la la la" });
  });

  test("writes no file outside of the folder, and discards a partial file that is too long", async () => {
    const service = await storing("la la la", sha256(Buffer.from("la la la")), undefined, undefined, "../..\\song.txt");
    const machine = new Machine("key", service.url);
    writeFileSync(machine.path("_.._.._song.txt.1.part"), "la la la la la");
    expect(await machine.run(["get", "1"])).toMatchObject({ code: 0, stdout: "_.._.._song.txt\n", stderr: "" });
    expect(readdirSync(machine.folder)).toEqual(["_.._.._song.txt"]);
  });

  test("writes no hidden file, because the uploader chooses the name", async () => {
    const service = await storing("la", sha256(Buffer.from("la")), undefined, undefined, ".bashrc");
    const machine = new Machine("key", service.url);
    expect(await machine.run(["get", "1"])).toMatchObject({ code: 0, stdout: "_.bashrc\n" });
    expect(readdirSync(machine.folder)).toEqual(["_.bashrc"]);
  });

  test("checks a file that is processed during the download", async () => {
    const service = await storing("la la la", null, sha256(Buffer.from("lo lo lo")));
    const machine = new Machine("key", service.url);
    expect(await machine.run(["get", "1"])).toMatchObject({ code: 6, stdout: "" });
    expect(readdirSync(machine.folder)).toEqual([]);
  });

  test("resumes after a disconnect, to a file and to stdout", async () => {
    const bytes = Buffer.from("la la la");
    for (const output of ["song.txt", "-"]) {
      let isBroken = true;
      const service = await storing(bytes, sha256(bytes), undefined, (request, response) => {
        const from = Number(/\d+/.exec(request.headers.range ?? "")?.[0] ?? 0);
        response.writeHead(from > 0 ? 206 : 200, { "Content-Length": bytes.length - from });
        if (isBroken) response.write(bytes.subarray(0, 3), () => response.destroy());
        else response.end(bytes.subarray(from));
        isBroken = false;
      });
      const machine = new Machine("key", service.url);
      const { code, stdout, stderr } = await machine.run(["get", "1", "-o", output]);
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      expect(output === "-" ? stdout : readFileSync(machine.path("song.txt"), "utf8")).toBe("la la la");
      expect(service.requests.filter(({ headers }) => headers.range === "bytes=3-")).toHaveLength(1);
    }
  });

  test("exits with 5 if the connection always breaks, and with 1 if the server ignores ranges", async () => {
    const bytes = Buffer.from("la la la");
    const service = await storing(bytes, null, null, (request, response) => {
      if (request.headers.range === undefined) {
        response.writeHead(200, { "Content-Length": bytes.length });
        response.write(bytes.subarray(0, 3), () => response.destroy());
      } else if (isDeaf) response.end(bytes);
      else {
        response.writeHead(206, { "Content-Length": bytes.length - 3 }).flushHeaders();
        setImmediate(() => response.destroy());
      }
    });
    let isDeaf = false;
    const machine = new Machine("key", service.url);
    for (const code of [5, 1]) {
      const run = await machine.run(["get", "1"]);
      expect(run).toMatchObject({ code, stdout: "" });
      expect(linesOf(run.stderr)).toHaveLength(1);
      expect(readFileSync(machine.path("song.txt.1.part"), "utf8")).toBe("la ");
      isDeaf = true;
    }
  });

  test("replaces no file that appears under the name during the download", async () => {
    const machine = new Machine("key");
    const service = await storing("la", sha256(Buffer.from("la")), undefined, (_, response) => {
      writeFileSync(machine.path("song.txt"), "mine");
      response.end("la");
    });
    const { code, stdout, stderr } = await machine.run(["get", "1"], {
      env: { STOWAGE_URL: service.url, STOWAGE_KEY: "k" },
    });
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(/^stowage: song\.txt already exists.*\n$/);
    expect(readFileSync(machine.path("song.txt"), "utf8")).toBe("mine");
  });

  test("downloads --parallel files at a time, and stops at the first failure", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const ids = await Promise.all([1, 2, 3].map((number) => upload(team, `${number}.txt`, `la ${number}`)));
    const got = await machine.run(["get", ...ids, "--parallel", "3"]);
    expect(got).toMatchObject({ code: 0, stderr: "" });
    expect(linesOf(got.stdout).toSorted()).toEqual(["1.txt", "2.txt", "3.txt"]);
    const missing = await machine.run(["get", "0".repeat(24), ...ids, "--parallel", "1", "--force"]);
    expect(missing).toMatchObject({ code: 4, stdout: "" });
  });

  test("writes several files into a folder, but not into one file", async () => {
    const team = await newTeam();
    const machine = new Machine(team.key);
    const name = "\ud83d\udc68\u200d\ud83d\udc67 \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645.txt";
    const ids = [await upload(team, "a.txt", Buffer.from("a")), await upload(team, name, Buffer.from("b"))];
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
    const line = await openLine("none");
    const run = machine.run(["get", id], { env: { STOWAGE_URL: line.url } });
    await vi.waitUntil(() => line.connections > 0, { timeout: 60_000 });
    writeFileSync(partial, bytes);
    let isCut = false;
    const watch = setInterval(() => {
      isCut ||= statSync(other.path("seen.bin")).size !== bytes.length;
    }, 1);
    expect((await run).code).toBe(0);
    clearInterval(watch);
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

describe("a failure", () => {
  test.each([
    ["an unknown command", ["nope"], 2],
    ["an unknown option", ["ls", "--nope"], 2],
    ["a missing argument", ["get"], 2],
    ["an argument that does not apply", ["ls", "recordings/"], 2],
    ["an option of another subcommand", ["webhooks", "ls", "--enable"], 2],
    ["a second name", ["keys", "create", "Web", "player"], 2],
    ["an invalid date", ["ls", "--after", "someday"], 2],
    ["a number for a date", ["ls", "--after", "5"], 2],
    ["a local time for a date", ["ls", "--after", "2026-11-01T08:00"], 2],
    ["several files into one", ["get", "1", "2", "-o", "one.bin"], 2],
    ["an unknown ID", ["info", "0".repeat(24)], 4],
    ["an unknown ID of a file to delete", ["rm", "0".repeat(24)], 4],
  ])("of %s prints one line on stderr, and has its exit code", async (_, args, expected) => {
    const { code, stdout, stderr } = await new Machine((await newTeam()).key).run(args);
    expect({ code, stdout }).toEqual({ code: expected, stdout: "" });
    expect(stderr).toMatch(/^stowage: .+\n$/);
  });

  test.each([
    [
      ["link", "1", "--expires", "2026-01-01"],
      "expiresAt",
      "Must be in the future.",
      "1: The expiry date must be in the future.",
    ],
    [["events"], "teamId", "Required for the operator.", "The team ID is required for the operator."],
    [["ls"], "fileType", 'Invalid option: expected one of "a"|"b"', "The type must be one of a, b."],
    [["tag", "", "1"], "tags.0", "Must have 1 to 64 characters.", "The tag must have 1 to 64 characters."],
    [["users"], "firstName", "Unknown field.", "first name: Unknown field."],
  ])("of invalid input names the fields in sentences: %j", async (args, path, message, expected) => {
    const errors = [{ path, message }];
    const service = await scripted(
      json(400, { code: "invalid_input", message: "Correct the fields in `errors`.", errors }),
    );
    const { code, stderr } = await new Machine("key", service.url).run(args);
    expect({ code, stderr }).toEqual({ code: 1, stderr: `stowage: ${expected}\n` });
  });

  test("of a misspelled command suggests the right one", async () => {
    const { code, stderr } = await new Machine().run(["uplaod", "a.bin"]);
    expect({ code, stderr }).toEqual({
      code: 2,
      stderr: "stowage: Unknown command 'uplaod'. (Did you mean upload?)\n",
    });
  });

  test("of a longer outage is reported once, and events are followed after it", async () => {
    const away = refusal(503, "unavailable", { "Retry-After": "0" });
    const event = json(200, { data: [{ _id: "2", createdAt: "", type: "file.completed", subject: { id: "1" } }] });
    const service = await scripted(away, away, away, away, away, away, away, event);
    const env = { STOWAGE_RETRY_SECONDS: "60" };
    const args = ["events", "--follow", "--after", "1", "--limit", "1"];
    const { code, stdout, stderr } = await new Machine("key", service.url).run(args, { env });
    expect({ code, stdout }).toEqual({ code: 0, stdout: "2\t\tfile.completed\t1\n" });
    expect(stderr).toBe("stowage: Refused: unavailable. Retrying for up to 60 s. Press Ctrl-C to stop.\n");
  });

  test("of the connection prints one line, and has exit code 5", async () => {
    const service = await scripted(hangUp);
    const { code, stdout, stderr } = await new Machine("key", service.url).run(["usage"]);
    expect({ code, stdout }).toEqual({ code: 5, stdout: "" });
    expect(stderr).toMatch(/^stowage: Can't reach http:\/\/localhost:\d+ \(.+\)\.\n$/);
  });

  test.each([
    ["is unavailable", 503, "0"],
    ["asks to wait for an hour", 429, "3600"],
  ])("of a service that %s has exit code 5, too", async (_, status, retryAfter) => {
    const service = await scripted(refusal(status, "", { "Retry-After": retryAfter }));
    const { code, stdout, stderr } = await new Machine("key", service.url).run(["usage"]);
    expect({ code, stdout }).toEqual({ code: 5, stdout: "" });
    expect(linesOf(stderr)).toHaveLength(1);
  });

  test("of a key with invalid characters sends no request", async () => {
    const service = await scripted(hangUp);
    const { code, stdout, stderr } = await new Machine("sch\u00f6n\u2026", service.url).run(["usage"]);
    expect({ code, stdout }).toEqual({ code: 3, stdout: "" });
    expect(stderr).toMatch(/^stowage: .+\n$/);
    expect(service.requests).toEqual([]);
  });

  test.skipIf(!existsSync("/dev/full"))("of writing stdout to a full disk prints one line", async () => {
    const machine = new Machine();
    const { code, stderr } = await machine.start(["--help"], { script: 'exec "$@" > /dev/full' }).ended;
    expect({ code, stderr }).toEqual({ code: 1, stderr: "stowage: stdout can't be written: the disk is full.\n" });
  });

  test("does not occur if the reader of stdout closes the pipe", async () => {
    const { child, ended } = new Machine().start(["--help"]);
    child.stdout.destroy();
    expect(await ended).toMatchObject({ code: 0, stderr: "" });
  });

  test("is one line on stderr also with --json, without control characters of the response", async () => {
    const message = "No such file: \u001b]0;owned\u0007\u202e";
    const service = await scripted(json(404, { code: "not_found", message }));
    const { code, stdout, stderr } = await new Machine("key", service.url).run(["info", "1", "--json"]);
    expect({ code, stdout }).toEqual({ code: 4, stdout: "" });
    expect(stderr).toBe("stowage: 1: No such file: \ufffd]0;owned\ufffd\ufffd\n");
  });

  test.each(["SIGINT", "SIGTERM"] as const)("by %s prints one line, and has exit code 130", async (signal) => {
    const service = await scripted(() => {});
    const { child, ended } = new Machine("key", service.url).start(["usage"]);
    await vi.waitUntil(() => service.requests.length > 0, { timeout: 60_000 });
    child.kill(signal);
    expect(await ended).toEqual({ code: 130, stdout: "", stderr: "stowage: Interrupted.\n" });
  });

  test("control characters of a file name never reach a terminal", async () => {
    const service = await scripted((_, response) => {
      const file = {
        _id: "1",
        createdAt: "",
        status: "",
        fileType: "",
        folder: "",
        name: "\u001b]0;owned\u0007\u202e\u009b31m",
      };
      response.end(JSON.stringify({ data: [file] }));
    });
    for (const isTerminal of [true, false]) {
      const { stdout } = await new Machine("key", service.url).run(["ls"], { isTerminal });
      expect(stdout).toContain("]0;owned");
      for (const character of ["\u001b", "\u0007", "\u202e"]) expect(stdout).not.toContain(character);
    }
    const { stdout } = await new Machine("key", service.url).run(["ls", "--json"]);
    expect(stdout).toMatch(/^[\x20-\x7e]+\n$/);
    expect(JSON.parse(stdout).name).toBe("\u001b]0;owned\u0007\u202e\u009b31m");
  });
});

describe("stowage login", () => {
  test("saves URL and key where only their owner can read them", async () => {
    const { key } = await newTeam();
    const machine = new Machine();
    expect(await machine.run(["login", url], { input: `${key}\n` })).toMatchObject({ code: 0, stderr: "" });
    const file = machine.path("config/stowage/config.json");
    expect(statSync(file).mode & 0o777).toBe(0o600);
    expect(statSync(machine.path("config/stowage")).mode & 0o777).toBe(0o700);
    expect(await machine.run(["usage"])).toMatchObject({ code: 0, stderr: "" });
    chmodSync(file, 0o644);
    const rejected = await machine.run(["usage"]);
    expect(rejected).toMatchObject({ code: 2, stdout: "" });
    expect(rejected.stderr).toContain("Other users can read");
  });

  test("prompts for a key on a terminal without showing it", async () => {
    const { key } = await newTeam();
    const machine = new Machine();
    const { child, ended, output } = machine.start(["login", url], { isTerminal: true, input: null });
    await vi.waitUntil(() => output().includes("API key: "), { timeout: 60_000 });
    child.stdin.write(`${key}\r`);
    expect(await ended).toMatchObject({ code: 0, stdout: expect.not.stringContaining(key) });
    expect(await machine.run(["usage"])).toMatchObject({ code: 0, stderr: "" });
  });

  test("warns if the URL is not encrypted, and on a terminal asks whether to continue", async () => {
    const danger = (at: string) => `stowage: ${at} is not encrypted. Others on the network can read your key.`;
    const open = "http://stowage.invalid";
    const { code, stderr } = await new Machine().run(["login", open]);
    expect({ code, stderr: linesOf(stderr) }).toEqual({
      code: 2,
      stderr: [danger(open), "stowage: API key: no input."],
    });
    for (const safe of ["https://stowage.invalid", "http://127.0.0.1:9", "http://[::1]:9", "http://a.localhost"]) {
      expect((await new Machine().run(["login", safe])).stderr).toBe("stowage: API key: no input.\n");
    }
    for (const [answer, next] of [
      ["n", "Canceled. Nothing was sent."],
      ["y", "API key: "],
    ] as const) {
      const { child, ended, output } = new Machine().start(["login", open], { isTerminal: true, input: null });
      await vi.waitUntil(() => output().includes("Continue anyway? (y/n): "), { timeout: 60_000 });
      expect(output()).toContain(danger(open));
      child.stdin.write(`${answer}\r`);
      await vi.waitUntil(() => output().includes(next), { timeout: 60_000 });
      child.stdin.end("\r");
      expect((await ended).code).toBe(answer === "n" ? 1 : 2);
    }
  });

  test("saves no rejected key", async () => {
    const machine = new Machine();
    expect(await machine.run(["login", url], { input: "stow_sk_wrong\n" })).toMatchObject({ code: 3 });
    expect(existsSync(machine.path("config/stowage/config.json"))).toBe(false);
  });

  test("logs in a user with a password, which is shown nowhere", async () => {
    const { stowage, teamId } = await newTeam();
    await stowage.users.create({ email: "ada@example.com", password: "correct horse battery" });
    const machine = new Machine();
    const args = ["login", url, "--team", teamId, "--email", "ada@example.com"];
    const { code, stdout, stderr } = await machine.run(args, { input: "correct horse battery\n" });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).not.toContain("horse");
    expect(await machine.run(["ls"])).toMatchObject({ code: 0, stdout: "" });
  });

  test("keeps the spaces around a password", async () => {
    const { key, stowage, teamId } = await newTeam();
    const password = "  correct horse battery ";
    await new Machine(key).run(["users", "create", "ada@example.com"], { input: `${password}\n` });
    await expect(stowage.logIn({ teamId, email: "ada@example.com", password })).resolves.toBeTruthy();
    const args = ["login", url, "--team", teamId, "--email", "ada@example.com"];
    expect(await new Machine().run(args, { input: `${password}\n` })).toMatchObject({ code: 0 });
  });

  test.each(["null", "[]", '{"url":5}', '{"url": "https://stowage.example", "key": "stow_sk_secret"'])(
    "names the remedy for a damaged config file, without showing its content: %s",
    async (text) => {
      const machine = new Machine();
      mkdirSync(machine.path("config/stowage"), { recursive: true });
      writeFileSync(machine.path("config/stowage/config.json"), text, { mode: 0o600 });
      const { code, stderr } = await machine.run(["usage"]);
      expect(code).toBe(2);
      expect(stderr).toMatch(/^stowage: .*stowage login.*\n$/);
      expect(stderr).not.toContain("secret");
    },
  );

  test("leaves no draft if the config file can't be replaced", async () => {
    const { key } = await newTeam();
    const machine = new Machine();
    mkdirSync(machine.path("config/stowage/config.json"), { recursive: true });
    const { code, stderr } = await machine.run(["login", url], { input: `${key}\n` });
    expect(code).toBe(1);
    expect(linesOf(stderr)).toHaveLength(1);
    expect(readdirSync(machine.path("config/stowage"))).toEqual(["config.json"]);
  });

  test("sends a saved key only to the URL that it was saved with", async () => {
    const { key } = await newTeam();
    const machine = new Machine();
    await machine.run(["login", url], { input: `${key}\n` });
    const other = await scripted(hangUp);
    const { code } = await machine.run(["ls"], { env: { STOWAGE_URL: other.url } });
    expect(code).toBe(2);
    expect(other.requests).toEqual([]);
  });
});
