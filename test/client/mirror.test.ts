import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { describe, expect, test } from "vitest";
import { bytesOf, collect, type Team } from "../support/team.ts";
import { expectFailure, linesOf, type Machine, newMachine } from "./command-line.ts";

const VTT = "WEBVTT\n\n00:00.000 --> 00:01.000\nGood evening.\n";
const OTHER_VTT = VTT.replace("evening", "morning");

const transcriptOf = async ({ stowage }: Team, name: string) => {
  const [file] = await collect(stowage.files.list({ name }));
  return stowage.files.getTranscript(file?._id ?? "");
};

/** Runs the command, which must succeed. @returns its lines without IDs, in order */
async function done(machine: Machine, args: string): Promise<string[]> {
  const run = await machine.run([...args.split(" "), "--quiet"]);
  expect(run, args).toMatchObject({ code: 0, stderr: "" });
  return linesOf(run.stdout.replaceAll(/^[0-9a-f]{24}\t/gm, "")).toSorted();
}

/** A folder `in` with recordings, which the service has in `radio/in`, and this machine in `out/in`. */
async function mirrored() {
  const { team, machine } = await newMachine();
  machine.write("in/a.mp3", bytesOf(900));
  machine.write("in/deep/b.mp3", bytesOf(900));
  await done(machine, "upload in --folder radio");
  await done(machine, "get --folder radio/in -o out");
  return { team, machine };
}

describe("stowage get --folder", () => {
  test("replaces with --force the files that differ, and downloads no equal one", async () => {
    const { machine } = await mirrored();
    machine.write("out/in/a.mp3", "mine");
    const { code, stderr } = await machine.run("get --folder radio/in -o out");
    expect([code, stderr]).toEqual([1, expect.stringContaining("out/in/a.mp3 already exists.")]);
    const planned = await done(machine, "get --folder radio/in -o out --force --dry-run");
    expect(planned).toEqual(["out/in/a.mp3\twould download", "out/in/deep/b.mp3\talready there"]);
    expect(readFileSync(machine.path("out/in/a.mp3"), "utf8")).toBe("mine");
    expect(await done(machine, "get --folder radio/in -o out --force")).toEqual([
      "out/in/a.mp3",
      "out/in/deep/b.mp3\talready there",
    ]);
    expect(readFileSync(machine.path("out/in/a.mp3"))).toEqual(readFileSync(machine.path("in/a.mp3")));
  });

  test("deletes with --delete what the service lacks, after it has asked, and no hidden file", async () => {
    const { machine } = await mirrored();
    for (const name of ["out/in/old.mp3", "out/in/deep/old.mp3", "out/in/.hidden", "out/in/a.vtt", "out/beside.mp3"])
      machine.write(name, "mine");
    machine.write(`out/in/c.mp3.${"1".repeat(24)}.part`, "mine");
    const surplus = ["out/in/deep/old.mp3", "out/in/old.mp3"];
    const lines = (word: string) => surplus.map((path) => `${path}\t${word}`);
    const get = "get --folder radio/in -o out --delete";
    const deletions = (all: string[]) => all.filter((line) => !line.endsWith("already there"));
    expect(deletions(await done(machine, `${get} --dry-run`))).toEqual(lines("would delete"));
    const unasked = await machine.run(get);
    expect([unasked.code, unasked.stderr]).toEqual([
      2,
      "stowage: Delete 2 files? They are on this machine. Add --yes to do so without a question, or --dry-run to see which.\n",
    ]);
    const declined = await machine.run(get, { isAsked: true, input: "n\n" });
    expect([declined.code, declined.stderr]).toEqual([1, expect.stringContaining("Nothing was deleted.")]);
    for (const path of surplus) expect(existsSync(machine.path(path)), path).toBe(true);
    expect(deletions(await done(machine, `${get} --yes`))).toEqual(lines("deleted"));
    for (const path of surplus) expect(existsSync(machine.path(path)), path).toBe(false);
    for (const name of ["a.mp3", ".hidden", "a.vtt", "deep/b.mp3", `c.mp3.${"1".repeat(24)}.part`, "../beside.mp3"])
      expect(existsSync(machine.path(`out/in/${name}`)), name).toBe(true);
    expect(deletions(await done(machine, `${get} --transcripts --yes`))).toEqual(["out/in/a.vtt\tdeleted"]);
  });

  test("deletes nothing after a failure, of an empty folder, or without --folder", async () => {
    const { machine } = await mirrored();
    machine.write("out/in/old.mp3", "mine");
    machine.write("out/in/a.mp3", "mine");
    const failed = await machine.run("get --folder radio/in -o out --delete --yes");
    expect([failed.code, failed.stderr]).toEqual([1, expect.stringContaining("Deleted nothing")]);
    expectFailure(await machine.run("get --folder none -o out --delete --yes"), 4);
    expectFailure(await machine.run("get --folder / -o out --delete --yes"), 2, /^--delete would apply to all files/);
    for (const option of ["--delete --yes", "--dry-run"])
      expectFailure(await machine.run(`get radio/in/a.mp3 ${option}`), 2, /go with --folder\.$/);
    expect(existsSync(machine.path("out/in/old.mp3"))).toBe(true);
  });
});

describe("--transcripts", () => {
  test("sends a.vtt with a.mp3, sends nothing twice, and replaces a changed one in its language", async () => {
    const { team, machine } = await newMachine();
    machine.write("in/a.mp3", bytesOf(900));
    for (const name of ["a", "alone"]) machine.write(`in/${name}.vtt`, VTT);
    for (const command of ["upload in", "sync in"]) {
      const isFirst = command === "upload in";
      const lines = await done(machine, `${command} --transcripts`);
      expect(lines).toContain(`in/a.vtt\t${isFirst ? "transcript set" : "already sent"}`);
    }
    expect((await collect(team.stowage.files.list())).map(({ name }) => name).toSorted()).toEqual([
      "a.mp3",
      "alone.vtt",
    ]);
    expect(await transcriptOf(team, "a.mp3")).toBe(VTT);
    const [file] = await collect(team.stowage.files.list({ name: "a.mp3" }));
    await team.stowage.files.setTranscript(file?._id ?? "", VTT, { language: "de" });
    writeFileSync(machine.path("in/a.vtt"), OTHER_VTT);
    const sync = "sync in --transcripts --delete";
    expect(await done(machine, `${sync} --dry-run`)).toContain("in/a.vtt\twould set the transcript");
    expect(await transcriptOf(team, "a.mp3")).toBe(VTT);
    expect(await done(machine, `${sync} --yes`)).toContain("in/a.vtt\ttranscript set");
    expect(await transcriptOf(team, "a.mp3")).toBe(OTHER_VTT);
    expect((await team.stowage.files.get(file?._id ?? "")).transcript).toMatchObject({ language: "de" });
  });

  test("reports a transcript that the service rejects, and keeps a stored a.vtt that the machine has", async () => {
    const { team, machine } = await newMachine();
    machine.write("in/a.mp3", bytesOf(900));
    machine.write("in/a.vtt", "no transcript");
    await done(machine, "upload in");
    const { code, stderr } = await machine.run("sync in --transcripts --delete --yes");
    expect([code, stderr]).toEqual([1, expect.stringContaining("in/a.vtt: Line 1: Must begin with `WEBVTT`.")]);
    machine.write("in/a.vtt", VTT);
    await done(machine, "sync in --transcripts --delete --yes");
    expect((await collect(team.stowage.files.list())).map(({ name }) => name).toSorted()).toEqual(["a.mp3", "a.vtt"]);
  });

  test("of get writes a.vtt beside a.mp3, and replaces another one only with --force", async () => {
    const { team, machine } = await mirrored();
    const [file] = await collect(team.stowage.files.list({ name: "a.mp3" }));
    await team.stowage.files.setTranscript(file?._id ?? "", VTT);
    const get = "get --folder radio/in -o out --transcripts";
    expect(await done(machine, `${get} --dry-run`)).toContain("out/in/a.vtt\twould download");
    expect(existsSync(machine.path("out/in/a.vtt"))).toBe(false);
    expect(await done(machine, get)).toContain("out/in/a.vtt");
    expect(readFileSync(machine.path("out/in/a.vtt"), "utf8")).toBe(VTT);
    expect(await done(machine, get)).toContain("out/in/a.vtt\talready there");
    machine.write("out/in/a.vtt", OTHER_VTT);
    for (const args of [get, `${get} --dry-run`]) {
      const failed = await machine.run(args);
      expect([failed.code, failed.stderr]).toEqual([1, expect.stringContaining("out/in/a.vtt already exists.")]);
    }
    expect(readFileSync(machine.path("out/in/a.vtt"), "utf8")).toBe(OTHER_VTT);
    expect(await done(machine, `${get} --force`)).toContain("out/in/a.vtt");
    expect(readFileSync(machine.path("out/in/a.vtt"), "utf8")).toBe(VTT);
    machine.write("in/a.wav", bytesOf(900));
    await done(machine, "upload in/a.wav --folder radio/in");
    const [other] = await collect(team.stowage.files.list({ name: "a.wav" }));
    await team.stowage.files.setTranscript(other?._id ?? "", VTT);
    const twice = await machine.run(`${get} --parallel 1`);
    expect([twice.code, twice.stderr]).toEqual([1, expect.stringContaining("several files would have this name")]);
    expectFailure(await machine.run(`get ${file?._id} --transcripts -o -`), 2, /^--transcripts needs files/);
  });
});
