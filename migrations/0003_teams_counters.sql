-- Every team that has rows gets one here. A team without a name is named after its id.
INSERT INTO `teams` (id, name, status, files, bytes, api_keys, users, admins, created_at, updated_at)
	SELECT team_id, 'Team ' || team_id, 'active', files, bytes, api_keys, users, admins, unixepoch() * 1000, unixepoch() * 1000
	FROM `team_usage`;
--> statement-breakpoint
DROP TRIGGER files_counted;--> statement-breakpoint
DROP TRIGGER files_resized;--> statement-breakpoint
DROP TRIGGER files_uncounted;--> statement-breakpoint
DROP TRIGGER api_keys_counted;--> statement-breakpoint
DROP TRIGGER api_keys_uncounted;--> statement-breakpoint
DROP TRIGGER users_counted;--> statement-breakpoint
DROP TRIGGER users_uncounted;--> statement-breakpoint
DROP TRIGGER users_changed_role;--> statement-breakpoint
DROP TABLE `team_usage`;
--> statement-breakpoint
-- teams contains totals per team, maintained by triggers so that no code path can miss an update. A file counts while it
-- reserves bytes: a cancelled upload reserves none, and its row may stay for a while.
CREATE TRIGGER files_counted AFTER INSERT ON files BEGIN
	UPDATE teams SET files = files + (new.reserved_bytes > 0), bytes = bytes + new.reserved_bytes WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_resized AFTER UPDATE OF reserved_bytes ON files WHEN old.reserved_bytes <> new.reserved_bytes BEGIN
	UPDATE teams SET
		files = files - (old.reserved_bytes > 0) + (new.reserved_bytes > 0),
		bytes = bytes - old.reserved_bytes + new.reserved_bytes
	WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER files_uncounted AFTER DELETE ON files WHEN old.reserved_bytes > 0 BEGIN
	UPDATE teams SET files = files - 1, bytes = bytes - old.reserved_bytes WHERE id = old.team_id;
END;
--> statement-breakpoint
-- Sessions do not count.
CREATE TRIGGER api_keys_counted AFTER INSERT ON api_keys WHEN new.kind <> 'session' BEGIN
	UPDATE teams SET api_keys = api_keys + 1 WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER api_keys_uncounted AFTER DELETE ON api_keys WHEN old.kind <> 'session' BEGIN
	UPDATE teams SET api_keys = api_keys - 1 WHERE id = old.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_counted AFTER INSERT ON users BEGIN
	UPDATE teams SET users = users + 1, admins = admins + (new.role = 'admin') WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_changed_role AFTER UPDATE OF role ON users WHEN old.role <> new.role BEGIN
	UPDATE teams SET admins = admins - (old.role = 'admin') + (new.role = 'admin') WHERE id = new.team_id;
END;
--> statement-breakpoint
CREATE TRIGGER users_uncounted AFTER DELETE ON users BEGIN
	UPDATE teams SET users = users - 1, admins = admins - (old.role = 'admin') WHERE id = old.team_id;
END;
