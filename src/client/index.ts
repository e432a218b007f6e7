/*
 * All that `stowage` of the npm package exports, and nothing that only the CLI and the console use. Webhook endpoints verify
 * messages without a client, and so by `stowage/webhooks`, which is signatures.ts.
 */

/* The client, and its errors */

export type { Keys, Sessions, Users } from "./accounts.ts";
export type { Call, List, Page, WithResponse } from "./call.ts";
export type { CallOptions, FetchFunction, StowageOptions, VersionOptions } from "./connection.ts";
export { type ErrorCode, StowageError } from "./errors.ts";
export type { Events } from "./events.ts";
export type { Files } from "./files.ts";
export type { Links } from "./links.ts";
export { Stowage } from "./stowage.ts";
export type { Teams } from "./teams.ts";
export type { Trash } from "./trash.ts";
export type { UnfinishedUploads } from "./unfinished-uploads.ts";
export type { Webhooks } from "./webhooks.ts";

/* Files */

export type {
  AudioMetadata,
  Creator,
  FailureCode,
  FileMetadata,
  FileStatus,
  FileType,
  FoundTranscript,
  Hold,
  ProcessingFailure,
  ProcessingStatus,
  StoredFile,
  Tag,
  Transcript,
  TranscriptMatch,
  TranscriptTurn,
  TrashedFile,
  UnfinishedUpload,
  UploadToken,
} from "./api.ts";
export type {
  Batch,
  BatchResult,
  FileFilters,
  FolderChange,
  FolderDeletion,
  FolderFilters,
  SearchState,
  TagFilters,
  TranscriptFilters,
  UploadTokenInput,
} from "./files.ts";
export { isMeasured } from "./measured.ts";
export type { Usage } from "./stowage.ts";
export type { TrashFilters } from "./trash.ts";
export type { UnfinishedUploadFilters } from "./unfinished-uploads.ts";
export type { FileProperties, SavedUpload, UploadOptions, UploadStore } from "./upload.ts";
export type { UploadSource } from "./upload-source.ts";

/* Links */

export type { Disposition, Link, NewLink } from "./api.ts";
export type { LinkInput } from "./links.ts";

/* Accounts */

export type {
  InvitationInput,
  KeyChanges,
  KeyFilters,
  KeyInput,
  KeyRotation,
  SessionFilters,
  SessionInput,
  UserChanges,
  UserExport,
  UserFilters,
  UserInput,
} from "./accounts.ts";
export type {
  ApiKey,
  CreatedUser,
  ExportedUser,
  Invitation,
  InvitationDescription,
  KeyLimits,
  Me,
  Role,
  Scope,
  SentInvitation,
  Session,
  Team,
  TeamStatus,
  TokenKind,
  User,
} from "./api.ts";
export type { Credentials, ForgottenPassword, InvitationAcceptance, PasswordChange } from "./stowage.ts";
export type { TeamChanges, TeamFilters, TeamInput } from "./teams.ts";

/* Events and webhooks */

export type {
  Actor,
  ActorKind,
  Attempt,
  DeliveryStatus,
  EventType,
  NewWebhook,
  Subject,
  SubjectKind,
  Webhook,
  WebhookHealth,
  WebhookStatus,
} from "./api.ts";
export {
  type Event,
  type EventFilters,
  type FileEvent,
  type FileEventData,
  type FileMessage,
  isFileEvent,
  type LinkEventData,
  type RecordEventData,
  type RecordedEvent,
  type WebhookMessage,
} from "./events.ts";
export type {
  Delivery,
  DeliveryFilters,
  Redelivery,
  Replay,
  ReplayResult,
  WebhookChanges,
  WebhookInput,
} from "./webhooks.ts";
