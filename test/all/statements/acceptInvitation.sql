-- acceptInvitation: POST /auth/v1/invitations/accept
-- 2 round trips, 36 rows read, 13 written

-- Round trip 1

-- the only query: 3 rows read
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
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
--   SEARCH teams EXISTS USING COVERING INDEX teams_status (status=? AND id=?)
select
  id, team_id, first_name, last_name, email, email_key, password, role, created_at, updated_at, version,
  invitation_hash, invitation_ends_at, invitation_by, folders, unfinished_uploads, account_events_until,
  full_name
from users
where
  (
    users.id = ?
    and users.invitation_hash = ?
    and users.invitation_ends_at > ?
    and (
      users.invitation_by is null
      or (
        exists (
          select 1
          from users principal
          where
            (
              (principal.id = users.invitation_by and principal.team_id = users.team_id)
              and (json_extract(?, '$.' || principal.role) & (? | json_extract(?, '$.' || users.role))) = (? | json_extract(?, '$.' || users.role))
              and iif(principal.role = ?, principal.id, null) is ?
            )
        )
        or exists (
          select 1
          from api_keys
          where
            (
              api_keys.id = users.invitation_by
              and (
                api_keys.team_id = users.team_id
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
                  ) & (? | json_extract(?, '$.' || users.role))
                ) = (? | json_extract(?, '$.' || users.role))
                and iif(
                  exists (
                    select 1
                    from users
                    where
                      ((users.id = api_keys.user_id and users.team_id = api_keys.team_id) and users.role = ?)
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
              api_keys.origin_id = users.invitation_by
              and api_keys.origin_id is not null
              and api_keys.kind <> 'session'
              and (
                api_keys.team_id = users.team_id
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
                  ) & (? | json_extract(?, '$.' || users.role))
                ) = (? | json_extract(?, '$.' || users.role))
                and iif(
                  exists (
                    select 1
                    from users
                    where
                      ((users.id = api_keys.user_id and users.team_id = api_keys.team_id) and users.role = ?)
                  ), api_keys.user_id, null
                ) is ?
              )
            )
        )
      )
    )
    and exists (select 1 from teams where (teams.id = users.team_id and teams.status = ?))
  );

-- Round trip 2

-- batch.accept.change: 3 rows read, 1 written
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
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
--   CORRELATED SCALAR SUBQUERY 8
--   SEARCH teams USING PRIMARY KEY (id=?)
update users
set password = ?, updated_at = ?, version = users.version + 1, invitation_hash = ?
where
  (
    (users.id = ? and users.team_id = ?)
    and (
      users.id = ?
      and users.invitation_hash = ?
      and users.invitation_ends_at > ?
      and (
        users.invitation_by is null
        or (
          exists (
            select 1
            from users principal
            where
              (
                (principal.id = users.invitation_by and principal.team_id = users.team_id)
                and (json_extract(?, '$.' || principal.role) & (? | json_extract(?, '$.' || users.role))) = (? | json_extract(?, '$.' || users.role))
                and iif(principal.role = ?, principal.id, null) is ?
              )
          )
          or exists (
            select 1
            from api_keys
            where
              (
                api_keys.id = users.invitation_by
                and (
                  api_keys.team_id = users.team_id
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
                    ) & (? | json_extract(?, '$.' || users.role))
                  ) = (? | json_extract(?, '$.' || users.role))
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
                api_keys.origin_id = users.invitation_by
                and api_keys.origin_id is not null
                and api_keys.kind <> 'session'
                and (
                  api_keys.team_id = users.team_id
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
                    ) & (? | json_extract(?, '$.' || users.role))
                  ) = (? | json_extract(?, '$.' || users.role))
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
      and exists (select 1 from teams where (teams.id = users.team_id and teams.status = ?))
    )
  );

-- batch.accept.event: 8 rows read, 3 written
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   SCALAR SUBQUERY 3
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, (select users.version from users where users.team_id = ? and users.id = ?),
  ?, coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where changes() > 0;

-- batch.sessions.1: 4 rows read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   LIST SUBQUERY 4
--   SEARCH uploads USING INDEX uploads_unfinished (team_id=? AND key_id=?)
--   LIST SUBQUERY 2
--   SEARCH users EXISTS USING INDEX users_team (team_id=? AND id=?)
--   SEARCH api_keys USING INDEX api_keys_user (user_id=?)
update uploads
set
  status = ?, idempotency_key = ?,
  due_at = iif(
    uploads.secret_hash is not null,
    iif((uploads.is_writing or uploads.fenced_off > 0) or not uploads.secret_hash is not null, ?, ?),
    min(
      due_at, iif((uploads.is_writing or uploads.fenced_off > 0) or not uploads.secret_hash is not null, ?, ?)
    )
  ), metadata = ?, properties = ?, chunks = ?
where
  (
    uploads.status = 'receiving'
    and (team_id, file_id) in (
      select team_id, file_id
      from uploads indexed by uploads_unfinished
      where
        (
          (
            uploads.team_id = ?
            and (uploads.status <> 'committed' and uploads.secret_hash is not null)
            and uploads.key_id in (
              select id
              from api_keys
              where
                (
                  (api_keys.user_id = ? and api_keys.team_id = ?)
                  and api_keys.kind = 'session'
                  and api_keys.id <> ?
                  and exists (
                    select 1
                    from users
                    where ((users.id = ? and users.team_id = ?) and users.password = ?)
                  )
                )
            )
          )
          and uploads.offset_bytes < uploads.size_bytes
        )
    )
  );

-- batch.sessions.2: 0 rows read
--   SEARCH api_keys USING INDEX api_keys_user (user_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
delete from api_keys
where
  (
    (api_keys.user_id = ? and api_keys.team_id = ?)
    and api_keys.kind = 'session'
    and api_keys.id <> ?
    and exists (select 1 from users where ((users.id = ? and users.team_id = ?) and users.password = ?))
  );

-- batch.login.uploads: 6 rows read
--   SEARCH uploads USING PRIMARY KEY (team_id=? AND file_id=?)
--   LIST SUBQUERY 8
--   SEARCH uploads USING INDEX uploads_unfinished (team_id=? AND key_id=?)
--   LIST SUBQUERY 6
--   SEARCH users EXISTS USING INDEX users_team (team_id=? AND id=?)
--   SCALAR SUBQUERY 5
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   SEARCH teams EXISTS USING PRIMARY KEY (id=?)
--   SEARCH api_keys USING COVERING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   LIST SUBQUERY 2
--   CO-ROUTINE sorted
--   SEARCH api_keys USING INDEX api_keys_team_sessions (team_id=?)
--   SCAN sorted
update uploads
set
  status = ?, idempotency_key = ?,
  due_at = iif(
    uploads.secret_hash is not null,
    iif((uploads.is_writing or uploads.fenced_off > 0) or not uploads.secret_hash is not null, ?, ?),
    min(
      due_at, iif((uploads.is_writing or uploads.fenced_off > 0) or not uploads.secret_hash is not null, ?, ?)
    )
  ), metadata = ?, properties = ?, chunks = ?
where
  (
    uploads.status = 'receiving'
    and (team_id, file_id) in (
      select team_id, file_id
      from uploads indexed by uploads_unfinished
      where
        (
          (
            uploads.team_id = ?
            and (uploads.status <> 'committed' and uploads.secret_hash is not null)
            and uploads.key_id in (
              select id
              from api_keys
              where
                (
                  api_keys.id in (
                    select id
                    from
                      (
                        select id
                        from api_keys
                        where
                          (
                            (api_keys.user_id = ? and api_keys.team_id = ?)
                            and api_keys.kind = 'session'
                            and api_keys.created_by_key_id is null
                            and api_keys.expires_at > ?
                          )
                        order by api_keys.id desc
                        limit ?
                        offset ?
                      ) sorted
                  )
                  and exists (
                    select 1
                    from users
                    where ((users.id = ? and users.team_id = ?) and users.password = ?)
                  )
                  and exists (select 1 from teams where (teams.id = ? and teams.status <> ?))
                  and not exists (select 1 from api_keys where (api_keys.id = ? and api_keys.team_id = ?))
                )
            )
          )
          and uploads.offset_bytes < uploads.size_bytes
        )
    )
  );

-- batch.login.ended: 1 row read
--   SEARCH api_keys USING COVERING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   LIST SUBQUERY 2
--   CO-ROUTINE sorted
--   SEARCH api_keys USING INDEX api_keys_team_sessions (team_id=?)
--   SCAN sorted
--   SCALAR SUBQUERY 3
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   SCALAR SUBQUERY 4
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 5
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
delete from api_keys
where
  (
    api_keys.id in (
      select id
      from
        (
          select id
          from api_keys
          where
            (
              (api_keys.user_id = ? and api_keys.team_id = ?)
              and api_keys.kind = 'session'
              and api_keys.created_by_key_id is null
              and api_keys.expires_at > ?
            )
          order by api_keys.id desc
          limit ?
          offset ?
        ) sorted
    )
    and exists (select 1 from users where ((users.id = ? and users.team_id = ?) and users.password = ?))
    and exists (select 1 from teams where (teams.id = ? and teams.status <> ?))
    and not exists (select 1 from api_keys where (api_keys.id = ? and api_keys.team_id = ?))
  );

-- batch.login.insert.change: 3 rows read, 6 written
--   SEARCH users EXISTS USING INDEX users_team (team_id=? AND id=?)
--   SEARCH teams EXISTS USING PRIMARY KEY (id=?)
insert into
  api_keys (
    id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
    origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
    created_at, expires_at, expiry_notice_at, version
  )
select ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
where
  exists (select 1 from users where ((users.id = ? and users.team_id = ?) and users.password = ?))
  and exists (select 1 from teams where (teams.id = ? and teams.status <> ?))
on conflict do nothing;

-- batch.login.insert.event: 7 rows read, 3 written
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, ?, ?, coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
where changes() > 0;

-- batch.login.stored: 1 row read
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
select
  id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
  origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
  created_at, expires_at, expiry_notice_at, version
from api_keys
where (api_keys.id = ? and api_keys.team_id = ?);

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));

-- followers.2: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
