// Written by `npm run types:client` from the schemas that make /openapi.json.
export type Role = "admin" | "member" | "contributor" | "viewer";
export type EventType = "file.uploaded" | "file.completed" | "file.failed" | "file.deleted" | "file.trashed" | "file.restored" | "file.held" | "file.released" | "file.reprocessed" | "file.updated" | "link.created" | "link.revoked" | "user.created" | "user.updated" | "user.deleted" | "user.invited" | "user.logged_in" | "apikey.created" | "apikey.updated" | "apikey.rotated" | "apikey.revealed" | "apikey.expiring" | "apikey.revoked" | "session.created" | "session.revoked" | "team.created" | "team.updated" | "team.suspended" | "team.deleted" | "webhook.created" | "webhook.updated" | "webhook.deleted" | "webhook.disabled";
export type ActorKind = TokenKind | "upload" | "user" | "system";
export type SubjectKind = "file" | "link" | "user" | "apikey" | "session" | "team" | "webhook";
export type ProcessingStatus = "pending" | "processing" | "completed" | "failed";
export type FailureCode = "bytes_missing" | "bytes_altered" | "audio_unreadable" | "inspection_failed" | "retries_exhausted" | "type_not_allowed";
export type TokenKind = "secret" | "public" | "session" | "operator";
export type TeamStatus = "active" | "suspended" | "deleting";
export type WebhookStatus = "enabled" | "disabled";
export type WebhookHealth = "healthy" | "failing" | "disabled";
export type DeliveryStatus = "pending" | "succeeded" | "failed";
export type Disposition = "attachment" | "inline";
export interface Actor {
  /** The kind of token (`upload`: an upload token, of which the IDs are those of its issuer), `user` for a login itself, or `system` for the service. */
  kind: ActorKind;
  /** The id of the API key or session. */
  keyId: string | null;
  /** Set for a login, and for actions of sessions and of the keys that they created. */
  userId: string | null;
  /** The request, as in its header `X-Request-Id`. */
  requestId: string | null;
  /** The first and last name of the user, or the name of a key without a user, as it is now. Null once it is deleted. */
  name: string | null;
}
export interface Subject {
  /** The kind of record, or of token. */
  kind: SubjectKind;
  /** Identifies the record. */
  id: string;
  /** The version of the record after the event. Null if it has none. */
  version: number | null;
  /** The name of the record as it is now: of a session that of its user or key, of a webhook its description, or the host of its URL, and of a link its own, or that of its file. Null once the record is deleted. A file that is deleted or in the trash has its original name. The name of a file needs `files:read`, without which it is the original one, that of the team `files:read`, of a link `files:download`, and of a webhook `webhooks:read`. */
  name: string | null;
}
export interface Message {
  /** A text for people, which may change. */
  message: string;
}
export interface Data<T> extends Message {
  /** The result. */
  data: T;
}
export interface Paging {
  /** Page size. Values above 100 count as 100. Default 20. */
  limit?: number | undefined;
  /** Page number, counted from the cursor if there is one. Default 1. `page` × `limit` can be at most 1,000. Beyond row 100, the request is heavy; follow `Link` instead. */
  page?: number | undefined;
  /** From the `Link` of the previous page. Opaque. */
  cursor?: string | undefined;
}
export interface ErrorBody {
  /** The state. */
  status: boolean;
  /** A text for people, which may change. */
  message: string;
  /** Why it failed. */
  code: "invalid_input" | "malformed_json" | "malformed_multipart" | "file_missing" | "file_empty" | "too_many_files" | "digest_mismatch" | "token_missing" | "token_invalid" | "login_failed" | "forbidden" | "team_suspended" | "insufficient_scope" | "upload_limit_reached" | "not_found" | "route_not_found" | "method_not_allowed" | "upload_timeout" | "conflict" | "too_many_keys" | "file_held" | "email_taken" | "last_admin" | "too_many_webhooks" | "webhook_disabled" | "idempotency_conflict" | "idempotency_in_progress" | "file_limit_reached" | "too_many_unfinished_uploads" | "not_in_trash" | "too_many_links" | "offset_mismatch" | "too_many_folders" | "folder_busy" | "upload_expired" | "version_mismatch" | "unsupported_version" | "body_too_large" | "file_too_large" | "quota_exceeded" | "unsupported_media_type" | "type_not_allowed" | "range_not_satisfiable" | "upload_locked" | "rate_limited" | "internal" | "email_not_configured" | "unavailable" | "storage_full";
  /** The request, as in its header `X-Request-Id`. */
  requestId: string;
  /** Only for `invalid_input`: each invalid field and its problem. */
  errors?: Array<{
    /** The field. */
    path: string;
    /** A text for people, which may change. */
    message: string;
  }>;
}
export interface ApiKey {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The token when the key is created or rotated. When it is fetched or deleted, too, if your scopes cover those of the key, but never for the operator. Otherwise a masked form (`stow_sk_ab12…wxyz`), as in lists. Empty if it can't be decrypted. */
  key: string;
  /** The name. */
  name: string;
  /** The id of the team. */
  teamId: string;
  /** Another identifier of the key. */
  uuid: string;
  /** A public key can only upload files. */
  isPublic: boolean;
  /** What it may do. */
  scopes: Array<Scope>;
  /** The limits of a public key. Null if it has none. */
  limits: KeyLimits | null;
  /** The key or session that created it. Null if the operator did. */
  createdBy: Creator | null;
  /** Accurate to an hour. */
  lastUsedAt: string | null;
  /** When it was created. */
  createdAt: string;
  /** When it expires. */
  expiresAt: string;
}
export type Scope = "files:upload" | "files:read" | "files:download" | "files:write" | "files:delete" | "files:erase" | "users:read" | "users:write" | "keys:read" | "keys:write" | "events:read" | "webhooks:read" | "webhooks:write";
export interface KeyLimits {
  /** The largest file, in bytes. */
  maxFileBytes?: number;
  /** The types of the files. */
  fileTypes?: Array<FileType>;
}
export type FileType = "audio file" | "video file" | "image file" | "document file" | "text file" | "archive file" | "other file";
export interface Creator {
  /** The id of the API key or session. */
  keyId: string;
  /** The id of the user. Null if there is none. */
  userId: string | null;
}
export interface Session {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The user who logged in. */
  userId: string | null;
  /** The API key that created the session. Null for a login. */
  createdBy: Creator | null;
  /** When it was created. */
  createdAt: string;
  /** When it expires. */
  expiresAt: string;
  /** Accurate to an hour. */
  lastUsedAt: string | null;
  /** The `User-Agent` of the request that created the session, at most 200 characters. */
  userAgent: string | null;
}
export interface InvitationDescription {
  /** The name of the team. */
  teamName: string;
  /** The email address of the user. */
  email: string;
  /** The role of the user, which decides on their scopes. */
  role: Role;
  /** If true, the password is reset. */
  hasPassword: boolean;
}
export interface Team {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The name. */
  name: string;
  /** The state. */
  status: TeamStatus;
  /** Bytes that the team can store. Null: the service's setting `MAX_TEAM_BYTES`. */
  maxBytes: number | null;
  /** Files that the team can store. Null: the service's setting `MAX_TEAM_FILES`. */
  maxFiles: number | null;
  /** An address that gets an email if a key of the team is about to expire, or the service disables one of its webhooks. Null: no one does. */
  notificationEmail: string | null;
  /** The number of the database that the team lives in. */
  database: number;
  /** Uploads in progress and the trash count. */
  usage: {
    /** The number of files. */
    files: number;
    /** The size of all files, in bytes. */
    bytes: number;
    /** The part of `files` that is in the trash. */
    trashFiles: number;
    /** The part of `bytes` that is in the trash. */
    trashBytes: number;
  };
  /** Files are deleted this many days after their upload. Null: never. */
  retentionDays: number | null;
  /** How long the service's trash keeps deleted files. 0: there is no trash. */
  trashDays: number;
  /** Whether the service sends emails, such as invitations. */
  sendsEmail: boolean;
  /** When it was created. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** The version. Pass it as `version` to change only this version. */
  __v: number;
}
export interface Me {
  /** The kind of record, or of token. */
  kind: TokenKind;
  /** The id of the team. */
  teamId: string | null;
  /** The API key or session. */
  keyId: string | null;
  /** The user whose session it is, or whose session created the key. */
  userId: string | null;
  /** Only for a user's session. */
  role: Role | null;
  /** Null for the operator. */
  scopes: Array<Scope> | null;
  /** When it expires. */
  expiresAt: string | null;
}
export interface CreatedUser {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The id of the team. */
  teamId: string;
  /** The first name of the user. */
  firstName: string;
  /** The last name of the user. */
  lastName: string;
  /** The email address of the user. */
  email: string;
  /** A hash. The submitted password is never returned. */
  password: string;
  /** Whether the user can log in. False until an invitation is accepted. */
  hasPassword: boolean;
  /** The role of the user, which decides on their scopes. */
  role: Role;
  /** When it was created. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
}
export interface User extends CreatedUser {
  /** The version. Pass it as `version` to change only this version. */
  __v: number;
}
export interface Invitation {
  /** The page of the console that accepts it. */
  url: string;
  /** The token, which is a secret. */
  token: string;
  /** When it expires. */
  expiresAt: string;
}
export interface SentInvitation {
  /** The link was sent by email. */
  sent: boolean;
}
export interface UserExport {
  /** The user. */
  user: ExportedUser;
  /** The sessions of the user. */
  sessions: Array<Session>;
  /** The API keys that the user created, with masked tokens. */
  keys: Array<ApiKey>;
  /** Those by the user or about the user, oldest first, among the latest 8,000 of the team. */
  events: Array<RecordedEvent>;
  /** The team has older events. The list of events finds those of the user, by `actor` and by `subject`. */
  hasOlderEvents: boolean;
}
export interface ExportedUser {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The id of the team. */
  teamId: string;
  /** The first name of the user. */
  firstName: string;
  /** The last name of the user. */
  lastName: string;
  /** The email address of the user. */
  email: string;
  /** Whether the user can log in. False until an invitation is accepted. */
  hasPassword: boolean;
  /** The role of the user, which decides on their scopes. */
  role: Role;
  /** When it was created. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** The version. Pass it as `version` to change only this version. */
  __v: number;
}
export interface RecordedEvent {
  /** IDs sort in commit order. */
  _id: string;
  /** IDs sort in commit order. */
  id: string;
  /** The id of the team. */
  teamId: string;
  /** The type of the event. */
  type: EventType;
  /** When it was created. */
  createdAt: string;
  /** Who caused it. */
  actor: {
    /** The kind of token (`upload`: an upload token, of which the IDs are those of its issuer), `user` for a login itself, or `system` for the service. */
    kind: ActorKind;
    /** The id of the API key or session. */
    keyId: string | null;
    /** Set for a login, and for actions of sessions and of the keys that they created. */
    userId: string | null;
    /** The request, as in its header `X-Request-Id`. */
    requestId: string | null;
  };
  /** The record that it is about. */
  subject: {
    /** The kind of record, or of token. */
    kind: SubjectKind;
    /** Identifies the record. */
    id: string;
    /** The version of the record after the event. Null if it has none. */
    version: number | null;
  };
  /** For files, the metadata at that time, without `path`, `tags` of the audio, and what the team has set except `reference`; `file.uploaded` also names the `uploadTokenId` if there is one, and `file.updated` also names the changed `fields`. For links, the id and the `fileId`. For other records, ids and the names of changed fields, and for `apikey.expiring` the `expiresAt` of the key. */
  data: Record<string, unknown>;
}
export interface NewWebhook extends Webhook {
  /** Signs every message (Standard Webhooks 1.0). No other request shows it. */
  secret: string;
}
export interface Attempt {
  /** When the attempt began. */
  at: string;
  /** The status of the response. Null without a response. */
  httpStatus: number | null;
  /** `webhook_disabled` ends a delivery unsent. */
  error: "timeout" | "connection_failed" | "address_refused" | "secret_unreadable" | "webhook_disabled" | null;
  /** How long it took. */
  durationMilliseconds: number;
  /** Up to 1 KiB. The delivery log keeps it for the latest attempt of a delivery if that failed; otherwise it is empty. */
  responseBody: string;
}
export interface Webhook {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The id of the team. */
  teamId: string;
  /** The URL. */
  url: string;
  /** Null for all types. */
  types: Array<EventType> | null;
  /** A note for people. */
  description: string;
  /** The state. */
  status: WebhookStatus;
  /** `gone`: it responded 410. `failing`: no success for five days. `creator_deleted`: the user who created it, or last changed its URL, secret or status, was deleted. `creator_demoted`: the user became a contributor. */
  disabledReason: "requested" | "gone" | "failing" | "creator_deleted" | "creator_demoted" | null;
  /** The key or session that created it, with its user. */
  createdBy: Creator;
  /** The key or session that last changed its URL, secret or status, or created it, with its user. */
  changedBy: Creator;
  /** When it was created. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** The version. Pass it as `version` to change only this version. */
  __v: number;
  /** `failing`: the latest 3 attempts or more have failed. */
  health: WebhookHealth;
  /** The first failure since the last success. Null while healthy. */
  failingSince: string | null;
  /** Attempts in this hour and the 23 before. A failed one is repeated later. */
  lastDay: {
    /** How many succeeded. */
    succeeded: number;
    /** How many failed. */
    failed: number;
    /** By hour, oldest first, without the hours that had none. */
    hours: Array<{
      /** How many succeeded. */
      succeeded: number;
      /** How many failed. */
      failed: number;
      /** When the hour began. */
      startsAt: string;
    }>;
  };
  /** The latest attempt, without the response body of a success. Null before the first. */
  lastResult: Attempt | null;
}
export interface Delivery {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The id of the event. */
  eventId: string;
  /** The type of the event. */
  type: EventType;
  /** Null without the scope `events:read`. */
  event: RecordedEvent | null;
  /** The state. */
  status: DeliveryStatus;
  /** The latest ten attempts. */
  attempts: Array<Attempt>;
  /** When the next attempt follows. Null if none does. */
  nextAttemptAt: string | null;
}
export interface Redelivery extends Delivery {
  /** Null if there was none within 20 s: it follows. */
  attempt: Attempt | null;
}
export interface UploadToken {
  /** The `uploadTokenId` of its files. All tokens with the same `owner` have the same. */
  _id: string;
  /** The `uploadTokenId` of its files. All tokens with the same `owner` have the same. */
  id: string;
  /** The token, which is a secret. */
  token: string;
  /** When it expires. */
  expiresAt: string;
  /** The largest number of files. */
  maxFiles: number;
}
export interface ListedFile {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The id of the team. */
  teamId: string;
  /** The name of the file that was uploaded. */
  originalName: string;
  /** The type of the file, by its content. */
  fileType: FileType;
  /** The state. */
  status: ProcessingStatus;
  /** When it was created. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** The version. Pass it as `version` to change only this version. */
  __v: number;
  /** `{id}-{originalName}`. */
  filename: string;
  /** The private URL of the object in the store. It can't be opened: request a signed URL or a link. */
  path: string;
  /** Bytes. */
  size: number;
  /** Detected from content. */
  mimeType: string;
  /** Null unless the file is audio. */
  durationSeconds: number | null;
  /** The display and download name. */
  name: string;
  /** Empty: outside all folders. */
  folder: string;
  /** Your own ID of the file. */
  reference: string | null;
  /** The tags. */
  tags: Array<string>;
  /** When the service deletes the file. Null: never. */
  deleteAfter: string | null;
  /** The key or session that began the upload, and its user. Never changes. */
  uploadedBy: {
    /** The id of the API key or session. */
    keyId: string;
    /** The id of the user. Null if there is none. */
    userId: string | null;
    /** The name of the user, or of a key without a user, as in events. Null if it has none, or is deleted. */
    name?: string | null;
  };
  /** Whether a transcript is set. */
  hasTranscript: boolean;
  /** From the tags of the audio, up to 200 characters. */
  title: string | null;
  /** The waveform as 56 bars of 0 to 99. Null as long as there is no waveform. */
  peaks: Array<number> | null;
  /** From the tags of the audio, up to 200 characters. */
  artist: string | null;
  /** The upload token that began the upload, or its `owner`: the `_id` of its creation. Null for any other caller. */
  uploadTokenId?: string | null;
  /** Null for a resumable upload until its bytes were read back. */
  sha256?: string | null;
  /** When processing ended. Null until then. */
  processedAt?: string | null;
  /** Why processing failed. Null unless it did. */
  failure?: ProcessingFailure | null;
  /** Null until processed, and for files that are not audio. */
  audio?: AudioMetadata | null;
  /** Whether there is a waveform: measured by the service, or set by a client. */
  hasWaveform?: boolean;
  /** Null until a transcript is set. */
  transcript?: Transcript | null;
  /** Your own fields. */
  metadata?: Record<string, unknown>;
  /** Why the file can't be deleted. Null if it can. */
  hold?: Hold | null;
}
export interface ProcessingFailure {
  /** Why it failed. */
  code: FailureCode;
  /** A text for people, which may change. */
  message: string;
}
export interface AudioMetadata {
  /** The container of the audio. */
  container: string | null;
  /** The codec of the audio. */
  codec: string | null;
  /** Null if the file does not state it. */
  durationSeconds: number | null;
  /** Hertz. */
  sampleRate: number | null;
  /** The number of channels. */
  channels: number | null;
  /** Bits per second. */
  bitrate: number | null;
  /** Whether the codec is lossless. */
  lossless: boolean | null;
  /** The tags. */
  tags: Record<string, string | number>;
}
export interface Transcript {
  /** A BCP 47 tag. Null if it was not given. */
  language: string | null;
  /** Bytes. */
  size: number;
  /** The cues with a text. */
  cues: number;
  /** Cues that were sent without a text or readable times. They are left out. */
  skippedCues: number;
  /** When it last changed. */
  updatedAt: string;
}
export interface Hold {
  /** Why the file is held. */
  reason: string;
  /** When it was created. */
  createdAt: string;
  /** The key or session that created it, with its user. */
  createdBy: Creator;
}
export interface StoredFile {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The id of the team. */
  teamId: string;
  /** The name of the file that was uploaded. */
  originalName: string;
  /** The type of the file, by its content. */
  fileType: FileType;
  /** The state. */
  status: ProcessingStatus;
  /** When it was created. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** The version. Pass it as `version` to change only this version. */
  __v: number;
  /** `{id}-{originalName}`. */
  filename: string;
  /** The private URL of the object in the store. It can't be opened: request a signed URL or a link. */
  path: string;
  /** Bytes. */
  size: number;
  /** Detected from content. */
  mimeType: string;
  /** Null unless the file is audio. */
  durationSeconds: number | null;
  /** The display and download name. */
  name: string;
  /** Empty: outside all folders. */
  folder: string;
  /** Your own ID of the file. */
  reference: string | null;
  /** The tags. */
  tags: Array<string>;
  /** When the service deletes the file. Null: never. */
  deleteAfter: string | null;
  /** The key or session that began the upload, and its user. Never changes. */
  uploadedBy: Creator;
  /** Whether a transcript is set. */
  hasTranscript: boolean;
  /** From the tags of the audio, up to 200 characters. */
  title: string | null;
  /** The waveform as 56 bars of 0 to 99. Null as long as there is no waveform. */
  peaks: Array<number> | null;
  /** From the tags of the audio, up to 200 characters. */
  artist: string | null;
}
export interface UnfinishedUpload {
  /** The id of the file that the upload creates. */
  _id: string;
  /** The id of the file that the upload creates. */
  id: string;
  /** The name. */
  name: string;
  /** Bytes of the file. They count against the storage quota. */
  size: number;
  /** Bytes stored so far. */
  offset: number;
  /** Of a form upload, `size` is an upper bound, and `offset` stays 0 until it ends. */
  kind: "resumable" | "form";
  /** A canceled upload counts until its requests have ended, which they do within seconds, and its bytes are deleted. */
  status: "receiving" | "canceled";
  /** The API key that created the upload. */
  keyId: string;
  /** When it was created. */
  createdAt: string;
  /** When the service ends the upload, or removes a canceled one, unless that has happened before. */
  expiresAt: string;
}
export type FileMetadata = FileStatus & {
  /** The id of the team. */
  teamId: string;
  /** The name of the file that was uploaded. */
  originalName: string;
  /** The type of the file, by its content. */
  fileType: FileType;
  /** When it was created. */
  createdAt: string;
  /** When it last changed. */
  updatedAt: string;
  /** The version. Pass it as `version` to change only this version. */
  __v: number;
  /** `{id}-{originalName}`. */
  filename: string;
  /** The private URL of the object in the store. It can't be opened: request a signed URL or a link. */
  path: string;
  /** Bytes. */
  size: number;
  /** Detected from content. */
  mimeType: string;
  /** Null unless the file is audio. */
  durationSeconds: number | null;
  /** The display and download name. */
  name: string;
  /** Empty: outside all folders. */
  folder: string;
  /** Your own ID of the file. */
  reference: string | null;
  /** The tags. */
  tags: Array<string>;
  /** When the service deletes the file. Null: never. */
  deleteAfter: string | null;
  /** The key or session that began the upload, and its user. Never changes. */
  uploadedBy: {
    /** The id of the API key or session. */
    keyId: string;
    /** The id of the user. Null if there is none. */
    userId: string | null;
    /** The name of the user, or of a key without a user, as in events. Null if it has none, or is deleted. */
    name: string | null;
  };
  /** Whether a transcript is set. */
  hasTranscript: boolean;
  /** From the tags of the audio, up to 200 characters. */
  title: string | null;
  /** The waveform as 56 bars of 0 to 99. Null as long as there is no waveform. */
  peaks: Array<number> | null;
  /** From the tags of the audio, up to 200 characters. */
  artist: string | null;
  /** The upload token that began the upload, or its `owner`: the `_id` of its creation. Null for any other caller. */
  uploadTokenId: string | null;
  /** Null for a resumable upload until its bytes were read back. */
  sha256: string | null;
  /** When processing ended. Null until then. */
  processedAt: string | null;
  /** Null until processed, and for files that are not audio. */
  audio: AudioMetadata | null;
  /** Whether there is a waveform: measured by the service, or set by a client. */
  hasWaveform: boolean;
  /** Null until a transcript is set. */
  transcript: Transcript | null;
  /** Your own fields. */
  metadata: Record<string, unknown>;
  /** Why the file can't be deleted. Null if it can. */
  hold: Hold | null;
};
export type FileStatus = {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
} & (
  | {
    /** The state. */
    status: "pending" | "processing" | "completed";
    /** Why processing failed. Null unless it did. */
    failure: null;
  }
  | {
    /** The state. */
    status: "failed";
    /** Why processing failed. Null unless it did. */
    failure: ProcessingFailure;
  }
);
export interface Waveform {
  /** One or two of equal length. */
  channels: Array<Array<number>>;
}
export interface FoundTranscript {
  /** The file. */
  file: StoredFile;
  /** The language of the transcript, as it was set. */
  language: string | null;
  /** The places in the transcript. At most 100, except with `file`. */
  matchCount: number;
  /** Up to 3 of them, the best ones, in their order. With `file`, up to 500. */
  matches: Array<TranscriptMatch>;
}
export interface TranscriptMatch {
  /** Where it begins, in seconds. */
  startSeconds: number;
  /** Where it ends, in seconds. */
  endSeconds: number;
  /** The sentences in which the words stand, with one item until another speaker follows. */
  turns: Array<TranscriptTurn>;
}
export interface TranscriptTurn {
  /** Null if the transcript names no one. */
  speaker: string | null;
  /** What the speaker says. `…` stands for the rest of a long sentence. */
  text: string;
  /** The ranges of `text` that are words of the search, in UTF-16 code units. */
  marks: Array<[number, number]>;
}
export interface TrashedFile extends StoredFile {
  /** When the file was deleted. */
  trashedAt: string;
  /** When the service erases the file, within minutes. A held file stays. */
  eraseAfter: string;
  /** Why the file can't be erased. Null if it can. */
  hold: Hold | null;
}
export interface NewLink extends Link {
  /** The URL. */
  url: string;
  /** A page with a player, for people. */
  pageUrl: string;
  /** Only the player, for an `iframe` of any site. */
  embedUrl: string;
}
export interface Link {
  /** The `id`, as the API calls it. */
  _id: string;
  /** Identifies the record. */
  id: string;
  /** The id of the file. */
  fileId: string;
  /** What its page and lists call it. Null: the file's own name. */
  name: string | null;
  /** Where its page starts to play. Null: at the start. */
  startSeconds: number | null;
  /** Where its page stops. Null: at the end. */
  endSeconds: number | null;
  /** Whether browsers save the file, or show it. */
  disposition: Disposition;
  /** Null: never. */
  expiresAt: string | null;
  /** When it was created. */
  createdAt: string;
  /** The key or session that created it, with its user. */
  createdBy: Creator;
}
export interface SharedFile {
  /** The name of the link, or that of the file. */
  name: string;
  /** Where the page starts to play. Null: at the start. */
  startSeconds: number | null;
  /** Where the page stops. Null: at the end. */
  endSeconds: number | null;
  /** Bytes. */
  size: number;
  /** The media type. */
  mimeType: string;
  /** Null unless the file is audio. */
  durationSeconds: number | null;
  /** Of the audio tags. */
  title: string | null;
  /** Of the audio tags. */
  artist: string | null;
  /** The team that shares it. */
  teamName: string;
  /** When the link expires. Null: never. */
  expiresAt: string | null;
  /** Peaks per channel from -1 to 1, if they are set. */
  waveform: Array<Array<number>> | null;
  /** The transcript as WebVTT. Null if there is none. */
  transcriptUrl: string | null;
  /** The bytes. */
  url: string;
}
export interface Event {
  /** IDs sort in commit order. */
  _id: string;
  /** IDs sort in commit order. */
  id: string;
  /** The id of the team. */
  teamId: string;
  /** The type of the event. */
  type: EventType;
  /** When it was created. */
  createdAt: string;
  /** Who caused it. */
  actor: Actor;
  /** The record that it is about. */
  subject: Subject;
  /** For files, the metadata at that time, without `path`, `tags` of the audio, and what the team has set except `reference`; `file.uploaded` also names the `uploadTokenId` if there is one, and `file.updated` also names the changed `fields`. For links, the id and the `fileId`. For other records, ids and the names of changed fields, and for `apikey.expiring` the `expiresAt` of the key. */
  data: Record<string, unknown>;
}
export interface Tag {
  /** A tag. */
  tag: string;
}
export interface WebhookMessage {
  /** The id of the event. A test message has its own id. */
  id: string;
  /** `webhook.test` is sent on request, and is not in the event log. */
  type: EventType | "webhook.test";
  /** When the event was recorded. */
  timestamp: string;
  /** The id of the team. */
  teamId: string;
  /** Who caused it. */
  actor: {
    /** The kind of token (`upload`: an upload token, of which the IDs are those of its issuer), `user` for a login itself, or `system` for the service. */
    kind: ActorKind;
    /** The id of the API key or session. */
    keyId: string | null;
    /** Set for a login, and for actions of sessions and of the keys that they created. */
    userId: string | null;
    /** The request, as in its header `X-Request-Id`. */
    requestId: string | null;
  };
  /** The record that it is about. */
  subject: {
    /** The kind of record, or of token. */
    kind: SubjectKind;
    /** Identifies the record. */
    id: string;
    /** The version of the record after the event. Null if it has none. */
    version: number | null;
  };
  /** For files, the metadata at that time, without `path`, `tags` of the audio, and what the team has set except `reference`; `file.uploaded` also names the `uploadTokenId` if there is one, and `file.updated` also names the changed `fields`. For links, the id and the `fileId`. For other records, ids and the names of changed fields, and for `apikey.expiring` the `expiresAt` of the key. */
  data: Record<string, unknown>;
}
/** The fields of a file that its events have. */
export type FileEventField = "_id" | "teamId" | "originalName" | "fileType" | "status" | "createdAt" | "updatedAt" | "__v" | "filename" | "reference" | "size" | "mimeType" | "sha256" | "durationSeconds" | "processedAt" | "failure" | "uploadedBy" | "audio";
/** The schemas of /openapi.json. */
export interface Schemas {
  Error: ErrorBody;
  ApiKey: ApiKey;
  Scope: Scope;
  KeyLimits: KeyLimits;
  FileType: FileType;
  Creator: Creator;
  Session: Session;
  InvitationDescription: InvitationDescription;
  Team: Team;
  Me: Me;
  CreatedUser: CreatedUser;
  User: User;
  Invitation: Invitation;
  SentInvitation: SentInvitation;
  UserExport: UserExport;
  ExportedUser: ExportedUser;
  RecordedEvent: RecordedEvent;
  NewWebhook: NewWebhook;
  Attempt: Attempt;
  Webhook: Webhook;
  Delivery: Delivery;
  Redelivery: Redelivery;
  UploadToken: UploadToken;
  ListedFile: ListedFile;
  ProcessingFailure: ProcessingFailure;
  AudioMetadata: AudioMetadata;
  Transcript: Transcript;
  Hold: Hold;
  StoredFile: StoredFile;
  UnfinishedUpload: UnfinishedUpload;
  FileMetadata: FileMetadata;
  ProcessingStatus: FileStatus;
  Waveform: Waveform;
  FoundTranscript: FoundTranscript;
  TranscriptMatch: TranscriptMatch;
  TranscriptTurn: TranscriptTurn;
  TrashedFile: TrashedFile;
  NewLink: NewLink;
  Link: Link;
  SharedFile: SharedFile;
  Event: Event;
  Tag: Tag;
  WebhookMessage: WebhookMessage;
}
/** Request and response types of each route. */
export interface Api {
  "POST /auth/v1/login": {
    query: undefined;
    body: {
      /** The id of the team. */
      teamId: string;
      /** The email address of the user. */
      email: string;
      /** The password of the user. */
      password: string;
      /** Seconds until the session expires. */
      expiresIn?: number | undefined;
    };
    response: Data<ApiKey>;
  };
  "POST /auth/v1/sessions": {
    query: undefined;
    body: {
      /** Seconds until the session expires. */
      expiresIn?: number | undefined;
    };
    response: Data<ApiKey>;
  };
  "GET /auth/v1/sessions": {
    query: Paging;
    body: undefined;
    response: Data<Array<Session>>;
  };
  "DELETE /auth/v1/sessions/{id}": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "POST /auth/v1/logout": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "POST /auth/v1/invitations/describe": {
    query: undefined;
    body: {
      /** The token, which is a secret. */
      token: string;
    };
    response: Data<InvitationDescription>;
  };
  "POST /auth/v1/invitations/accept": {
    query: undefined;
    body: {
      /** The token, which is a secret. */
      token: string;
      /** The password of the user. */
      password: string;
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      firstName?: string | undefined;
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      lastName?: string | undefined;
    };
    response: Data<ApiKey>;
  };
  "POST /auth/v1/password/forgot": {
    query: undefined;
    body: {
      /** The id of the team. */
      teamId: string;
      /** The email address of the user. */
      email: string;
    };
    response: Message;
  };
  "POST /auth/v1/apikeys": {
    query: undefined;
    body: {
      /** One line of 1 to 100 characters. Surrounding white space is removed. */
      name: string;
      /** Creates a public key, which can only upload files. */
      isPublic?: boolean | undefined;
      /** Default: your own. You can only grant scopes that you have. A public key has `files:upload`. */
      scopes?: Array<Scope> | undefined;
      /** For a public key: the size and types of the files that it may upload. If processing finds a type that is not allowed, the file ends `failed` with `type_not_allowed`, and only the team can download or delete it. */
      limits?: KeyLimits | undefined;
      /** Default 365 days from now, at most 3650. */
      expiresAt?: string | Date | undefined;
      /** Only the operator can send it. */
      teamId?: string | undefined;
    };
    response: Data<ApiKey>;
  };
  "GET /auth/v1/apikeys": {
    query: Paging & {
      /** Only the operator can send it, and must. */
      teamId?: string | undefined;
    };
    body: undefined;
    response: Data<Array<ApiKey>>;
  };
  "GET /auth/v1/apikeys/{id}": {
    query: undefined;
    body: undefined;
    response: Data<ApiKey>;
  };
  "PATCH /auth/v1/apikeys/{id}": {
    query: undefined;
    body: {
      /** One line of 1 to 100 characters. Surrounding white space is removed. */
      name?: string | undefined;
      /** The scopes that the key keeps. */
      scopes?: Array<Scope> | undefined;
      /** In the future, and not later than the key expires now. */
      expiresAt?: string | Date | undefined;
    };
    response: Data<ApiKey>;
  };
  "DELETE /auth/v1/apikeys/{id}": {
    query: undefined;
    body: undefined;
    response: Data<ApiKey>;
  };
  "POST /auth/v1/apikeys/{id}/rotate": {
    query: undefined;
    body: {
      /** How long the old key still works. */
      overlapSeconds?: number | undefined;
    };
    response: Data<ApiKey>;
  };
  "POST /auth/v1/teams": {
    query: undefined;
    body: {
      /** One line of 1 to 100 characters. Surrounding white space is removed. */
      name: string;
      /** Bytes that the team can store. Null: the service's setting `MAX_TEAM_BYTES`. */
      maxBytes?: number | null | undefined;
      /** Files that the team can store. Null: the service's setting `MAX_TEAM_FILES`. */
      maxFiles?: number | null | undefined;
      /** An address that gets an email if a key of the team is about to expire, or the service disables one of its webhooks. Null: no one does. */
      notificationEmail?: string | null | undefined;
      /** The number of the database that the team lives in, for ever. Default: the one with the most room. */
      database?: number | undefined;
    };
    response: {
      /** A text for people, which may change. */
      message: string;
      /** The result. */
      data: Team;
      /** The first key of the team. */
      apiKey: ApiKey;
    };
  };
  "GET /auth/v1/teams": {
    query: Paging & {
      /** The state. */
      status?: TeamStatus | undefined;
      /** A prefix of the name. Case-sensitive. */
      name?: string | undefined;
    };
    body: undefined;
    response: Data<Array<Team>>;
  };
  "GET /auth/v1/teams/{id}": {
    query: undefined;
    body: undefined;
    response: Data<Team>;
  };
  "PATCH /auth/v1/teams/{id}": {
    query: undefined;
    body: {
      /** One line of 1 to 100 characters. Surrounding white space is removed. */
      name?: string | undefined;
      /** The state. */
      status?: "active" | "suspended" | undefined;
      /** Bytes that the team can store. Null: the service's setting `MAX_TEAM_BYTES`. */
      maxBytes?: number | null | undefined;
      /** Files that the team can store. Null: the service's setting `MAX_TEAM_FILES`. */
      maxFiles?: number | null | undefined;
      /** An address that gets an email if a key of the team is about to expire, or the service disables one of its webhooks. Null: no one does. */
      notificationEmail?: string | null | undefined;
      /** Files are deleted this many days after their upload. Null: never. */
      retentionDays?: number | null | undefined;
    };
    response: Data<Team>;
  };
  "DELETE /auth/v1/teams/{id}": {
    query: undefined;
    body: undefined;
    response: Data<Team>;
  };
  "GET /auth/v1/me": {
    query: undefined;
    body: undefined;
    response: Data<Me>;
  };
  "POST /auth/v1/me/password": {
    query: undefined;
    body: {
      /** The password until now. */
      currentPassword: string;
      /** The password from now on. */
      newPassword: string;
    };
    response: Message;
  };
  "POST /auth/v1/users": {
    query: undefined;
    body: {
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      firstName?: string | undefined;
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      lastName?: string | undefined;
      /** The email address of the user. */
      email: string;
      /** Without it, the user cannot log in until an invitation is accepted. */
      password?: string | undefined;
      /** Default `viewer`. */
      role?: Role | undefined;
    };
    response: Data<CreatedUser>;
  };
  "GET /auth/v1/users": {
    query: Paging & {
      /** The whole email, in any case. */
      email?: string | undefined;
      /** A prefix of first and last name, joined by a space. Case-sensitive. */
      name?: string | undefined;
    };
    body: undefined;
    response: Array<User>;
  };
  "GET /auth/v1/users/{id}": {
    query: undefined;
    body: undefined;
    response: Data<User>;
  };
  "PATCH /auth/v1/users/{id}": {
    query: undefined;
    body: {
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      firstname?: string | undefined;
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      lastname?: string | undefined;
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      firstName?: string | undefined;
      /** One line of 0 to 100 characters. Surrounding white space is removed. */
      lastName?: string | undefined;
      /** The email address of the user. */
      email?: string | undefined;
      /** The password of the user. */
      password?: string | undefined;
      /** The role of the user, which decides on their scopes. */
      role?: Role | undefined;
    };
    response: User;
  };
  "DELETE /auth/v1/users/{id}": {
    query: {
      /** Keeps the API keys that the user created. Default `false`. */
      keepKeys?: boolean | undefined;
    };
    body: undefined;
    response: Message;
  };
  "POST /auth/v1/users/{id}/invitations": {
    query: undefined;
    body: {
      /** Sends the link by email instead of returning it. */
      email?: boolean | undefined;
      /** Seconds until the invitation expires. */
      expiresIn?: number | undefined;
    };
    response: Data<Invitation | SentInvitation>;
  };
  "GET /auth/v1/users/{id}/export": {
    query: undefined;
    body: undefined;
    response: Data<UserExport>;
  };
  "POST /auth/v1/webhooks": {
    query: undefined;
    body: {
      /** An https URL on port 443 with a public host name, in ASCII. `.local`, `.internal` and `.localhost` names are rejected. A server started by `npm run dev` also accepts `http://localhost:PORT`. */
      url: string;
      /** Null for all types. */
      types?: Array<EventType> | null | undefined;
      /** A note for people. */
      description?: string | undefined;
    };
    response: Data<NewWebhook>;
  };
  "GET /auth/v1/webhooks": {
    query: undefined;
    body: undefined;
    response: Data<Array<Webhook>>;
  };
  "GET /auth/v1/webhooks/{id}": {
    query: undefined;
    body: undefined;
    response: Data<Webhook>;
  };
  "PATCH /auth/v1/webhooks/{id}": {
    query: undefined;
    body: {
      /** An https URL on port 443 with a public host name, in ASCII. `.local`, `.internal` and `.localhost` names are rejected. A server started by `npm run dev` also accepts `http://localhost:PORT`. */
      url?: string | undefined;
      /** Null for all types. */
      types?: Array<EventType> | null | undefined;
      /** A note for people. */
      description?: string | undefined;
      /** The state. */
      status?: WebhookStatus | undefined;
    };
    response: Data<Webhook>;
  };
  "DELETE /auth/v1/webhooks/{id}": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "POST /auth/v1/webhooks/{id}/secret": {
    query: undefined;
    body: {
      /** Whether the old secret ends at once. */
      revokeOld?: boolean | undefined;
    };
    response: Data<NewWebhook>;
  };
  "POST /auth/v1/webhooks/{id}/test": {
    query: undefined;
    body: undefined;
    response: Data<Attempt>;
  };
  "GET /auth/v1/webhooks/{id}/deliveries": {
    query: {
      /** Page size. Values above 100 count as 100. Default 20. */
      limit?: number | undefined;
      /** From the `Link` of the previous page. Opaque. */
      cursor?: string | undefined;
      /** Only deliveries in this state. `failing`: the latest attempt failed, and another follows (`pending`) or not (`failed`). `waiting`: `pending`, and not `failing`. */
      status?: DeliveryStatus | "failing" | "waiting" | undefined;
    };
    body: undefined;
    response: Data<Array<Delivery>>;
  };
  "POST /auth/v1/webhooks/{id}/replay": {
    query: undefined;
    body: {
      /** The ID of an event, or an instant: what happened later is sent. */
      after: string;
      /** Only deliveries whose latest attempt failed. Those that wait for a retry are due now. */
      failedOnly?: boolean | undefined;
    };
    response: Data<{
      /** The number of messages that are sent again. */
      deliveries: number;
      /** Pass it as `after` to continue. Null if nothing is left. */
      next: string | null;
    }>;
  };
  "POST /auth/v1/deliveries/{id}/redeliver": {
    query: undefined;
    body: undefined;
    response: Data<Redelivery>;
  };
  "POST /docs/v1/uploadtokens": {
    query: undefined;
    body: {
      /** Seconds. An upload that has begun may finish later. */
      expiresIn?: number | undefined;
      /** How many files the token can upload. Files that exist and uploads in progress count. An upload that fails or is canceled doesn't. */
      maxFiles?: number | undefined;
      /** How many bytes the token can upload in all, counted as `maxFiles` is. Default: no limit. */
      maxBytes?: number | undefined;
      /** The largest file, in bytes. */
      maxFileBytes?: number | undefined;
      /** The types of the files. */
      fileTypes?: Array<FileType> | undefined;
      /** Whether the token can delete what it uploaded, while nobody else has changed, linked, held or transcribed the file, as a program of the team may. The file then counts no more, but the token can begin at most five times `maxFiles` uploads. Needs `files:delete`, and `files:erase` if there is no trash. */
      canDelete?: boolean | undefined;
      /** Your name of the visitor, such as the ID of a session. `maxFiles` and `maxBytes` then hold across all tokens that this key creates with the same subject, within a UTC day. It only counts, and gives no rights. It is never stored or logged, and can't be read back. */
      subject?: string | undefined;
      /** At least 128 random bits that your server keeps for the visitor, as 22 to 200 characters of ASCII without spaces. Tokens with the same owner have the same rights: each may ask for the status of the files of the others, and delete them if it has `canDelete`. Without it, only the token that uploaded a file may. Never stored or logged. */
      owner?: string | undefined;
      /** Set on each file. The visitor can neither set nor see them. At most 4 KiB as JSON. */
      properties?: {
        /** The display and download name, at most 200 bytes. Default: `originalName`. */
        name?: string | undefined;
        /** A path such as `a/b`. Empty: outside all folders. */
        folder?: string | undefined;
        /** Your own ID of the file. Null removes it. */
        reference?: string | null | undefined;
        /** The tags. */
        tags?: Array<string> | undefined;
        /** Your own fields. Merged with the present ones (RFC 7396): null removes a field. At most 4 KiB as JSON after merging. One request can send 8 KiB and 256 fields. */
        metadata?: Record<string, unknown> | undefined;
        /** When the service deletes the file, within minutes. Null: never. Must be in the future. The team's retention may delete it earlier. */
        deleteAfter?: string | Date | null | undefined;
      } | undefined;
    };
    response: Data<UploadToken>;
  };
  "GET /docs/v1/uploads": {
    query: Paging & {
      /** The state. */
      status?: ProcessingStatus | undefined;
      /** The type of the file, by its content. */
      fileType?: FileType | undefined;
      /** A prefix of the name, in any case and without accents. */
      name?: string | undefined;
      /** Only those that were created after this instant. */
      createdAfter?: string | Date | undefined;
      /** Only those that were created before this instant. */
      createdBefore?: string | Date | undefined;
      /** Files in this folder. Empty: files outside all folders. */
      folder?: string | undefined;
      /** Files in this folder and the folders below it. */
      under?: string | undefined;
      /** A tag. */
      tag?: string | undefined;
      /** Your own ID of the file. */
      reference?: string | undefined;
      /** The ID of a user, for the files that the user uploaded. */
      uploadedBy?: string | undefined;
      /** Files with a transcript, or without one. `false` only together with another filter. */
      hasTranscript?: boolean | undefined;
      /** Up to 10 words, in any order and case, and without accents: `cafe` finds `Café`. Finds the files that have every word, or a part of a longer one, in their name, title, artist, reference, folder or tags. Searches the first 200 bytes of each, and whole folders. */
      search?: string | undefined;
      /** `-`: descending. */
      sort?: "-createdAt" | "createdAt" | "name" | "-name" | undefined;
      /** Each file has all of its metadata. With a `limit` above 20, the request is heavy, and above 100 it is invalid. */
      include?: "metadata" | undefined;
    };
    body: undefined;
    response: Data<Array<ListedFile>>;
  };
  "POST /docs/v1/uploads": {
    query: {
      /** Accepted and ignored. */
      limit?: string | undefined;
    };
    body: undefined;
    response: Data<StoredFile>;
  };
  "GET /docs/v1/uploads/resumable": {
    query: Paging;
    body: undefined;
    response: Data<Array<UnfinishedUpload>>;
  };
  "POST /docs/v1/uploads/batch": {
    query: undefined;
    body: {
      /** The change. */
      action: "restore" | "reprocess";
      /** The ids of up to 100 files. */
      ids: Array<string>;
    } | {
      /** The change. */
      action: "delete";
      /** The ids of up to 100 files. */
      ids: Array<string>;
      /** Erases the files instead of moving them to the trash. */
      permanent?: boolean | undefined;
    } | {
      /** The change. */
      action: "tag" | "untag";
      /** The ids of up to 100 files. */
      ids: Array<string>;
      /** The tags. */
      tags: Array<string>;
    } | {
      /** The change. */
      action: "move";
      /** The ids of up to 100 files. */
      ids: Array<string>;
      /** A path such as `a/b`. Empty: outside all folders. */
      folder: string;
    };
    response: Data<Array<{
      /** The `id`, as the API calls it. */
      _id: string;
      /** Identifies the record. */
      id: string;
      /** Whether the file was changed. */
      ok: boolean;
      /** Why it failed. */
      code?: "not_found" | "too_many_tags" | "file_held" | "not_in_trash";
      /** A deletion moved the file to the trash. */
      isTrashed?: boolean;
    }>>;
  };
  "GET /docs/v1/uploads/{id}": {
    query: {
      /** Seconds until the URL expires. */
      expiresIn?: number | undefined;
    };
    body: undefined;
    response: {
      /** The state. */
      status: boolean;
      /** A text for people, which may change. */
      message: string;
      /** Opens the file without a token. */
      signedUrl: string;
    };
  };
  "PATCH /docs/v1/uploads/{id}": {
    query: undefined;
    body: {
      /** The display and download name, at most 200 bytes. Default: `originalName`. */
      name?: string | undefined;
      /** A path such as `a/b`. Empty: outside all folders. */
      folder?: string | undefined;
      /** Your own ID of the file. Null removes it. */
      reference?: string | null | undefined;
      /** The tags. */
      tags?: Array<string> | undefined;
      /** Your own fields. Merged with the present ones (RFC 7396): null removes a field. At most 4 KiB as JSON after merging. One request can send 8 KiB and 256 fields. */
      metadata?: Record<string, unknown> | undefined;
      /** When the service deletes the file, within minutes. Null: never. Must be in the future. The team's retention may delete it earlier. */
      deleteAfter?: string | Date | null | undefined;
    };
    response: Data<StoredFile>;
  };
  "DELETE /docs/v1/uploads/{id}": {
    query: {
      /** `true` erases the file at once, also one that is in the trash. Needs `files:erase`. */
      permanent?: boolean | undefined;
      /** Only cancels an upload. If the upload is complete, the response is 403 and the file stays. */
      unfinished?: boolean | undefined;
    };
    body: undefined;
    response: {
      /** The state. */
      status: boolean;
      /** A text for people, which may change. */
      message: string;
    };
  };
  "GET /docs/v1/uploads/{id}/metadata": {
    query: undefined;
    body: undefined;
    response: Data<FileMetadata>;
  };
  "GET /docs/v1/uploads/{id}/status": {
    query: undefined;
    body: undefined;
    response: Data<FileStatus>;
  };
  "POST /docs/v1/uploads/{id}/reprocess": {
    query: undefined;
    body: undefined;
    response: {
      /** The state. */
      status: boolean;
      /** A text for people, which may change. */
      message: string;
    };
  };
  "GET /docs/v1/uploads/{id}/waveform": {
    query: undefined;
    body: undefined;
    response: Data<Waveform>;
  };
  "PUT /docs/v1/uploads/{id}/waveform": {
    query: undefined;
    body: Waveform;
    response: Data<Waveform>;
  };
  "PUT /docs/v1/uploads/{id}/transcript": {
    query: {
      /** The language as a BCP 47 tag, such as `en` or `de-CH`. */
      language?: string | undefined;
    };
    body: undefined;
    response: Data<Transcript>;
  };
  "DELETE /docs/v1/uploads/{id}/transcript": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "GET /docs/v1/transcripts": {
    query: {
      /** Words in any language. Without a word, nothing is found. */
      search?: string | undefined;
      /** All matches in this file. */
      file?: string | undefined;
      /** Files in this folder. Empty: files outside all folders. */
      folder?: string | undefined;
      /** Files in this folder and the folders below it. */
      under?: string | undefined;
      /** The ID of a user, for the files that the user uploaded. */
      uploadedBy?: string | undefined;
      /** Page size. Values above 100 count as 100. Default 20. */
      limit?: number | undefined;
      /** From the `Link` of the previous page. Opaque. */
      cursor?: string | undefined;
    };
    body: undefined;
    response: {
      /** A text for people, which may change. */
      message: string;
      /** The result. */
      data: Array<FoundTranscript>;
      /** False if transcripts may be missing: the index is being built, or is full. */
      isComplete: boolean;
      /** The team has more transcripts than the index holds. It has those of the newest files. */
      isFull: boolean;
    };
  };
  "POST /auth/v1/teams/{id}/search/rebuild": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "PUT /docs/v1/uploads/{id}/hold": {
    query: undefined;
    body: {
      /** Why the file is held. */
      reason: string;
    };
    response: Data<Hold>;
  };
  "DELETE /docs/v1/uploads/{id}/hold": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "GET /docs/v1/trash": {
    query: Paging;
    body: undefined;
    response: Data<Array<TrashedFile>>;
  };
  "POST /docs/v1/trash/{id}/restore": {
    query: undefined;
    body: undefined;
    response: Data<StoredFile>;
  };
  "DELETE /docs/v1/trash/{id}": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "PUT /docs/v1/retention": {
    query: undefined;
    body: {
      /** Files are deleted this many days after their upload. Null: never. */
      days: number | null;
    };
    response: Data<{
      /** Files are deleted this many days after their upload. Null: never. */
      days: number | null;
    }>;
  };
  "POST /docs/v1/uploads/{id}/links": {
    query: undefined;
    body: {
      /** Default null: the link never expires. */
      expiresAt?: string | Date | null | undefined;
      /** Default `attachment`. `inline` lets a browser play the file, if it is audio of a harmless type. */
      disposition?: Disposition | undefined;
      /** The name of the link on its page and in lists, such as who it is for: one line of at most 100 characters. A download has it, too, with the extension of the file. Default: the file's name. */
      name?: string | undefined;
      /** Where the link's page starts to play. A `#t=` in its URL takes precedence. */
      startSeconds?: number | undefined;
      /** Where it stops, after the start. Anyone with the link can still play and download the rest. */
      endSeconds?: number | undefined;
    };
    response: Data<NewLink>;
  };
  "GET /docs/v1/uploads/{id}/links": {
    query: undefined;
    body: undefined;
    response: Data<Array<Link>>;
  };
  "DELETE /docs/v1/links/{id}": {
    query: undefined;
    body: undefined;
    response: Message;
  };
  "GET /docs/v1/links/{id}.{secret}": {
    query: undefined;
    body: undefined;
    response: Data<SharedFile>;
  };
  "POST /auth/v1/reconciliation": {
    query: undefined;
    body: {
      /** `next` of the previous page. */
      after?: string | undefined;
      /** Removes the bytes without a row that are a day old. */
      remove?: boolean | undefined;
    };
    response: Data<{
      /** Bytes without a row. */
      objects: Array<{
        /** The key of the object in the store. */
        key: string;
        /** Bytes. */
        size: number;
        /** When the object was stored. */
        storedAt: string;
        /** Whether the file is deleted. */
        isRemoved: boolean;
      }>;
      /** Rows without bytes. */
      files: Array<{
        /** The `id`, as the API calls it. */
        _id: string;
        /** Identifies the record. */
        id: string;
        /** The id of the team. */
        teamId: string;
        /** The key of the object in the store. */
        key: string;
      }>;
      /** Where the next page begins. Null: this was the last. */
      next: string | null;
    }>;
  };
  "GET /auth/v1/events": {
    query: {
      /** Page size. Values above 100 count as 100. Default 20. */
      limit?: number | undefined;
      /** From the `Link` of the previous page. Opaque. */
      cursor?: string | undefined;
      /** Default `desc`, newest first. */
      order?: "asc" | "desc" | undefined;
      /** Only events of this type, or of this kind of record. */
      type?: EventType | "file" | "link" | "user" | "apikey" | "session" | "team" | "webhook" | undefined;
      /** Only events of the record with this id, such as a file's. */
      subject?: string | undefined;
      /** Only events caused by the user or the key with this id. */
      actor?: string | undefined;
      /** Only events after this event id. */
      after?: string | undefined;
      /** Only events before this event id. */
      before?: string | undefined;
      /** Only those that were created after this instant. */
      createdAfter?: string | Date | undefined;
      /** Only those that were created before this instant. */
      createdBefore?: string | Date | undefined;
      /** Operator tokens only. Without it, the operator gets the creations and deletions of all teams, also of those that are gone. */
      teamId?: string | undefined;
    };
    body: undefined;
    response: Data<Array<Event>>;
  };
  "GET /auth/v1/events/{id}": {
    query: {
      /** Operator tokens only. Without it, the operator gets the creations and deletions of all teams, also of those that are gone. */
      teamId?: string | undefined;
    };
    body: undefined;
    response: Data<Event>;
  };
  "GET /docs/v1/tags": {
    query: {
      /** Page size. Default and maximum 100. */
      limit?: number | undefined;
      /** From the `Link` of the previous page. Opaque. */
      cursor?: string | undefined;
      /** A prefix of the tag, in any case and without accents. */
      prefix?: string | undefined;
    };
    body: undefined;
    response: Data<Array<Tag>>;
  };
  "GET /docs/v1/folders": {
    query: {
      /** Page size. Default and maximum 100. */
      limit?: number | undefined;
      /** From the `Link` of the previous page. Opaque. */
      cursor?: string | undefined;
      /** Default: the top-level folders. */
      under?: string | undefined;
      /** `true` also lists the folders in these folders, at all levels. Default `false`. */
      deep?: boolean | undefined;
    };
    body: undefined;
    response: Data<Array<string>>;
  };
  "POST /docs/v1/folders": {
    query: undefined;
    body: {
      /** A path such as `a/b`. Empty: outside all folders. */
      folder: string;
    };
    response: Data<{
      /** The full path of the folder. */
      folder: string;
    }>;
  };
  "PATCH /docs/v1/folders": {
    query: undefined;
    body: {
      /** A path such as `a/b`. Empty: outside all folders. */
      folder: string;
      /** Its new path. */
      to: string;
    };
    response: Data<{
      /** Where the folder is, or was. */
      folder: string;
      /** Whether all files have been changed. Otherwise the rest follows within minutes. */
      isComplete: boolean;
    }>;
  };
  "POST /docs/v1/folders/delete": {
    query: undefined;
    body: {
      /** A path such as `a/b`. Empty: outside all folders. */
      folder: string;
    };
    response: Data<{
      /** Where the folder is, or was. */
      folder: string;
      /** Whether all files have been changed. Otherwise the rest follows within minutes. */
      isComplete: boolean;
      /** The held files that stay in the folder. At most 1,000 are counted. */
      held: number;
    }>;
  };
  "GET /docs/v1/usage": {
    query: undefined;
    body: undefined;
    response: Data<{
      /** The number of files. */
      files: number;
      /** The size of all files, in bytes. */
      bytes: number;
      /** The part of `files` that is in the trash. */
      trashFiles: number;
      /** The part of `bytes` that is in the trash. */
      trashBytes: number;
      /** The largest number of files. */
      maxFiles: number;
      /** How many bytes the team can store. */
      maxBytes: number;
      /** The number of events in the log. */
      events: number;
      /** How many events the log keeps. */
      maxEvents: number;
    }>;
  };
}
