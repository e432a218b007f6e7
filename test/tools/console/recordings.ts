import { readFileSync } from "node:fs";
import { join as joinPath } from "node:path";
import { Stowage } from "../../../src/client/index.ts";
import { id3, join, le32, repeat, riffChunk, text, wav } from "../../audio/build.ts";

/* The archive of a small radio station: users, folders, and recordings made at run time. */

const PASSWORD = "correct horse battery staple";
const USERS = [
  { firstName: "Ada", lastName: "Okafor", email: "ada@radiolovelace.example", role: "admin" },
  { firstName: "Jonas", lastName: "Peters", email: "jonas@radiolovelace.example", role: "member" },
  { firstName: "Mei", lastName: "Tanaka", email: "mei@radiolovelace.example", role: "member" },
] as const;

interface Recording {
  name: string;
  minutes: number;
  daysAgo: number;
  /** Index in USERS. */
  by: number;
  folder?: string;
  tags?: string[];
  title?: string;
  artist?: string;
}

/** The oldest first, as they are uploaded. A name's extension determines the format. */
const RECORDINGS: Recording[] = [
  { name: "Station ident.ogg", minutes: 0, daysAgo: 41, by: 0, folder: "Jingles", tags: ["jingle"] },
  { name: "Traffic bed.flac", minutes: 0, daysAgo: 41, by: 0, folder: "Jingles", tags: ["jingle"] },
  { name: "Harbor at dawn.wav", minutes: 2.1, daysAgo: 33, by: 2, folder: "Field recordings/Harbor", tags: ["stereo"] },
  { name: "Night market.wav", minutes: 1.4, daysAgo: 30, by: 2, folder: "Field recordings", tags: ["raw"] },
  { name: "Open Water 11.mp3", minutes: 24.2, daysAgo: 21, by: 1, folder: "Open Water/Season 1", tags: ["episode"] },
  { name: "Open Water 12.mp3", minutes: 27.6, daysAgo: 14, by: 1, folder: "Open Water/Season 2", tags: ["episode"] },
  { name: "Kitchen Table pilot.mp3", minutes: 18.3, daysAgo: 12, by: 0, folder: "Kitchen Table", tags: ["pilot"] },
  { name: "Listener voicemail 0412.aac", minutes: 0.7, daysAgo: 9, by: 2, tags: ["listener"] },
  {
    name: "Why bridges hum (rough cut).mp3",
    minutes: 31.4,
    daysAgo: 6,
    by: 1,
    tags: ["interview", "rough cut"],
    title: "Why bridges hum",
    artist: "Kit Marlowe",
  },
  { name: "Ambience – lighthouse stairs.wav", minutes: 1.1, daysAgo: 5, by: 2, tags: ["raw", "ambience"] },
  {
    name: "Open Water 13 – The lighthouse keepers.mp3",
    minutes: 26.8,
    daysAgo: 3,
    by: 1,
    tags: ["episode", "season 2"],
    title: "The lighthouse keepers",
    artist: "Radio Lovelace",
  },
  { name: "Season 2 trailer.mp3", minutes: 1.5, daysAgo: 2, by: 0, tags: ["trailer", "season 2"] },
  { name: "ראיון עם נועה.mp3", minutes: 12.7, daysAgo: 1, by: 2, tags: ["interview"] },
  {
    name: "Interview with Amara Osei.wav",
    minutes: 2.2,
    daysAgo: 0,
    by: 0,
    tags: ["interview", "season 2"],
  },
];
/** The recording that the pictures show and play. Every Chromium can play WAV. */
export const SHOWN_NAME = "Interview with Amara Osei.wav";

/** The part of it that is marked as a clip, as in a URL: four of the cues. */
export const CLIP = "16.5,42";

/** What is said in it: the seconds at which each sentence begins, who says it, and the words. */
const SPOKEN: [second: number, speaker: string, words: string][] = [
  [0, "Ada Okafor", "Good morning, and welcome back to Open Water."],
  [4, "Ada Okafor", "With me is Amara Osei, who has kept the light at Ansah Point for nineteen years."],
  [10.5, "Amara Osei", "Twenty in March, if the stairs allow it."],
  [14, "Ada Okafor", "How many are there?"],
  [16.5, "Amara Osei", "Two hundred and twelve. You stop counting once you know the sound of each."],
  [24, "Ada Okafor", "You say that you can hear the weather before it comes."],
  [29, "Amara Osei", "The tower hums. When the wind turns to the north it goes up, almost a whole tone."],
  [36.5, "Amara Osei", "My daughter wrote it down as a melody when she was seven."],
  [42, "Ada Okafor", "We have brought a recorder, so let us listen to that."],
  [47, "Amara Osei", "Wait until the door is shut. Now."],
];
const END_SECONDS = 52;

const vttTime = (seconds: number) => new Date(seconds * 1000).toISOString().slice(11, 23);

/** The transcript as WebVTT. */
const transcript = (): string =>
  `WEBVTT\n${SPOKEN.map(([start, speaker, words], at) => {
    const end = SPOKEN[at + 1]?.[0] ?? END_SECONDS;
    return `\n${vttTime(start)} --> ${vttTime(end)}\n<v ${speaker}>${words}\n`;
  }).join("")}`;

export const sample = (name: string) => readFileSync(joinPath(import.meta.dirname, "../../audio", name));

/** Numbers from 0 to 1 that are the same in every run. */
function* randomNumbers(seed: number): Generator<number, never> {
  for (let state = seed; ; ) {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    yield state / 2 ** 31;
  }
}

/** The loudness of somebody speaking, from 0 to 1, ten times a second: sentences of syllables, with pauses between. */
function speech(seconds: number, seed: number): number[] {
  const random = randomNumbers(seed);
  const loudness: number[] = [];
  while (loudness.length < seconds * 10) {
    const [length, level] = [15 + random.next().value * 60, 0.35 + random.next().value * 0.55];
    for (let tenth = 0; tenth < length; tenth++) {
      const fade = Math.min(1, tenth / 3, (length - tenth) / 8);
      loudness.push(level * fade * (0.35 + 0.65 * random.next().value));
    }
    const pause = 2 + random.next().value * 9;
    for (let tenth = 0; tenth < pause; tenth++) loudness.push(0.01 + random.next().value * 0.02);
  }
  return loudness.slice(0, Math.ceil(seconds * 10));
}

const HERTZ = 16_000;

/** A voice-like hum with the loudness of speech. */
function spokenWav(seconds: number, seed: number): Uint8Array {
  const loudness = speech(seconds + 1, seed);
  const samples = new Int16Array(Math.round(seconds * HERTZ));
  let phase = 0;
  for (let at = 0; at < samples.length; at++) {
    const [tenth, rest] = [Math.floor((at * 10) / HERTZ), ((at * 10) / HERTZ) % 1];
    const level = (loudness[tenth] ?? 0) * (1 - rest) + (loudness[tenth + 1] ?? 0) * rest;
    phase += (2 * Math.PI * (110 + 40 * level)) / HERTZ;
    samples[at] =
      30_000 * level * (0.6 * Math.sin(phase) + 0.3 * Math.sin(2.01 * phase) + 0.1 * Math.sin(5.03 * phase));
  }
  const format = join(Uint8Array.of(1, 0, 1, 0), le32(HERTZ), le32(HERTZ * 2), Uint8Array.of(2, 0, 16, 0));
  return wav(riffChunk("fmt ", format), riffChunk("data", new Uint8Array(samples.buffer)));
}

/** Frames of a sample without tags, repeated. */
const longAac = (seconds: number): Uint8Array => repeat(sample("tone.aac"), Math.ceil(seconds / 2.0433));

/** Frames of a sample at 64 kbit/s, repeated, after the tags. */
function longMp3(seconds: number, { title, artist }: Recording): Uint8Array {
  const frames = repeat(sample("tone-cbr.mp3"), Math.ceil(seconds / 2.0375));
  const frame = (id: string, value?: string): [string, Uint8Array][] => (value ? [[id, text(value)]] : []);
  const tags = [...frame("TIT2", title), ...frame("TPE1", artist)];
  return tags.length > 0 ? join(id3(...tags), frames) : frames;
}

function bytesOf(recording: Recording, seed: number): Uint8Array {
  const { name, minutes } = recording;
  const seconds = minutes * 60;
  if (seconds === 0) return sample(`tone.${name.split(".").at(-1)}`);
  if (name.endsWith(".wav")) return spokenWav(seconds, seed);
  return name.endsWith(".aac") ? longAac(seconds) : longMp3(seconds, recording);
}

/** Peaks as a browser would measure them in speech: positive and negative by turns. */
function peaksOf(minutes: number, seed: number): number[][] {
  const loudness = speech(minutes * 60 || 2, seed);
  const count = Math.max(16, Math.min(1000, loudness.length));
  const peaks = Array.from({ length: count }, (_, place) => {
    const part = loudness.slice(Math.floor((place * loudness.length) / count), ((place + 1) * loudness.length) / count);
    return Math.max(...part, 0) * (place % 2 === 0 ? 1 : -1);
  });
  return [peaks];
}

export interface Archive {
  /** A secret key of the team. */
  key: string;
  teamId: string;
  /** A secret key of a team whose files no picture shows. */
  otherKey: string;
  /** The ID of the recording that the pictures show. */
  shownId: string;
  /** When each file should seem to have been uploaded, by its ID. */
  uploadedAt: Map<string, number>;
}

/** Creates the team with its users and recordings, and waits until all are processed. */
export async function createArchive(url: string, operatorToken: string): Promise<Archive> {
  const operator = new Stowage({ url, key: operatorToken });
  const { team, apiKey } = await operator.teams.create({ name: "Radio Lovelace" });
  const { key } = apiKey;
  if (!key) throw new Error("The new team has no key.");
  const stowage = new Stowage({ url, key });
  const members: Stowage[] = [];
  for (const user of USERS) {
    await stowage.users.create({ ...user, password: PASSWORD });
    const session = await stowage.logIn({ teamId: team._id, email: user.email, password: PASSWORD });
    members.push(new Stowage({ url, key: session.key ?? "" }));
  }
  const uploadedAt = new Map<string, number>();
  let shownId = "";
  for (const [seed, recording] of RECORDINGS.entries()) {
    const { name, folder = "", tags = [], by, daysAgo, minutes } = recording;
    const file = new File([bytesOf(recording, seed) as Uint8Array<ArrayBuffer>], name);
    const member = members[by] ?? stowage;
    const { id } = await member.files.upload(file, { properties: { folder, tags } });
    const { status } = await member.files.waitUntilProcessed(id);
    if (status !== "completed") throw new Error(`${name} is ${status}.`);
    await member.files.setWaveform(id, peaksOf(minutes, seed));
    uploadedAt.set(id, Date.now() - daysAgo * 86_400_000 - seed * 1_260_000);
    if (name === SHOWN_NAME) {
      shownId = id;
      await member.files.setTranscript(id, transcript(), { language: "en" });
    }
  }
  const other = await operator.keys.create({ name: "Listeners" });
  return { key, teamId: team._id, otherKey: other.key ?? "", shownId, uploadedAt };
}
