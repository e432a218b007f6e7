CREATE TABLE `upload_parts` (
	`file_id` text NOT NULL,
	`number` integer NOT NULL,
	`etag` text NOT NULL,
	`md5` text NOT NULL,
	PRIMARY KEY(`file_id`, `number`)
);
--> statement-breakpoint
CREATE TABLE `uploads` (
	`file_id` text PRIMARY KEY NOT NULL,
	`team_id` text NOT NULL,
	`secret_hash` text NOT NULL,
	`size_bytes` integer NOT NULL,
	`offset_bytes` integer DEFAULT 0 NOT NULL,
	`part_bytes` integer NOT NULL,
	`metadata` text NOT NULL,
	`sha256` text,
	`multipart_id` text,
	`mime_type` text,
	`file_type` text,
	`next_part` integer DEFAULT 1 NOT NULL,
	`stash` text,
	`epoch` integer DEFAULT 0 NOT NULL,
	`is_writing` integer DEFAULT false NOT NULL,
	`is_finished` integer DEFAULT false NOT NULL,
	`created_at` integer NOT NULL,
	`due_at` integer NOT NULL
);
--> statement-breakpoint
CREATE INDEX `uploads_due` ON `uploads` (`due_at`);--> statement-breakpoint
CREATE INDEX `uploads_unfinished` ON `uploads` (`team_id`) WHERE is_finished = 0;