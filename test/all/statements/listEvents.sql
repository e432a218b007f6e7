-- listEvents: GET /auth/v1/events
-- 1 round trip, 10 rows read, 0 written

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

-- rows: 8 rows read
--   CO-ROUTINE page
--   SEARCH events USING PRIMARY KEY (team_id=? AND seq>? AND seq<?)
--   SCAN page
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 5
--   SEARCH links USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 4
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 6
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 7
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 10
--   SEARCH sessions USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 8
--   SEARCH api_keys USING INDEX sqlite_autoindex_api_keys_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 9
--   SEARCH users USING INDEX sqlite_autoindex_users_1 (id=?)
--   CORRELATED SCALAR SUBQUERY 11
--   SEARCH teams USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 12
--   SEARCH webhooks USING PRIMARY KEY (team_id=? AND id=?)
select
  team_id, seq, type, created_at, actor, subject_id, subject_version, data, position,
  iif(
    json_extract(page.actor, '$.userId') is null,
    (
      select api_keys.name
      from api_keys
      where api_keys.id = json_extract(page.actor, '$.keyId') and api_keys.team_id = page.team_id
    ),
    (
      select nullif(users.full_name, '')
      from users
      where users.id = json_extract(page.actor, '$.userId') and users.team_id = page.team_id
    )
  ) as actor_name,
  case substr(type, 1, instr(type, '.') - 1)
    when ? then (
      select coalesce(files.name, files.original_name)
      from files
      where files.team_id = page.team_id and files.id = page.subject_id
    )
    when ? then (
      select
        coalesce(
          links.name,
          (
            select coalesce(files.name, files.original_name)
            from files
            where files.team_id = links.team_id and files.id = links.file_id
          )
        )
      from links
      where links.id = page.subject_id and links.team_id = page.team_id
    )
    when ? then (
      select nullif(users.full_name, '')
      from users
      where users.id = page.subject_id and users.team_id = page.team_id
    )
    when ? then (
      select api_keys.name
      from api_keys
      where api_keys.id = page.subject_id and api_keys.team_id = page.team_id
    )
    when ? then (
      select
        iif(
          sessions.user_id is null,
          (
            select api_keys.name
            from api_keys
            where api_keys.id = sessions.created_by_key_id and api_keys.team_id = sessions.team_id
          ),
          (
            select nullif(users.full_name, '')
            from users
            where users.id = sessions.user_id and users.team_id = sessions.team_id
          )
        )
      from api_keys sessions
      where sessions.id = page.subject_id and sessions.team_id = page.team_id
    )
    when ? then (select teams.name from teams where teams.id = page.subject_id)
    when ? then (
      select
        iif(
          webhooks.description <> '', webhooks.description,
          substr(
            substr(webhooks.url, instr(webhooks.url, '://') + 3),
            1, instr(substr(webhooks.url, instr(webhooks.url, '://') + 3), '/') - 1
          )
        )
      from webhooks
      where webhooks.team_id = page.team_id and webhooks.id = page.subject_id
    )
  end as subject_name
from
  (
    select team_id, seq, type, created_at, actor, subject_id, subject_version, data, position
    from events
    where (events.team_id = ? and events.seq > ? and events.seq < ?)
    order by events.seq desc
    limit ?
  ) page;
