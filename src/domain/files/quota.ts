import { type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Param, preparedQuery, read } from "../../platform/db.ts";
import { teams } from "../../platform/schema.ts";
import { authorizeRead, type Credential, teamRead } from "../accounts/authorization.ts";
import { isExistingTeam } from "../accounts/teams.ts";

/* The usage and quota of a team. A team without a quota of its own has that of the settings. The insert of an upload enforces them (`insertReceiving` in upload.ts). */

export interface Usage {
  files: number;
  bytes: number;
  maxFiles: number;
  maxBytes: number;
  /** Stored events. The oldest above the limit are deleted, so the number may exceed it for a few minutes. */
  events: number;
  maxEvents: number;
}

const positionAt = (end: SQL) =>
  sql`(select position from events where team_id = teams.id order by seq ${end} limit 1)`;
const usageOfTeam = teamRead(teams.id, (db) => ({
  query: db
    .select({
      files: teams.files,
      bytes: teams.bytes,
      maxFiles: teams.maxFiles,
      maxBytes: teams.maxBytes,
      events: sql<number | null>`${positionAt(sql`desc`)} - ${positionAt(sql`asc`)} + 1`,
    })
    .from(teams)
    .$dynamic(),
}));

/** The team's usage and limits. Uploads in progress count. */
export async function fetchUsage(deps: Deps, credential: Credential<"files:read">): Promise<Usage> {
  const { maxTeamFiles, maxTeamBytes, maxTeamEvents: maxEvents } = deps.settings;
  const [usage] = await authorizeRead(deps, credential, usageOfTeam({}));
  const { files = 0, bytes = 0, events, maxFiles, maxBytes } = usage ?? {};
  const quota = { maxFiles: maxFiles ?? maxTeamFiles, maxBytes: maxBytes ?? maxTeamBytes };
  return { files, bytes, events: events ?? 0, ...quota, maxEvents };
}

const quotaOfTeam = preparedQuery((db, param: Param<{ teamId: string }>) =>
  db
    .select({ files: teams.files, maxFiles: teams.maxFiles, maxBytes: teams.maxBytes })
    .from(teams)
    .where(isExistingTeam(param)),
);

/**
 * The error for an upload that was not inserted: `file_limit_reached`, `quota_exceeded`, or `token_invalid`. It costs a separate read, so
 * that successful uploads do not pay for it.
 */
export async function quotaError(deps: Deps, teamId: string): Promise<AppError> {
  const [[team]] = await read(deps, [quotaOfTeam({ teamId })]);
  // The team was deleted after its token was accepted.
  if (!team) return new AppError("token_invalid");
  const { maxFiles, maxBytes } = team;
  const [fileLimit, byteLimit] = [maxFiles ?? deps.settings.maxTeamFiles, maxBytes ?? deps.settings.maxTeamBytes];
  if (team.files < fileLimit) {
    const message = `Storage quota (${formatBytes(byteLimit)}) exceeded. Delete files and retry.`;
    return new AppError("quota_exceeded", { message });
  }
  const limit = fileLimit.toLocaleString("en");
  return new AppError("file_limit_reached", {
    message: `A team can have at most ${limit} files. Delete files and retry.`,
  });
}

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

export function formatBytes(bytes: number): string {
  const exponent = UNITS.findLastIndex((_, index) => bytes >= 1000 ** index);
  return `${Number((bytes / 1000 ** exponent).toFixed(1))} ${UNITS[exponent]}`;
}
