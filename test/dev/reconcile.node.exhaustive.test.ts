import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { upload } from "../support/client.ts";
import { Server } from "../support/server.ts";

let server: Server;
beforeAll(async () => {
  server = await Server.start();
});
afterAll(() => server.remove());

/** Runs `npm run reconcile` in the server's folder. */
async function reconcile(args: string[], env: Record<string, string> = {}) {
  const file = join(import.meta.dirname, "../../src/dev/reconcile.ts");
  const options = { cwd: server.folder, env: { PATH: process.env.PATH ?? "", HOME: server.folder, ...env } as never };
  return promisify(execFile)(process.execPath, [file, ...args], options).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
  );
}

describe("npm run reconcile", () => {
  test("finds what a restored database lacks, keeps recent objects, and needs the operator token", async () => {
    const team = await server.newTeam();
    const [kept, lost] = [await upload(team, "a.txt", "a.txt"), await upload(team, "b.txt", "b.txt")];
    expect(await reconcile([server.url])).toMatchObject({
      code: 0,
      stdout: "All rows have bytes, and all bytes have a row.\n",
    });
    server.sql("D1Database", `delete from files where id = '${lost}'`);
    const found = await reconcile([server.url, "--remove"]);
    expect(found.code).toBe(1);
    expect(found.stdout).toMatch(
      new RegExp(`^bytes without a row, kept for a day: \\w+/${lost}-b.txt \\(5 bytes\\)\nDifferences: 1.\n$`),
    );
    expect((await team.call("GET", `/docs/v1/uploads/${kept}/metadata`)).body.data).toMatchObject({ _id: kept });
    expect(await reconcile([server.url], { OPERATOR_TOKEN: "wrong" })).toMatchObject({
      code: 2,
      stderr: expect.stringContaining("401"),
    });
    expect(await reconcile([])).toMatchObject({ code: 2, stderr: expect.stringContaining("Usage:") });
  });
});
