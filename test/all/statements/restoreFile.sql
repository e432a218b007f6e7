-- restoreFile: POST /docs/v1/trash/{id}/restore
-- 1 message to a queue
-- 2 round trips, 23 rows read, 8 written

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

-- batch.restore.event: 7 rows read, 1 written
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
      reserved_bytes as reserved_bytes, file ->> ? as created_at, ? as updated_at,
      (file ->> '$.version') + 1 as version,
      file ->> ? as attempts, file ->> ? as claim, iif(file ->> '$.status' = 'pending', ?, null) as due_at,
      null as lease_ends_at, null as delete_after, null as delete_after_by,
      (file ->> '$.restores') + 1 as restores,
      file ->> ? as mime_type, file ->> ? as failure_code, original_name as original_name, file ->> ? as name,
      file ->> ? as name_key, file ->> ? as folder, ? as folder_since, file ->> ? as reference,
      file ->> ? as sha256, file ->> ? as etag, file ->> ? as stated_sha256, file ->> ? as key_id,
      file ->> ? as upload_token_id, file ->> ? as failure_message, file ->> ? as allowed_types,
      file ->> ? as tags, file ->> ? as metadata, file ->> ? as search_keys, file ->> ? as audio, hold as hold
    from removed
    where (removed.team_id = ? and removed.id = ? and removed.trashed_at is not null)
  ) files
where true;

-- batch.restore.change: 6 rows read, 5 written
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
insert into
  files (
    id, team_id, status, file_type, size_bytes, processed_at, user_id, has_transcript, reserved_bytes,
    created_at, updated_at, version, attempts, claim, due_at, lease_ends_at, delete_after, delete_after_by,
    restores, mime_type, failure_code, original_name, name, name_key, folder, folder_since, reference, sha256,
    etag, stated_sha256, key_id, upload_token_id, failure_message, allowed_types, tags, metadata, search_keys,
    audio, hold
  )
select
  id as id, team_id as team_id, file ->> ? as status, file ->> ? as file_type, size_bytes as size_bytes,
  file ->> ? as processed_at, user_id as user_id, file ->> ? as has_transcript,
  reserved_bytes as reserved_bytes, file ->> ? as created_at, ? as updated_at,
  (file ->> '$.version') + 1 as version,
  file ->> ? as attempts, file ->> ? as claim, iif(file ->> '$.status' = 'pending', ?, null) as due_at,
  null as lease_ends_at, null as delete_after, null as delete_after_by,
  (file ->> '$.restores') + 1 as restores,
  file ->> ? as mime_type, file ->> ? as failure_code, original_name as original_name, file ->> ? as name,
  file ->> ? as name_key, file ->> ? as folder, ? as folder_since, file ->> ? as reference,
  file ->> ? as sha256, file ->> ? as etag, file ->> ? as stated_sha256, file ->> ? as key_id,
  file ->> ? as upload_token_id, file ->> ? as failure_message, file ->> ? as allowed_types,
  file ->> ? as tags, file ->> ? as metadata, file ->> ? as search_keys, file ->> ? as audio, hold as hold
from removed
where (removed.team_id = ? and removed.id = ? and removed.trashed_at is not null)
returning id;

-- batch.removed: 4 rows read, 2 written
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
delete from removed
where (removed.team_id = ? and removed.id = ? and removed.trashed_at is not null);

-- batch.listed: 2 rows read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
--   SCALAR SUBQUERY 3
--   CO-ROUTINE examined
--   SEARCH files USING INDEX files_unprocessed (team_id=?)
--   SCAN examined
select
  id, team_id, original_name, id || '-' || original_name as filename, coalesce(name, original_name) as name,
  name_key, folder, reference, delete_after, tags,
  (
    select preview
    from file_objects
    where
      file_objects.team_id = files.team_id
      and file_objects.file_id = files.id
      and file_objects.kind = ?
      and file_objects.name = ''
      and file_objects.state = 'current'
  ) as peaks, has_transcript as hasTranscript,
  substr(json_extract(files.audio, '$.tags.title'), 1, ?) as title,
  substr(json_extract(files.audio, '$.tags.artist'), 1, ?) as artist,
  file_type, status, size_bytes, mime_type, json_extract(audio, '$.durationSeconds') as durationSeconds,
  key_id, user_id, created_at, updated_at, version,
  (
    select count(*) > ? or ifnull(sum(size_bytes), 0) > ?
    from
      (
        select size_bytes
        from files indexed by files_unprocessed
        where team_id = ? and files.processed_at is null
        limit ?
      ) examined
  ) as isBulk
from files
where (files.team_id = ? and files.id = ?);

-- batch.left: 0 rows read
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

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
