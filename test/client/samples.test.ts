import { execFile } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { expect, onTestFinished, test } from "vitest";
import { Stowage } from "../../src/client/stowage.ts";
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
  // The client calls three operations by itself, and the two of an open link need no client.
  const withoutSample = operations.filter((described) => !described["x-codeSamples"]).map((one) => one.operationId);
  expect(withoutSample.sort()).toEqual([
    "describeLink",
    "describeResumableUploads",
    "getResumableUpload",
    "openLink",
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

test("the accounts for visitors of the README sign up, set a password and log in", async () => {
  const { key, teamId } = await newTeam();
  const [, section = ""] = readFileSync(join(root, "README.md"), "utf8").split("### Accounts for your visitors\n");
  const [, sample = ""] = /```js\n(.*?)```/s.exec(section) ?? [];
  expect(sample.trim().split("\n").length).toBeLessThanOrEqual(12);
  const folder = mkdtempSync(join(tmpdir(), "stowage "));
  onTestFinished(() => rmSync(folder, { recursive: true }));
  const use = `const { token } = await signUp("ada@example.com");
    await setPassword(token, "correct horse battery");
    const { key } = await logIn("ada@example.com", "correct horse battery");
    const { role, teamId: team } = await new Stowage({ url: stowage.url, key }).me();
    console.log(role, team);`;
  const client = pathToFileURL(join(root, "src/client/stowage.ts")).href;
  const program = sample.replace('from "stowage"', `from "${client}"`).replace("http://localhost:8787", url) + use;
  writeFileSync(join(folder, "sample.mjs"), program);
  const env = { ...process.env, STOWAGE_KEY: key };
  const { stdout } = await promisify(execFile)(process.execPath, [join(folder, "sample.mjs")], { env });
  expect(stdout).toBe(`contributor ${teamId}\n`);
});
