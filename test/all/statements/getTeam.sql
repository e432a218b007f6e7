-- getTeam: GET /auth/v1/teams/{id}
-- 1 round trip, 1 row read, 0 written

-- Round trip 1

-- the only query: 1 row read
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 2
--   SEARCH api_keys USING INDEX api_keys_token_hash (token_hash=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
select
  id, name, status, max_bytes, max_files, files, bytes, trash_files, trash_bytes, retention_days,
  retention_by, retention_reached, retention_due_at, public_bytes, api_keys, links, folders, users,
  events_purged_to, account_events_until, admins, created_at, updated_at, version
from teams
where
  teams.id = coalesce(
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
  );
