CREATE TABLE `__new_api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`uuid` text NOT NULL,
	`name` text NOT NULL,
	`is_public` integer NOT NULL,
	`token_hash` text NOT NULL,
	`sealed_token` text,
	`sealed_with` text,
	`user_id` text,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
INSERT INTO `__new_api_keys`("id", "team_id", "uuid", "name", "is_public", "token_hash", "sealed_token", "sealed_with", "user_id", "created_at", "expires_at") SELECT "id", "team_id", "uuid", "name", "is_public", "token_hash", "sealed_token", "sealed_with", "user_id", "created_at", "expires_at" FROM `api_keys`;--> statement-breakpoint
DROP TABLE `api_keys`;--> statement-breakpoint
ALTER TABLE `__new_api_keys` RENAME TO `api_keys`;--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_token_hash` ON `api_keys` (`token_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_team` ON `api_keys` (`team_id`,`id`) WHERE sealed_token is not null;--> statement-breakpoint
CREATE INDEX `api_keys_id` ON `api_keys` (`id`) WHERE sealed_token is not null;--> statement-breakpoint
CREATE INDEX `api_keys_sealed_with` ON `api_keys` (`sealed_with`) WHERE sealed_with is not null;--> statement-breakpoint
CREATE INDEX `api_keys_user` ON `api_keys` (`user_id`) WHERE user_id is not null;--> statement-breakpoint
CREATE INDEX `api_keys_expiry` ON `api_keys` (`expires_at`) WHERE sealed_token is not null;--> statement-breakpoint
CREATE INDEX `api_keys_login_expiry` ON `api_keys` (`expires_at`) WHERE sealed_token is null;--> statement-breakpoint
ALTER TABLE `team_usage` ADD `api_keys` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `team_usage` ADD `users` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
CREATE TRIGGER api_keys_counted AFTER INSERT ON api_keys WHEN new.sealed_token IS NOT NULL BEGIN
	INSERT INTO team_usage (team_id, files, bytes, api_keys) VALUES (new.team_id, 0, 0, 1)
	ON CONFLICT (team_id) DO UPDATE SET api_keys = api_keys + 1;
END;
--> statement-breakpoint
CREATE TRIGGER api_keys_uncounted AFTER DELETE ON api_keys WHEN old.sealed_token IS NOT NULL BEGIN
	UPDATE team_usage SET api_keys = api_keys - 1 WHERE team_id = old.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_counted AFTER INSERT ON users BEGIN
	INSERT INTO team_usage (team_id, files, bytes, users) VALUES (new.team_id, 0, 0, 1)
	ON CONFLICT (team_id) DO UPDATE SET users = users + 1;
END;
--> statement-breakpoint
CREATE TRIGGER users_uncounted AFTER DELETE ON users BEGIN
	UPDATE team_usage SET users = users - 1 WHERE team_id = old.team_id;
END;
