import { chmodSync, readFileSync } from "node:fs";
import type { IncomingMessage, ServerResponse } from "node:http";
import { join } from "node:path";
import { expect, test } from "vitest";
import { Machine } from "./command-line.ts";
import { json, scripted } from "./support.ts";

/*
 * Walks the commands as --help lists them, so that a new one is tested as soon as it exists. The service responds with the
 * examples of the OpenAPI document.
 */

interface Operation {
  responses: Record<string, { content?: Record<string, { example?: unknown }> }>;
}
const document: { paths: Record<string, Record<string, Operation>> } = JSON.parse(
  readFileSync(join(import.meta.dirname, "../all/openapi.json"), "utf8"),
);

const ID = "0193477c0a5e2b7f4d1c8e90";
/** Sets the title and the clipboard of a terminal, changes colors and directions, and deletes what is before it. */
const HOSTILE = "\u001b]0;owned\u0007\u001b]52;c;b3duZWQ=\u0007\u009b31m\u202e\u2066\b\u007f\r";

/** The value of each argument. An argument that is missing here has no test. */
const VALUES: Record<string, string> = {
  file: ID,
  files: ID,
  id: ID,
  ids: ID,
  user: ID,
  users: ID,
  days: "30",
  email: "ada@example.com",
  folder: "podcast",
  folders: "in",
  name: "Radio",
  paths: "in",
  shell: "bash",
  tags: "interview",
  to: "archive",
  vtt: "in/a.vtt",
  words: "night",
};
/** Options without which a command only complains. */
const OPTIONS: Record<string, string[]> = {
  hold: ["--reason", "Case"],
  mv: ["--folder", "archive"],
  sync: ["--delete"],
  "webhooks listen": ["--forward-to", "http://127.0.0.1:9/", "--after", ID, "--limit", "1"],
  "webhooks replay": ["--after", ID],
};

interface Leaf {
  name: string;
  args: string[];
  help: string;
}

/** Lists the commands that have no subcommands. */
async function commandsBelow(machine: Machine, url: string, path: string[] = []): Promise<Leaf[]> {
  const { stdout: help } = await machine.run([...path, "--help"]);
  const names: string[] = [];
  let heading = "";
  for (const line of help.split("\n")) {
    heading = /^(\S.*):$/.exec(line)?.[1] ?? heading;
    const [, name] = /^ {2}([a-z]+)\b/.exec(line) ?? [];
    const isList = !/^(Usage|Options|Arguments|Global Options|Exit codes|Examples)/.test(heading);
    if (name && isList && name !== "help") names.push(name);
  }
  if (names.length > 0)
    return (await Promise.all(names.map((name) => commandsBelow(machine, url, [...path, name])))).flat();
  const [, usage = ""] = /^Usage: (.*)$/m.exec(help) ?? [];
  const args = [...usage.matchAll(/[<[](\w+)(?:\.\.\.)?[>\]]/g)].flatMap(([, name = ""]) => {
    if (name === "options") return [];
    const value = name === "url" ? url : VALUES[name];
    if (value === undefined) throw new Error(`${path.join(" ")}: state a value for <${name}>.`);
    return [value];
  });
  const name = path.join(" ");
  return [{ name, args: [...path, ...args, ...(OPTIONS[name] ?? [])], help }];
}

const mapStrings = (value: unknown, change: (text: string) => string): unknown => {
  if (typeof value === "string") return change(value);
  if (Array.isArray(value)) return value.map((one) => mapStrings(one, change));
  if (value === null || typeof value !== "object") return value;
  return Object.fromEntries(Object.entries(value).map(([name, one]) => [name, mapStrings(one, change)]));
};

/** The response that the document shows for a request. */
function exampleOf({ method = "", url = "" }: IncomingMessage): { status: number; body: unknown } {
  const { pathname } = new URL(url, "http://localhost");
  const found = Object.entries(document.paths)
    .filter(([path]) => new RegExp(`^${path.replaceAll(/\{\w+\}/g, "[^/]+")}$`).test(pathname))
    // A path without parameters is meant before one with them.
    .sort(([one], [other]) => one.split("{").length - other.split("{").length)
    .find(([, operations]) => operations[method.toLowerCase()])?.[1][method.toLowerCase()];
  const [status = "404", response] = Object.entries(found?.responses ?? {}).find(([code]) => code < "300") ?? [];
  return { status: Number(status), body: Object.values(response?.content ?? {})[0]?.example };
}

/** A service that responds with examples, and a machine with files. `change` changes the texts of the responses. */
async function prepared(change = (text: string) => text) {
  const service = await scripted((request, response: ServerResponse) => {
    const path = request.url ?? "";
    if (path === "/bytes") return void response.end("bytes");
    const { status, body } = exampleOf(request);
    const isUrl = request.method === "GET" && /^\/docs\/v1\/uploads\/[0-9a-f]{24}(\?|$)/.test(path);
    // The file of the example has none.
    if (path.endsWith("/metadata")) Object.assign((body as { data: object }).data, { transcript: { language: "en" } });
    const changed = isUrl ? { signedUrl: `${service.url}/bytes` } : mapStrings(body, change);
    response.writeHead(status, { Location: `/docs/v1/uploads/${ID}`, "Upload-Offset": "0" });
    response.end(typeof changed === "object" ? JSON.stringify(changed) : changed);
  });
  const machine = new Machine("key", service.url);
  machine.write("in/a.vtt", "WEBVTT\n\n00:00.000 --> 00:01.000\nGood evening.\n");
  return { service, machine, commands: await commandsBelow(machine, service.url) };
}

/** Requests that delete something, or decide about it. */
function isDeletion({ method, url }: { method: string; url: string }): boolean {
  if (method === "DELETE") return true;
  return (method === "PUT" && url === "/docs/v1/retention") || /\/(batch|folders\/delete)$/.test(url);
}

test("every command that deletes, or decides about deletion, asks before, and takes --yes and --dry-run", async () => {
  const { service, machine, commands } = await prepared();
  expect(commands.length).toBeGreaterThan(60);
  const sent = async (args: string[], input = "") => {
    const before = service.requests.length;
    const run = await machine.run(args, { input, isTerminal: true });
    return { ...run, deletions: service.requests.slice(before).filter(isDeletion) };
  };
  const asking = commands.filter(({ help }) => help.includes("--yes"));
  expect(asking.map(({ name }) => name).toSorted()).toEqual([
    "cancel",
    "folders rm",
    // What it deletes is on this machine: mirror.test.ts.
    "get",
    "keys rm",
    "release",
    "retention",
    "rm",
    "sessions rm",
    "sync",
    "teams rm",
    "transcript rm",
    "unlink",
    "users rm",
    "webhooks rm",
  ]);
  for (const { name, args } of asking.filter((one) => one.name !== "get")) {
    const unasked = await sent(args);
    expect([unasked.deletions, unasked.code], `${name}, without a terminal`).toEqual([[], 2]);
    const planned = await sent([...args, "--dry-run"]);
    expect([planned.deletions, planned.code], `${name} --dry-run`).toEqual([[], 0]);
    expect(planned.stdout, `${name} --dry-run`).not.toBe("");
    const done = await sent([...args, "--yes"]);
    expect(done.deletions.length, `${name} --yes`).toBeGreaterThan(0);
  }
  // Those of files change the properties of files by the same route.
  for (const { name, args } of commands.filter(
    (one) => !asking.includes(one) && !/^(mv|tag|untag|restore)$/.test(one.name),
  ))
    expect((await sent(args, "answer\nanswer\n")).deletions, name).toEqual([]);
});

/** Each command that lists: its columns on a wide terminal, and its first line in a pipe, on which scripts rely. */
const LISTS: Record<string, { columns: string[]; line: string }> = {
  ls: {
    columns: ["Name", "Length", "Size", "Uploaded", "Status", "Type", "ID"],
    line: "0193477c0a5e2b7f4d1c8e90\t2026-11-20T09:33:00.000Z\tcompleted\taudio\tpodcast/2026/Interview with Ada.mp3",
  },
  "trash ls": {
    columns: ["Name", "Size", "Deleted", "Erased", "ID"],
    line: "0193477c0a5e2b7f4d1c8e90\t2026-11-21T08:00:00.000Z\t2026-12-21T08:00:00.000Z\t482 kB\tpodcast/2026/Interview with Ada.mp3",
  },
  "folders ls": {
    columns: ["Name"],
    line: "podcast/2026",
  },
  uploads: {
    columns: ["Name", "Stored", "Expires", "Began", "ID"],
    line: "0193477c0a5e2b7f4d1c8e90\t2026-11-21T09:41:12.000Z\t168 MB of 635 MB\tinterview.wav",
  },
  links: {
    columns: ["Name", "Opens as", "Expires", "Created", "ID"],
    line: "0193477d0a5e2b7f4d1c8e91\t2026-12-20T09:33:00.000Z\tinline\tFor the press",
  },
  "keys ls": {
    columns: ["Name", "Kind", "Last used", "Expires", "ID"],
    line: "0193477be8a01f9c3ad5e7b2\tsecret\t2027-11-20T09:30:00.000Z\tWeb player",
  },
  "sessions ls": {
    columns: ["Device", "Last used", "Expires", "Of", "ID"],
    line: "0193477c4f1b6a2d8e0c3b57\tuser 0193477bf1c07e5d9a0b4c28\t2026-11-20T21:45:00.000Z\t2026-11-20T09:45:00.000Z\tMozilla/5.0 (X11; Linux x86_64; rv:145.0) Gecko/20100101 Firefox/145.0",
  },
  "users ls": {
    columns: ["Name", "Email", "Role", "ID"],
    line: "0193477bf1c07e5d9a0b4c28\tadmin\tada@example.com\tAda Lovelace",
  },
  events: {
    columns: ["Name", "Type", "Time", "By", "ID"],
    line: "0660cfb2c9a8682e6b8a0c13\t2026-11-20T09:33:01.000Z\tuser.updated\t0193477c0a5e2b7f4d1c8e90",
  },
  "webhooks ls": {
    columns: ["URL", "Health", "Types", "ID"],
    line: "0193477c0d2b4f6e8a1c3e50\tenabled\thttps://hooks.example.com/stowage\tfile.completed,file.failed",
  },
  "webhooks deliveries": {
    columns: ["Type", "Status", "Attempts", "Last", "Next", "ID"],
    line: "065c2f1a0b3c406e8a1c3e50\tuser.updated\tsucceeded\t1 attempt",
  },
  "teams ls": {
    columns: ["Name", "Status", "Files", "Size", "Created", "ID"],
    line: "0193477be89f4d2e6b8a0000\tactive\t0 files\t0 B\tRadio Lovelace",
  },
  profiles: { columns: ["Name", "URL"], line: "-\thttps://stowage.example\tused" },
};

test("every command that lists prints columns that fit a terminal, and the same fields as ever to a pipe", async () => {
  const { machine, commands } = await prepared();
  const config = machine.write(
    "config/stowage/config.json",
    JSON.stringify({ url: "https://stowage.example", key: "key" }),
  );
  chmodSync(config, 0o600);
  const lists = commands.filter(({ help }) => /^List /m.test(help));
  expect(lists.map(({ name }) => name).toSorted()).toEqual(Object.keys(LISTS).toSorted());
  for (const { name, args } of lists) {
    const { columns: expected = [], line } = LISTS[name] ?? {};
    expect((await machine.run(args)).stdout, name).toBe(`${line}\n`);
    for (const columns of [200, 80, 40]) {
      const { stdout } = await machine.run(args, { isTerminal: true, columns });
      const [heading = "", row = "", ...others] = stdout.split("\n");
      const titles = heading.split(/ {2,}/);
      expect(others, name).toEqual([""]);
      // The last columns before the ID leave first.
      const shown =
        titles.at(-1) === "ID" ? [...expected.slice(0, titles.length - 1), "ID"] : expected.slice(0, titles.length);
      expect(titles, `${name}, ${columns}`).toEqual(columns === 200 ? expected : shown);
      expect(Math.max(heading.length, row.length), `${name}, ${columns}`).toBeLessThanOrEqual(columns);
      if (expected.at(-1) === "ID") expect(row, `${name}, ${columns}`).toMatch(/ [0-9a-f]{24}$/);
    }
  }
});

/** What the CLI itself sends to a terminal: progress bars, words in bold, and the prompt of Node. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: these characters are the subject.
const OWN = /\u001b\[(?:\?7[lh]|1m|22m|\d*[AGJK]|\d*;\d*H)/g;

test("no control character of a response reaches a terminal", async () => {
  const failure = { code: "invalid_input", message: `No. ${HOSTILE}`, errors: [{ path: HOSTILE, message: HOSTILE }] };
  const refusing = await scripted(json(400, failure));
  const { machine, commands } = await prepared((text) => text + HOSTILE);
  for (const { name, args } of commands) {
    for (const more of [[], ["--url", refusing.url, "--key", "key"], ["--json"], ["--debug"]]) {
      const run = await machine.run([...args, ...more], { input: "no\nno\n", isTerminal: true, isAsked: true });
      const shown = (run.stdout + run.stderr).replaceAll(OWN, "").replaceAll("\r\n", "\n");
      expect(shown, `${name} ${more}`).not.toMatch(/(?!\n)[\p{Cc}\u202e\u2066]/u);
    }
  }
});
