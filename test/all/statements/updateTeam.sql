-- updateTeam: PATCH /auth/v1/teams/{id}
-- 1 round trip, 7 rows read, 4 written

-- Round trip 1

-- batch.update.change: 2 rows read, 3 written
--   SEARCH teams USING PRIMARY KEY (id=?)
update teams
set status = ?, updated_at = ?, version = teams.version + 1
where (teams.id = ? and case when teams.status = ? then ? end is null)
returning
  id, name, status, max_bytes, max_files, files, bytes, trash_files, trash_bytes, notification_email,
  retention_days, retention_by, retention_reached, retention_due_at, public_bytes, unfinished_uploads,
  visitor_uploads, api_keys, links, folders, users, events_purged_to, account_events_until, admins,
  created_at, updated_at, version;

-- batch.update.event: 4 rows read, 1 written
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 3
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, (select teams.version from teams where teams.id = ? and teams.id = ?),
  ?, coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where changes() > 0;

-- batch.found: 1 row read
--   SEARCH teams USING PRIMARY KEY (id=?)
select case when teams.status = ? then ? end
from teams
where teams.id = ?;

-- batch.followers: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where followers.team_id = ?;

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
