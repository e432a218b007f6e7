-- The new column has no value for events that are there, and nothing is deployed.
DELETE FROM `events`;
--> statement-breakpoint
DROP INDEX `uploads_due`;--> statement-breakpoint
CREATE INDEX `uploads_awaiting_assembly` ON `uploads` (`due_at`) WHERE is_finished = 0 and offset_bytes = size_bytes;--> statement-breakpoint
CREATE INDEX `uploads_incomplete` ON `uploads` (`due_at`) WHERE is_finished = 0 and offset_bytes < size_bytes;--> statement-breakpoint
ALTER TABLE `uploads` DROP COLUMN `sha256`;--> statement-breakpoint
ALTER TABLE `events` ADD `position` integer NOT NULL;--> statement-breakpoint
ALTER TABLE `files` ADD `stated_sha256` text;