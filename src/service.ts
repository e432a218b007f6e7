import { keysOfDeleted, reencryptTokens, removeExpiredKeys, sessionsOfDeleted } from "./accounts/keys.ts";
import { removeOldMails } from "./accounts/mails.ts";
import { usersOfDeleted } from "./accounts/users.ts";
import type { Service } from "./deps.ts";
import { followersOfDeleted, WAKE_QUERIES, wakeBehind } from "./events/followers.ts";
import { eventsOfDeleted, PURGE_QUERIES, purgeEvents } from "./events/purge.ts";
import { continueFolderChanges, folderChangesOfDeleted } from "./folders/folder-changes.ts";
import { foldersOfDeleted } from "./folders/folders.ts";
import { removeExpiredLinks } from "./links/links.ts";
import { expireFiles } from "./trash/expiry.ts";
import { continueFiles, eraseRemoved } from "./trash/file-recovery.ts";
import { deleteTeams } from "./upkeep/team-deletion.ts";
import { continueUploads } from "./uploads/unfinished.ts";
import { webhooksOfDeleted } from "./webhooks/deleted-teams.ts";
import { disableOfUser } from "./webhooks/loss-of-access.ts";
import { reencryptSecrets } from "./webhooks/signing.ts";
import { KIND as WEBHOOK } from "./webhooks/webhook-rows.ts";

/*
 * What the parts of the service know of each other. A capability is a folder, and this file has its names: whoever removes it deletes
 * both. These are lists, because their order is a rule.
 */

/** Files of deleted teams and expired ones leave before the step that erases removed files runs. */
const recoverySteps: Service["recoverySteps"] = [
  {
    name: "teams",
    counts: ["teamFilesRemoved", "teamRowsRemoved", "teamsDeleted"],
    runBatch: deleteTeams,
    maxBatches: 5,
    queries: 16,
  },
  {
    name: "uploads",
    counts: ["assemblies", "uploadsExpired", "uploadsRemoved"],
    runBatch: continueUploads,
    maxBatches: 20,
    queries: 7,
  },
  {
    name: "expiry",
    counts: ["filesAged", "filesExpired", "trashEmptied"],
    runBatch: expireFiles,
    maxBatches: 4,
    queries: 23,
  },
  { name: "files", counts: ["sent", "waveforms"], runBatch: continueFiles, maxBatches: 20, queries: 2 },
  { name: "removed", counts: ["filesDeleted"], runBatch: eraseRemoved, maxBatches: 8, queries: 14 },
  { name: "folders", counts: ["folderSteps"], runBatch: continueFolderChanges, maxBatches: 2, queries: 45 },
  {
    name: "expired keys",
    counts: ["sessionsRemoved", "keysRemoved"],
    runBatch: removeExpiredKeys,
    maxBatches: 10,
    queries: 2,
  },
  { name: "expired links", counts: ["linksRemoved"], runBatch: removeExpiredLinks, maxBatches: 10, queries: 1 },
  { name: "old mails", counts: ["mailsRemoved"], runBatch: removeOldMails, maxBatches: 10, queries: 1 },
  { name: "events", counts: ["purged"], runBatch: purgeEvents, maxBatches: 2, queries: PURGE_QUERIES },
  { name: "tokens", counts: ["reencrypted"], runBatch: reencryptTokens, maxBatches: 3, queries: 5 },
  { name: "webhook secrets", counts: ["reencrypted"], runBatch: reencryptSecrets, maxBatches: 3, queries: 5 },
  // It looks at all followers each time.
  { name: "followers", counts: ["followers"], runBatch: wakeBehind, maxBatches: 1, queries: WAKE_QUERIES },
];

/** Folders before users, which their trigger would delete one by one. */
const teamRows: Service["teamRows"] = [
  keysOfDeleted,
  sessionsOfDeleted,
  foldersOfDeleted,
  usersOfDeleted,
  folderChangesOfDeleted,
  eventsOfDeleted,
  webhooksOfDeleted,
  followersOfDeleted,
];

export const service: Service = {
  recoverySteps,
  teamRows,
  userLosesAccess: [disableOfUser],
  followers: { [WEBHOOK]: (deps, key) => deps.outboxes(key) },
};
