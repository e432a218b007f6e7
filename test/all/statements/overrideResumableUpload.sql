-- overrideResumableUpload: POST /docs/v1/uploads/resumable/{upload}
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
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
select
  team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
  idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
  secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
  multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers
from uploads
where
  (
    uploads.team_id = ?
    and (uploads.file_id = ? and uploads.secret_hash = ?)
    and (
      uploads.status = 'receiving'
      or uploads.status = 'committed'
      and exists (select 1 from files where (files.team_id = uploads.team_id and files.id = uploads.file_id))
    )
  );
