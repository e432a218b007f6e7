-- appendToResumableUpload: PATCH /docs/v1/uploads/resumable/{upload}
-- R2: put
-- 1 message to a queue
-- 4 round trips, 36 rows read, 12 written

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

-- found: 1 row read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH teams USING PRIMARY KEY (id=?)
select
  team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
  idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
  secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
  multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers,
  case
    when uploads.status = 'receiving'
    and not uploads.offset_bytes = uploads.size_bytes
    and uploads.due_at <= ? then ?
    when uploads.offset_bytes <> ? then ?
    when uploads.offset_bytes + ? > uploads.size_bytes then ?
    when not uploads.status = 'receiving' then ?
    when uploads.offset_bytes = uploads.size_bytes then ?
    when uploads.next_part >= ? then ?
    when (uploads.size_bytes - uploads.reserved_bytes) > 0
    and exists (
      select 1
      from teams
      where
        (
          teams.id = ?
          and teams.bytes + (uploads.size_bytes - uploads.reserved_bytes) > coalesce(teams.max_bytes, ?)
        )
    ) then ?
    when (uploads.size_bytes - uploads.reserved_bytes) > 0
    and exists (
      select 1
      from teams
      where
        (
          teams.id = ?
          and teams.public_bytes + (uploads.size_bytes - uploads.reserved_bytes) > coalesce(teams.max_bytes, ?) / ?
        )
    ) then ?
  end as refusal
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

-- claim: 2 rows read, 1 written
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH teams USING PRIMARY KEY (id=?)
update uploads
set
  reserved_bytes = size_bytes, next_part = uploads.next_part + is_writing, epoch = uploads.epoch + 1,
  is_writing = ?, fenced_off = fenced_off + is_writing, has_leftovers = has_leftovers
  or is_writing
where
  (
    (
      uploads.team_id = ?
      and (uploads.file_id = ? and uploads.secret_hash = ?)
      and (
        uploads.status = 'receiving'
        or uploads.status = 'committed'
        and exists (
          select 1
          from files
          where (files.team_id = uploads.team_id and files.id = uploads.file_id)
        )
      )
    )
    and case
      when uploads.status = 'receiving'
      and not uploads.offset_bytes = uploads.size_bytes
      and uploads.due_at <= ? then ?
      when uploads.offset_bytes <> ? then ?
      when uploads.offset_bytes + ? > uploads.size_bytes then ?
      when not uploads.status = 'receiving' then ?
      when uploads.offset_bytes = uploads.size_bytes then ?
      when uploads.next_part >= ? then ?
      when (uploads.size_bytes - uploads.reserved_bytes) > 0
      and exists (
        select 1
        from teams
        where
          (
            teams.id = ?
            and teams.bytes + (uploads.size_bytes - uploads.reserved_bytes) > coalesce(teams.max_bytes, ?)
          )
      ) then ?
      when (uploads.size_bytes - uploads.reserved_bytes) > 0
      and exists (
        select 1
        from teams
        where
          (
            teams.id = ?
            and teams.public_bytes + (uploads.size_bytes - uploads.reserved_bytes) > coalesce(teams.max_bytes, ?) / ?
          )
      ) then ?
    end is null
  )
returning
  team_id, file_id, status, key_id, is_public, user_id, upload_token_id, finished_by_token_id, visitor_id,
  idempotency_key, original_name, size_bytes, reserved_bytes, allowed_types, created_at, updated_at, due_at,
  secret_hash, offset_bytes, progress_at, progress_bytes, part_bytes, metadata, properties, stated_sha256,
  multipart_id, mime_type, file_type, next_part, chunks, epoch, is_writing, fenced_off, has_leftovers;

-- Round trip 3

-- save: 2 rows read, 2 written
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
update uploads
set
  due_at = ?, offset_bytes = ?, progress_at = ?, progress_bytes = ?, multipart_id = ?, mime_type = ?,
  file_type = ?, next_part = ?, chunks = ?, is_writing = ?, has_leftovers = ?
where
  (
    ((uploads.team_id = ? and uploads.file_id = ?) and uploads.epoch = ?)
    and uploads.status = 'receiving'
    and exists (select 1 from api_keys where (api_keys.id = ? and api_keys.team_id = ?))
  );

-- state: 2 rows read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
select
  status, epoch, offset_bytes, chunks, multipart_id,
  exists (select 1 from api_keys where (api_keys.id = ? and api_keys.team_id = ?)) as hasKey
from uploads
where (uploads.team_id = ? and uploads.file_id = ?);

-- Round trip 4

-- batch.refused: 4 rows read
--   CO-ROUTINE one
--   SCAN CONSTANT ROW
--   SCAN one
--   SCALAR SUBQUERY 2
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SEARCH api_keys EXISTS USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   SCALAR SUBQUERY 3
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 4
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
select
  case
    when not exists (
      select 1
      from teams
      where
        (
          (teams.id = ? and teams.status <> ?)
          and exists (select 1 from api_keys where (api_keys.id = ? and api_keys.team_id = ?))
        )
    ) then ?
    when not exists (
      select 1
      from uploads
      where ((uploads.team_id = ? and uploads.file_id = ?) and uploads.status = 'receiving')
    ) then ?
    when not exists (
      select 1
      from uploads
      where ((uploads.team_id = ? and uploads.file_id = ?) and uploads.epoch = ?)
    ) then ?
  end as refusal
from (select 1) one;

-- batch.insert.change: 11 rows read, 5 written
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 5
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SEARCH api_keys EXISTS USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   SCALAR SUBQUERY 6
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 7
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 2
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 3
--   SEARCH teams USING PRIMARY KEY (id=?)
insert into
  files (
    id, team_id, status, file_type, size_bytes, processed_at, user_id, has_transcript, reserved_bytes,
    created_at, updated_at, version, attempts, claim, due_at, lease_ends_at, delete_after, delete_after_by,
    restores, mime_type, failure_code, original_name, name, name_key, folder, folder_since, reference, sha256,
    etag, stated_sha256, key_id, upload_token_id, failure_message, allowed_types, tags, metadata, search_keys,
    audio, hold
  )
select
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  iif(? < (select retention_reached from teams where id = ?), ?, ?),
  iif(
    ? < (select retention_reached from teams where id = ?),
    (select retention_by from teams where id = ?),
    ?
  ), ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
where
  case
    when not exists (
      select 1
      from teams
      where
        (
          (teams.id = ? and teams.status <> ?)
          and exists (select 1 from api_keys where (api_keys.id = ? and api_keys.team_id = ?))
        )
    ) then ?
    when not exists (
      select 1
      from uploads
      where ((uploads.team_id = ? and uploads.file_id = ?) and uploads.status = 'receiving')
    ) then ?
    when not exists (
      select 1
      from uploads
      where ((uploads.team_id = ? and uploads.file_id = ?) and uploads.epoch = ?)
    ) then ?
  end is null
on conflict do nothing;

-- batch.insert.event: 4 rows read, 1 written
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

-- batch.settle: 3 rows read, 3 written
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
update uploads
set
  status = ?, due_at = ?, offset_bytes = ?, metadata = ?, properties = ?, multipart_id = ?, chunks = ?,
  is_writing = ?, fenced_off = ?
where
  (
    (uploads.team_id = ? and uploads.file_id = ?)
    and uploads.status = 'receiving'
    and exists (select 1 from files where (files.team_id = ? and files.id = ?))
  );

-- batch.state: 2 rows read
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
  key_id, user_id, created_at, updated_at, version, etag,
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
where ((files.team_id = ? and (? is null or files.user_id = ?)) and files.id = ?);

-- batch.extraQueries.1: 1 row read
--   SEARCH upload_parts USING PRIMARY KEY (file_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
delete from upload_parts
where
  (
    upload_parts.file_id = ?
    and not exists (
      select 1
      from uploads
      where ((uploads.team_id = ? and uploads.file_id = ?) and uploads.status = 'receiving')
    )
  );

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
