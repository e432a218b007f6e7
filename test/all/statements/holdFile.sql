-- holdFile: PUT /docs/v1/uploads/{id}/hold
-- 2 round trips, 12 rows read, 3 written

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

-- batch.changes.listed.change: 2 rows read, 2 written
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH teams USING PRIMARY KEY (id=?)
update files
set updated_at = ?, version = files.version + 1, hold = ?
where
  (
    (files.team_id = ? and files.id = ?)
    and (files.hold is null or files.hold ->> '$.reason' <> ?)
    and exists (select 1 from teams where (teams.id = ? and teams.status <> ?))
  );

-- batch.changes.listed.event: 4 rows read, 1 written
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, files.version,
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
  ), coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
from files
where ((files.team_id = ? and files.id = ?) and changes() > 0);

-- batch.changes.trashed.change: 0 rows read
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH teams USING PRIMARY KEY (id=?)
update removed
set
  hold = ?, file = json_set(removed.file, '$.version', (removed.file ->> '$.version') + 1, '$.updated_at', ?)
where
  (
    (removed.team_id = ? and removed.id = ?)
    and removed.trashed_at is not null
    and (removed.hold is null or removed.hold ->> '$.reason' <> ?)
    and exists (select 1 from teams where (teams.id = ? and teams.status <> ?))
  );

-- batch.changes.trashed.event: 1 row read
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, files.version,
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
  ), coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
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
    where removed.trashed_at is not null
  ) files
where ((files.team_id = ? and files.id = ?) and changes() > 0);

-- batch.held: 1 row read
--   CO-ROUTINE one
--   SCAN CONSTANT ROW
--   SCAN one
--   SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 2
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
select
  coalesce(
    (select files.hold from files where (files.team_id = ? and files.id = ?)),
    (
      select removed.hold
      from removed
      where ((removed.team_id = ? and removed.id = ?) and removed.trashed_at is not null)
    )
  ) as hold
from (select 1) one;

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
