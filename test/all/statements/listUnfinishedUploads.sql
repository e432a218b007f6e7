-- listUnfinishedUploads: GET /docs/v1/uploads/resumable
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
--   SEARCH uploads USING INDEX uploads_reserved (team_id=? AND file_id<?)
select
  file_id as id, original_name as name, size_bytes as sizeBytes, offset_bytes as offsetBytes, key_id as keyId,
  uploads.secret_hash is not null as isResumable, uploads.status = 'canceled' as isCanceled,
  created_at as createdAt, due_at as expiresAt
from uploads indexed by uploads_reserved
where (uploads.team_id = ? and uploads.status <> 'committed' and uploads.file_id < ?)
order by uploads.file_id desc
limit ?;
