import { join } from "node:path";
import { build, type Metafile } from "esbuild";
import { expect, onTestFinished, test, vi } from "vitest";
import * as z from "zod";

/* What an isolate does before its first request. `npm run bench -- --only startup` measures how long that takes. */

/** Evaluates the application as a new isolate does. */
async function start() {
  vi.resetModules();
  const [{ createApp }, { operations }] = await Promise.all([
    import("../../src/app.ts"),
    import("../../src/service.ts"),
  ]);
  createApp();
  return operations;
}

/** Counts the schemas that are built from now on. */
function countSchemas(): () => number {
  let built = 0;
  // Zod copies what this prototype has to each schema.
  Object.defineProperty(z.core.$ZodType.prototype, "counted", {
    enumerable: true,
    configurable: true,
    get: () => {
      built++;
      return () => {};
    },
  });
  onTestFinished(() => {
    Reflect.deleteProperty(z.core.$ZodType.prototype, "counted");
  });
  return () => built;
}

test("no schema is built before the first request, and those of requests are built once", async () => {
  const count = countSchemas();
  const operations = await start();
  expect(count()).toBe(0);
  for (const { body, query } of Object.values(operations)) {
    for (const schema of [body, query]) {
      const first = schema?.();
      const built = count();
      expect(schema?.()).toBe(first);
      expect(count()).toBe(built);
    }
  }
  expect(count()).toBeGreaterThan(0);
});

test("nothing is formatted by languages before the first request, because the runtime takes long to load them", async () => {
  const constructors = [
    "Collator",
    "DateTimeFormat",
    "ListFormat",
    "NumberFormat",
    "PluralRules",
    "Segmenter",
  ] as const;
  const spies = [
    ...constructors.map((name) => vi.spyOn(Intl, name)),
    vi.spyOn(Number.prototype, "toLocaleString"),
    vi.spyOn(Date.prototype, "toLocaleString"),
    vi.spyOn(String.prototype, "localeCompare"),
  ];
  onTestFinished(() => spies.forEach((spy) => void spy.mockRestore()));
  await start();
  for (const spy of spies) expect(spy).not.toHaveBeenCalled();
});

/** The bytes of a file and of all that it imports at once. */
function bytesOf({ outputs }: Metafile, entry: string): number {
  const imported = new Set([entry]);
  for (const path of imported) {
    for (const { kind, path: target } of outputs[path]?.imports ?? []) {
      if (kind === "import-statement" && outputs[target]) imported.add(target);
    }
  }
  return [...imported].reduce((sum, path) => sum + (outputs[path]?.bytes ?? 0), 0);
}

test("at most 760 kB of code are evaluated before the first request", async () => {
  const { metafile } = await build({
    absWorkingDir: join(import.meta.dirname, "../.."),
    entryPoints: ["src/index.ts"],
    outdir: "out",
    write: false,
    metafile: true,
    bundle: true,
    // Gives what is loaded later its own files.
    splitting: true,
    minify: true,
    format: "esm",
    conditions: ["workerd", "worker", "browser"],
    external: ["node:*", "cloudflare:*", "*.wasm"],
    alias: { debug: "./src/platform/no-tracing.ts" },
  });
  expect(bytesOf(metafile, "out/index.js")).toBeLessThan(760_000);
});
