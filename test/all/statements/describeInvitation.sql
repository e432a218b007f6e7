-- describeInvitation: POST /auth/v1/invitations/describe
-- 1 round trip, 4 rows read, 0 written

-- Round trip 1

-- the only query: 4 rows read
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
--   SEARCH teams USING PRIMARY KEY (id=?)
--   SEARCH teams EXISTS USING PRIMARY KEY (id=?)
select users.email, users.role, teams.name, users.password
from users inner join teams on (teams.id = users.team_id and teams.status = ?)
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
