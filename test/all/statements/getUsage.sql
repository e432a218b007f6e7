-- getUsage: GET /docs/v1/usage
-- 2 round trips, 7 rows read, 0 written

-- Round trip 1

-- the only query: 2 rows read
--   SEARCH api_keys USING INDEX api_keys_token_hash (token_hash=?)
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
select
  api_keys.id, api_keys.team_id, api_keys.user_id, api_keys.kind, teams.status,
  coalesce(
    api_keys.scopes,
    (
      select json_extract(?, '$.' || role)
      from users
      where (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
    ), 0
  ),
  iif(
    exists (
      select 1
      from users
      where ((users.id = api_keys.user_id and users.team_id = api_keys.team_id) and users.role = ?)
    ), api_keys.user_id, null
  )
from api_keys inner join teams on (teams.id = api_keys.team_id and teams.status <> ?)
where api_keys.token_hash = ? and api_keys.expires_at > ? - iif(api_keys.kind = 'public', ?, 0);

-- Round trip 2

-- caller: 2 rows read
--   SEARCH api_keys USING INDEX api_keys_token_hash (token_hash=?)
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
select
  api_keys.id, api_keys.team_id, api_keys.user_id, api_keys.kind, teams.status,
  coalesce(
    api_keys.scopes,
    (
      select json_extract(?, '$.' || role)
      from users
      where (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
    ), 0
  ),
  iif(
    exists (
      select 1
      from users
      where ((users.id = api_keys.user_id and users.team_id = api_keys.team_id) and users.role = ?)
    ), api_keys.user_id, null
  )
from api_keys inner join teams on (teams.id = api_keys.team_id and teams.status <> ?)
where api_keys.token_hash = ? and api_keys.expires_at > ? - iif(api_keys.kind = 'public', ?, 0);

-- rows: 3 rows read
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=? AND seq>?)
select
  files, bytes, trash_files, trash_bytes, max_files, max_bytes,
  (
    select position
    from events
    where team_id = teams.id
    order by seq desc
    limit 1
  ) - (
    select position - (type >= ? and type < ? or type >= ? and type < ?)
    from events
    where team_id = teams.id and seq > teams.events_purged_to
    order by seq
    limit 1
  )
from teams
where teams.id = ?;
