CREATE TABLE `file_tags` (
	`team_id` text NOT NULL,
	`tag` text NOT NULL,
	`file_id` text NOT NULL,
	PRIMARY KEY(`team_id`, `tag`, `file_id`)
) WITHOUT ROWID;
--> statement-breakpoint
DROP INDEX `files_name`;--> statement-breakpoint
ALTER TABLE `files` ADD `name` text;--> statement-breakpoint
ALTER TABLE `files` ADD `name_key` text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE `files` ADD `folder` text DEFAULT '' NOT NULL;--> statement-breakpoint
ALTER TABLE `files` ADD `reference` text;--> statement-breakpoint
ALTER TABLE `files` ADD `tags` text DEFAULT '[]' NOT NULL;--> statement-breakpoint
ALTER TABLE `files` ADD `metadata` text DEFAULT '{}' NOT NULL;--> statement-breakpoint
ALTER TABLE `files` ADD `claim` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `files` ADD `folder_key` text GENERATED ALWAYS AS (replace(folder, '/', char(1))) VIRTUAL;--> statement-breakpoint
CREATE INDEX `files_folder` ON `files` (`team_id`,`folder_key`,`id`) WHERE folder <> '';--> statement-breakpoint
CREATE INDEX `files_folder_name` ON `files` (`team_id`,`folder_key`,`name_key`,`id`) WHERE folder <> '';--> statement-breakpoint
CREATE INDEX `files_reference` ON `files` (`team_id`,`reference`,`id`) WHERE reference is not null;--> statement-breakpoint
CREATE INDEX `files_name` ON `files` (`team_id`,`name_key`,`id`);
--> statement-breakpoint
-- file_tags has the tags of the files that are not being deleted. A file without tags costs no row.
CREATE TRIGGER files_tagged AFTER INSERT ON files WHEN new.tags <> '[]' BEGIN
	INSERT INTO file_tags SELECT new.team_id, value, new.id FROM json_each(new.tags);
END;
--> statement-breakpoint
CREATE TRIGGER files_retagged AFTER UPDATE OF tags ON files WHEN old.tags <> new.tags BEGIN
	DELETE FROM file_tags WHERE team_id = new.team_id AND tag IN (SELECT value FROM json_each(old.tags)) AND file_id = new.id
		AND tag NOT IN (SELECT value FROM json_each(new.tags));
	INSERT OR IGNORE INTO file_tags SELECT new.team_id, value, new.id FROM json_each(new.tags);
END;
--> statement-breakpoint
CREATE TRIGGER files_hidden_tags AFTER UPDATE OF status ON files WHEN new.status = 'deleting' AND new.tags <> '[]' BEGIN
	DELETE FROM file_tags WHERE team_id = new.team_id AND tag IN (SELECT value FROM json_each(new.tags)) AND file_id = new.id;
END;
--> statement-breakpoint
CREATE TRIGGER files_untagged AFTER DELETE ON files WHEN old.tags <> '[]' BEGIN
	DELETE FROM file_tags WHERE team_id = old.team_id AND tag IN (SELECT value FROM json_each(old.tags)) AND file_id = old.id;
END;
