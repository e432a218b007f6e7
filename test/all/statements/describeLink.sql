-- describeLink: GET /docs/v1/links/{id}.{secret}
-- 1 round trip, 3 rows read, 0 written

-- Round trip 1

-- the only query: 3 rows read
--   SEARCH links USING PRIMARY KEY (id=?)
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH waveforms USING PRIMARY KEY (team_id=? AND file_id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH transcripts USING PRIMARY KEY (team_id=? AND file_id=?)
select
  links.id as link_id, links.name, links.disposition, links.expires_at, links.start_seconds,
  links.end_seconds, files.id, files.team_id, files.original_name,
  coalesce(files.name, files.original_name) as file_name,
  files.size_bytes, files.sha256, coalesce(files.mime_type, 'application/octet-stream') as mime,
  json_extract(files.audio, '$.durationSeconds') as seconds,
  json_extract(files.audio, '$.tags.title') as title,
  json_extract(files.audio, '$.tags.artist') as artist,
  (
    select waveforms.peaks is not null
    from waveforms
    where waveforms.team_id = files.team_id and waveforms.file_id = files.id
  ) is 1 as hasWaveform,
  (
    select
      iif(
        transcripts.size_bytes is null, null,
        json_object(
          'language', transcripts.language, 'sizeBytes', transcripts.size_bytes, 'updatedAt',
          transcripts.updated_at, 'version', iif(transcripts.writing_since is null, transcripts.version, null)
        )
      )
    from transcripts
    where transcripts.team_id = files.team_id and transcripts.file_id = files.id
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
