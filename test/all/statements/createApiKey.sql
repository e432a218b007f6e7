-- createApiKey: POST /auth/v1/apikeys
-- 2 round trips, 16 rows read, 11 written

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

-- batch.team: 1 row read
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 2
--   SEARCH api_keys USING INDEX api_keys_team_expiry (team_id=? AND expires_at<?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH uploads USING INDEX uploads_unfinished (team_id=? AND key_id=?)
select
  case
    when teams.api_keys >= ?
    and not exists (
      select 1
      from api_keys
      where
        (
          api_keys.team_id = ?
          and api_keys.kind <> 'session'
          and api_keys.expires_at <= ?
          and not exists (
            select 1
            from uploads indexed by uploads_unfinished
            where
              (
                uploads.team_id = ?
                and uploads.key_id = api_keys.id
                and (uploads.status <> 'committed' and uploads.secret_hash is not null)
                and uploads.status = 'receiving'
              )
          )
        )
    ) then ?
  end
from teams
where (teams.id = ? and teams.status <> ?);

-- batch.room: 1 row read
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   SCALAR SUBQUERY 3
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 2
--   SEARCH api_keys USING INDEX api_keys_team_expiry (team_id=? AND expires_at<?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH uploads USING INDEX uploads_unfinished (team_id=? AND key_id=?)
--   SCALAR SUBQUERY 5
--   SEARCH api_keys USING INDEX api_keys_team_expiry (team_id=? AND expires_at<?)
--   CORRELATED SCALAR SUBQUERY 4
--   SEARCH uploads USING INDEX uploads_unfinished (team_id=? AND key_id=?)
delete from api_keys
where
  api_keys.id = iif(
    exists (
      select 1
      from teams
      where
        (
          (teams.id = ? and teams.status <> ?)
          and teams.api_keys >= ?
          and case
            when teams.api_keys >= ?
            and not exists (
              select 1
              from api_keys
              where
                (
                  api_keys.team_id = ?
                  and api_keys.kind <> 'session'
                  and api_keys.expires_at <= ?
                  and not exists (
                    select 1
                    from uploads indexed by uploads_unfinished
                    where
                      (
                        uploads.team_id = ?
                        and uploads.key_id = api_keys.id
                        and (uploads.status <> 'committed' and uploads.secret_hash is not null)
                        and uploads.status = 'receiving'
                      )
                  )
                )
            ) then ?
          end is null
        )
    ),
    (
      select id
      from api_keys
      where
        (
          api_keys.team_id = ?
          and api_keys.kind <> 'session'
          and api_keys.expires_at <= ?
          and not exists (
            select 1
            from uploads indexed by uploads_unfinished
            where
              (
                uploads.team_id = ?
                and uploads.key_id = api_keys.id
                and (uploads.status <> 'committed' and uploads.secret_hash is not null)
                and uploads.status = 'receiving'
              )
          )
        )
      order by api_keys.expires_at
      limit ?
    ), null
  );

-- batch.insert.change: 4 rows read, 9 written
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 3
--   SEARCH api_keys USING INDEX api_keys_team_expiry (team_id=? AND expires_at<?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH uploads USING INDEX uploads_unfinished (team_id=? AND key_id=?)
--   SCALAR SUBQUERY 1
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
insert into
  api_keys (
    id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
    origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
    created_at, expires_at, expiry_notice_at, version
  )
select
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?,
  (select user_id from api_keys where (api_keys.id = ? and api_keys.team_id = ?)),
  ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
from teams
where
  (
    (teams.id = ? and teams.status <> ?)
    and case
      when teams.api_keys >= ?
      and not exists (
        select 1
        from api_keys
        where
          (
            api_keys.team_id = ?
            and api_keys.kind <> 'session'
            and api_keys.expires_at <= ?
            and not exists (
              select 1
              from uploads indexed by uploads_unfinished
              where
                (
                  uploads.team_id = ?
                  and uploads.key_id = api_keys.id
                  and (uploads.status <> 'committed' and uploads.secret_hash is not null)
                  and uploads.status = 'receiving'
                )
            )
          )
      ) then ?
    end is null
  )
on conflict do nothing;

-- batch.insert.event: 5 rows read, 2 written
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
