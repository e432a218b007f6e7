ALTER TABLE `webhooks` ADD `lease_id` text;--> statement-breakpoint
ALTER TABLE `webhooks` ADD `lease_ends_at` integer DEFAULT 0 NOT NULL;--> statement-breakpoint
ALTER TABLE `webhooks` ADD `failure_bodies` text DEFAULT '[]' NOT NULL;--> statement-breakpoint
ALTER TABLE `webhooks` DROP COLUMN `own_host`;--> statement-breakpoint
ALTER TABLE `deliveries` DROP COLUMN `sent_at`;