import { and, eq, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Param, preparedQuery, write } from "../../platform/db.ts";
import { files, isListed, waveforms } from "../../platform/schema.ts";
import { authorizeRead, type Credential, type TeamActor, teamRead } from "../accounts/authorization.ts";
import { type FileKey, isFile } from "./names.ts";

/** For each channel as many peaks, from -1 to 1. */
type Channels = number[][];
type WaveformRow = Pick<typeof waveforms.$inferSelect, "channelCount" | "peaks">;

/** A peak is kept as a signed byte: -1 and 1 at its ends and 0 as 0, so that none of the three is altered. */
const FULL_SCALE = 127;
/** As many as tell one byte from the next. */
const DECIMALS = 3;

const pack = (channels: Channels): WaveformRow => ({
  channelCount: channels.length,
  peaks: Buffer.from(channels.flat().map((peak) => Math.round(peak * FULL_SCALE))),
});

function unpack({ channelCount, peaks }: WaveformRow): Channels {
  const values = Array.from(new Int8Array(peaks), (byte) => Number((byte / FULL_SCALE).toFixed(DECIMALS)));
  const length = values.length / channelCount;
  return Array.from({ length: channelCount }, (_, i) => values.slice(i * length, (i + 1) * length));
}

const waveformOfFile = teamRead(waveforms.teamId, (db, param: Param<{ id: string }>) => ({
  query: db.select({ channelCount: waveforms.channelCount, peaks: waveforms.peaks }).from(waveforms).$dynamic(),
  where: eq(waveforms.fileId, param("id")),
}));

/** @throws `not_found`, also where the file has none */
export async function fetchWaveform(deps: Deps, credential: Credential<"team">, id: string): Promise<Channels> {
  const [row] = await authorizeRead(deps, credential, waveformOfFile({ id }));
  if (!row) throw new AppError("not_found");
  return unpack(row);
}

/** Where the team has such a file, which the same query decides: a deletion at the same time leaves no waveform behind. */
const putWaveform = preparedQuery((db, param: Param<FileKey & WaveformRow>) => {
  const row = {
    fileId: files.id,
    teamId: files.teamId,
    channelCount: sql`${param("channelCount")}`.as("channel_count"),
    peaks: sql`${param("peaks")}`.as("peaks"),
  };
  const file = db
    .select(row)
    .from(files)
    .where(and(isFile(param), isListed));
  return db
    .insert(waveforms)
    .select(file)
    .onConflictDoUpdate({
      target: [waveforms.teamId, waveforms.fileId],
      set: { channelCount: sql`excluded.channel_count`, peaks: sql`excluded.peaks` },
    })
    .returning({ id: waveforms.fileId });
});

/** @returns what is kept, as it is read from now on. @throws `not_found` */
export async function setWaveform(deps: Deps, actor: TeamActor, id: string, channels: Channels): Promise<Channels> {
  const row = pack(channels);
  const [kept] = await write(deps, [putWaveform({ id, teamId: actor.teamId, ...row })], { isIdempotent: true });
  if (kept.length === 0) throw new AppError("not_found");
  return unpack(row);
}
