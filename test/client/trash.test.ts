import { expect, inject, test } from "vitest";
import { newTeam } from "../support/team.ts";
import { Machine } from "./command-line.ts";

test("the commands rm, trash and restore delete a file, find it in the trash, and return it", async () => {
  const server = inject("trash");
  const team = await newTeam(server);
  const machine = new Machine(team.key, server.url);
  const { files } = team.stowage;
  const { id } = await files.upload(new File(["a.txt"], "a.txt"), { properties: { folder: "podcast" } });
  const removed = await machine.run("rm --yes podcast/a.txt");
  expect(removed).toMatchObject({ code: 0, stdout: "podcast/a.txt\tmoved to the trash\n" });
  for (const list of ["trash", "trash ls"]) {
    expect((await machine.run(list)).stdout).toMatch(new RegExp(`^${id}\t\\S+\t\\S+\t5 B\tpodcast/a.txt\n$`));
  }
  expect(await machine.run(`restore ${id}`)).toMatchObject({ code: 0, stdout: `${id}\trestored\n` });
  const again = await machine.run(`restore ${id}`);
  expect(again).toMatchObject({ code: 1, stdout: "", stderr: `stowage: ${id}: Not in the trash.\n` });
  await files.hold(id, "r");
  const held = `stowage: ${id}: A hold forbids the deletion.\n`;
  expect(await machine.run(`rm --yes ${id}`)).toMatchObject({ code: 1, stderr: held });
  await files.release(id);
  await machine.run(`rm --yes ${id}`);
  expect(await machine.run(`rm --yes --permanent ${id}`)).toMatchObject({ code: 0, stdout: `${id}\tdeleted\n` });
  expect(await machine.run("trash")).toMatchObject({ code: 0, stdout: "" });
});
