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
CREATE INDEX `links_expiry` ON `links` (`expires_at`) WHERE expires_at is not null;
--> statement-breakpoint
-- In the same transaction, so that no code path can forget it.
CREATE TRIGGER files_hidden_links AFTER UPDATE OF status ON files WHEN new.status = 'deleting' BEGIN
	DELETE FROM links WHERE team_id = new.team_id AND file_id = new.id;
END;
