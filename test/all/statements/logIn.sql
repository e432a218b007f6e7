-- logIn: POST /auth/v1/login
-- 2 round trips, 20 rows read, 9 written

-- Round trip 1

-- the only query: 2 rows read
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SEARCH users USING INDEX users_team_email (team_id=? AND email_key=?) LEFT-JOIN
select
  users.id, users.team_id, users.first_name, users.last_name, users.email, users.email_key, users.password,
  users.role, users.created_at, users.updated_at, users.version, users.invitation_hash,
  users.invitation_ends_at, users.invitation_by, users.folders, users.unfinished_uploads,
  users.account_events_until, users.full_name, teams.status
from teams left join users on (users.team_id = teams.id and users.email_key = ?)
where (teams.id = ? and teams.status <> ?);

-- Round trip 2

-- batch.uploads: 6 rows read
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

-- batch.ended: 1 row read
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

-- batch.insert.change: 3 rows read, 6 written
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

-- batch.insert.event: 7 rows read, 3 written
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

-- batch.stored: 1 row read
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
