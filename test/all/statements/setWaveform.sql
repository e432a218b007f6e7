-- setWaveform: PUT /docs/v1/uploads/{id}/waveform
-- R2: put
-- 3 round trips, 22 rows read, 8 written

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

-- check: 1 row read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
select null
from files
where (files.team_id = ? and files.id = ?);

-- insert: 2 rows read, 2 written
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
insert into
  file_objects (
    team_id, file_id, version, kind, name, state, due_at, updated_at, reserved_bytes, is_provisional,
    language, cues, skipped_cues, preview
  )
select files.team_id, files.id, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
from files
where (files.team_id = ? and files.id = ?) and null is null
on conflict do nothing;

-- Round trip 3

-- batch.replace: 3 rows read, 2 written
--   SEARCH file_objects USING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
--   SCALAR SUBQUERY 3
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=? AND version=?)
--   SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 2
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
update file_objects
set state = ?, due_at = ?
where
  (
    (
      (file_objects.team_id = ? and file_objects.file_id = ?)
      and file_objects.kind = ?
      and file_objects.name = ''
      and file_objects.state = 'current'
    )
    and true
    and exists (
      select 1
      from file_objects
      where
        (
          ((file_objects.team_id = ? and file_objects.file_id = ?) and file_objects.version = ?)
          and file_objects.state = ?
          and (
            exists (select 1 from files where (files.team_id = ? and files.id = ?))
            or exists (
              select 1
              from removed
              where ((removed.team_id = ? and removed.id = ?) and removed.trashed_at is not null)
            )
          )
        )
    )
  );

-- batch.note.change: 3 rows read, 1 written
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 4
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=? AND version=?)
--   SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 2
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 3
--   SEARCH file_objects USING COVERING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
update files
set updated_at = ?, version = files.version + 1
where
  (
    (files.team_id = ? and files.id = ?)
    and exists (
      select 1
      from file_objects
      where
        (
          (
            ((file_objects.team_id = ? and file_objects.file_id = ?) and file_objects.version = ?)
            and file_objects.state = ?
            and (
              exists (select 1 from files where (files.team_id = ? and files.id = ?))
              or exists (
                select 1
                from removed
                where ((removed.team_id = ? and removed.id = ?) and removed.trashed_at is not null)
              )
            )
          )
          and not exists (
            select 1
            from file_objects
            where
              (
                (file_objects.team_id = ? and file_objects.file_id = ?)
                and file_objects.kind = ?
                and file_objects.name = ''
                and file_objects.state = 'current'
              )
          )
        )
    )
  );

-- batch.note.event: 4 rows read, 1 written
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

-- batch.finished: 2 rows read, 2 written
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=? AND version=?)
--   SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 2
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 3
--   SEARCH file_objects USING COVERING INDEX file_objects_current (team_id=? AND file_id=? AND kind=? AND name=?)
update file_objects
set state = ?, due_at = ?, updated_at = ?
where
  (
    (
      ((file_objects.team_id = ? and file_objects.file_id = ?) and file_objects.version = ?)
      and file_objects.state = ?
      and (
        exists (select 1 from files where (files.team_id = ? and files.id = ?))
        or exists (
          select 1
          from removed
          where ((removed.team_id = ? and removed.id = ?) and removed.trashed_at is not null)
        )
      )
    )
    and not exists (
      select 1
      from file_objects
      where
        (
          (file_objects.team_id = ? and file_objects.file_id = ?)
          and file_objects.kind = ?
          and file_objects.name = ''
          and file_objects.state = 'current'
        )
    )
  );

-- batch.end: 3 rows read
--   CO-ROUTINE one
--   SCAN CONSTANT ROW
--   SCAN one
--   SCALAR SUBQUERY 1
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=? AND version=?)
--   SCALAR SUBQUERY 2
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=? AND version=?)
--   SCALAR SUBQUERY 3
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 4
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
select
  (
    select updated_at
    from file_objects
    where ((file_objects.team_id = ? and file_objects.file_id = ?) and file_objects.version = ?)
  ) as updated,
  not exists (
    select 1
    from file_objects
    where
      (
        ((file_objects.team_id = ? and file_objects.file_id = ?) and file_objects.version = ?)
        and file_objects.state = ?
      )
  ) as abandoned,
  (
    exists (select 1 from files where (files.team_id = ? and files.id = ?))
    or exists (
      select 1
      from removed
      where ((removed.team_id = ? and removed.id = ?) and removed.trashed_at is not null)
    )
  ) as there
from (select 1) one;

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
