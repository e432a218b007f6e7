-- The owner of a file is a user: the column of users takes the place of the column of owners.
DROP INDEX `files_owner`;--> statement-breakpoint
DROP INDEX `files_owner_name`;--> statement-breakpoint
DROP INDEX `files_owner_folder`;--> statement-breakpoint
DROP INDEX `files_owner_trash`;--> statement-breakpoint
UPDATE `files` SET `owner_id` = `user_id` WHERE `owner_id` IS NOT `user_id`;--> statement-breakpoint
ALTER TABLE `files` DROP COLUMN `user_id`;--> statement-breakpoint
ALTER TABLE `files` RENAME COLUMN `owner_id` TO `user_id`;--> statement-breakpoint
CREATE INDEX `files_owner` ON `files` (`team_id`,`user_id`,`id`,`size_bytes`) WHERE size_bytes is not null and user_id is not null and name_key <> '';--> statement-breakpoint
CREATE INDEX `files_owner_name` ON `files` (`team_id`,`user_id`,`name_key`,`id`,`search_text`) WHERE size_bytes is not null and user_id is not null and name_key <> '';--> statement-breakpoint
CREATE INDEX `files_owner_folder` ON `files` (`team_id`,`user_id`,`folder_key`,`id`) WHERE size_bytes is not null and user_id is not null and folder <> '';--> statement-breakpoint
CREATE INDEX `files_owner_trash` ON `files` (`team_id`,`user_id`,`id`,`size_bytes`) WHERE trashed_at is not null and user_id is not null;--> statement-breakpoint
ALTER TABLE `api_keys` DROP COLUMN `own_files_only`;--> statement-breakpoint
ALTER TABLE `uploads` ADD `user_id` text;--> statement-breakpoint
UPDATE `uploads` SET `user_id` = (SELECT `user_id` FROM `files` WHERE `files`.`team_id` = `uploads`.`team_id` AND `files`.`id` = `uploads`.`file_id`);--> statement-breakpoint
DROP INDEX `uploads_unfinished`;--> statement-breakpoint
CREATE INDEX `uploads_unfinished` ON `uploads` (`team_id`,`file_id`,`is_public`,`key_id`,`user_id`) WHERE (is_finished = 0 or is_canceled = 1);--> statement-breakpoint
ALTER TABLE `files` ADD `delete_after_by` text;--> statement-breakpoint
ALTER TABLE `teams` ADD `retention_by` text;--> statement-breakpoint
ALTER TABLE `teams` ADD `events_purged_to` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `webhooks` ADD `key_id` text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE `webhooks` ADD `user_id` text;--> statement-breakpoint
-- Folders in the order of their paths, whoever created them.
CREATE TABLE `__new_folders` (
	`team_id` text NOT NULL,
	`owner_id` text NOT NULL,
	`folder_key` text NOT NULL,
	`created_at` integer NOT NULL,
	PRIMARY KEY(`team_id`, `folder_key`, `owner_id`)
) WITHOUT ROWID;
--> statement-breakpoint
INSERT INTO `__new_folders` SELECT `team_id`, `owner_id`, `folder_key`, `created_at` FROM `folders`;--> statement-breakpoint
DROP TABLE `folders`;--> statement-breakpoint
ALTER TABLE `__new_folders` RENAME TO `folders`;--> statement-breakpoint
CREATE INDEX `folders_owner` ON `folders` (`team_id`,`owner_id`,`folder_key`) WHERE owner_id <> '';--> statement-breakpoint
DROP TABLE `folder_changes`;--> statement-breakpoint
CREATE TABLE `folder_changes` (
	`team_id` text NOT NULL,
	`id` text NOT NULL,
	`owner_id` text NOT NULL,
	`folder` text NOT NULL,
	`target` text,
	`initiator` text NOT NULL,
	`created_at` integer NOT NULL,
	`position` text DEFAULT '["",""]' NOT NULL,
	`step_end` text,
	`due_at` integer NOT NULL,
	PRIMARY KEY(`team_id`, `owner_id`)
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `folder_changes_due` ON `folder_changes` (`due_at`);--> statement-breakpoint
ALTER TABLE `users` ADD `folders` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
UPDATE `users` SET `folders` = (SELECT count(*) FROM `folders` WHERE `team_id` = `users`.`team_id` AND `owner_id` = `users`.`id` AND `owner_id` <> '');--> statement-breakpoint
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
CREATE TRIGGER users_folders AFTER DELETE ON users BEGIN
	DELETE FROM folders WHERE team_id = old.team_id AND owner_id = old.id AND owner_id <> '';
END;
