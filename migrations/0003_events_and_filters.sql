CREATE TABLE `deliveries` (
	`webhook_id` text NOT NULL,
	`seq` integer NOT NULL,
	`team_id` text NOT NULL,
	`type` text NOT NULL,
	`status` text NOT NULL,
	`attempts` text DEFAULT '[]' NOT NULL,
	`tries` integer DEFAULT 0 NOT NULL,
	`due_at` integer,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`webhook_id`, `seq`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `deliveries_due` ON `deliveries` (`due_at`) WHERE due_at is not null;--> statement-breakpoint
CREATE TABLE `events` (
	`team_id` text NOT NULL,
	`seq` integer NOT NULL,
	`type` text NOT NULL,
	`created_at` integer NOT NULL,
	`actor` text NOT NULL,
	`subject_id` text NOT NULL,
	`subject_version` integer,
	`data` text NOT NULL,
	PRIMARY KEY(`team_id`, `seq`)
) WITHOUT ROWID;
--> statement-breakpoint
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
	`own_host` text NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `webhooks_encrypted_with` ON `webhooks` (`encrypted_with`);--> statement-breakpoint
-- Tables are made anew to be WITHOUT ROWID, which drizzle-kit can't write: their key is then no second row to write.
CREATE TABLE `__new_files` (
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
	`version` integer DEFAULT 0 NOT NULL,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_files`("id", "team_id", "original_name", "status", "reserved_bytes", "size_bytes", "sha256", "etag", "mime_type", "file_type", "idempotency_key", "audio", "failure_code", "failure_message", "processed_at", "attempts", "due_at", "lease_ends_at", "created_at", "updated_at", "version") SELECT "id", "team_id", "original_name", "status", "reserved_bytes", "size_bytes", "sha256", "etag", "mime_type", "file_type", "idempotency_key", "audio", "failure_code", "failure_message", "processed_at", "attempts", "due_at", CASE "status" WHEN 'processing' THEN "due_at" END, "created_at", "updated_at", "version" FROM `files`;--> statement-breakpoint
DROP TABLE `files`;--> statement-breakpoint
ALTER TABLE `__new_files` RENAME TO `files`;--> statement-breakpoint
CREATE INDEX `files_name` ON `files` (`team_id`,`original_name`,`id`);--> statement-breakpoint
CREATE INDEX `files_on_the_way` ON `files` (`team_id`,`id`) WHERE size_bytes is not null and processed_at is null;--> statement-breakpoint
CREATE INDEX `files_failed` ON `files` (`team_id`,`id`) WHERE status = 'failed';--> statement-breakpoint
CREATE INDEX `files_type` ON `files` (`team_id`,`file_type`,`id`) WHERE file_type <> 'audio file';--> statement-breakpoint
CREATE INDEX `files_due` ON `files` (`due_at`) WHERE due_at is not null;--> statement-breakpoint
CREATE UNIQUE INDEX `files_idempotency` ON `files` (`team_id`,`idempotency_key`) WHERE idempotency_key is not null;
--> statement-breakpoint
CREATE TABLE `__new_upload_parts` (
	`file_id` text NOT NULL,
	`number` integer NOT NULL,
	`etag` text NOT NULL,
	`md5` text NOT NULL,
	PRIMARY KEY(`file_id`, `number`)
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_upload_parts` SELECT * FROM `upload_parts`;
--> statement-breakpoint
DROP TABLE `upload_parts`;
--> statement-breakpoint
ALTER TABLE `__new_upload_parts` RENAME TO `upload_parts`;
--> statement-breakpoint
CREATE TABLE `__new_uploads` (
	`file_id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`secret_hash` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`offset_bytes` integer DEFAULT 0 NOT NULL,
	`part_bytes` integer NOT NULL,
	`metadata` text NOT NULL,
	`sha256` text,
	`multipart_id` text,
	`mime_type` text,
	`file_type` text,
	`next_part` integer DEFAULT 1 NOT NULL,
	`stash` text,
	`epoch` integer DEFAULT 0 NOT NULL,
	`is_writing` integer DEFAULT false NOT NULL,
	`is_finished` integer DEFAULT false NOT NULL,
	`created_at` integer NOT NULL,
	`due_at` integer NOT NULL
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_uploads` SELECT * FROM `uploads`;
--> statement-breakpoint
DROP TABLE `uploads`;
--> statement-breakpoint
ALTER TABLE `__new_uploads` RENAME TO `uploads`;
--> statement-breakpoint
CREATE INDEX `uploads_due` ON `uploads` (`due_at`);
--> statement-breakpoint
CREATE INDEX `uploads_unfinished` ON `uploads` (`team_id`) WHERE is_finished = 0;
--> statement-breakpoint
-- The triggers of the old table went with it.
-- team_usage is the sum of a team's rows in files, kept by the database itself, so that no code path can forget it.
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
	INSERT INTO team_usage (team_id, files, bytes) VALUES (new.team_id, 1, new.reserved_bytes)
	ON CONFLICT (team_id) DO UPDATE SET files = files + 1, bytes = bytes + new.reserved_bytes;
END;
--> statement-breakpoint
CREATE TRIGGER files_resized AFTER UPDATE OF reserved_bytes ON files WHEN old.reserved_bytes <> new.reserved_bytes BEGIN
	UPDATE team_usage SET bytes = bytes - old.reserved_bytes + new.reserved_bytes WHERE team_id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_uncounted AFTER DELETE ON files BEGIN
	UPDATE team_usage SET files = files - 1, bytes = bytes - old.reserved_bytes WHERE team_id = old.team_id;
END;
