-- team_usage is the sum of a team's rows in files, kept by the database itself, so that no code path can forget it.
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
	INSERT INTO team_usage (team_id, files, bytes) VALUES (new.team_id, 1, new.reserved_bytes)
	ON CONFLICT (team_id) DO UPDATE SET files = files + 1, bytes = bytes + new.reserved_bytes;
END;
--> statement-breakpoint
CREATE TRIGGER files_resized AFTER UPDATE OF reserved_bytes ON files BEGIN
	UPDATE team_usage SET bytes = bytes - old.reserved_bytes + new.reserved_bytes WHERE team_id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_uncounted AFTER DELETE ON files BEGIN
	UPDATE team_usage SET files = files - 1, bytes = bytes - old.reserved_bytes WHERE team_id = old.team_id;
END;
