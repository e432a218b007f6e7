CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`uuid` text NOT NULL,
	`name` text NOT NULL,
	`is_public` integer NOT NULL,
	`token_hash` text NOT NULL,
	`sealed_token` text NOT NULL,
	`sealed_with` text NOT NULL,
	`user_id` text,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_token_hash` ON `api_keys` (`token_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_team` ON `api_keys` (`team_id`,`id`);--> statement-breakpoint
CREATE INDEX `api_keys_sealed_with` ON `api_keys` (`sealed_with`);--> statement-breakpoint
CREATE INDEX `api_keys_user` ON `api_keys` (`user_id`) WHERE user_id is not null;--> statement-breakpoint
CREATE INDEX `api_keys_login_expiry` ON `api_keys` (`expires_at`) WHERE user_id is not null;--> statement-breakpoint
CREATE TABLE `files` (
	`id` text PRIMARY KEY NOT NULL,
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
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE INDEX `files_team_listed` ON `files` (`team_id`,`id`) WHERE status not in ('receiving', 'deleting');--> statement-breakpoint
CREATE INDEX `files_due` ON `files` (`status`,`due_at`) WHERE due_at is not null;--> statement-breakpoint
CREATE UNIQUE INDEX `files_idempotency` ON `files` (`team_id`,`idempotency_key`) WHERE idempotency_key is not null;--> statement-breakpoint
CREATE TABLE `team_usage` (
	`team_id` text PRIMARY KEY NOT NULL,
	`files` integer NOT NULL,
	`bytes` integer NOT NULL
);
--> statement-breakpoint
CREATE TABLE `users` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`first_name` text NOT NULL,
	`last_name` text NOT NULL,
	`email` text NOT NULL,
	`email_key` text NOT NULL,
	`password` text NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `users_team_email` ON `users` (`team_id`,`email_key`);--> statement-breakpoint
CREATE INDEX `users_team` ON `users` (`team_id`,`id`);