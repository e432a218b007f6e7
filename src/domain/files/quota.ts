import { eq, type SQL, sql } from "drizzle-orm";
import type { Deps } from "../../deps.ts";
import { AppError } from "../../errors.ts";
import { type Param, preparedQuery, read } from "../../platform/db.ts";
import { teamUsage } from "../../platform/schema.ts";
import { authorizeRead, type Credential, teamRead } from "../accounts/authorization.ts";

/* The usage and limits of a team. The insert of an upload enforces them (`insertReceiving` in upload.ts). */

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
  sql`(select position from events where team_id = team_usage.team_id order by seq ${end} limit 1)`;
const usageOfTeam = teamRead(teamUsage.teamId, (db) => ({
  query: db
    .select({
      files: teamUsage.files,
      bytes: teamUsage.bytes,
      events: sql<number | null>`${positionAt(sql`desc`)} - ${positionAt(sql`asc`)} + 1`,
    })
    .from(teamUsage)
    .$dynamic(),
}));

/** The team's usage and limits. Uploads in progress count. */
export async function fetchUsage(deps: Deps, credential: Credential<"files:read">): Promise<Usage> {
  const { maxTeamFiles: maxFiles, maxTeamBytes: maxBytes, maxTeamEvents: maxEvents } = deps.settings;
  const [usage] = await authorizeRead(deps, credential, usageOfTeam({}));
  const { files, bytes, events } = usage ?? {};
  return { files: files ?? 0, bytes: bytes ?? 0, events: events ?? 0, maxFiles, maxBytes, maxEvents };
}

const fileCountOfTeam = preparedQuery((db, param: Param<{ teamId: string }>) =>
  db
    .select({ files: teamUsage.files })
    .from(teamUsage)
    .where(eq(teamUsage.teamId, param("teamId"))),
);

/**
 * The error for an upload that a limit rejected: `file_limit_reached` or `quota_exceeded`. It costs a separate read, so
 * that successful uploads do not pay for it.
 */
export async function quotaError(deps: Deps, teamId: string): Promise<AppError> {
  const { maxTeamFiles, maxTeamBytes } = deps.settings;
  const [[usage]] = await read(deps, [fileCountOfTeam({ teamId })]);
  if ((usage?.files ?? 0) < maxTeamFiles) {
    const message = `Storage quota (${formatBytes(maxTeamBytes)}) exceeded. Delete files and retry.`;
    return new AppError("quota_exceeded", { message });
  }
  const limit = maxTeamFiles.toLocaleString("en");
  return new AppError("file_limit_reached", {
    message: `A team can have at most ${limit} files. Delete files and retry.`,
  });
}

const UNITS = ["bytes", "kB", "MB", "GB", "TB"];

export function formatBytes(bytes: number): string {
  const exponent = UNITS.findLastIndex((_, index) => bytes >= 1000 ** index);
  return `${Number((bytes / 1000 ** exponent).toFixed(1))} ${UNITS[exponent]}`;
}
