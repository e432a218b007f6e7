import { readFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import type { FileMetadata } from "../../../src/client/api.ts";
import { oggPages } from "../../audio/build.ts";
import { PRICES } from "../../support/prices.ts";
import { repeat as repeatCall } from "./load.ts";
import { formUpload, get, MEGABYTE, ROOT, type Scope, type Server, startServer } from "./server.ts";

/*
 * The cost of a waveform, whether a file waits for it, and how long a large import does. The sound is that of
 * test/audio/notes, many times over.
 */

const POLL_MILLISECONDS = 10;
const WAV_HEADER_BYTES = 44;
const UPLOADS = 10;
const IMPORTED_FILES = 2000;
const HOUR_SECONDS = 3600;

interface Format {
  name: string;
  file: string;
  /** The duration of the sound in the file. */
  seconds: number;
  sampleRate: number;
  /** The usual rate of music in this format. */
  hourSampleRate: number;
  repeat(bytes: Uint8Array, times: number): Uint8Array;
}

const concat = (parts: Uint8Array[]) => new Uint8Array(Buffer.concat(parts));
const many = (bytes: Uint8Array, times: number) => Array<Uint8Array>(times).fill(bytes);

/** Repeats the pages with sound, behind those of the headers, in which no sound ends. */
function repeatPages(bytes: Uint8Array, times: number): Uint8Array {
  const pages = oggPages(bytes);
  const first = pages.findIndex((page) => new DataView(page.buffer, page.byteOffset).getBigUint64(6, true) > 0n);
  const sound = concat(pages.slice(first));
  return concat([...pages.slice(0, first), ...many(sound, times)]);
}

function repeatSamples(bytes: Uint8Array, times: number): Uint8Array {
  const [header, sound] = [bytes.slice(0, WAV_HEADER_BYTES), bytes.subarray(WAV_HEADER_BYTES)];
  new DataView(header.buffer).setUint32(WAV_HEADER_BYTES - 4, sound.length * times, true);
  return concat([header, ...many(sound, times)]);
}

const FORMATS: Format[] = [
  ["MP3", "notes.mp3", 6, 44_100, 44_100, (bytes: Uint8Array, times: number) => concat(many(bytes, times))] as const,
  ["FLAC", "notes.oga", 3, 8000, 44_100, repeatPages] as const,
  ["Vorbis", "notes.ogg", 6, 44_100, 44_100, repeatPages] as const,
  ["Opus", "notes.opus", 6, 48_000, 48_000, repeatPages] as const,
  ["WAV", "notes.wav", 6, 8000, 44_100, repeatSamples] as const,
].map(([name, file, seconds, sampleRate, hourSampleRate, repeat]) => {
  return { name, file, seconds, sampleRate, hourSampleRate, repeat };
});

export async function measureWaveforms({ isQuick, log }: Scope) {
  const server = await startServer();
  /** The sound has as many samples as this many seconds of music. */
  const seconds = isQuick ? 120 : 480;
  const soundOf = ({ file, repeat, ...format }: Format) => {
    const bytes = readFileSync(join(ROOT, "test/audio/notes", file));
    return repeat(bytes, Math.ceil((seconds * format.hourSampleRate) / format.sampleRate / format.seconds));
  };
  try {
    const team = await server.createTeam();
    const upload = async (bytes: Uint8Array): Promise<string> =>
      JSON.parse((await server.load.send(formUpload(bytes, team))).text).data._id;
    const until = async (id: string, isReached: (file: FileMetadata) => boolean): Promise<FileMetadata> => {
      for (;;) {
        const { text } = await server.load.send(get(`/docs/v1/uploads/${id}/metadata`, team));
        const { data } = JSON.parse(text);
        if (data.status === "failed") throw new Error("The file failed.");
        if (isReached(data)) return data;
        await sleep(POLL_MILLISECONDS);
      }
    };
    const isCompleted = ({ status }: FileMetadata) => status === "completed";
    const costs = [];
    for (const format of FORMATS) {
      await server.control("measuring", false);
      const id = await upload(soundOf(format));
      await until(id, isCompleted);
      await server.process.settled();
      const before = server.process.cpuSeconds();
      let outcome: unknown;
      const bytes = await server.process.growth(async () => {
        outcome = await server.control("waveform", { teamId: team.teamId, fileId: id, attempt: 0 });
      });
      const cpuSeconds = ((server.process.cpuSeconds() - before) / seconds) * HOUR_SECONDS;
      log(`waveforms: ${format.name}: ${outcome}, ${cpuSeconds.toFixed(1)} s of CPU for an hour`);
      const dollars = cpuSeconds * 1000 * PRICES.cpuMilliseconds.perMillion;
      costs.push({ name: format.name, outcome, cpuSeconds, dollars, megabytes: bytes / MEGABYTE });
    }
    const [mp3] = FORMATS as [Format];
    const bytes = soundOf(mp3);
    const waits = [];
    for (const isMeasuring of [false, true]) {
      await server.control("measuring", isMeasuring);
      const times: number[] = [];
      for (let i = 0; i < UPLOADS; i++) {
        const id = await upload(bytes);
        const file = await until(id, ({ status, hasWaveform }) => (isMeasuring ? hasWaveform : status === "completed"));
        // By the service's own clock: the local runtime answers requests in the thread that decodes.
        times.push(Date.parse(file.processedAt ?? "") - Date.parse(file.createdAt));
      }
      const median = times.sort((a, b) => a - b)[UPLOADS / 2] ?? Number.NaN;
      waits.push({ name: isMeasuring ? "with waveforms" : "without", median, longest: times.at(-1) ?? Number.NaN });
    }
    return { costs, waits, imported: await importFiles(server) };
  } finally {
    await server.close();
  }
}

/** Uploads short files of every format, and waits until each has a waveform. */
async function importFiles(server: Server) {
  const team = await server.createTeam();
  const sounds = FORMATS.map(({ file }) => readFileSync(join(ROOT, "test/audio/notes", file)));
  const startedAt = performance.now();
  await repeatCall(IMPORTED_FILES, 16, (i) =>
    server.load.send(formUpload(sounds[i % sounds.length] as Uint8Array, team)),
  );
  const uploadSeconds = (performance.now() - startedAt) / 1000;
  const measuredBefore = await server.countMeasured(team);
  while ((await server.countMeasured(team)) < IMPORTED_FILES) await sleep(POLL_MILLISECONDS);
  const waitSeconds = (performance.now() - startedAt) / 1000 - uploadSeconds;
  return { files: IMPORTED_FILES, uploadSeconds, measuredBefore, waitSeconds };
}
