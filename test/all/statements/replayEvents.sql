-- replayEvents: POST /auth/v1/webhooks/{id}/replay
-- 2 round trips, 5 rows read, 0 written

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

-- the only query: 1 row read
--   SEARCH webhooks USING PRIMARY KEY (team_id=? AND id=?)
select
  id, team_id, url, types, description, disabled_reason, key_id, user_id, changed_by, encrypted_secret,
  old_encrypted_secret, old_secret_ends_at, encrypted_with, epoch, created_at, updated_at, version
from webhooks
where (webhooks.team_id = ? and webhooks.id = ?);
