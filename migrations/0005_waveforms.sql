CREATE TABLE `waveforms` (
	`file_id` text NOT NULL,
	`team_id` text NOT NULL,
	`channel_count` integer NOT NULL,
	`peaks` blob NOT NULL,
	PRIMARY KEY(`team_id`, `file_id`)
) WITHOUT ROWID;
--> statement-breakpoint
-- In the same transaction, so that no code path can forget it. A row of files is removed only once it is hidden.
CREATE TRIGGER files_hidden AFTER UPDATE OF status ON files WHEN new.status = 'deleting' BEGIN
	DELETE FROM waveforms WHERE team_id = new.team_id AND file_id = new.id;
END;
