DROP INDEX `uploads_unfinished`;--> statement-breakpoint
CREATE INDEX `uploads_unfinished` ON `uploads` (`team_id`,`file_id`,`is_public`) WHERE is_finished = 0;--> statement-breakpoint
ALTER TABLE `api_keys` ADD `upload_count` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `files` ADD `public_key_id` text;--> statement-breakpoint
ALTER TABLE `files` ADD `allowed_types` text;--> statement-breakpoint
ALTER TABLE `teams` ADD `public_bytes` integer DEFAULT 0 NOT NULL;
--> statement-breakpoint
DROP TRIGGER files_counted;--> statement-breakpoint
DROP TRIGGER files_resized;--> statement-breakpoint
-- public_bytes counts an upload of a public key while it is receiving.
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
	UPDATE teams SET
		files = files + (new.reserved_bytes > 0),
		bytes = bytes + new.reserved_bytes,
		public_bytes = public_bytes + iif(new.public_key_id IS NULL, 0, new.reserved_bytes)
	WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_resized AFTER UPDATE OF reserved_bytes, status ON files
WHEN old.reserved_bytes <> new.reserved_bytes
	OR old.public_key_id IS NOT NULL AND old.status = 'receiving' AND new.status <> 'receiving' BEGIN
	UPDATE teams SET
		files = files - (old.reserved_bytes > 0) + (new.reserved_bytes > 0),
		bytes = bytes - old.reserved_bytes + new.reserved_bytes,
		public_bytes = public_bytes
			- iif(old.public_key_id IS NOT NULL AND old.status = 'receiving', old.reserved_bytes, 0)
			+ iif(new.public_key_id IS NOT NULL AND new.status = 'receiving', new.reserved_bytes, 0)
	WHERE id = new.team_id;
END;
--> statement-breakpoint
-- upload_count: an upload that does not complete is given back once, when it is hidden.
CREATE TRIGGER files_counted_by_key AFTER INSERT ON files WHEN new.public_key_id IS NOT NULL BEGIN
	UPDATE api_keys SET upload_count = upload_count + 1 WHERE id = new.public_key_id AND limits IS NOT NULL;
END;
--> statement-breakpoint
CREATE TRIGGER files_given_back_to_key AFTER UPDATE OF status ON files
WHEN new.public_key_id IS NOT NULL AND old.status = 'receiving' AND new.status = 'deleting' BEGIN
	UPDATE api_keys SET upload_count = upload_count - 1 WHERE id = new.public_key_id AND limits IS NOT NULL;
END;
