CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`uuid` text NOT NULL,
	`name` text NOT NULL,
	`kind` text NOT NULL,
	`scopes` integer,
	`token_hash` text NOT NULL,
	`encrypted_token` text,
	`encrypted_with` text,
	`created_by_key_id` text,
	`origin_id` text,
	`user_id` text,
	`last_used_at` integer,
	`limits` text,
	`user_agent` text,
	`rotated_to` text,
	`revealed` text DEFAULT '{}' NOT NULL,
	`lifetime_milliseconds` integer NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL,
	`expiry_notice_at` integer,
	`version` integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_token_hash` ON `api_keys` (`token_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_team` ON `api_keys` (`team_id`,`id`) WHERE "api_keys"."kind" <> 'session';--> statement-breakpoint
CREATE INDEX `api_keys_team_sessions` ON `api_keys` (`team_id`,`id`) WHERE "api_keys"."kind" = 'session';--> statement-breakpoint
CREATE INDEX `api_keys_encrypted_with` ON `api_keys` (`encrypted_with`) WHERE "api_keys"."encrypted_with" is not null;--> statement-breakpoint
CREATE INDEX `api_keys_user` ON `api_keys` (`user_id`) WHERE "api_keys"."user_id" is not null;--> statement-breakpoint
CREATE INDEX `api_keys_origin` ON `api_keys` (`origin_id`) WHERE "api_keys"."origin_id" is not null and "api_keys"."kind" <> 'session';--> statement-breakpoint
CREATE INDEX `api_keys_team_expiry` ON `api_keys` (`team_id`,`expires_at`) WHERE "api_keys"."kind" <> 'session';--> statement-breakpoint
CREATE INDEX `api_keys_expiry` ON `api_keys` (`expires_at`) WHERE "api_keys"."kind" <> 'session';--> statement-breakpoint
CREATE INDEX `api_keys_expiring` ON `api_keys` (`expiry_notice_at`) WHERE "api_keys"."expiry_notice_at" is not null;--> statement-breakpoint
CREATE INDEX `api_keys_session_expiry` ON `api_keys` (`expires_at`) WHERE "api_keys"."kind" = 'session';--> statement-breakpoint
CREATE INDEX `api_keys_session_creator` ON `api_keys` (`created_by_key_id`,`expires_at`) WHERE "api_keys"."kind" = 'session' and "api_keys"."created_by_key_id" is not null;--> statement-breakpoint
CREATE TABLE `sent_mails` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`user_id` text NOT NULL,
	`mailbox` text NOT NULL,
	`sent_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `sent_mails_team` ON `sent_mails` (`team_id`,`sent_at`);--> statement-breakpoint
CREATE INDEX `sent_mails_time` ON `sent_mails` (`sent_at`);--> statement-breakpoint
CREATE TABLE `teams` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`status` text NOT NULL,
	`max_bytes` integer,
	`max_files` integer,
	`files` integer DEFAULT 0 NOT NULL,
	`bytes` integer DEFAULT 0 NOT NULL,
	`trash_files` integer DEFAULT 0 NOT NULL,
	`trash_bytes` integer DEFAULT 0 NOT NULL,
	`notification_email` text,
	`retention_days` integer,
	`retention_by` text,
	`retention_reached` text DEFAULT '' NOT NULL,
	`retention_due_at` integer,
	`public_bytes` integer DEFAULT 0 NOT NULL,
	`unfinished_uploads` integer DEFAULT 0 NOT NULL,
	`visitor_uploads` integer DEFAULT 0 NOT NULL,
	`api_keys` integer DEFAULT 0 NOT NULL,
	`links` integer DEFAULT 0 NOT NULL,
	`folders` integer DEFAULT 0 NOT NULL,
	`users` integer DEFAULT 0 NOT NULL,
	`events_purged_to` integer DEFAULT 0 NOT NULL,
	`account_events_until` integer DEFAULT 0 NOT NULL,
	`admins` integer DEFAULT 0 NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `teams_name` ON `teams` (`name`,`id`);--> statement-breakpoint
CREATE INDEX `teams_status` ON `teams` (`status`,`id`);--> statement-breakpoint
CREATE INDEX `teams_status_name` ON `teams` (`status`,`name`,`id`);--> statement-breakpoint
CREATE INDEX `teams_retention` ON `teams` (`retention_due_at`) WHERE "teams"."retention_due_at" is not null;--> statement-breakpoint
CREATE TABLE `users` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`first_name` text NOT NULL,
	`last_name` text NOT NULL,
	`email` text NOT NULL,
	`email_key` text NOT NULL,
	`password` text NOT NULL,
	`role` text NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL,
	`invitation_hash` text,
	`invitation_ends_at` integer,
	`invitation_by` text,
	`folders` integer DEFAULT 0 NOT NULL,
	`unfinished_uploads` integer DEFAULT 0 NOT NULL,
	`account_events_until` integer DEFAULT 0 NOT NULL,
	`full_name` text GENERATED ALWAYS AS (trim(first_name || ' ' || last_name)) VIRTUAL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `users_team_email` ON `users` (`team_id`,`email_key`);--> statement-breakpoint
CREATE INDEX `users_team` ON `users` (`team_id`,`id`);--> statement-breakpoint
CREATE INDEX `users_name` ON `users` (`team_id`,`full_name`,`id`);--> statement-breakpoint
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
CREATE TABLE `followers` (
	`team_id` text NOT NULL,
	`kind` text NOT NULL,
	`id` text NOT NULL,
	`types` text,
	`since` integer NOT NULL,
	`cursor` integer DEFAULT 0 NOT NULL,
	PRIMARY KEY(`team_id`, `kind`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE TABLE `file_objects` (
	`team_id` text NOT NULL,
	`file_id` text NOT NULL,
	`version` text NOT NULL,
	`kind` text NOT NULL,
	`name` text DEFAULT '' NOT NULL,
	`state` text NOT NULL,
	`due_at` integer,
	`updated_at` integer,
	`reserved_bytes` integer NOT NULL,
	`is_provisional` integer DEFAULT false NOT NULL,
	`language` text,
	`cues` integer,
	`skipped_cues` integer,
	`preview` blob,
	PRIMARY KEY(`team_id`, `file_id`, `version`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE UNIQUE INDEX `file_objects_current` ON `file_objects` (`team_id`,`file_id`,`kind`,`name`) WHERE "file_objects"."state" = 'current';--> statement-breakpoint
CREATE INDEX `file_objects_due` ON `file_objects` (`due_at`) WHERE "file_objects"."due_at" is not null;--> statement-breakpoint
CREATE INDEX `file_objects_transcripts` ON `file_objects` (`team_id`,`file_id`) WHERE "file_objects"."kind" = 'transcript' and "file_objects"."state" = 'current';--> statement-breakpoint
CREATE TABLE `file_tags` (
	`team_id` text NOT NULL,
	`tag_key` text NOT NULL,
	`tag` text NOT NULL,
	`file_id` text NOT NULL,
	`user_id` text,
	PRIMARY KEY(`team_id`, `tag_key`, `tag`, `file_id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `file_tags_owner` ON `file_tags` (`team_id`,`user_id`,`tag_key`,`tag`) WHERE "file_tags"."user_id" is not null;--> statement-breakpoint
CREATE TABLE `files` (
	`id` text NOT NULL,
	`team_id` text NOT NULL,
	`status` text NOT NULL,
	`file_type` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`processed_at` integer,
	`user_id` text,
	`has_transcript` integer DEFAULT false NOT NULL,
	`reserved_bytes` integer NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL,
	`attempts` integer DEFAULT 0 NOT NULL,
	`claim` integer DEFAULT 0 NOT NULL,
	`due_at` integer,
	`lease_ends_at` integer,
	`delete_after` integer,
	`delete_after_by` text,
	`restores` integer DEFAULT 0 NOT NULL,
	`mime_type` text NOT NULL,
	`failure_code` text,
	`original_name` text NOT NULL,
	`name` text,
	`name_key` text DEFAULT '' NOT NULL,
	`folder` text DEFAULT '' NOT NULL,
	`folder_since` integer DEFAULT 0 NOT NULL,
	`reference` text,
	`sha256` text,
	`etag` text NOT NULL,
	`stated_sha256` text,
	`key_id` text NOT NULL,
	`upload_token_id` text,
	`failure_message` text,
	`allowed_types` text,
	`tags` text DEFAULT '[]' NOT NULL,
	`metadata` text DEFAULT '{}' NOT NULL,
	`search_keys` text DEFAULT '{}' NOT NULL,
	`audio` text,
	`hold` text,
	`search_text` text GENERATED ALWAYS AS (ifnull(search_keys ->> 'title', '') || char(1) || ifnull(search_keys ->> 'artist', '') || char(1) || ifnull(search_keys ->> 'reference', '') || char(1) || ifnull(search_keys ->> 'folder', '') || char(1) || ifnull(search_keys ->> 'tagText', '')) VIRTUAL,
	`folder_key` text GENERATED ALWAYS AS (replace(folder, '/', char(1))) VIRTUAL,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `files_name` ON `files` (`team_id`,`name_key`,`id`,`search_text`);--> statement-breakpoint
CREATE INDEX `files_folder` ON `files` (`team_id`,`folder_key`,`id`) WHERE "files"."folder" <> '';--> statement-breakpoint
CREATE INDEX `files_folder_name` ON `files` (`team_id`,`folder_key`,`name_key`,`id`) WHERE "files"."folder" <> '';--> statement-breakpoint
CREATE INDEX `files_reference` ON `files` (`team_id`,`reference`,`id`) WHERE "files"."reference" is not null;--> statement-breakpoint
CREATE INDEX `files_unprocessed` ON `files` (`team_id`,`id`) WHERE "files"."processed_at" is null;--> statement-breakpoint
CREATE INDEX `files_failed` ON `files` (`team_id`,`id`) WHERE "files"."status" = 'failed';--> statement-breakpoint
CREATE INDEX `files_type` ON `files` (`team_id`,`file_type`,`id`) WHERE "files"."file_type" <> 'audio file';--> statement-breakpoint
CREATE INDEX `files_transcribed` ON `files` (`team_id`,`id`) WHERE "files"."has_transcript";--> statement-breakpoint
CREATE INDEX `files_owner` ON `files` (`team_id`,`user_id`,`id`,`size_bytes`) WHERE "files"."user_id" is not null;--> statement-breakpoint
CREATE INDEX `files_owner_name` ON `files` (`team_id`,`user_id`,`name_key`,`id`,`search_text`) WHERE "files"."user_id" is not null;--> statement-breakpoint
CREATE INDEX `files_owner_folder` ON `files` (`team_id`,`user_id`,`folder_key`,`id`) WHERE "files"."user_id" is not null and "files"."folder" <> '';--> statement-breakpoint
CREATE INDEX `files_expiring` ON `files` (`delete_after`) WHERE "files"."delete_after" is not null and "files"."hold" is null;--> statement-breakpoint
CREATE INDEX `files_held` ON `files` (`team_id`,`folder_key`,`id`) WHERE "files"."hold" is not null;--> statement-breakpoint
CREATE INDEX `files_due` ON `files` (`due_at`) WHERE "files"."due_at" is not null;--> statement-breakpoint
CREATE TABLE `removed` (
	`team_id` text NOT NULL,
	`id` text NOT NULL,
	`user_id` text,
	`original_name` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`reserved_bytes` integer NOT NULL,
	`due_at` integer NOT NULL,
	`trashed_at` integer,
	`hold` text,
	`file` text,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `removed_due` ON `removed` (`due_at`) WHERE "removed"."hold" is null;--> statement-breakpoint
CREATE INDEX `removed_owner` ON `removed` (`team_id`,`user_id`,`id`,`size_bytes`) WHERE "removed"."trashed_at" is not null and "removed"."user_id" is not null;--> statement-breakpoint
CREATE INDEX `removed_held` ON `removed` (`team_id`) WHERE "removed"."hold" is not null;--> statement-breakpoint
CREATE TABLE `folder_changes` (
	`team_id` text NOT NULL,
	`id` text NOT NULL,
	`owner_id` text NOT NULL,
	`folder` text NOT NULL,
	`target` text,
	`initiator` text NOT NULL,
	`requested_by` text NOT NULL,
	`created_at` integer NOT NULL,
	`position` text DEFAULT '["",""]' NOT NULL,
	`step_end` text,
	`due_at` integer NOT NULL,
	PRIMARY KEY(`team_id`, `owner_id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `folder_changes_due` ON `folder_changes` (`due_at`);--> statement-breakpoint
CREATE TABLE `folders` (
	`team_id` text NOT NULL,
	`owner_id` text NOT NULL,
	`folder_key` text NOT NULL,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`team_id`, `folder_key`, `owner_id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `folders_owner` ON `folders` (`team_id`,`owner_id`,`folder_key`) WHERE "folders"."owner_id" <> '';--> statement-breakpoint
CREATE TABLE `links` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`file_id` text NOT NULL,
	`secret_hash` text NOT NULL,
	`name` text,
	`start_seconds` real,
	`end_seconds` real,
	`disposition` text NOT NULL,
	`expires_at` integer,
	`created_at` integer NOT NULL,
	`key_id` text NOT NULL,
	`user_id` text
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `links_file` ON `links` (`team_id`,`file_id`,`id`);--> statement-breakpoint
CREATE INDEX `links_expiry` ON `links` (`expires_at`) WHERE "links"."expires_at" is not null;--> statement-breakpoint
CREATE TABLE `recovery` (
	`id` integer PRIMARY KEY NOT NULL,
	`recovered_at` integer NOT NULL,
	`requested_at` integer NOT NULL
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
	`team_id` text NOT NULL,
	`file_id` text NOT NULL,
	`status` text DEFAULT 'receiving' NOT NULL,
	`key_id` text NOT NULL,
	`is_public` integer NOT NULL,
	`user_id` text,
	`upload_token_id` text,
	`finished_by_token_id` text,
	`visitor_id` text,
	`idempotency_key` text,
	`original_name` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`reserved_bytes` integer DEFAULT 0 NOT NULL,
	`allowed_types` text,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`due_at` integer NOT NULL,
	`secret_hash` text,
	`offset_bytes` integer DEFAULT 0 NOT NULL,
	`progress_at` integer DEFAULT 0 NOT NULL,
	`progress_bytes` integer DEFAULT 0 NOT NULL,
	`part_bytes` integer DEFAULT 0 NOT NULL,
	`metadata` text DEFAULT '' NOT NULL,
	`properties` text,
	`stated_sha256` text,
	`multipart_id` text,
	`mime_type` text,
	`file_type` text,
	`next_part` integer DEFAULT 1 NOT NULL,
	`chunks` text,
	`epoch` integer DEFAULT 0 NOT NULL,
	`is_writing` integer DEFAULT false NOT NULL,
	`fenced_off` integer DEFAULT 0 NOT NULL,
	`has_leftovers` integer DEFAULT false NOT NULL,
	PRIMARY KEY(`team_id`, `file_id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `uploads_receiving_due` ON `uploads` (`due_at`) WHERE "uploads"."status" = 'receiving';--> statement-breakpoint
CREATE INDEX `uploads_ended_due` ON `uploads` (`due_at`) WHERE "uploads"."status" <> 'receiving';--> statement-breakpoint
CREATE INDEX `uploads_unfinished` ON `uploads` (`team_id`,`key_id`,`visitor_id`) WHERE ("uploads"."status" <> 'committed' and "uploads"."secret_hash" is not null);--> statement-breakpoint
CREATE INDEX `uploads_silent` ON `uploads` (`team_id`,`progress_at`) WHERE "uploads"."is_public" and "uploads"."secret_hash" is not null and "uploads"."status" = 'receiving' and "uploads"."offset_bytes" < "uploads"."size_bytes" and "uploads"."offset_bytes" <= max(65535, "uploads"."size_bytes" / 2);--> statement-breakpoint
CREATE INDEX `uploads_reserved` ON `uploads` (`team_id`,`file_id`,`user_id`) WHERE "uploads"."status" <> 'committed';--> statement-breakpoint
CREATE INDEX `uploads_visitor` ON `uploads` (`team_id`,`visitor_id`) WHERE "uploads"."upload_token_id" is not null;--> statement-breakpoint
CREATE UNIQUE INDEX `uploads_idempotency` ON `uploads` (`team_id`,`idempotency_key`) WHERE "uploads"."idempotency_key" is not null;--> statement-breakpoint
CREATE TABLE `visitors` (
	`team_id` text NOT NULL,
	`id` text NOT NULL,
	`key_id` text NOT NULL,
	`unfinished_uploads` integer NOT NULL,
	`begun_uploads` integer NOT NULL,
	`due_at` integer NOT NULL,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `visitors_unfinished` ON `visitors` (`team_id`,`unfinished_uploads`) WHERE "visitors"."unfinished_uploads" > 1;--> statement-breakpoint
CREATE INDEX `visitors_due` ON `visitors` (`due_at`) WHERE "visitors"."unfinished_uploads" = 0;--> statement-breakpoint
CREATE TABLE `measurements` (
	`team_id` text NOT NULL,
	`file_id` text NOT NULL,
	`attempts` integer NOT NULL,
	`due_at` integer,
	PRIMARY KEY(`team_id`, `file_id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `measurements_due` ON `measurements` (`due_at`) WHERE "measurements"."due_at" is not null;--> statement-breakpoint
CREATE TABLE `webhooks` (
	`id` text NOT NULL,
	`team_id` text NOT NULL,
	`url` text NOT NULL,
	`types` text,
	`description` text NOT NULL,
	`disabled_reason` text,
	`key_id` text DEFAULT '' NOT NULL,
	`user_id` text,
	`changed_by` text NOT NULL,
	`encrypted_secret` text NOT NULL,
	`old_encrypted_secret` text,
	`old_secret_ends_at` integer,
	`encrypted_with` text NOT NULL,
	`epoch` integer DEFAULT 0 NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL,
	PRIMARY KEY(`team_id`, `id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `webhooks_encrypted_with` ON `webhooks` (`encrypted_with`);
--> statement-breakpoint
-- teams contains totals per team, maintained by triggers so that no code path can miss an update. An upload counts until it is
-- committed, or its row is deleted after its bytes; a file until its row in files or removed is deleted, after its bytes. What moves
-- from one table to another changes only what differs: each batch inserts the row before it deletes or ends the other.
-- file_tags has the tags of files, with their keys, which search_keys has. A file without tags costs no row.
CREATE TRIGGER uploads_came AFTER INSERT ON uploads BEGIN
	UPDATE teams SET
		files = files + 1,
		bytes = bytes + new.reserved_bytes,
		public_bytes = public_bytes + iif(new.is_public, new.reserved_bytes, 0),
		unfinished_uploads = unfinished_uploads + (new.secret_hash IS NOT NULL),
		visitor_uploads = visitor_uploads + (new.is_public AND new.secret_hash IS NOT NULL)
	WHERE id = new.team_id;
	UPDATE users SET unfinished_uploads = unfinished_uploads + 1 WHERE id = new.user_id AND new.secret_hash IS NOT NULL;
	-- No limit counts a visitor's upload for longer than a day from its beginning.
	INSERT INTO visitors (team_id, id, key_id, unfinished_uploads, begun_uploads, due_at)
	SELECT new.team_id, new.visitor_id, new.key_id, new.secret_hash IS NOT NULL, 1, new.created_at + 86400000
	WHERE new.visitor_id IS NOT NULL
	ON CONFLICT (team_id, id) DO UPDATE SET
		unfinished_uploads = unfinished_uploads + excluded.unfinished_uploads,
		begun_uploads = begun_uploads + 1,
		due_at = max(due_at, excluded.due_at);
END;
--> statement-breakpoint
-- What a visitor announces reserves little until its first byte comes.
CREATE TRIGGER uploads_resized AFTER UPDATE OF reserved_bytes ON uploads WHEN old.reserved_bytes <> new.reserved_bytes BEGIN
	UPDATE teams SET
		bytes = bytes - old.reserved_bytes + new.reserved_bytes,
		public_bytes = public_bytes + iif(new.is_public, new.reserved_bytes - old.reserved_bytes, 0)
	WHERE id = new.team_id;
END;
--> statement-breakpoint
-- A resumable upload is unfinished until it is committed, or its row is deleted.
CREATE TRIGGER uploads_finished AFTER UPDATE OF status ON uploads
WHEN new.status = 'committed' AND old.status <> 'committed' AND new.secret_hash IS NOT NULL BEGIN
	UPDATE teams SET unfinished_uploads = unfinished_uploads - 1, visitor_uploads = visitor_uploads - new.is_public
	WHERE id = new.team_id;
	UPDATE users SET unfinished_uploads = unfinished_uploads - 1 WHERE id = new.user_id;
	UPDATE visitors SET unfinished_uploads = unfinished_uploads - 1 WHERE team_id = new.team_id AND id = new.visitor_id;
END;
--> statement-breakpoint
CREATE TRIGGER uploads_abandoned AFTER DELETE ON uploads WHEN old.status <> 'committed' AND old.secret_hash IS NOT NULL BEGIN
	UPDATE teams SET unfinished_uploads = unfinished_uploads - 1, visitor_uploads = visitor_uploads - old.is_public
	WHERE id = old.team_id;
	UPDATE users SET unfinished_uploads = unfinished_uploads - 1 WHERE id = old.user_id;
	UPDATE visitors SET unfinished_uploads = unfinished_uploads - 1 WHERE team_id = old.team_id AND id = old.visitor_id;
END;
--> statement-breakpoint
-- A receipt does not count.
CREATE TRIGGER uploads_gone AFTER DELETE ON uploads WHEN old.status <> 'committed' BEGIN
	UPDATE teams SET
		files = files - 1,
		bytes = bytes - old.reserved_bytes,
		public_bytes = public_bytes - iif(old.is_public, old.reserved_bytes, 0)
	WHERE id = old.team_id AND NOT EXISTS (SELECT 1 FROM files WHERE team_id = old.team_id AND id = old.file_id);
END;
--> statement-breakpoint
CREATE TRIGGER files_came AFTER INSERT ON files BEGIN
	UPDATE teams SET files = files + 1, bytes = bytes + new.reserved_bytes
	WHERE id = new.team_id AND NOT EXISTS (SELECT 1 FROM removed WHERE team_id = new.team_id AND id = new.id)
		AND NOT EXISTS (SELECT 1 FROM uploads WHERE team_id = new.team_id AND file_id = new.id AND status = 'receiving');
	UPDATE teams SET
		bytes = bytes - upload.reserved_bytes + new.reserved_bytes,
		public_bytes = public_bytes - iif(upload.is_public, upload.reserved_bytes, 0)
	FROM uploads upload
	WHERE teams.id = new.team_id AND upload.team_id = new.team_id AND upload.file_id = new.id AND upload.status = 'receiving'
		AND (upload.is_public OR upload.reserved_bytes <> new.reserved_bytes);
	INSERT INTO file_tags SELECT new.team_id, value, key, new.id, new.user_id FROM json_each(new.search_keys, '$.tags');
END;
--> statement-breakpoint
-- An object beside a file counts with the file from before it is written until it is replaced. Once the file is erased, it counts as
-- it did until its own row is gone.
CREATE TRIGGER file_objects_came AFTER INSERT ON file_objects WHEN new.reserved_bytes > 0 BEGIN
	UPDATE files SET reserved_bytes = reserved_bytes + new.reserved_bytes WHERE team_id = new.team_id AND id = new.file_id;
END;
--> statement-breakpoint
CREATE TRIGGER file_objects_replaced AFTER UPDATE OF state ON file_objects
WHEN new.state = 'replaced' AND old.state <> 'replaced' AND old.reserved_bytes > 0 BEGIN
	UPDATE files SET reserved_bytes = reserved_bytes - old.reserved_bytes WHERE team_id = old.team_id AND id = old.file_id;
	UPDATE removed SET reserved_bytes = reserved_bytes - old.reserved_bytes
	WHERE team_id = old.team_id AND id = old.file_id AND trashed_at IS NOT NULL;
END;
--> statement-breakpoint
CREATE TRIGGER file_objects_gone AFTER DELETE ON file_objects WHEN old.state <> 'replaced' AND old.reserved_bytes > 0 BEGIN
	UPDATE files SET reserved_bytes = reserved_bytes - old.reserved_bytes WHERE team_id = old.team_id AND id = old.file_id;
	UPDATE removed SET reserved_bytes = reserved_bytes - old.reserved_bytes
	WHERE team_id = old.team_id AND id = old.file_id AND trashed_at IS NOT NULL;
END;
--> statement-breakpoint
CREATE TRIGGER files_resized AFTER UPDATE OF reserved_bytes ON files WHEN old.reserved_bytes <> new.reserved_bytes BEGIN
	UPDATE teams SET bytes = bytes - old.reserved_bytes + new.reserved_bytes WHERE id = new.team_id;
END;
--> statement-breakpoint
-- Sessions do not count.
CREATE TRIGGER api_keys_counted AFTER INSERT ON api_keys WHEN new.kind <> 'session' BEGIN
	UPDATE teams SET api_keys = api_keys + 1 WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER api_keys_uncounted AFTER DELETE ON api_keys WHEN old.kind <> 'session' BEGIN
	UPDATE teams SET api_keys = api_keys - 1 WHERE id = old.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_counted AFTER INSERT ON users BEGIN
	UPDATE teams SET users = users + 1, admins = admins + (new.role = 'admin') WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_changed_role AFTER UPDATE OF role ON users WHEN old.role <> new.role BEGIN
	UPDATE teams SET admins = admins - (old.role = 'admin') + (new.role = 'admin') WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_uncounted AFTER DELETE ON users BEGIN
	UPDATE teams SET users = users - 1, admins = admins - (old.role = 'admin') WHERE id = old.team_id;
	DELETE FROM folders WHERE team_id = old.team_id AND owner_id = old.id AND owner_id <> '';
END;
--> statement-breakpoint
CREATE TRIGGER links_counted AFTER INSERT ON links BEGIN
	UPDATE teams SET links = links + 1 WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER links_uncounted AFTER DELETE ON links BEGIN
	UPDATE teams SET links = links - 1 WHERE id = old.team_id;
END;
--> statement-breakpoint
-- The folders of a contributor count for the user, too, and go with the user.
CREATE TRIGGER folders_counted AFTER INSERT ON folders BEGIN
	UPDATE teams SET folders = folders + 1 WHERE id = new.team_id;
	UPDATE users SET folders = folders + 1 WHERE id = new.owner_id;
END;
--> statement-breakpoint
CREATE TRIGGER folders_uncounted AFTER DELETE ON folders BEGIN
	UPDATE teams SET folders = folders - 1 WHERE id = old.team_id;
	UPDATE users SET folders = folders - 1 WHERE id = old.owner_id;
END;
--> statement-breakpoint
-- What a caller can repeat in the accounts of a team has a limit of a day: 20,000 events of a team, and 2,000 that one of its users
-- causes. Each event takes its share of a day, and the shares may reach a day ahead of the time. What ends something needs that it
-- was created before, and the operator has no limit. Half of a day is only for logins, which need a password: else the narrowest key of
-- an admin could lock the admin out.
CREATE TRIGGER events_limited BEFORE INSERT ON events
WHEN new.type IN ('user.created', 'user.updated', 'user.invited', 'user.logged_in', 'apikey.created', 'apikey.updated',
	'apikey.rotated', 'apikey.revealed', 'session.created', 'team.updated', 'webhook.created', 'webhook.updated')
	AND new.actor ->> 'kind' NOT IN ('operator', 'system') BEGIN
	SELECT RAISE(ABORT, 'Too many account events.')
	WHERE EXISTS (SELECT 1 FROM teams WHERE id = new.team_id
			AND account_events_until > new.created_at + iif(new.type = 'user.logged_in', 86400000, 43200000) - 4320)
		OR EXISTS (SELECT 1 FROM users WHERE id = new.actor ->> 'userId' AND team_id = new.team_id
			AND account_events_until > new.created_at + iif(new.type = 'user.logged_in', 86400000, 43200000) - 43200);
	UPDATE teams SET account_events_until = max(account_events_until, new.created_at) + 4320 WHERE id = new.team_id;
	UPDATE users SET account_events_until = max(account_events_until, new.created_at) + 43200
	WHERE id = new.actor ->> 'userId' AND team_id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_retagged AFTER UPDATE OF tags ON files WHEN old.tags <> new.tags BEGIN
	DELETE FROM file_tags WHERE team_id = new.team_id AND (tag_key, tag) IN (SELECT value, key FROM json_each(old.search_keys, '$.tags'))
		AND file_id = new.id AND tag NOT IN (SELECT value FROM json_each(new.tags));
	INSERT OR IGNORE INTO file_tags
		SELECT new.team_id, value, key, new.id, new.user_id FROM json_each(new.search_keys, '$.tags');
END;
--> statement-breakpoint
-- No bug can delete a held file. The queries have this condition, too, so that they can say why. A file that leaves keeps its
-- receipt and measurement until its row in removed is deleted, and in the trash its links until it is erased. Other objects of its
-- upload are deleted soon, unless it is in the trash.
CREATE TRIGGER files_left AFTER DELETE ON files BEGIN
	SELECT RAISE(ABORT, 'The file is held.') WHERE old.hold IS NOT NULL;
	UPDATE teams SET files = files - 1, bytes = bytes - old.reserved_bytes
	WHERE id = old.team_id AND NOT EXISTS (SELECT 1 FROM removed WHERE team_id = old.team_id AND id = old.id);
	UPDATE uploads SET due_at = 0 WHERE team_id = old.team_id AND file_id = old.id AND has_leftovers
		AND NOT EXISTS (SELECT 1 FROM removed WHERE team_id = old.team_id AND id = old.id AND trashed_at IS NOT NULL);
	DELETE FROM uploads WHERE team_id = old.team_id AND file_id = old.id AND status = 'committed' AND NOT has_leftovers
		AND NOT EXISTS (SELECT 1 FROM removed WHERE team_id = old.team_id AND id = old.id);
	DELETE FROM links WHERE team_id = old.team_id AND file_id = old.id
		AND NOT EXISTS (SELECT 1 FROM removed WHERE team_id = old.team_id AND id = old.id AND trashed_at IS NOT NULL);
	DELETE FROM file_tags WHERE team_id = old.team_id
		AND (tag_key, tag) IN (SELECT value, key FROM json_each(old.search_keys, '$.tags')) AND file_id = old.id;
	DELETE FROM measurements WHERE team_id = old.team_id AND file_id = old.id
		AND NOT EXISTS (SELECT 1 FROM removed WHERE team_id = old.team_id AND id = old.id);
END;
--> statement-breakpoint
CREATE TRIGGER removed_trashed AFTER INSERT ON removed WHEN new.trashed_at IS NOT NULL BEGIN
	UPDATE teams SET trash_files = trash_files + 1, trash_bytes = trash_bytes + new.reserved_bytes WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER removed_resized AFTER UPDATE OF reserved_bytes ON removed WHEN old.reserved_bytes <> new.reserved_bytes BEGIN
	UPDATE teams SET
		bytes = bytes - old.reserved_bytes + new.reserved_bytes,
		trash_bytes = trash_bytes - old.reserved_bytes + new.reserved_bytes
	WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER removed_erased AFTER UPDATE OF trashed_at ON removed WHEN new.trashed_at IS NULL AND old.trashed_at IS NOT NULL BEGIN
	SELECT RAISE(ABORT, 'The file is held.') WHERE old.hold IS NOT NULL;
	UPDATE teams SET trash_files = trash_files - 1, trash_bytes = trash_bytes - old.reserved_bytes WHERE id = old.team_id;
	DELETE FROM links WHERE team_id = old.team_id AND file_id = old.id;
END;
--> statement-breakpoint
-- A file that is restored keeps its receipt and measurement. Otherwise, nothing of the file is left: the queries delete its row
-- in removed only after the last one in file_objects.
CREATE TRIGGER removed_gone AFTER DELETE ON removed BEGIN
	SELECT RAISE(ABORT, 'The file is held.')
	WHERE old.hold IS NOT NULL AND NOT EXISTS (SELECT 1 FROM files WHERE team_id = old.team_id AND id = old.id);
	UPDATE teams SET
		trash_files = trash_files - 1,
		trash_bytes = trash_bytes - old.reserved_bytes
	WHERE id = old.team_id AND old.trashed_at IS NOT NULL;
	UPDATE teams SET files = files - 1, bytes = bytes - old.reserved_bytes
	WHERE id = old.team_id AND NOT EXISTS (SELECT 1 FROM files WHERE team_id = old.team_id AND id = old.id);
	UPDATE uploads SET due_at = 0 WHERE team_id = old.team_id AND file_id = old.id AND has_leftovers
		AND NOT EXISTS (SELECT 1 FROM files WHERE team_id = old.team_id AND id = old.id);
	DELETE FROM uploads WHERE team_id = old.team_id AND file_id = old.id AND status = 'committed' AND NOT has_leftovers
		AND NOT EXISTS (SELECT 1 FROM files WHERE team_id = old.team_id AND id = old.id);
	DELETE FROM measurements WHERE team_id = old.team_id AND file_id = old.id
		AND NOT EXISTS (SELECT 1 FROM files WHERE team_id = old.team_id AND id = old.id);
END;
