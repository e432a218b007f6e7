-- createLink: POST /docs/v1/uploads/{id}/links
-- 2 round trips, 13 rows read, 4 written

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

-- batch.file: 2 rows read
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH links USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 2
--   SEARCH links USING COVERING INDEX links_file (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 3
--   SEARCH teams USING PRIMARY KEY (id=?)
select
  case
    when not exists (select 1 from links where links.id = ?)
    and not (
      (select count(*) from links where (links.team_id = ? and links.file_id = ?)) < ?
      and exists (select 1 from teams where ((teams.id = ? and teams.status <> ?) and teams.links < ?))
    ) then ?
  end, name, original_name
from files
where (files.team_id = ? and files.id = ?);

-- batch.insert.change: 4 rows read, 3 written
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH links USING PRIMARY KEY (id=?)
--   SCALAR SUBQUERY 2
--   SEARCH links USING COVERING INDEX links_file (team_id=? AND file_id=?)
--   SCALAR SUBQUERY 3
--   SEARCH teams USING PRIMARY KEY (id=?)
insert into
  links (
    id, team_id, file_id, secret_hash, name, start_seconds, end_seconds, disposition, expires_at, created_at,
    key_id, user_id
  )
select ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?
from files
where
  (files.team_id = ? and files.id = ?)
  and case
    when not exists (select 1 from links where links.id = ?)
    and not (
      (select count(*) from links where (links.team_id = ? and links.file_id = ?)) < ?
      and exists (select 1 from teams where ((teams.id = ? and teams.status <> ?) and teams.links < ?))
    ) then ?
  end is null
on conflict do nothing;

-- batch.insert.event: 3 rows read, 1 written
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

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
