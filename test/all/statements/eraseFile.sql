-- eraseFile: DELETE /docs/v1/trash/{id}
-- R2: delete
-- 2 round trips, 15 rows read, 4 written

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
--   CORRELATED SCALAR SUBQUERY 3
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
        when iif(
          exists (
            select 1
            from users
            where ((users.id = api_keys.user_id and users.team_id = api_keys.team_id) and users.role = ?)
          ), api_keys.user_id, null
        ) is not ? then 'unavailable'
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

-- batch.changes.erasing.event: 7 rows read, 1 written
--   CO-ROUTINE (subquery-5)
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   SCAN (subquery-5)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?,
  max(
    coalesce((select seq from events where team_id = ? order by seq desc limit 1), 0),
    ?
  ) + row_number() over (),
  ?, ?, ?, files.id, files.version,
  json_object(
    ?, files.id, ?, files.team_id, ?, files.original_name, ?, files.file_type, ?, files.status, ?,
    strftime('%Y-%m-%dT%H:%M:%fZ', files.created_at / 1000.0, 'unixepoch'),
    ?, strftime('%Y-%m-%dT%H:%M:%fZ', files.updated_at / 1000.0, 'unixepoch'),
    ?, files.version, ?, files.id || '-' || files.original_name, ?, files.reference, ?, files.size_bytes, ?,
    files.mime_type, ?, files.sha256, ?, json_extract(files.audio, '$.durationSeconds'),
    ?, strftime('%Y-%m-%dT%H:%M:%fZ', files.processed_at / 1000.0, 'unixepoch'),
    ?,
    json(
      case
        when files.failure_code is not null then json_object('code', files.failure_code, 'message', coalesce(files.failure_message, ''))
      end
    ), ?, json_object('keyId', files.key_id, 'userId', files.user_id),
    ?, json(json_remove(files.audio, '$.tags'))
  ),
  coalesce(
    (select position from events where team_id = ? order by seq desc limit 1),
    0
  ) + row_number() over ()
from
  (
    select
      id as id, team_id as team_id, file ->> ? as status, file ->> ? as file_type, size_bytes as size_bytes,
      file ->> ? as processed_at, user_id as user_id, file ->> ? as has_transcript,
      reserved_bytes as reserved_bytes, file ->> ? as created_at, file ->> ? as updated_at,
      file ->> ? as version, file ->> ? as attempts, file ->> ? as claim, due_at as due_at,
      null as lease_ends_at, null as delete_after, null as delete_after_by, file ->> ? as restores,
      file ->> ? as mime_type, file ->> ? as failure_code, original_name as original_name, file ->> ? as name,
      file ->> ? as name_key, file ->> ? as folder, null as folder_since, file ->> ? as reference,
      file ->> ? as sha256, file ->> ? as etag, file ->> ? as stated_sha256, file ->> ? as key_id,
      file ->> ? as upload_token_id, file ->> ? as failure_message, file ->> ? as allowed_types,
      file ->> ? as tags, file ->> ? as metadata, file ->> ? as search_keys, file ->> ? as audio, hold as hold
    from removed
    where (removed.team_id = ? and removed.id = ? and removed.trashed_at is not null and removed.hold is null)
  ) files
where true;

-- batch.changes.erasing.change: 3 rows read, 3 written
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
update removed
set due_at = ?, trashed_at = ?, file = ?
where
  (
    (removed.team_id = ? and removed.id = ? and removed.trashed_at is not null and removed.hold is null)
    and removed.trashed_at is not null
    and removed.hold is null
  );

-- batch.kept: 0 rows read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
select id, hold is not null as isKept
from files
where (files.team_id = ? and files.id = ?);

-- batch.left: 1 row read
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=?)
select
  id, team_id, original_name, trashed_at,
  (
    select json_group_array(json_object('kind', kind, 'version', version, 'state', state))
    from file_objects
    where file_objects.team_id = removed.team_id and file_objects.file_id = removed.id
  ) as beside
from removed
where (removed.team_id = ? and removed.id = ?);

-- batch.canceled: 0 rows read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
select
  team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
  idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
  secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
  multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers
from uploads
where ((uploads.team_id = ? and uploads.file_id = ?) and uploads.status = 'canceled');

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
