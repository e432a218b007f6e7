-- listTeams: GET /auth/v1/teams
-- 3 round trips, 3 rows read, 0 written

-- Round trip 1

-- the only query: 1 row read
--   SEARCH teams USING PRIMARY KEY (id<?)
select
  id, name, status, max_bytes, max_files, files, bytes, trash_files, trash_bytes, notification_email,
  retention_days, retention_by, retention_reached, retention_due_at, public_bytes, unfinished_uploads,
  visitor_uploads, api_keys, links, folders, users, events_purged_to, account_events_until, admins,
  created_at, updated_at, version
from teams
where teams.id < ?
order by teams.id desc
limit ?;

-- Round trip 2

-- the only query: 1 row read
--   SEARCH teams USING PRIMARY KEY (id<?)
select
  id, name, status, max_bytes, max_files, files, bytes, trash_files, trash_bytes, notification_email,
  retention_days, retention_by, retention_reached, retention_due_at, public_bytes, unfinished_uploads,
  visitor_uploads, api_keys, links, folders, users, events_purged_to, account_events_until, admins,
  created_at, updated_at, version
from teams
where teams.id < ?
order by teams.id desc
limit ?;

-- Round trip 3

-- the only query: 1 row read
--   SEARCH teams USING PRIMARY KEY (id<?)
select
  id, name, status, max_bytes, max_files, files, bytes, trash_files, trash_bytes, notification_email,
  retention_days, retention_by, retention_reached, retention_due_at, public_bytes, unfinished_uploads,
  visitor_uploads, api_keys, links, folders, users, events_purged_to, account_events_until, admins,
  created_at, updated_at, version
from teams
where teams.id < ?
order by teams.id desc
limit ?;
