CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`uuid` text NOT NULL,
	`name` text NOT NULL,
	`is_public` integer NOT NULL,
	`token_hash` text NOT NULL,
	`encrypted_token` text,
	`encrypted_with` text,
	`user_id` text,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_token_hash` ON `api_keys` (`token_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_team` ON `api_keys` (`team_id`,`id`) WHERE encrypted_token is not null;--> statement-breakpoint
CREATE INDEX `api_keys_id` ON `api_keys` (`id`) WHERE encrypted_token is not null;--> statement-breakpoint
CREATE INDEX `api_keys_encrypted_with` ON `api_keys` (`encrypted_with`) WHERE encrypted_with is not null;--> statement-breakpoint
CREATE INDEX `api_keys_user` ON `api_keys` (`user_id`) WHERE user_id is not null;--> statement-breakpoint
CREATE INDEX `api_keys_expiry` ON `api_keys` (`expires_at`) WHERE encrypted_token is not null;--> statement-breakpoint
CREATE INDEX `api_keys_login_expiry` ON `api_keys` (`expires_at`) WHERE encrypted_token is null;--> statement-breakpoint
CREATE TABLE `deliveries` (
	`webhook_id` text NOT NULL,
	`seq` integer NOT NULL,
	`team_id` text NOT NULL,
	`type` text NOT NULL,
	`status` text NOT NULL,
	`attempt_log` text DEFAULT '[]' NOT NULL,
	`attempt_count` integer DEFAULT 0 NOT NULL,
	`due_at` integer,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`webhook_id`, `seq`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `deliveries_due` ON `deliveries` (`webhook_id`,`due_at`) WHERE due_at is not null;--> statement-breakpoint
CREATE TABLE `events` (
	`team_id` text NOT NULL,
	`seq` integer NOT NULL,
	`type` text NOT NULL,
	`created_at` integer NOT NULL,
	`actor` text NOT NULL,
	`subject_id` text NOT NULL,
	`subject_version` integer,
	`data` text NOT NULL,
	`position` integer NOT NULL,
	PRIMARY KEY(`team_id`, `seq`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `files` (
	`id` text NOT NULL,
	`team_id` text NOT NULL,
	`original_name` text NOT NULL,
	`status` text NOT NULL,
	`reserved_bytes` integer NOT NULL,
	`size_bytes` integer,
	`sha256` text,
	`etag` text,
	`mime_type` text,
	`file_type` text,
	`idempotency_key` text,
	`audio` text,
	`failure_code` text,
	`failure_message` text,
	`processed_at` integer,
	`attempts` integer DEFAULT 0 NOT NULL,
	`due_at` integer,
	`lease_ends_at` integer,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`waveform_writing_since` integer,
	`version` integer DEFAULT 0 NOT NULL,
	`stated_sha256` text,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `files_name` ON `files` (`team_id`,`original_name`,`id`);--> statement-breakpoint
CREATE INDEX `files_unprocessed` ON `files` (`team_id`,`id`) WHERE size_bytes is not null and processed_at is null;--> statement-breakpoint
CREATE INDEX `files_failed` ON `files` (`team_id`,`id`) WHERE status = 'failed';--> statement-breakpoint
CREATE INDEX `files_type` ON `files` (`team_id`,`file_type`,`id`) WHERE file_type <> 'audio file';--> statement-breakpoint
CREATE INDEX `files_due` ON `files` (`due_at`) WHERE due_at is not null;--> statement-breakpoint
CREATE UNIQUE INDEX `files_idempotency` ON `files` (`team_id`,`idempotency_key`) WHERE idempotency_key is not null;--> statement-breakpoint
CREATE TABLE `links` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`file_id` text NOT NULL,
	`secret_hash` text NOT NULL,
	`name` text,
	`disposition` text NOT NULL,
	`expires_at` integer,
	`created_at` integer NOT NULL,
	`key_id` text NOT NULL,
	`user_id` text
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `links_file` ON `links` (`team_id`,`file_id`,`id`);--> statement-breakpoint
CREATE INDEX `links_expiry` ON `links` (`expires_at`) WHERE expires_at is not null;--> statement-breakpoint
CREATE TABLE `team_usage` (
	`team_id` text PRIMARY KEY NOT NULL,
	`files` integer NOT NULL,
	`bytes` integer NOT NULL,
	`api_keys` integer DEFAULT 0 NOT NULL,
	`users` integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE TABLE `upload_parts` (
	`file_id` text NOT NULL,
	`number` integer NOT NULL,
	`etag` text NOT NULL,
	`md5` text NOT NULL,
	PRIMARY KEY(`file_id`, `number`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `uploads` (
	`file_id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`key_id` text NOT NULL,
	`is_public` integer NOT NULL,
	`secret_hash` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`offset_bytes` integer DEFAULT 0 NOT NULL,
	`part_bytes` integer NOT NULL,
	`metadata` text NOT NULL,
	`multipart_id` text,
	`mime_type` text,
	`file_type` text,
	`next_part` integer DEFAULT 1 NOT NULL,
	`chunks` text,
	`epoch` integer DEFAULT 0 NOT NULL,
	`is_writing` integer DEFAULT false NOT NULL,
	`is_finished` integer DEFAULT false NOT NULL,
	`created_at` integer NOT NULL,
	`due_at` integer NOT NULL,
	`has_leftovers` integer DEFAULT false NOT NULL
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `uploads_awaiting_assembly` ON `uploads` (`due_at`) WHERE is_finished = 0 and offset_bytes = size_bytes;--> statement-breakpoint
CREATE INDEX `uploads_incomplete` ON `uploads` (`due_at`) WHERE is_finished = 0 and offset_bytes < size_bytes;--> statement-breakpoint
CREATE INDEX `uploads_finished` ON `uploads` (`due_at`) WHERE is_finished = 1 and has_leftovers = 0 and multipart_id is null and is_writing = 0;--> statement-breakpoint
CREATE INDEX `uploads_leftovers` ON `uploads` (`due_at`) WHERE is_finished = 1 and (has_leftovers = 1 or multipart_id is not null or is_writing = 1);--> statement-breakpoint
CREATE INDEX `uploads_unfinished` ON `uploads` (`team_id`,`file_id`,`is_public`,`size_bytes`) WHERE is_finished = 0;--> statement-breakpoint
CREATE TABLE `users` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`first_name` text NOT NULL,
	`last_name` text NOT NULL,
	`email` text NOT NULL,
	`email_key` text NOT NULL,
	`password` text NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL,
	`full_name` text GENERATED ALWAYS AS (trim(first_name || ' ' || last_name)) VIRTUAL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `users_team_email` ON `users` (`team_id`,`email_key`);--> statement-breakpoint
CREATE INDEX `users_team` ON `users` (`team_id`,`id`);--> statement-breakpoint
CREATE INDEX `users_name` ON `users` (`team_id`,`full_name`,`id`);--> statement-breakpoint
CREATE TABLE `webhooks` (
	`id` text NOT NULL,
	`team_id` text NOT NULL,
	`url` text NOT NULL,
	`types` text,
	`description` text NOT NULL,
	`status` text NOT NULL,
	`disabled_reason` text,
	`encrypted_secret` text NOT NULL,
	`old_encrypted_secret` text,
	`old_secret_ends_at` integer,
	`encrypted_with` text NOT NULL,
	`failures` integer DEFAULT 0 NOT NULL,
	`failing_since` integer,
	`resume_at` integer,
	`lease_id` text,
	`lease_ends_at` integer DEFAULT 0 NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL,
	`failure_bodies` text DEFAULT '[]' NOT NULL,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `webhooks_encrypted_with` ON `webhooks` (`encrypted_with`);
--> statement-breakpoint
-- team_usage contains totals per team, maintained by triggers so that no code path can miss an update. A file counts while
-- it reserves bytes: a cancelled upload reserves none, and its row may stay for a while.
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
	INSERT INTO team_usage (team_id, files, bytes) VALUES (new.team_id, new.reserved_bytes > 0, new.reserved_bytes)
	ON CONFLICT (team_id) DO UPDATE SET files = files + excluded.files, bytes = bytes + excluded.bytes;
END;
--> statement-breakpoint
CREATE TRIGGER files_resized AFTER UPDATE OF reserved_bytes ON files WHEN old.reserved_bytes <> new.reserved_bytes BEGIN
	UPDATE team_usage SET
		files = files - (old.reserved_bytes > 0) + (new.reserved_bytes > 0),
		bytes = bytes - old.reserved_bytes + new.reserved_bytes
	WHERE team_id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_uncounted AFTER DELETE ON files WHEN old.reserved_bytes > 0 BEGIN
	UPDATE team_usage SET files = files - 1, bytes = bytes - old.reserved_bytes WHERE team_id = old.team_id;
END;
--> statement-breakpoint
-- Login keys have no encrypted token, and do not count.
CREATE TRIGGER api_keys_counted AFTER INSERT ON api_keys WHEN new.encrypted_token IS NOT NULL BEGIN
	INSERT INTO team_usage (team_id, files, bytes, api_keys) VALUES (new.team_id, 0, 0, 1)
	ON CONFLICT (team_id) DO UPDATE SET api_keys = api_keys + 1;
END;
--> statement-breakpoint
CREATE TRIGGER api_keys_uncounted AFTER DELETE ON api_keys WHEN old.encrypted_token IS NOT NULL BEGIN
	UPDATE team_usage SET api_keys = api_keys - 1 WHERE team_id = old.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_counted AFTER INSERT ON users BEGIN
	INSERT INTO team_usage (team_id, files, bytes, users) VALUES (new.team_id, 0, 0, 1)
	ON CONFLICT (team_id) DO UPDATE SET users = users + 1;
END;
--> statement-breakpoint
CREATE TRIGGER users_uncounted AFTER DELETE ON users BEGIN
	UPDATE team_usage SET users = users - 1 WHERE team_id = old.team_id;
END;
--> statement-breakpoint
-- A hidden file has no links. The row itself is deleted only later.
CREATE TRIGGER files_hidden_links AFTER UPDATE OF status ON files WHEN new.status = 'deleting' BEGIN
	DELETE FROM links WHERE team_id = new.team_id AND file_id = new.id;
END;
