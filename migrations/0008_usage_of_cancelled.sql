-- A file counts for as long as it reserves bytes: a cancelled upload reserves none, and its row may stay for a while.
DROP TRIGGER files_counted;
--> statement-breakpoint
DROP TRIGGER files_resized;
--> statement-breakpoint
DROP TRIGGER files_uncounted;
--> statement-breakpoint
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
	INSERT INTO team_usage (team_id, files, bytes) VALUES (new.team_id, new.reserved_bytes > 0, new.reserved_bytes)
	ON CONFLICT (team_id) DO UPDATE SET files = files + excluded.files, bytes = bytes + excluded.bytes;
END;
--> statement-breakpoint
CREATE TRIGGER files_resized AFTER UPDATE OF reserved_bytes ON files WHEN old.reserved_bytes <> new.reserved_bytes BEGIN
	UPDATE team_usage SET
		files = files - (old.reserved_bytes > 0) + (new.reserved_bytes > 0),
		bytes = bytes - old.reserved_bytes + new.reserved_bytes
	WHERE team_id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_uncounted AFTER DELETE ON files WHEN old.reserved_bytes > 0 BEGIN
	UPDATE team_usage SET files = files - 1, bytes = bytes - old.reserved_bytes WHERE team_id = old.team_id;
END;
