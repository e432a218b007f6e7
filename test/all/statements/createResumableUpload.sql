-- createResumableUpload: POST /docs/v1/uploads/resumable
-- 2 round trips, 15 rows read, 9 written

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

-- creation.quota.refusal: 2 rows read
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?) LEFT-JOIN
--   SEARCH replaced USING INDEX uploads_idempotency (team_id=? AND idempotency_key=?) LEFT-JOIN
--   SEARCH visitors USING PRIMARY KEY (team_id=? AND id=?) LEFT-JOIN
select
  case
    when teams.status = 'deleting'
    or api_keys.id is null then ?
    when ? > coalesce(json_extract(api_keys.limits, ?), ?) then ?
    when teams.files - (replaced.file_id is not null) >= coalesce(teams.max_files, ?) then ?
    when visitors.unfinished_uploads - (replaced.file_id is not null) >= ? then ?
    when teams.visitor_uploads - (replaced.file_id is not null) >= ? then ?
    when teams.unfinished_uploads - (replaced.file_id is not null) >= ? then ?
    when teams.bytes - coalesce(replaced.reserved_bytes, 0) + min(min(?, coalesce(json_extract(api_keys.limits, ?), ?)), ?) > coalesce(teams.max_bytes, ?) then ?
    when ? > coalesce(teams.max_bytes, ?) / ? then ?
    when teams.public_bytes - coalesce(replaced.reserved_bytes, 0) + min(min(?, coalesce(json_extract(api_keys.limits, ?), ?)), ?) > coalesce(teams.max_bytes, ?) / ? then ?
  end as refusal, coalesce(teams.max_files, ?) as maxFiles,
  coalesce(teams.max_bytes, ?) as maxBytes,
  api_keys.limits as limits
from
  teams
  left join api_keys on (api_keys.team_id = teams.id and api_keys.id = ?)
  left join uploads replaced on (
    replaced.team_id = ?
    and replaced.idempotency_key = ?
    and replaced.status = 'receiving'
    and replaced.file_id <> ?
  )
  left join visitors on (visitors.team_id = ? and visitors.id = ?)
where teams.id = ?;

-- creation.quota.insert: 4 rows read, 7 written
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?) LEFT-JOIN
--   SEARCH replaced USING INDEX uploads_idempotency (team_id=? AND idempotency_key=?) LEFT-JOIN
--   SEARCH visitors USING PRIMARY KEY (team_id=? AND id=?) LEFT-JOIN
insert into
  uploads (
    team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
    idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
    secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
    multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers
  )
select
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, min(?, coalesce(json_extract(api_keys.limits, ?), ?)),
  min(min(?, coalesce(json_extract(api_keys.limits, ?), ?)), ?),
  api_keys.limits -> 'fileTypes', ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
from
  teams
  left join api_keys on (api_keys.team_id = teams.id and api_keys.id = ?)
  left join uploads replaced on (
    replaced.team_id = ?
    and replaced.idempotency_key = ?
    and replaced.status = 'receiving'
    and replaced.file_id <> ?
  )
  left join visitors on (visitors.team_id = ? and visitors.id = ?)
where
  teams.id = ?
  and case
    when teams.status = 'deleting'
    or api_keys.id is null then ?
    when ? > coalesce(json_extract(api_keys.limits, ?), ?) then ?
    when teams.files - (replaced.file_id is not null) >= coalesce(teams.max_files, ?) then ?
    when visitors.unfinished_uploads - (replaced.file_id is not null) >= ? then ?
    when teams.visitor_uploads - (replaced.file_id is not null) >= ? then ?
    when teams.unfinished_uploads - (replaced.file_id is not null) >= ? then ?
    when teams.bytes - coalesce(replaced.reserved_bytes, 0) + min(min(?, coalesce(json_extract(api_keys.limits, ?), ?)), ?) > coalesce(teams.max_bytes, ?) then ?
    when ? > coalesce(teams.max_bytes, ?) / ? then ?
    when teams.public_bytes - coalesce(replaced.reserved_bytes, 0) + min(min(?, coalesce(json_extract(api_keys.limits, ?), ?)), ?) > coalesce(teams.max_bytes, ?) / ? then ?
  end is null
on conflict do nothing;

-- creation.arriving: 1 row read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
select
  team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
  idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
  secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
  multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers
from uploads
where
  (
    (uploads.team_id = ? and (? is null or uploads.user_id = ?))
    and uploads.file_id = ?
    and uploads.status = 'receiving'
  );

-- replacement.1.cancel: 2 rows read
--   SEARCH uploads USING INDEX uploads_idempotency (team_id=? AND idempotency_key=?)
--   SCALAR SUBQUERY 1
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
where
  (
    uploads.status = 'receiving'
    and (
      uploads.team_id = ?
      and (uploads.idempotency_key = ? and uploads.file_id <> ?)
      and exists (select 1 from uploads where (uploads.team_id = ? and uploads.file_id = ?))
    )
  )
returning
  team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
  idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
  secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
  multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers;

-- replacement.1.release: 1 row read
--   SEARCH uploads USING INDEX uploads_idempotency (team_id=? AND idempotency_key=?)
--   SCALAR SUBQUERY 1
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
update uploads
set idempotency_key = ?
where
  (
    uploads.team_id = ?
    and (uploads.idempotency_key = ? and uploads.file_id <> ?)
    and exists (select 1 from uploads where (uploads.team_id = ? and uploads.file_id = ?))
  );

-- replacement.1.give: 1 row read, 2 written
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
update uploads
set idempotency_key = ?
where ((uploads.team_id = ? and uploads.file_id = ?) and uploads.status = 'receiving');
