import { expect, test } from "vitest";
import { Stowage } from "../../src/client/stowage.ts";
import { url } from "../support/team.ts";

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
  ]);
  for (const { lang, label, source } of samples) {
    expect([lang, label]).toEqual(["JavaScript", "Client"]);
    const called = [...source.matchAll(/stowage\.([\w.]+)\(/g)].map(([, path = ""]) => path.split("."));
    expect(called, source).not.toEqual([]);
    for (const steps of called) {
      const method = steps.reduce<unknown>((value, step) => Reflect.get(value as object, step), new Stowage({ url }));
      expect(method, source).toBeTypeOf("function");
    }
  }
});
