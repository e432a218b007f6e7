-- getEvent: GET /auth/v1/events/{id}
-- 1 round trip, 5 rows read, 0 written

-- Round trip 1

-- 1: 2 rows read
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

-- 2: 3 rows read
--   SEARCH events USING PRIMARY KEY (team_id=? AND seq=?)
--   SCALAR SUBQUERY 4
--   SEARCH api_keys USING INDEX api_keys_token_hash (token_hash=?)
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
select
  team_id, seq, type, created_at, actor, subject_id, subject_version, data, position,
  nullif(
    iif(
      json_extract(page.actor, '$.userId') is null,
      (
        select api_keys.name
        from api_keys
        where api_keys.id = json_extract(page.actor, '$.keyId') and api_keys.team_id = page.team_id
      ),
      (
        select users.full_name
        from users
        where users.id = json_extract(page.actor, '$.userId') and users.team_id = page.team_id
      )
    ), ''
  ) as actor_name
from
  (
    select team_id, seq, type, created_at, actor, subject_id, subject_version, data, position
    from events
    where
      (
        events.team_id = coalesce(
          ?,
          (
            select team_id
            from api_keys
            where
              (
                api_keys.token_hash = ?
                and api_keys.expires_at > ? - iif(api_keys.kind = 'public', ?, 0)
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
              )
          )
        )
        and events.seq = ?
      )
  ) page;
