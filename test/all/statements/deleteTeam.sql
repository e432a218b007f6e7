-- deleteTeam: DELETE /auth/v1/teams/{id}
-- 1 round trip, 10 rows read, 5 written

-- Round trip 1

-- batch.update.event: 4 rows read, 1 written
--   SEARCH teams EXISTS USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 4
--   SEARCH files USING INDEX files_held (team_id=?)
--   SCALAR SUBQUERY 5
--   SEARCH removed USING INDEX removed_held (team_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, null, ?,
  coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where
  exists (select 1 from teams where (teams.id = ? and teams.status <> ?))
  and coalesce(
    (
      select files.id
      from files indexed by files_held
      where (files.team_id = ? and files.hold is not null)
      limit 1
    ),
    (
      select removed.id
      from removed indexed by removed_held
      where (removed.team_id = ? and removed.hold is not null)
      limit 1
    )
  ) is null;

-- batch.update.change.event: 4 rows read, 1 written
--   SEARCH teams EXISTS USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 4
--   SEARCH files USING INDEX files_held (team_id=?)
--   SCALAR SUBQUERY 5
--   SEARCH removed USING INDEX removed_held (team_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, null, ?,
  coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where
  exists (select 1 from teams where (teams.id = ? and teams.status <> ?))
  and coalesce(
    (
      select files.id
      from files indexed by files_held
      where (files.team_id = ? and files.hold is not null)
      limit 1
    ),
    (
      select removed.id
      from removed indexed by removed_held
      where (removed.team_id = ? and removed.hold is not null)
      limit 1
    )
  ) is null;

-- batch.update.change.change: 1 row read, 3 written
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 1
--   SEARCH files USING INDEX files_held (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH removed USING INDEX removed_held (team_id=?)
update teams
set status = ?, updated_at = ?, version = teams.version + 1
where
  (
    (teams.id = ? and teams.status <> ?)
    and coalesce(
      (
        select files.id
        from files indexed by files_held
        where (files.team_id = ? and files.hold is not null)
        limit 1
      ),
      (
        select removed.id
        from removed indexed by removed_held
        where (removed.team_id = ? and removed.hold is not null)
        limit 1
      )
    ) is null
  );

-- batch.found: 1 row read
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 1
--   SEARCH files USING INDEX files_held (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH removed USING INDEX removed_held (team_id=?)
select
  id, name, status, max_bytes, max_files, files, bytes, trash_files, trash_bytes, notification_email,
  retention_days, retention_by, retention_reached, retention_due_at, public_bytes, unfinished_uploads,
  visitor_uploads, api_keys, links, folders, users, events_purged_to, account_events_until, admins,
  created_at, updated_at, version,
  coalesce(
    (select id from files indexed by files_held where (files.team_id = ? and files.hold is not null) limit 1),
    (
      select id
      from removed indexed by removed_held
      where (removed.team_id = ? and removed.hold is not null)
      limit 1
    )
  ) as held
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

-- followers.2: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
