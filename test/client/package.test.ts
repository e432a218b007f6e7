import { execFile, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  realpathSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import type { Ai_Cf_Openai_Whisper_Large_V3_Turbo_Output } from "@cloudflare/workers-types";
import { build } from "esbuild";
import { afterAll, beforeAll, describe, expect, inject, onTestFinished, test } from "vitest";
import { unstable_startWorker } from "wrangler";
import { Receiver } from "../support/receiver.ts";
import { bytesOf, collect, newTeam, sample, url } from "../support/team.ts";
import { exhaustive, isExhaustive } from "../support/tiers.ts";
import { openLine } from "./support.ts";

/* Installs the packed client in a folder outside of the project. */

const root = join(import.meta.dirname, "../..");
const { version } = JSON.parse(readFileSync(join(root, "package.json"), "utf8"));
/** Measured: 9,390. The goal of 9,000 is exceeded by the check of arguments, the search of transcripts, and requests of ten seconds. */
const MAX_GZIP_BYTES = 9700;
const SOUND = sample("tone-vbr.mp3");
const folder = mkdtempSync(join(tmpdir(), "stowage package "));
const installed = join(folder, "node_modules/stowage");
const bin = join(folder, "node_modules/.bin/stowage");
const run = promisify(execFile);

beforeAll(async () => {
  await run(process.execPath, [join(root, "src/dev/build-client.ts")]);
  mkdirSync(installed, { recursive: true });
  const packed = join(root, `dist/stowage-${version}.tgz`);
  await run("tar", ["-xzf", packed, "-C", installed, "--strip-components=1"]);
  const { bin: bins } = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
  mkdirSync(dirname(bin));
  symlinkSync(join(installed, bins.stowage), bin);
  // For the types of Node.
  for (const name of ["@types/node", "undici-types"]) {
    mkdirSync(join(folder, "node_modules", name, ".."), { recursive: true });
    symlinkSync(join(root, "node_modules", name), join(folder, "node_modules", name), "junction");
  }
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

/** Asks the language server of TypeScript what it shows at the end of each place in a program. */
async function hoversOf(text: string, places: string[]): Promise<string[]> {
  const file = join(folder, "hover.mts");
  const uri = pathToFileURL(file).href;
  writeFileSync(file, text);
  writeFileSync(join(folder, "tsconfig.json"), '{"compilerOptions":{"module":"nodenext","target":"es2023"}}');
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const server = spawn(process.execPath, [compiler, "--lsp", "--stdio"], { cwd: folder });
  const send = (message: object) => {
    const body = JSON.stringify({ jsonrpc: "2.0", ...message });
    server.stdin.write(`Content-Length: ${Buffer.byteLength(body)}\r\n\r\n${body}`);
  };
  send({
    id: 0,
    method: "initialize",
    params: { processId: null, rootUri: pathToFileURL(folder).href, capabilities: {} },
  });
  send({ method: "initialized", params: {} });
  send({
    method: "textDocument/didOpen",
    params: { textDocument: { uri, languageId: "typescript", version: 1, text } },
  });
  for (const [index, place] of places.entries()) {
    const before = text.slice(0, text.lastIndexOf(place) + place.length - 1).split("\n");
    const position = { line: before.length - 1, character: before.at(-1)?.length };
    send({ id: index + 1, method: "textDocument/hover", params: { textDocument: { uri }, position } });
  }
  const found: string[] = [];
  let received = Buffer.alloc(0);
  for await (const chunk of server.stdout) {
    received = Buffer.concat([received, chunk]);
    for (;;) {
      const [header, size] = /^Content-Length: (\d+)\r\n\r\n/.exec(received.toString("latin1")) ?? [];
      const end = (header?.length ?? 0) + Number(size);
      if (!header || received.length < end) break;
      const { id, method, result } = JSON.parse(received.toString("utf8", header.length, end));
      received = received.subarray(end);
      if (method && id !== undefined) send({ id, result: null });
      else if (id > 0) found[id - 1] = JSON.stringify(result);
    }
    if (Object.keys(found).length === places.length) break;
  }
  server.kill();
  return found;
}

describe("the package", () => {
  test("has no dependencies, contains the files that it names, and keeps the CLI out of the library", () => {
    const manifest = JSON.parse(readFileSync(join(installed, "package.json"), "utf8"));
    expect(manifest.dependencies).toBeUndefined();
    const { types, default: script } = manifest.exports["."];
    expect(Object.keys(manifest.exports["."])).toEqual(["types", "default"]);
    const documents = ["README.md", "CHANGELOG.md", "commander.LICENSE"];
    for (const path of [types, script, manifest.bin.stowage, ...documents])
      expect(readFileSync(join(installed, path))).toBeTruthy();
    const names = readdirSync(join(installed, "types"));
    const textsOf = (end: string) =>
      names.filter((name) => name.endsWith(end)).map((name) => readFileSync(join(installed, "types", name), "utf8"));
    expect(textsOf(".d.ts").join()).not.toMatch(/zod|hono|drizzle|\.\.\//);
    expect(manifest).toMatchObject({ files: expect.any(Array), license: "UNLICENSED", engines: { node: ">=20.16" } });
    expect(manifest.exports["./package.json"]).toBe("./package.json");
    const maps = textsOf(".map").map((text) => JSON.parse(text));
    expect(maps.length).toBeGreaterThan(15);
    // The source of each definition.
    for (const { sources } of maps) expect(readFileSync(join(installed, "types", sources[0]))).toBeTruthy();
    for (const entry of ["./element", "./webhooks"])
      for (const path of Object.values<string>(manifest.exports[entry]))
        expect(readFileSync(join(installed, path))).toBeTruthy();
    const library = readFileSync(join(installed, script), "utf8");
    expect(library).not.toMatch(/commander|node:(?!fs)/);
    // An uncaught error prints the line that threw it.
    for (const line of library.split("\n")) expect(line.length).toBeLessThan(250);
  });

  const programs = (process.env.PATH ?? "").split(delimiter).map((path) => join(path, "node"));
  const nodes = new Set(
    [process.execPath, ...programs].filter((path) => existsSync(path)).map((path) => realpathSync(path)),
  );

  // Each Node of this machine, because developers run the tests with a newer one than the oldest supported one.
  test.each(isExhaustive ? [...nodes] : [process.execPath])(
    "runs as a command and as a module with %s, and transfers small and large files",
    async (node) => {
      const { key } = await newTeam();
      const PATH = dirname(node) + delimiter + process.env.PATH;
      const env = { ...process.env, PATH, STOWAGE_URL: url, STOWAGE_KEY: key, XDG_STATE_HOME: folder, HOME: folder };
      const stowage = (...args: string[]) => run(bin, args, { cwd: folder, env });
      for (const [name, size] of [
        ["small.bin", 10_000],
        ["large.bin", 9_000_000],
      ] as const) {
        writeFileSync(join(folder, name), Buffer.alloc(size));
        const { stdout, stderr } = await stowage("upload", name, "--json");
        expect(stderr).toBe("");
        const { id } = JSON.parse(stdout);
        expect((await stowage("get", id, "-o", `got ${name}`, "--force")).stderr).toBe("");
        expect(readFileSync(join(folder, `got ${name}`)).length).toBe(size);
      }
      const program = `import { Stowage, StowageError } from "stowage";
        import { verifyMessage } from "stowage/webhooks";
        const { files } = new Stowage({ url: process.env.STOWAGE_URL, key: process.env.STOWAGE_KEY });
        const { id } = await files.upload("small.bin");
        const { byteLength } = await (await files.download(id)).arrayBuffer();
        console.log(byteLength, StowageError.name, verifyMessage.name);`;
      const output = (await run(node, ["--input-type=module", "-e", program], { cwd: folder, env })).stdout;
      expect(output).toBe("10000 StowageError verifyMessage\n");
    },
  );

  const bins = join(root, "node_modules/.bin");
  const oneRuntime = [["Node", process.execPath, ["program.mjs"]]] as const;
  const runtimes = [
    ["Deno", join(bins, "deno"), ["run", "--allow-all", "--node-modules-dir=manual", "program.mjs"]],
    ["Bun", join(bins, "bun"), ["program.mjs"]],
    ...[...nodes].map((node) => ["Node", node, ["program.mjs"]] as const),
  ] as const;
  // In the exhaustive run, uploads are long enough to be resumable.
  const sizeBytes = isExhaustive ? 12_000_000 : 900_000;
  test.each(isExhaustive ? runtimes : oneRuntime)(
    "uploads every kind of input over a connection that breaks once, in %s (%s)",
    async (_, runtime, args) => {
      const { key, stowage } = await newTeam();
      const line = await openLine("cut", sizeBytes / 2, 1);
      writeFileSync(join(folder, "large.bin"), Buffer.alloc(sizeBytes, 1));
      const program = `import { Stowage } from "stowage";
      import { createReadStream } from "node:fs";
      const { files } = new Stowage({ url: "${line.url}", key: "${key}" });
      const bytes = new Uint8Array(${sizeBytes}).fill(1);
      const size = bytes.length;
      const response = await fetch((await files.createSignedUrl((await files.upload(bytes)).id)));
      const inputs = [bytes.buffer, new Blob([bytes]), "large.bin", response, new Blob([bytes]).stream(), createReadStream("large.bin")];
      for (const input of inputs) await files.upload(input, { size, name: "a.bin", onProgress: () => {} });
      process.exit();`;
      writeFileSync(join(folder, "program.mjs"), program);
      const { stderr } = await run(runtime, [...args], { cwd: folder });
      expect(stderr).toBe("");
      expect(line.faults).toBe(1);
      const stored = await collect(stowage.files.list());
      const digest = createHash("sha256").update(Buffer.alloc(sizeBytes, 1)).digest("hex");
      for (const { _id } of stored)
        expect(await stowage.files.waitUntilProcessed(_id)).toMatchObject({ status: "completed", sha256: digest });
      expect(stored).toHaveLength(7);
      expect(await collect(stowage.unfinishedUploads.list())).toEqual([]);
    },
  );

  // From some date on, the runtime gives itself out as Node. A new project has the newest date.
  const own = readFileSync(join(root, "wrangler.toml"), "utf8");
  const newest = /^compatibility_date = "(.+)"$/m.exec(own)?.[1] ?? "";
  exhaustive.each([
    ["2026-01-01", ["nodejs_compat"]],
    [newest, ["nodejs_compat"]],
    [newest, []],
  ])(
    "uploads the streamed body of a request of 20 MB, and 9 MB from memory, in a Worker of %s with %j",
    async (compatibilityDate, compatibilityFlags) => {
      const { key, stowage } = await newTeam();
      const script = `import { Stowage } from "stowage";
      export default {
        fetch: async (request, { URL, KEY }) => {
          const size = Number(request.headers.get("Content-Length"));
          const { files } = new Stowage({ url: URL, key: KEY });
          const streamed = await files.upload(request.body, { size, name: "proxied.bin" });
          const own = await files.upload(new Uint8Array(9_000_000), { name: "own.bin", onProgress: () => {} });
          const { byteLength } = await (await files.download(own.id)).arrayBuffer();
          return Response.json({ id: streamed.id, byteLength });
        },
      };`;
      writeFileSync(join(folder, "worker.mjs"), script);
      const worker = await unstable_startWorker({
        name: "proxy",
        entrypoint: join(folder, "worker.mjs"),
        compatibilityDate,
        compatibilityFlags,
        bindings: { URL: { type: "plain_text", value: url }, KEY: { type: "plain_text", value: key } },
        dev: { server: { port: 0 }, inspector: false, logLevel: "none", watch: false, persist: false },
      });
      try {
        const bytes = bytesOf(20_000_000);
        const response = await fetch(await worker.url, { method: "POST", body: bytes });
        const { id, byteLength } = (await response.json()) as { id: string; byteLength: number };
        expect(byteLength).toBe(9_000_000);
        const sha256 = createHash("sha256").update(bytes).digest("hex");
        expect(await stowage.files.waitUntilProcessed(id)).toMatchObject({ sha256, name: "proxied.bin" });
      } finally {
        await worker.dispose();
      }
    },
  );

  test("transcribes recordings in the Worker of the guide, once each, after its webhook has answered", async () => {
    const { key, stowage } = await newTeam();
    const [, section = ""] = readFileSync(join(root, "src/GUIDE.md"), "utf8").split("\n### Transcribe recordings\n");
    writeFileSync(join(folder, "transcriber.mjs"), /```js\n(.*?)```/s.exec(section)?.[1] ?? "");
    const settings = /```toml\n(.*?)```/s.exec(section)?.[1]?.replace('[ai]\nbinding = "AI"\n', "") ?? "";
    const config = join(folder, "transcriber.toml");
    writeFileSync(config, `name = "t"\nmain = "transcribing.mjs"\ncompatibility_date = "${newest}"\n${settings}`);
    const transcription: Ai_Cf_Openai_Whisper_Large_V3_Turbo_Output = {
      transcription_info: { language: "en", language_probability: 1, duration: 1, duration_after_vad: 1 },
      text: "One tone.",
      word_count: 2,
      segments: [{ start: 0, end: 1, text: "One tone." }],
      vtt: "WEBVTT\n\n00:00.000 --> 00:01.000\nOne tone.\n\n",
    };
    // The model runs only on Cloudflare. This one fails if the bytes are not those of the file.
    const script = `import transcriber from "./transcriber.mjs";
      let runs = 0;
      let batches = 0;
      const AI = {
        run: async (model, { audio }) => {
          runs += 1;
          if (model !== "@cf/openai/whisper-large-v3-turbo" || atob(audio).length !== ${SOUND.length}) throw new Error(model);
          return ${JSON.stringify(transcription)};
        },
      };
      export default {
        fetch: (request, env) =>
          request.method === "GET" ? Response.json({ runs, batches }) : transcriber.fetch(request, { ...env, AI }),
        queue: async (batch, env) => {
          await transcriber.queue(batch, { ...env, AI });
          batches += 1;
        },
      };`;
    writeFileSync(join(folder, "transcribing.mjs"), script);
    const receiver = await Receiver.open();
    onTestFinished(() => receiver.close());
    const { secret } = await stowage.webhooks.create({ url: receiver.url, types: ["file.completed"] });
    const worker = await unstable_startWorker({
      config,
      bindings: {
        STOWAGE_URL: { type: "plain_text", value: url },
        STOWAGE_KEY: { type: "plain_text", value: key },
        WEBHOOK_SECRET: { type: "plain_text", value: secret },
      },
      dev: { server: { port: 0 }, inspector: false, logLevel: "none", watch: false, persist: false },
    });
    try {
      const { id } = await stowage.files.upload(new Blob([SOUND]), { name: "tone.mp3" });
      await expect.poll(() => receiver.received.length, { timeout: 60_000 }).toBe(1);
      const [{ body, headers } = {}] = receiver.received;
      const signed = Object.entries({ ...headers }).filter(([name]) => name.startsWith("webhook-"));
      const target = await worker.url;
      const deliver = async () =>
        (await fetch(target, { method: "POST", body: body ?? "", headers: Object.fromEntries(signed) })).status;
      expect(await deliver()).toBe(204);
      const counts = async () => (await fetch(target)).json();
      await expect.poll(counts, { timeout: 60_000 }).toEqual({ runs: 1, batches: 1 });
      expect(await stowage.files.getTranscript(id)).toBe(transcription.vtt);
      expect(await deliver()).toBe(204);
      await expect.poll(counts, { timeout: 60_000 }).toEqual({ runs: 1, batches: 2 });
      await stowage.files.delete(id);
      expect(await deliver()).toBe(204);
      await expect.poll(counts, { timeout: 60_000 }).toEqual({ runs: 1, batches: 3 });
      expect((await fetch(target, { method: "POST", body: "{}" })).status).toBe(400);
    } finally {
      await worker.dispose();
    }
  });

  test("runs under a strict content security policy", async () => {
    const { outputFiles } = await build({
      stdin: { contents: 'export * from "stowage"', resolveDir: folder },
      bundle: true,
      format: "esm",
      platform: "browser",
      write: false,
    });
    const text = outputFiles.map(({ text }) => text).join("\n");
    expect(text).toContain("Tus-Resumable");
    expect(text).not.toMatch(
      /\beval\b|\bFunction\(|innerHTML|outerHTML|insertAdjacentHTML|document\.write|importScripts/,
    );
  });

  test("has types for other programs, with and without DOM, which reject an unknown field", async () => {
    const program = (code: string) => `import { Stowage, StowageError } from "stowage";
      const stowage = new Stowage({ url: "https://stowage.example", key: "key" });
      export const size: number = (await stowage.files.get("1")).size;
      export const isOurs = (error: unknown) => error instanceof StowageError && error.code === "not_found";
      ${code}`;
    const check = async (code: string, lib = "es2023,dom,dom.iterable,dom.asynciterable", types = "") => {
      writeFileSync(join(folder, "program.mts"), program(code));
      const compiler = join(root, "node_modules/typescript/bin/tsc");
      const options = ["--noEmit", "--strict", "--target", "es2023", "--lib", lib];
      const modules = ["--module", "nodenext", "--skipLibCheck", "false", "--types", types];
      const { stdout } = await run(process.execPath, [compiler, ...options, ...modules, "program.mts"], {
        cwd: folder,
      }).catch((error) => error);
      return stdout;
    };
    expect(await check("await stowage.users.create({ email: 'a@example.com', password: '12345678' });")).toBe("");
    expect(
      await check("await stowage.users.create({ email: 'a@example.com', password: '12345678', nickname: '' });"),
    ).toMatch(/program\.mts.*nickname/);
    expect(await check("await stowage.files.delete('1');", "es2023", "node")).toBe("");
  });

  test("has an upload element that a server may import, a bundler keeps, and types describe", async () => {
    const program = 'import { StowageUpload } from "stowage/element"; console.log(typeof StowageUpload);';
    writeFileSync(join(folder, "element.mjs"), program);
    expect((await run(process.execPath, ["element.mjs"], { cwd: folder })).stdout).toBe("function\n");
    const result = await build({
      stdin: { contents: 'import "stowage/element"', resolveDir: folder },
      bundle: true,
      platform: "browser",
      write: false,
    });
    expect(result.outputFiles[0]?.text).toContain('customElements.define("stowage-upload"');
    const [element, detail] = await hoversOf(
      `import "stowage/element";
      const upload = document.querySelector("stowage-upload")!;
      upload.addEventListener("upload-failed", ({ detail }) => console.log(detail.code));
      await upload.getToken?.();`,
      [".getToken", "detail.code"],
    );
    expect(element).toContain("Returns a token in place of the attribute");
    expect(detail).toContain("Why it failed");
  });

  const readme = readFileSync(join(root, "src/client/README.md"), "utf8");
  const samples = readme.split("\n## ").flatMap((task) => {
    const code = /```js\n(.*?)```/s.exec(task)?.[1];
    return code === undefined ? [] : [[task.split("\n")[0], code]];
  });

  test.each(samples)("runs the sample of the README: %s", async (_, code = "") => {
    const { key } = await newTeam();
    writeFileSync(join(folder, "interview.mp3"), sample("tone-vbr.mp3"));
    const end = code.includes("listen(3000)") ? "server.close();" : "";
    const program = code.replaceAll("https://stowage.example.workers.dev", url).replace("listen(3000)", "listen(0)");
    writeFileSync(join(folder, "sample.mjs"), program + end);
    const env = { ...process.env, STOWAGE_KEY: key, OPERATOR_TOKEN: inject("operatorToken") };
    expect(await run(process.execPath, ["sample.mjs"], { cwd: folder, env })).toMatchObject({ stderr: "" });
  });

  test("shows comments and short types in editors", async () => {
    const program = `import { Stowage } from "stowage";
      const { files, keys, links } = new Stowage({ url: "https://stowage.example", key: null });
      const key = await keys.get("1");
      export const shown = [key.isPublic, (await files.get("1")).name, key.scopes, files.upload, links.delete];`;
    const shown = await hoversOf(program, ["key.isPublic", ".name", "key.scopes", "files.upload", "links.delete"]);
    const [isPublic, name, scopes, upload, remove] = shown;
    expect(isPublic).toContain("A public key can only upload files.");
    expect(name).toContain("display and download name");
    expect(scopes).toContain("scopes: Scope[]");
    expect(upload).toContain("A failed upload of a stream cancels the stream.");
    expect(remove).toContain("Revokes a link.");
    expect(remove).toContain("@example");
    expect(remove).toContain("await stowage.links.delete(id);");
  });

  const declarations = () => {
    const names = readdirSync(join(installed, "types")).filter((name) => name.endsWith(".d.ts"));
    return new Map(names.map((name) => [name, readFileSync(join(installed, "types", name), "utf8")]));
  };

  const exportedNames = () =>
    new Set(
      declarations()
        .get("index.d.ts")
        ?.match(/\b[A-Z]\w+/g),
    );

  test("describes each field of its records, options and errors", () => {
    const exported = exportedNames();
    const described: boolean[] = [];
    for (const [file, text] of declarations()) {
      let shown = /^$/;
      const lines = text.split("\n");
      for (const [index, line] of lines.entries()) {
        const [, kind = "", name = ""] = /^export (declare class|interface) (\w+)/.exec(line) ?? [];
        if (/^\S/.test(line)) {
          // The fields of a route are those of a body or a query, too. The parameters of methods are deeper.
          const depth = kind !== "interface" ? "4" : name === "Api" ? "12," : "4,";
          shown = new RegExp(exported.has(name) || name === "Api" ? `^ {${depth}}(readonly )?\\w+\\??: ` : "^$");
        }
        if (!shown.test(line)) continue;
        described.push(true);
        expect(lines[index - 1], `${file}: ${line}`).toMatch(/\*\/$/);
      }
    }
    expect(described.length).toBeGreaterThan(300);
  });

  test("exports each type that its methods take or return, and nothing of the client's own", () => {
    const exported = exportedNames();
    for (const own of ["Connection", "Resource", "Schemas", "Api", "RESUMABLE_BYTES", "MAX_BATCH_FILES"])
      expect(exported).not.toContain(own);
    const types = [...declarations().values()].join("\n");
    expect(types).not.toContain("onSuccess");
    const declared = new Set(
      [...types.matchAll(/^export (?:declare class|interface|type) (\w+)/gm)].map(([, one]) => one),
    );
    const nameOf = new Map([...types.matchAll(/^ {4}(\w+): (\w+);$/gm)].map(([, schema, name]) => [schema, name]));
    const missing = new Set<string>();
    for (const [, owner = "", body = ""] of types.matchAll(/^export declare class (\w+)[^\n]*\{\n(.*?)\n\}/gms)) {
      if (!exported.has(owner)) continue;
      const code = body
        .replaceAll(/\/\*.*?\*\//gs, "")
        .replaceAll(/Schemas\["(\w+)"\]/g, (_, schema) => nameOf.get(schema) ?? schema);
      for (const name of code.match(/\b[A-Z]\w+/g) ?? [])
        if (declared.has(name) && !exported.has(name)) missing.add(`${owner}: ${name}`);
    }
    expect([...missing]).toEqual([]);
  });

  test("describes each method, with an example", () => {
    const undescribed: string[] = [];
    let methods = 0;
    for (const name of readdirSync(join(installed, "types")).filter((one) => one.endsWith(".d.ts"))) {
      const text = readFileSync(join(installed, "types", name), "utf8");
      for (const [, owner, body = ""] of text.matchAll(/export declare class (\w+) extends Resource \{\n(.*?)\n\}/gs)) {
        if (
          [
            "StowageError",
            "SignatureError",
            "BrowserStore",
            "Connection",
            "Recorder",
            "Retries",
            "List",
            "Page",
          ].includes(owner ?? "")
        )
          continue;
        const described = new Set<string>();
        for (const [, comment, method = ""] of body.matchAll(/(\*\/\n)? {4}(\w+)(?=\()/g)) {
          // The comment of the first overload is enough.
          if (method === "constructor" || described.has(method)) continue;
          described.add(method);
          methods += 1;
          const before =
            body
              .slice(0, body.indexOf(` ${method}(`))
              .split("/**")
              .at(-1) ?? "";
          if (!comment || !before.includes("@example")) undescribed.push(`${owner}.${method}`);
        }
      }
    }
    expect(methods).toBeGreaterThan(60);
    expect(undescribed).toEqual([]);
  });

  test(`has at most ${MAX_GZIP_BYTES} bytes in a browser, compressed, and no Node modules`, async () => {
    const result = await build({
      stdin: { contents: 'export * from "stowage"', resolveDir: folder },
      bundle: true,
      minify: true,
      format: "esm",
      platform: "browser",
      write: false,
    });
    const text = result.outputFiles[0]?.text ?? "";
    expect(text).not.toMatch(/from\s*"node:/);
    expect(gzipSync(text).length).toBeLessThanOrEqual(MAX_GZIP_BYTES);
  });
});
