import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { Stowage } from "../../src/client/index.ts";
import { newTeam, url } from "../support/team.ts";

const root = join(import.meta.dirname, "../..");

interface Described {
  operationId: string;
  "x-codeSamples"?: { lang: string; label: string; source: string }[];
}

test("the client samples of the OpenAPI document call existing methods", async () => {
  const { paths } = (await (await fetch(`${url}/openapi.json`)).json()) as {
    paths: Record<string, Record<string, Described>>;
  };
  const operations = Object.values(paths).flatMap((methods) => Object.values(methods));
  const samples = operations.flatMap((described) => described["x-codeSamples"] ?? []);
  // The client calls three operations by itself, and those of an open link need no client.
  const withoutSample = operations.filter((described) => !described["x-codeSamples"]).map((one) => one.operationId);
  expect(withoutSample.sort()).toEqual([
    "describeLink",
    "describeResumableUploads",
    "getResumableUpload",
    "openLink",
    "openTranscript",
    "overrideResumableUpload",
    "reconcile",
  ]);
  for (const { lang, label, source } of samples) {
    expect([lang, label]).toEqual(["JavaScript", "Client"]);
    const called = [...source.matchAll(/stowage\.([\w.]+)\(/g)].map(([, path = ""]) => path.split("."));
    expect(called, source).not.toEqual([]);
    for (const steps of called) {
      const method = steps.reduce<unknown>(
        (value, step) => Reflect.get(value as object, step),
        new Stowage({ url, key: null }),
      );
      expect(method, source).toBeTypeOf("function");
    }
  }
});

test("the pattern for secret scanners in the guide matches every kind of token as a whole", async () => {
  const [, pattern = ""] = /```\n(stow_.*)\n```/.exec(readFileSync(join(root, "src/GUIDE.md"), "utf8")) ?? [];
  const { stowage, key } = await newTeam();
  const { _id: user } = await stowage.users.create({ email: "ada@example.com" });
  const metadata = { text: "x".repeat(3800) };
  const tokens = [
    key,
    (await stowage.keys.create({ name: "public", isPublic: true })).key,
    (await stowage.sessions.create()).key,
    (await stowage.users.invite(user)).token,
    (await stowage.files.createUploadToken()).token,
    (await stowage.files.createUploadToken({ properties: { metadata } })).token,
  ];
  for (const token of tokens) {
    expect(new RegExp(pattern).exec(`key = "${token}"`)?.[0]).toBe(token);
    expect(token.length).toBeLessThanOrEqual(8192);
  }
});

/** The first JavaScript sample below a heading of a document. */
function sampleOf(document: string, heading: string): string {
  const [, section = ""] = readFileSync(join(root, document), "utf8").split(`\n### ${heading}\n`);
  return /```js\n(.*?)```/s.exec(section)?.[1] ?? "";
}

/** Runs a program with the client as the package `stowage`. @returns its output */
async function run(program: string, key: string): Promise<string> {
  const folder = mkdtempSync(join(tmpdir(), "stowage "));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const client = pathToFileURL(join(root, "src/client/index.ts")).href;
  const source = program.replace('from "stowage"', `from "${client}"`).replace("http://localhost:8787", url);
  writeFileSync(join(folder, "sample.mjs"), source);
  const env = { ...process.env, STOWAGE_KEY: key };
  const { stdout } = await promisify(execFile)(process.execPath, [join(folder, "sample.mjs")], { env });
  return stdout;
}

test("the accounts for visitors of the README sign up, set a password and log in", async () => {
  const { key, teamId } = await newTeam();
  const sample = sampleOf("README.md", "Accounts for your visitors");
  expect(sample.trim().split("\n").length).toBeLessThanOrEqual(12);
  const use = `const { token } = await signUp("ada@example.com");
    await setPassword(token, "correct horse battery");
    const { key } = await logIn("ada@example.com", "correct horse battery");
    const { role, teamId: team } = await new Stowage({ url: stowage.url, key }).me();
    console.log(role, team);`;
  expect(await run(sample + use, key)).toBe(`contributor ${teamId}\n`);
});

test("the upload without the element of the guide stores a form upload, and begins a resumable one", async () => {
  const { key } = await newTeam();
  const sample = sampleOf("src/GUIDE.md", "Upload from a web page without the element");
  // In place of tus-js-client: creates the upload with the options of the sample.
  const setUp = `import { Stowage } from "stowage";
    const stowage = new Stowage({ url: "${url}", key: process.env.STOWAGE_KEY });
    const { token } = await stowage.files.createUploadToken({ maxFiles: 2 });
    const file = new File(["hello"], "memo.txt");
    let created;
    class Upload {
      constructor(file, { endpoint, headers, metadata }) {
        const metadataHeader = "filename " + btoa(metadata.filename);
        this.send = () => fetch(endpoint, { method: "POST",
          headers: { ...headers, "Tus-Resumable": "1.0.0", "Upload-Length": file.size, "Upload-Metadata": metadataHeader } });
      }
      start() { created = this.send(); }
    }
    const tus = { Upload };\n`;
  const use = `const names = [];
    for await (const one of stowage.files.list()) names.push(one.originalName);
    console.log(names.join(), (await created).status);`;
  expect(await run(setUp + sample + use, key)).toBe("memo.txt 201\n");
});
