-- Rebuilds the tables: nothing is deployed, so there are no rows to keep.
DROP TABLE `api_keys`;
--> statement-breakpoint
CREATE TABLE `api_keys` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`uuid` text NOT NULL,
	`name` text NOT NULL,
	`kind` text NOT NULL,
	`scopes` integer,
	`token_hash` text NOT NULL,
	`encrypted_token` text,
	`encrypted_with` text,
	`created_by_key_id` text,
	`user_id` text,
	`last_used_at` integer,
	`limits` text,
	`lifetime` integer NOT NULL,
	`created_at` integer NOT NULL,
	`expires_at` integer NOT NULL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `api_keys_token_hash` ON `api_keys` (`token_hash`);--> statement-breakpoint
CREATE INDEX `api_keys_team` ON `api_keys` (`team_id`,`id`) WHERE kind <> 'session';--> statement-breakpoint
CREATE INDEX `api_keys_id` ON `api_keys` (`id`) WHERE kind <> 'session';--> statement-breakpoint
CREATE INDEX `api_keys_encrypted_with` ON `api_keys` (`encrypted_with`) WHERE encrypted_with is not null;--> statement-breakpoint
CREATE INDEX `api_keys_user` ON `api_keys` (`user_id`) WHERE user_id is not null;--> statement-breakpoint
CREATE INDEX `api_keys_expiry` ON `api_keys` (`expires_at`) WHERE kind <> 'session';--> statement-breakpoint
CREATE INDEX `api_keys_session_expiry` ON `api_keys` (`expires_at`) WHERE kind = 'session';--> statement-breakpoint
CREATE INDEX `api_keys_session_creator` ON `api_keys` (`created_by_key_id`) WHERE kind = 'session' and created_by_key_id is not null;
--> statement-breakpoint
CREATE TRIGGER api_keys_counted AFTER INSERT ON api_keys WHEN new.kind <> 'session' BEGIN
	INSERT INTO team_usage (team_id, files, bytes, api_keys) VALUES (new.team_id, 0, 0, 1)
	ON CONFLICT (team_id) DO UPDATE SET api_keys = api_keys + 1;
END;
--> statement-breakpoint
CREATE TRIGGER api_keys_uncounted AFTER DELETE ON api_keys WHEN old.kind <> 'session' BEGIN
	UPDATE team_usage SET api_keys = api_keys - 1 WHERE team_id = old.team_id;
END;
--> statement-breakpoint
DROP TABLE `users`;
--> statement-breakpoint
CREATE TABLE `users` (
	`id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`first_name` text NOT NULL,
	`last_name` text NOT NULL,
	`email` text NOT NULL,
	`email_key` text NOT NULL,
	`password` text NOT NULL,
	`role` text NOT NULL,
	`created_at` integer NOT NULL,
	`updated_at` integer NOT NULL,
	`version` integer DEFAULT 0 NOT NULL,
	`full_name` text GENERATED ALWAYS AS (trim(first_name || ' ' || last_name)) VIRTUAL
);
--> statement-breakpoint
CREATE UNIQUE INDEX `users_team_email` ON `users` (`team_id`,`email_key`);--> statement-breakpoint
CREATE INDEX `users_team` ON `users` (`team_id`,`id`);--> statement-breakpoint
CREATE INDEX `users_name` ON `users` (`team_id`,`full_name`,`id`);
--> statement-breakpoint
ALTER TABLE `team_usage` ADD `admins` integer DEFAULT 0 NOT NULL;
--> statement-breakpoint
CREATE TRIGGER users_counted AFTER INSERT ON users BEGIN
	INSERT INTO team_usage (team_id, files, bytes, users, admins) VALUES (new.team_id, 0, 0, 1, new.role = 'admin')
	ON CONFLICT (team_id) DO UPDATE SET users = users + 1, admins = admins + excluded.admins;
END;
--> statement-breakpoint
CREATE TRIGGER users_changed_role AFTER UPDATE OF role ON users WHEN old.role <> new.role BEGIN
	UPDATE team_usage SET admins = admins - (old.role = 'admin') + (new.role = 'admin') WHERE team_id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_uncounted AFTER DELETE ON users BEGIN
	UPDATE team_usage SET users = users - 1, admins = admins - (old.role = 'admin') WHERE team_id = old.team_id;
END;
