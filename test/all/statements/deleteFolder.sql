-- deleteFolder: POST /docs/v1/folders/delete
-- 3 round trips, 35 rows read, 5 written

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

-- the only query: 1 row read
--   CO-ROUTINE found
--   SEARCH files USING INDEX files_folder (team_id=? AND folder_key>? AND folder_key<?)
--   SCAN found
select count(*)
from
  (
    select 1
    from files indexed by files_folder
    where ((files.team_id = ? and files.folder <> '') and files.folder_key >= ? and files.folder_key < ?)
    limit ?
  ) found;

-- Round trip 3

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

-- batch.checked: 1 row read
--   CO-ROUTINE one
--   SCAN CONSTANT ROW
--   SCAN one
--   SCALAR SUBQUERY 1
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 3
--   CO-ROUTINE examined
--   SEARCH files USING INDEX files_held (team_id=? AND folder_key>? AND folder_key<?)
--   SCAN examined
select
  case
    when exists (
      select 1
      from folder_changes
      where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id <> ?)
    ) then ?
  end,
  (
    select count(*)
    from
      (
        select user_id as owner
        from files indexed by files_held
        where
          (files.team_id = ? and files.hold is not null and files.folder_key >= ? and files.folder_key < ?)
        limit ?
      ) examined
    where true
  ) as held
from (select 1) one;

-- batch.insert: 3 rows read, 2 written
--   SEARCH teams EXISTS USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 2
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
insert into
  folder_changes (team_id, id, owner_id, folder, target, initiator, requested_by, created_at, position, step_end, due_at)
select
  ?, ?, ?, ?, ?, ?,
  (
    select coalesce(origin_id, iif(api_keys.kind = 'session', api_keys.user_id, api_keys.id))
    from api_keys
    where (api_keys.id = ? and api_keys.team_id = ?)
  ), ?, ?, ?, ?
where
  exists (
    select 1
    from teams
    where
      (
        (teams.id = ? and teams.status <> ?)
        and case
          when exists (
            select 1
            from folder_changes
            where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id <> ?)
          ) then ?
        end is null
      )
  )
on conflict do nothing;

-- batch.step.stopped: 4 rows read
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   CORRELATED SCALAR SUBQUERY 8
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH principal USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 4
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 7
--   SEARCH api_keys USING INDEX api_keys_team_expiry (team_id=? AND expires_at>?)
--   CORRELATED SCALAR SUBQUERY 5
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 6
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
delete from folder_changes
where
  (
    ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
    and not exists (
      select 1
      from teams
      where
        (
          (teams.id = ? and teams.status = ?)
          and (
            exists (
              select 1
              from users principal
              where
                (
                  (principal.id = folder_changes.requested_by and principal.team_id = ?)
                  and (json_extract(?, '$.' || principal.role) & ?) = ?
                  and iif(principal.role = ?, principal.id, null) is ?
                )
            )
            or exists (
              select 1
              from api_keys
              where
                (
                  api_keys.id = folder_changes.requested_by
                  and (
                    api_keys.team_id = ?
                    and api_keys.kind <> 'session'
                    and api_keys.expires_at > ?
                    and (
                      coalesce(
                        api_keys.scopes,
                        (
                          select json_extract(?, '$.' || role)
                          from users
                          where (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
                        ), 0
                      ) & ?
                    ) = ?
                    and iif(
                      exists (
                        select 1
                        from users
                        where
                          (
                            (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
                            and users.role = ?
                          )
                      ), api_keys.user_id, null
                    ) is ?
                  )
                )
            )
            or exists (
              select 1
              from api_keys
              where
                (
                  api_keys.origin_id = folder_changes.requested_by
                  and api_keys.origin_id is not null
                  and api_keys.kind <> 'session'
                  and (
                    api_keys.team_id = ?
                    and api_keys.kind <> 'session'
                    and api_keys.expires_at > ?
                    and (
                      coalesce(
                        api_keys.scopes,
                        (
                          select json_extract(?, '$.' || role)
                          from users
                          where (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
                        ), 0
                      ) & ?
                    ) = ?
                    and iif(
                      exists (
                        select 1
                        from users
                        where
                          (
                            (users.id = api_keys.user_id and users.team_id = api_keys.team_id)
                            and users.role = ?
                          )
                      ), api_keys.user_id, null
                    ) is ?
                  )
                )
            )
          )
        )
    )
  )
returning id;

-- batch.step.select: 2 rows read, 2 written
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 3
--   SEARCH files USING INDEX files_folder (team_id=? AND folder_key>? AND folder_key<?)
--   SCALAR SUBQUERY 1
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
update folder_changes
set
  step_end = (
    select json_array(files.folder_key, files.id)
    from files indexed by files_folder
    where
      ((files.team_id = ? and files.folder <> '') and files.folder_key >= ? and files.folder_key < ?)
      and (files.folder_key, files.id) > (
        (
          select position
          from folder_changes
          where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
        ) ->> 0,
        (
          select position
          from folder_changes
          where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
        ) ->> 1
      )
    order by files.folder_key, files.id
    limit 1
    offset ?
  ), due_at = ?
where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?);

-- batch.step.changes.event: 5 rows read
--   CO-ROUTINE (subquery-11)
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   LIST SUBQUERY 12
--   SEARCH folder_changes EXISTS USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SEARCH files USING INDEX files_folder (team_id=? AND folder_key>? AND folder_key<?)
--   SCALAR SUBQUERY 3
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 4
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 5
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 6
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 7
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCAN (subquery-11)
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
from files
where
  (files.team_id, files.id) in (
    select files.team_id, files.id
    from files indexed by files_folder
    where
      (
        ((files.team_id = ? and files.folder <> '') and files.folder_key >= ? and files.folder_key < ?)
        and (files.folder_key, files.id) > (
          (
            select position
            from folder_changes
            where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
          ) ->> 0,
          (
            select position
            from folder_changes
            where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
          ) ->> 1
        )
        and (
          (
            select step_end
            from folder_changes
            where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
          ) is null
          or (files.folder_key, files.id) <= (
            (
              select step_end
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) ->> 0,
            (
              select step_end
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) ->> 1
          )
        )
        and files.folder_since <= ?
        and files.hold is null
        and exists (
          select 1
          from folder_changes
          where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
        )
      )
  );

-- batch.step.changes.change.keep: 4 rows read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   LIST SUBQUERY 9
--   SEARCH folder_changes EXISTS USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SEARCH files USING INDEX files_folder (team_id=? AND folder_key>? AND folder_key<?)
--   SCALAR SUBQUERY 1
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 3
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 4
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 5
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
insert into
  removed (team_id, id, user_id, original_name, size_bytes, reserved_bytes, due_at, trashed_at, hold, file)
select
  files.team_id, files.id, files.user_id, files.original_name, files.size_bytes, files.reserved_bytes, ?, ?,
  ?, ?
from files
where
  (
    (files.team_id, files.id) in (
      select files.team_id, files.id
      from files indexed by files_folder
      where
        (
          ((files.team_id = ? and files.folder <> '') and files.folder_key >= ? and files.folder_key < ?)
          and (files.folder_key, files.id) > (
            (
              select position
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) ->> 0,
            (
              select position
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) ->> 1
          )
          and (
            (
              select step_end
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) is null
            or (files.folder_key, files.id) <= (
              (
                select step_end
                from folder_changes
                where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
              ) ->> 0,
              (
                select step_end
                from folder_changes
                where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
              ) ->> 1
            )
          )
          and files.folder_since <= ?
          and files.hold is null
          and exists (
            select 1
            from folder_changes
            where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
          )
        )
    )
    and files.hold is null
  )
on conflict do nothing;

-- batch.step.changes.change.leave: 4 rows read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   LIST SUBQUERY 9
--   SEARCH folder_changes EXISTS USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SEARCH files USING INDEX files_folder (team_id=? AND folder_key>? AND folder_key<?)
--   SCALAR SUBQUERY 1
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 3
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 4
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 5
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   CORRELATED SCALAR SUBQUERY 8
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
delete from files
where
  (
    (files.team_id, files.id) in (
      select files.team_id, files.id
      from files indexed by files_folder
      where
        (
          ((files.team_id = ? and files.folder <> '') and files.folder_key >= ? and files.folder_key < ?)
          and (files.folder_key, files.id) > (
            (
              select position
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) ->> 0,
            (
              select position
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) ->> 1
          )
          and (
            (
              select step_end
              from folder_changes
              where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
            ) is null
            or (files.folder_key, files.id) <= (
              (
                select step_end
                from folder_changes
                where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
              ) ->> 0,
              (
                select step_end
                from folder_changes
                where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
              ) ->> 1
            )
          )
          and files.folder_since <= ?
          and files.hold is null
          and exists (
            select 1
            from folder_changes
            where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
          )
        )
    )
    and exists (select 1 from removed where (removed.team_id = files.team_id and removed.id = files.id))
  );

-- batch.step.removeFolders: 4 rows read
--   SEARCH folders USING PRIMARY KEY (team_id=? AND folder_key=? AND owner_id=?)
--   LIST SUBQUERY 3
--   SEARCH folder_changes EXISTS USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SEARCH folders USING PRIMARY KEY (team_id=? AND folder_key>? AND folder_key<?)
delete from folders
where
  (team_id, folder_key, owner_id) in (
    select folders.team_id, folders.folder_key, folders.owner_id
    from folders
    where
      (
        (folders.team_id = ? and folders.folder_key >= ? and folders.folder_key < ?)
        and folders.created_at <= ?
        and exists (
          select 1
          from folder_changes
          where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
        )
      )
    order by folders.folder_key
    limit ?
  );

-- batch.step.finish: 3 rows read, 1 written
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH folder_changes EXISTS USING PRIMARY KEY (team_id=? AND owner_id=?)
--   SEARCH folders USING PRIMARY KEY (team_id=? AND folder_key>? AND folder_key<?)
delete from folder_changes
where
  (
    ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
    and folder_changes.step_end is null
    and not exists (
      select folders.team_id, folders.folder_key, folders.owner_id
      from folders
      where
        (
          (folders.team_id = ? and folders.folder_key >= ? and folders.folder_key < ?)
          and folders.created_at <= ?
          and exists (
            select 1
            from folder_changes
            where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
          )
        )
      order by folders.folder_key
      limit ?
    )
  );

-- batch.step.advance: 0 rows read
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
update folder_changes
set position = folder_changes.step_end
where
  (
    ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?)
    and step_end is not null
  );

-- batch.step.left: 0 rows read
--   SEARCH folder_changes USING PRIMARY KEY (team_id=? AND owner_id=?)
select id
from folder_changes
where ((folder_changes.team_id = ? and folder_changes.owner_id = ?) and folder_changes.id = ?);

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
