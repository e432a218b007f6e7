CREATE TABLE `teams` (
	`id` text PRIMARY KEY NOT NULL,
	`name` text NOT NULL,
	`status` text NOT NULL,
	`max_bytes` integer,
	`max_files` integer,
	`files` integer DEFAULT 0 NOT NULL,
	`bytes` integer DEFAULT 0 NOT NULL,
	`api_keys` integer DEFAULT 0 NOT NULL,
	`users` integer DEFAULT 0 NOT NULL,
	`admins` integer DEFAULT 0 NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL
) WITHOUT ROWID;
--> statement-breakpoint
CREATE INDEX `teams_name` ON `teams` (`name`,`id`);--> statement-breakpoint
CREATE INDEX `teams_status` ON `teams` (`status`,`id`);--> statement-breakpoint
CREATE INDEX `teams_status_name` ON `teams` (`status`,`name`,`id`);--> statement-breakpoint
CREATE INDEX `api_keys_team_sessions` ON `api_keys` (`team_id`,`id`) WHERE kind = 'session';