import { readFileSync } from "node:fs";
import { join } from "node:path";
import { repeat } from "./load.ts";
import {
  formUpload,
  get,
  headers,
  json,
  MEBIBYTE,
  MEGABYTE,
  ROOT,
  type Scope,
  type Server,
  seededId,
  uploadInChunks,
} from "./server.ts";

/**
 * Measures the CPU time of the whole local process, with D1, R2 and the queue, for each operation of the table in OPERATIONS.md,
 * in milliseconds. A test counts the rest of its price.
 */
export async function measureCpu(server: Server, { isQuick, log }: Scope): Promise<Record<string, number>> {
  const { load } = server;
  const team = await server.createTeam();
  await server.seed("files", team, 1000);
  await server.seed("users", team, 1000);
  const times = isQuick ? 10 : 50;
  const mp3 = readFileSync(join(ROOT, "test/audio/tone-cbr.mp3"));
  const song = Buffer.alloc(5 * MEGABYTE, mp3);
  const paths: string[] = [];
  const fileIdAt = (i: number) => paths[i]?.split("/").at(-1) ?? "";
  const user = (i: number) => ({ email: `cost-${i}@example.com`, password: "correct horse" });
  const uploadAndProcess = async () => {
    paths.push((await load.send(formUpload(song, team))).location);
    await server.idle();
  };
  const recording = silentWav(100 * MEGABYTE);
  const uploadResumable = async () => {
    await uploadInChunks(load, recording, 80 * MEBIBYTE, team);
    await server.idle();
  };
  await server.control("measuring", false);
  const operations: [name: string, times: number, run: (index: number) => Promise<unknown>][] = [
    ["get user", 20 * times, (i) => load.send(get(`/auth/v1/users/${seededId(1 + (i % 1000))}`, team))],
    ["get metadata", 20 * times, (i) => load.send(get(`/docs/v1/uploads/${seededId(1 + (i % 1000))}/metadata`, team))],
    ["get signed URL", 20 * times, (i) => load.send(get(`/docs/v1/uploads/${seededId(1 + (i % 1000))}`, team))],
    ["list 20 files", 20 * times, () => load.send(get("/docs/v1/uploads", team))],
    ["create user", times, (i) => load.send(json("POST", "/auth/v1/users", user(i), team))],
    ["log in", 5, (i) => load.send(json("POST", "/auth/v1/login", { ...user(i), teamId: team.teamId }, team))],
    ["upload 5 MB and process it", times, uploadAndProcess],
    [
      "its waveform, of 5 minutes",
      times,
      (i) => server.control("waveform", { teamId: team.teamId, fileId: fileIdAt(i), attempt: 0 }),
    ],
    ["delete it", times, (i) => load.send({ method: "DELETE", path: paths[i] ?? "", headers: headers(team) })],
    ["resumable upload of 100 MB in chunks of 80 MiB", 1, uploadResumable],
  ];
  const milliseconds: Record<string, number> = {};
  for (const [name, times, run] of operations) {
    log(`cost: ${name}`);
    await server.process.settled();
    const before = server.process.cpuSeconds();
    await repeat(times, 1, run);
    milliseconds[name] = ((server.process.cpuSeconds() - before) * 1000) / times;
  }
  return milliseconds;
}

function silentWav(bytes: number): Buffer {
  const file = Buffer.alloc(bytes);
  const headerBytes = readFileSync(join(ROOT, "test/audio/tone.wav")).copy(file, 0, 0, 44);
  file.writeUInt32LE(bytes - 8, 4);
  file.writeUInt32LE(bytes - headerBytes, headerBytes - 4);
  return file;
}
