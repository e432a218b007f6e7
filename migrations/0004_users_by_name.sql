ALTER TABLE `users` ADD `full_name` text GENERATED ALWAYS AS (trim(first_name || ' ' || last_name)) VIRTUAL;--> statement-breakpoint
CREATE INDEX `users_name` ON `users` (`team_id`,`full_name`,`id`);