-- updateFile: PATCH /docs/v1/uploads/{id}
-- 2 round trips, 15 rows read, 7 written

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

-- batch.check: 1 row read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
select case when length(cast(json_patch(files.metadata, ?) as blob)) > ? then ? end
from files
where (files.team_id = ? and files.id = ?);

-- batch.update.change: 5 rows read, 6 written
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
update files
set
  updated_at = ?, version = files.version + 1, name = ?, name_key = ?, folder = ?,
  folder_since = iif(files.folder = ?, files.folder_since, ?),
  reference = ?, tags = ?, metadata = json_patch(files.metadata, ?),
  search_keys = json_patch(json_remove(files.search_keys, '$.tags'), ?)
where
  (
    (files.team_id = ? and files.id = ?)
    and (
      coalesce(files.name, files.original_name) <> ?
      or files.folder <> ?
      or files.reference is not ?
      or files.tags <> ?
      or files.metadata <> json_patch(files.metadata, ?)
    )
    and case when length(cast(json_patch(files.metadata, ?) as blob)) > ? then ?
    end is null
  );

-- batch.update.event: 4 rows read, 1 written
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, files.version,
  json_set(
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
    ), '$.fields', json(?)
  ), coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
from files
where ((files.team_id = ? and files.id = ?) and changes() > 0);

-- batch.current: 1 row read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
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
  key_id, user_id, created_at, updated_at, version
from files
where (files.team_id = ? and files.id = ?);

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
