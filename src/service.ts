import * as invitations from "./accounts/invitations.routes.ts";
import {
  expiredKeys,
  expiringKeys,
  reencryption as keyReencryption,
  keysOfDeleted,
  sessionsOfDeleted,
} from "./accounts/key-upkeep.ts";
import * as keys from "./accounts/keys.routes.ts";
import { oldMails } from "./accounts/mails.ts";
import * as me from "./accounts/me.routes.ts";
import * as sessions from "./accounts/sessions.routes.ts";
import * as teams from "./accounts/teams.routes.ts";
import * as users from "./accounts/users.routes.ts";
import { usersOfDeleted } from "./accounts/users.ts";
import type { Service } from "./deps.ts";
import * as events from "./events/events.routes.ts";
import { followersBehind, followersOfDeleted } from "./events/followers.ts";
import { eventsOfDeleted, oldEvents } from "./events/purge.ts";
import * as batches from "./files/batches.routes.ts";
import { dueObjects } from "./files/beside-writes.ts";
import { removedFiles } from "./files/erasure.ts";
import * as files from "./files/files.routes.ts";
import * as holds from "./files/holds.routes.ts";
import * as fileLists from "./files/lists.routes.ts";
import { unprocessedFiles } from "./files/resending.ts";
import * as fileTags from "./files/tags.routes.ts";
import { folderChangesOfDeleted, unfinishedFolderChanges } from "./folders/folder-changes.ts";
import * as folders from "./folders/folders.routes.ts";
import { foldersOfDeleted } from "./folders/folders.ts";
import { joinOperations } from "./http/operation.ts";
import type { SecretPage } from "./http/pages.ts";
import * as links from "./links/links.routes.ts";
import { expiredLinks } from "./links/links.ts";
import { linkPages } from "./links/pages.routes.ts";
import * as signing from "./links/signing.routes.ts";
import { SEARCH } from "./search/following.ts";
import * as search from "./search/search.routes.ts";
import * as linkedTranscripts from "./transcripts/linked.routes.ts";
import * as transcripts from "./transcripts/transcripts.routes.ts";
import { expiredFiles } from "./trash/expiry.ts";
import * as trash from "./trash/trash.routes.ts";
import * as reconciliation from "./upkeep/reconciliation.routes.ts";
import { deletedTeams } from "./upkeep/team-deletion.ts";
import * as resumable from "./uploads/resumable.routes.ts";
import * as unfinishedUploads from "./uploads/unfinished.routes.ts";
import { dueUploads } from "./uploads/unfinished.ts";
import * as upload from "./uploads/upload.routes.ts";
import * as uploadTokens from "./uploads/upload-tokens.routes.ts";
import * as usage from "./uploads/usage.routes.ts";
import { unusedVisitors, visitorsOfDeleted } from "./uploads/visitors.ts";
import { planMeasurement, unmeasuredFiles } from "./waveforms/measuring.ts";
import * as waveforms from "./waveforms/waveforms.routes.ts";
import { webhooksOfDeleted } from "./webhooks/deleted-teams.ts";
import * as deliveries from "./webhooks/deliveries.routes.ts";
import { disableOfUser } from "./webhooks/loss-of-access.ts";
import * as webhookMessages from "./webhooks/messages.routes.ts";
import { reencryption as webhookReencryption } from "./webhooks/signing.ts";
import { WEBHOOK } from "./webhooks/webhook-rows.ts";
import * as webhooks from "./webhooks/webhooks.routes.ts";

/*
 * Lists everything that the parts of the service know of each other. A capability is a folder, and this file has its names; event-types.ts
 * has its types of events. Some have a binding, too (deps.ts), a class of Durable Objects (index.ts), or scopes (access/scopes.ts).
 */

/**
 * The operations of the API, by id, in the order of the document. Of two paths that match a request, the first one answers: the list of
 * unfinished uploads stands before the path with the id of a file.
 */
export const operations = joinOperations(
  sessions.operations,
  invitations.operations,
  keys.operations,
  teams.operations,
  me.operations,
  users.operations,
  webhooks.operations,
  deliveries.operations,
  uploadTokens.operations,
  fileLists.operations,
  upload.operations,
  unfinishedUploads.operations,
  batches.operations,
  signing.operations,
  files.operations,
  waveforms.operations,
  transcripts.operations,
  linkedTranscripts.operations,
  search.operations,
  holds.operations,
  trash.operations,
  links.operations,
  resumable.operations,
  reconciliation.operations,
  events.operations,
  fileTags.operations,
  folders.operations,
  usage.operations,
);
export type OperationId = keyof typeof operations;

/** The groups of operations, in the order in which the reference shows them. */
export const tags = [
  files.filesTag,
  resumable.resumableTag,
  trash.trashTag,
  links.linksTag,
  keys.keysTag,
  uploadTokens.uploadTokensTag,
  sessions.sessionsTag,
  teams.teamsTag,
  me.meTag,
  users.usersTag,
  events.eventsTag,
  webhooks.webhooksTag,
  webhookMessages.messagesTag,
];

/** The pages that anyone with their URL may open: a list of each capability. */
export const secretPages: SecretPage[] = [linkPages].flat();

/** The requests that the service sends, for the document. */
export const messages = {
  ...webhookMessages.messages,
};

/** The steps of the recovery job. Files of deleted teams and expired ones leave before the step that erases removed files runs. */
export const recoverySteps = [
  deletedTeams,
  dueUploads,
  expiredFiles,
  unprocessedFiles,
  unmeasuredFiles,
  dueObjects,
  removedFiles,
  unfinishedFolderChanges,
  expiringKeys,
  expiredKeys,
  expiredLinks,
  unusedVisitors,
  oldMails,
  oldEvents,
  keyReencryption,
  webhookReencryption,
  followersBehind,
];

/** The rows of deleted teams. Folders before users, whose trigger would delete them one by one. */
export const teamRows = [
  keysOfDeleted,
  sessionsOfDeleted,
  foldersOfDeleted,
  usersOfDeleted,
  folderChangesOfDeleted,
  visitorsOfDeleted,
  eventsOfDeleted,
  webhooksOfDeleted,
  followersOfDeleted,
];

/** The consequences of deleting or demoting a user. */
export const userLosesAccess: Service["userLosesAccess"] = [disableOfUser];

/** The consequences of completing a file. */
export const fileCompleted: Service["fileCompleted"] = [planMeasurement];

/** The followers of a log, by kind. */
export const followers: Service["followers"] = {
  [WEBHOOK]: { open: (deps, key) => deps.outboxes(key) },
  [SEARCH]: { wants: ["transcript"], lag: "searchBehindSince", open: (deps, { teamId }) => deps.searchIndexes(teamId) },
};
