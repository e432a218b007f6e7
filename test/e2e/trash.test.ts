import { execFile } from "node:child_process";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { form } from "../support/client.ts";
import { Server } from "../support/server.ts";

/* The trash, in a service that has one: the commands, and `npm run reconcile`. */

let server: Server;
beforeAll(async () => {
  server = await Server.start(["--var", "TRASH_DAYS:7"]);
});
afterAll(() => server.remove());

/** Runs a script of the project. */
async function run(script: string, args: string[], env: Record<string, string> = {}) {
  const file = join(import.meta.dirname, "../../src", script);
  const options = { cwd: server.folder, env: { PATH: process.env.PATH ?? "", HOME: server.folder, ...env } as never };
  return promisify(execFile)(process.execPath, [file, ...args], options).then(
    ({ stdout, stderr }) => ({ code: 0, stdout, stderr }),
    ({ code, stdout, stderr }) => ({ code, stdout, stderr }),
  );
}

async function newTeam() {
  const team = await server.newTeam();
  const env = { STOWAGE_URL: server.url, STOWAGE_KEY: team.token };
  return { ...team, command: (args: string) => run("client/command/main.ts", args.split(" "), env) };
}
type Team = Awaited<ReturnType<typeof newTeam>>;

async function upload({ call }: Team, name: string): Promise<string> {
  const body = new FormData();
  body.append("properties", JSON.stringify({ folder: "podcast" }));
  for (const [part, file] of form(name, name)) body.append(part, file);
  return (await call("POST", "/docs/v1/uploads", { body })).id;
}

test("the commands rm, trash and restore delete a file, find it in the trash, and return it", async () => {
  const team = await newTeam();
  const { call, command } = team;
  const id = await upload(team, "a.txt");
  expect(await command("rm podcast/a.txt")).toMatchObject({ code: 0, stdout: "podcast/a.txt\tdeleted\n" });
  for (const list of ["trash", "trash ls"]) {
    expect((await command(list)).stdout).toMatch(new RegExp(`^${id}\t\\S+\t\\S+\t5 B\tpodcast/a.txt\n$`));
  }
  expect(await command(`restore ${id}`)).toMatchObject({ code: 0, stdout: `${id}\trestored\n` });
  const again = await command(`restore ${id}`);
  expect(again).toMatchObject({ code: 1, stdout: "", stderr: `stowage: ${id}: Not in the trash.\n` });
  const hold = `/docs/v1/uploads/${id}/hold`;
  await call("PUT", hold, { json: { reason: "r" } });
  const held = `stowage: ${id}: A hold forbids the deletion.\n`;
  expect(await command(`rm ${id}`)).toMatchObject({ code: 1, stderr: held });
  await call("DELETE", hold);
  await command(`rm ${id}`);
  expect(await command(`rm --permanent ${id}`)).toMatchObject({ code: 0, stdout: `${id}\tdeleted\n` });
  expect(await command("trash")).toMatchObject({ code: 0, stdout: "" });
});

describe("npm run reconcile", () => {
  const reconcile = (args: string[], env?: Record<string, string>) => run("dev/reconcile.ts", args, env);

  test("finds what a restored database lacks, keeps what is young, and needs the operator token", async () => {
    const team = await newTeam();
    const [kept, lost] = [await upload(team, "a.txt"), await upload(team, "b.txt")];
    expect(await reconcile([server.url])).toMatchObject({
      code: 0,
      stdout: "All rows have bytes, and all bytes have a row.\n",
    });
    await server.stop();
    server.sql("D1Database", `delete from files where id = '${lost}'`);
    await server.restart();
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
