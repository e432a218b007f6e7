DROP INDEX `files_held`;--> statement-breakpoint
DROP INDEX `files_trash_due`;--> statement-breakpoint
CREATE INDEX `files_held` ON `files` (`team_id`,`folder_key`,`id`) WHERE hold is not null;--> statement-breakpoint
CREATE INDEX `files_trash_due` ON `files` (`due_at`) WHERE trashed_at is not null and hold is null;