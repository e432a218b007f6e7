CREATE TABLE `recovery` (
	`id` integer PRIMARY KEY NOT NULL,
	`recovered_at` integer NOT NULL,
	`requested_at` integer NOT NULL
);
