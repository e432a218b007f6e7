-- Their new columns have no value for uploads that are there, and nothing is deployed.
DELETE FROM `uploads`;
--> statement-breakpoint
DROP INDEX `uploads_unfinished`;--> statement-breakpoint
ALTER TABLE `uploads` ADD `key_id` text NOT NULL;--> statement-breakpoint
ALTER TABLE `uploads` ADD `is_public` integer NOT NULL;--> statement-breakpoint
CREATE INDEX `uploads_unfinished` ON `uploads` (`team_id`,`file_id`,`is_public`,`size_bytes`) WHERE is_finished = 0;