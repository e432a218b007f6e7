-- listLinks: GET /docs/v1/uploads/{id}/links
-- 1 round trip, 3 rows read, 0 written

-- Round trip 1

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

-- rows: 1 row read
--   COMPOUND QUERY
--   LEFT-MOST SUBQUERY
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SEARCH links USING INDEX links_file (team_id=? AND file_id=?) LEFT-JOIN
--   UNION ALL
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   SEARCH links USING INDEX links_file (team_id=? AND file_id=?) LEFT-JOIN
select
  links.id, links.team_id, links.file_id, links.secret_hash, links.name, links.start_seconds,
  links.end_seconds, links.disposition, links.expires_at, links.created_at, links.key_id, links.user_id
from files left join links on (links.team_id = files.team_id and links.file_id = files.id)
where (files.team_id = ? and files.id = ?)
union all
select
  links.id, links.team_id, links.file_id, links.secret_hash, links.name, links.start_seconds,
  links.end_seconds, links.disposition, links.expires_at, links.created_at, links.key_id, links.user_id
from removed left join links on (links.team_id = removed.team_id and links.file_id = removed.id)
where (removed.team_id = ? and removed.id = ? and removed.trashed_at is not null)
limit ?;
