import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { build } from "esbuild";
import { expect, test } from "vitest";
import { isMeasurable } from "../../src/audio/decoders/measure.ts";
import { isMeasured } from "../../src/client/measured.ts";
import { extractDecoders } from "../../src/dev/extract-decoders.ts";
import { facts } from "./facts.ts";

const root = join(import.meta.dirname, "../..");
const folder = join(root, "src/audio/decoders");
const json = (path: string) => JSON.parse(readFileSync(join(root, path), "utf8"));
const isGpl = (license: string) => /(^|[^L])GPL/i.test(license);

/** The rows of a table in Markdown, without links. */
const rowsIn = (text: string) =>
  text
    .split("\n")
    .filter((line) => line.startsWith("| `"))
    .map((line) =>
      [...line.replace(/\[(.*?)\]\(.*?\)|`(.*?)`/g, "$1$2").matchAll(/[^|]+/g)].map(([cell]) => cell.trim()),
    );

test("the decoders are those of the packages, byte by byte", async () => {
  const extracted = await extractDecoders();
  expect([...extracted.keys()].sort()).toEqual(["flac.wasm", "mp3.wasm", "names.ts", "opus.wasm", "vorbis.wasm"]);
  for (const [name, contents] of extracted) {
    expect(Buffer.from(contents).equals(readFileSync(join(folder, name))), name).toBe(true);
  }
});

test("nothing in the Worker's bundle is under the GPL, and each decoder has its license stated", async () => {
  const { metafile } = await build({
    entryPoints: [join(root, "src/index.ts")],
    bundle: true,
    write: false,
    metafile: true,
    format: "esm",
    target: "es2024",
    conditions: ["workerd", "worker", "browser"],
    alias: { debug: join(root, "src/platform/no-tracing.ts") },
    external: ["*.wasm", "node:*", "cloudflare:*"],
    absWorkingDir: root,
    logLevel: "silent",
  });
  const packages = Object.keys(metafile.inputs).flatMap((path) => {
    const found = /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path);
    return found?.[1] ? [found[1]] : [];
  });
  const licenses = new Map(
    [...new Set(packages)].map((path) => [path, json(`${path}/package.json`).license as string]),
  );
  expect([...licenses.keys()]).toContain("node_modules/hono");
  expect([...licenses].filter(([, license]) => !/^(MIT|ISC|BSD-[23]-Clause|Apache-2.0|0BSD)$/.test(license))).toEqual(
    [],
  );
  const loaded = Object.values(metafile.outputs).flatMap(({ imports }) => imports.map(({ path }) => path));
  const modules = loaded.filter((path) => path.endsWith(".wasm")).map((path) => path.replace(/.*\//, ""));
  const rows = rowsIn(readFileSync(join(folder, "LICENSES.md"), "utf8"));
  expect(rows.map(([file]) => file).sort()).toEqual(modules.sort());
  expect(readdirSync(folder).filter((name) => name.endsWith(".wasm"))).toEqual(modules.sort());
  for (const [, name, version, license = "", , library = ""] of rows) {
    expect([json("package.json").devDependencies[name!], json(`node_modules/${name}/package.json`).license]).toEqual([
      version,
      license,
    ]);
    expect([license, library].filter(isGpl)).toEqual([]);
  }
});

test("the client knows which formats the service decodes", () => {
  const others = ["MULAW", "ALAW", "IEEE_FLOAT", "DVI_ADPCM"].map((codec) => ({ container: "WAVE", codec }));
  const sounds = [
    ...facts.flatMap(({ audio }) => (audio ? [audio] : [])),
    ...others,
    { container: "AIFF-C", codec: "sowt" },
    { container: "EBML/matroska", codec: "OPUS" },
    { container: "MPEG", codec: "MPEG 2.5 Layer 3" },
    { container: "EBML/webm", codec: "VORBIS" },
  ];
  for (const { container, codec } of sounds) {
    const audio = { container, codec, durationSeconds: 1, sampleRate: 8000, channels: 1 };
    expect(isMeasured(audio), `${container} ${codec}`).toBe(isMeasurable(audio, 1000));
  }
  expect(new Set(sounds.map((audio) => isMeasured(audio)))).toEqual(new Set([true, false]));
});
