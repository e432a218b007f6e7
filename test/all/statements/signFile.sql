-- signFile: GET /docs/v1/uploads/{id}
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
  key_id, user_id, created_at, updated_at, version, restores
from files
where ((files.team_id = ? and (? is null or files.user_id = ?)) and files.id = ?);
