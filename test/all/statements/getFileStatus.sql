-- getFileStatus: GET /docs/v1/uploads/{id}/status
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
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?) LEFT-JOIN
select
  files.status, files.failure_code, files.failure_message, files.key_id, uploads.upload_token_id,
  uploads.finished_by_token_id
from files left join uploads on (files.team_id = uploads.team_id and files.id = uploads.file_id)
where (files.team_id = ? and files.id = ?);
