-- describeLink: GET /docs/v1/links/{id}.{secret}
-- R2: get
-- 1 round trip, 4 rows read, 0 written

-- Round trip 1

-- the only query: 4 rows read
--   SEARCH links USING PRIMARY KEY (id=?)
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH file_objects USING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
select
  links.id as link_id, links.name, links.disposition, links.expires_at, links.start_seconds,
  links.end_seconds, files.id, files.team_id, files.original_name,
  coalesce(files.name, files.original_name) as file_name,
  files.size_bytes, files.sha256, coalesce(files.mime_type, 'application/octet-stream') as mime,
  json_extract(files.audio, '$.durationSeconds') as seconds,
  json_extract(files.audio, '$.tags.title') as title,
  json_extract(files.audio, '$.tags.artist') as artist,
  (
    select
      json_object(
        'version', file_objects.version, 'language', file_objects.language, 'reservedBytes',
        file_objects.reserved_bytes, 'cues', file_objects.cues, 'skippedCues', file_objects.skipped_cues,
        'updatedAt', file_objects.updated_at
      )
    from file_objects
    where
      file_objects.team_id = files.team_id
      and file_objects.file_id = files.id
      and file_objects.kind = ?
      and file_objects.name = ''
      and file_objects.state = 'current'
  ) as waveform,
  (
    select
      json_object(
        'version', file_objects.version, 'language', file_objects.language, 'reservedBytes',
        file_objects.reserved_bytes, 'cues', file_objects.cues, 'skippedCues', file_objects.skipped_cues,
        'updatedAt', file_objects.updated_at
      )
    from file_objects
    where
      file_objects.team_id = files.team_id
      and file_objects.file_id = files.id
      and file_objects.kind = ?
      and file_objects.name = ''
      and file_objects.state = 'current'
  ) as transcript, team_name
from
  links
  inner join files on (links.team_id = files.team_id and links.file_id = files.id)
  inner join (
    select id as team_key, name as team_name
    from teams
    where teams.status = ?
  ) active_team on team_key = files.team_id
where (links.id = ? and links.secret_hash = ? and (links.expires_at is null or links.expires_at > ?));
