-- createTeam: POST /auth/v1/teams
-- 4 round trips, 11 rows read, 16 written

-- Round trip 1

-- the only query: 1 row read
--   SEARCH recovery USING INTEGER PRIMARY KEY (rowid=?)
select recovered_at
from recovery
where id = 1;

-- Round trip 2

-- the only query: 1 row read
--   SEARCH recovery USING INTEGER PRIMARY KEY (rowid=?)
select recovered_at
from recovery
where id = 1;

-- Round trip 3

-- the only query: 1 row read
--   SEARCH recovery USING INTEGER PRIMARY KEY (rowid=?)
select recovered_at
from recovery
where id = 1;

-- Round trip 4

-- batch.team.event: 1 row read, 1 written
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 3
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, null, ?,
  coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where not exists (select 1 from teams where teams.id = ?);

-- batch.team.change.event: 3 rows read, 1 written
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 3
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, null, ?,
  coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where not exists (select 1 from teams where teams.id = ?);

-- batch.team.change.change: 0 rows read, 4 written
insert into
  teams (
    id, name, status, max_bytes, max_files, files, bytes, trash_files, trash_bytes, notification_email,
    retention_days, retention_by, retention_reached, retention_due_at, public_bytes, unfinished_uploads,
    visitor_uploads, api_keys, links, folders, users, events_purged_to, account_events_until, admins,
    created_at, updated_at, version
  )
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- batch.key.change: 1 row read, 9 written
insert into
  api_keys (
    id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
    origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
    created_at, expires_at, expiry_notice_at, version
  )
values (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
on conflict do nothing;

-- batch.key.event: 3 rows read, 1 written
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, ?, ?, coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where changes() > 0;

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));

-- followers.2: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));

-- followers.3: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
