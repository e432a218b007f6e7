DROP TRIGGER files_hidden;--> statement-breakpoint
DROP TABLE `waveforms`;--> statement-breakpoint
ALTER TABLE `files` ADD `waveform_writing_since` integer;