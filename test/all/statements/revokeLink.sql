-- revokeLink: DELETE /docs/v1/links/{id}
-- 2 round trips, 14 rows read, 3 written

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

-- batch.link: 2 rows read
--   SEARCH links USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
select null
from links
where
  (
    links.id = ?
    and links.team_id = ?
    and (
      exists (
        select 1
        from files
        where (files.team_id = ? and (links.team_id = files.team_id and links.file_id = files.id))
      )
      or exists (
        select 1
        from removed
        where
          (
            removed.team_id = ?
            and removed.trashed_at is not null
            and (links.team_id = removed.team_id and links.file_id = removed.id)
          )
      )
    )
  );

-- batch.deletion.event: 5 rows read, 1 written
--   SEARCH links USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 4
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
--   SCALAR SUBQUERY 1
--   SEARCH events USING PRIMARY KEY (team_id=?)
--   SCALAR SUBQUERY 2
--   SEARCH events USING PRIMARY KEY (team_id=?)
insert into events (team_id, seq, type, created_at, actor, subject_id, subject_version, data, position)
select
  ?, max(coalesce((select max(seq) from events where team_id = ?), 0) + 1, ?),
  ?, ?, ?, ?, null, json_object('_id', links.id, 'fileId', links.file_id),
  coalesce((select position from events where team_id = ? order by seq desc limit 1), 0) + ?
from links
where
  (
    links.id = ?
    and links.team_id = ?
    and (
      exists (
        select 1
        from files
        where (files.team_id = ? and (links.team_id = files.team_id and links.file_id = files.id))
      )
      or exists (
        select 1
        from removed
        where
          (
            removed.team_id = ?
            and removed.trashed_at is not null
            and (links.team_id = removed.team_id and links.file_id = removed.id)
          )
      )
    )
  )
  and null is null;

-- batch.deletion.change: 3 rows read, 2 written
--   SEARCH links USING PRIMARY KEY (id=?)
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH files USING PRIMARY KEY (team_id=? AND id=?)
--   CORRELATED SCALAR SUBQUERY 2
--   SEARCH removed USING PRIMARY KEY (team_id=? AND id=?)
delete from links
where
  (
    links.id = ?
    and links.team_id = ?
    and (
      exists (
        select 1
        from files
        where (files.team_id = ? and (links.team_id = files.team_id and links.file_id = files.id))
      )
      or exists (
        select 1
        from removed
        where
          (
            removed.team_id = ?
            and removed.trashed_at is not null
            and (links.team_id = removed.team_id and links.file_id = removed.id)
          )
      )
    )
  )
  and null is null;

-- followers.1: 0 rows read
--   SEARCH followers USING PRIMARY KEY (team_id=?)
select team_id, kind, id
from followers
where (followers.team_id = ? and (followers.types is null or instr(followers.types, json_quote(?))));
