-- listSessions: GET /auth/v1/sessions
-- 1 round trip, 4 rows read, 0 written

-- Round trip 1

-- caller: 2 rows read
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

-- rows: 2 rows read
--   COMPOUND QUERY
--   LEFT-MOST SUBQUERY
--   CO-ROUTINE matching
--   CO-ROUTINE examined
--   SEARCH api_keys USING INDEX api_keys_team_sessions (team_id=? AND id<?)
--   SCAN examined
--   SCAN matching
--   UNION ALL
--   CO-ROUTINE last
--   CO-ROUTINE examined
--   SEARCH api_keys USING INDEX api_keys_team_sessions (team_id=? AND id<?)
--   SCAN examined
--   SCAN last
select
  id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
  origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
  created_at, expires_at, expiry_notice_at, version, ? as isEnd
from
  (
    select
      id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
      origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
      created_at, expires_at, expiry_notice_at, version
    from
      (
        select
          id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with,
          created_by_key_id, origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed,
          lifetime_milliseconds, created_at, expires_at, expiry_notice_at, version
        from api_keys
        where (api_keys.team_id = ? and api_keys.kind = 'session' and api_keys.id < ?)
        order by api_keys.id desc
        limit ?
      ) examined
    where examined.expires_at > ?
    limit ?
  ) matching
union all
select
  id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
  origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
  created_at, expires_at, expiry_notice_at, version, ? as isEnd
from
  (
    select
      id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with, created_by_key_id,
      origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed, lifetime_milliseconds,
      created_at, expires_at, expiry_notice_at, version
    from
      (
        select
          id, team_id, uuid, name, kind, scopes, token_hash, encrypted_token, encrypted_with,
          created_by_key_id, origin_id, user_id, last_used_at, limits, user_agent, rotated_to, revealed,
          lifetime_milliseconds, created_at, expires_at, expiry_notice_at, version
        from api_keys
        where (api_keys.team_id = ? and api_keys.kind = 'session' and api_keys.id < ?)
        order by api_keys.id desc
        limit ?
      ) examined
    limit ?
    offset ?
  ) last
limit ?;
