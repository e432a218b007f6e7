-- deleteResumableUpload: DELETE /docs/v1/uploads/resumable/{upload}
-- R2: list, delete
-- 4 round trips, 18 rows read, 7 written

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

-- the only query: 1 row read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
select file_id
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

-- Round trip 3

-- right: 2 rows read
--   CO-ROUTINE one
--   SCAN CONSTANT ROW
--   SCAN one
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?) LEFT-JOIN
--   SEARCH teams USING PRIMARY KEY (id=?) LEFT-JOIN
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
select
  json_extract(
    '{}',
    coalesce(
      case
        when teams.id is null then 'token_invalid'
        when teams.status = 'suspended' then 'team_suspended'
        when ? & ~ coalesce(
          api_keys.scopes,
          (
            select json_extract(?, '$.' || role)
            from users
            where (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
          ), 0
        ) <> 0 then 'lacks_' || (
          ? & ~ coalesce(
            api_keys.scopes,
            (
              select json_extract(?, '$.' || role)
              from users
              where (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
            ), 0
          )
        )
      end, '$'
    )
  )
from
  (select 1) one
  left join api_keys on (
    (api_keys.id = ? and api_keys.team_id = ?)
    and api_keys.expires_at > ? - iif(api_keys.kind = 'public', ?, 0)
  )
  left join teams on (teams.id = api_keys.team_id and teams.status <> ?);

-- cancel: 1 row read, 4 written
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
update uploads
set
  status = ?, idempotency_key = ?,
  due_at = iif(
    uploads.secret_hash is not null,
    iif((uploads.is_writing or uploads.fenced_off > 0) or not uploads.secret_hash is not null, ?, ?),
    min(
      due_at, iif((uploads.is_writing or uploads.fenced_off > 0) or not uploads.secret_hash is not null, ?, ?)
    )
  ), metadata = ?, properties = ?, chunks = ?
where (uploads.status = 'receiving' and (uploads.team_id = ? and uploads.file_id = ?));

-- upload: 1 row read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
select
  team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
  idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
  secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
  multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers
from uploads
where (uploads.team_id = ? and uploads.file_id = ?);

-- file: 0 rows read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
select id
from files
where (files.team_id = ? and files.id = ?);

-- Round trip 4

-- parts: 5 rows read
--   SEARCH upload_parts USING PRIMARY KEY (file_id=?)
--   LIST SUBQUERY 2
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   LIST SUBQUERY 3
--   SCAN json_each VIRTUAL TABLE INDEX 1:
delete from upload_parts
where
  upload_parts.file_id in (
    select file_id
    from uploads
    where
      (
        (uploads.team_id, uploads.file_id) in (select value ->> 'teamId', value ->> 'id' from json_each(?))
        and uploads.status <> 'receiving'
      )
  );

-- uploads: 6 rows read, 3 written
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   LIST SUBQUERY 2
--   SCAN json_each VIRTUAL TABLE INDEX 1:
delete from uploads
where
  (
    (uploads.team_id, uploads.file_id) in (select value ->> 'teamId', value ->> 'id' from json_each(?))
    and uploads.status <> 'receiving'
  );
