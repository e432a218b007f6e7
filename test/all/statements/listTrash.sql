-- listTrash: GET /docs/v1/trash
-- 1 round trip, 4 rows read, 0 written

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

-- rows: 2 rows read
--   CO-ROUTINE found
--   COMPOUND QUERY
--   LEFT-MOST SUBQUERY
--   CO-ROUTINE matching
--   CO-ROUTINE examined
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id<?)
--   SCAN examined
--   SCAN matching
--   UNION ALL
--   CO-ROUTINE last
--   CO-ROUTINE examined
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id<?)
--   SCAN examined
--   SCAN last
--   SCAN found
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
select
  files.id as id, files.team_id as teamId, files.original_name as originalName,
  files.id || '-' || files.original_name as filename, coalesce(files.name, files.original_name) as name,
  files.name_key as nameKey, files.folder as folder, files.reference as reference,
  files.delete_after as deleteAfter, files.tags as tags,
  (
    select file_objects.preview
    from file_objects
    where
      file_objects.team_id = files.team_id
      and file_objects.file_id = files.id
      and file_objects.kind = ?
      and file_objects.name = ''
      and file_objects.state = 'current'
  ) as peaks, files.has_transcript as hasTranscript,
  substr(json_extract(files.audio, '$.tags.title'), 1, ?) as title,
  substr(json_extract(files.audio, '$.tags.artist'), 1, ?) as artist,
  files.file_type as fileType, files.status as status, files.size_bytes as sizeBytes,
  files.mime_type as mimeType, json_extract(files.audio, '$.durationSeconds') as durationSeconds,
  files.key_id as keyId, files.user_id as userId, files.created_at as createdAt,
  files.updated_at as updatedAt, files.version as version, trashed_at as trashedAt, due_at as eraseAfter,
  hold as hold, isEnd as isEnd
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
      file ->> ? as tags, file ->> ? as metadata, file ->> ? as search_keys, file ->> ? as audio,
      hold as hold, trashed_at, isEnd
    from
      (
        (
          select fileId, team, isMatch, ? as isEnd
          from
            (
              select fileId, team, isMatch
              from
                (
                  select
                    removed.id as fileId, removed.team_id as team, removed.trashed_at is not null as isMatch
                  from removed
                  where (removed.team_id = ? and removed.id < ?)
                  order by removed.id desc
                  limit ?
                ) examined
              where isMatch
              limit ?
            ) matching
          union all
          select fileId, team, isMatch, ? as isEnd
          from
            (
              select fileId, team, isMatch
              from
                (
                  select
                    removed.id as fileId, removed.team_id as team, removed.trashed_at is not null as isMatch
                  from removed
                  where (removed.team_id = ? and removed.id < ?)
                  order by removed.id desc
                  limit ?
                ) examined
              limit ?
              offset ?
            ) last
          limit ?
        )
      ) found
      cross join removed on removed.team_id = found.team
      and removed.id = found.fileId
  ) files;
