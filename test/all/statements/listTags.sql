-- listTags: GET /docs/v1/tags
-- 1 round trip, 6 rows read, 0 written

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

-- rows: 4 rows read
--   CO-ROUTINE tagged
--   SETUP
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 3
--   SEARCH file_tags USING PRIMARY KEY (team_id=? AND (tag_key,tag,file_id)>(?,?,?))
--   SCALAR SUBQUERY 2
--   MATERIALIZE team
--   SCAN CONSTANT ROW
--   SCAN team
--   RECURSIVE STEP
--   SCAN tagged
--   CORRELATED SCALAR SUBQUERY 6
--   SEARCH file_tags USING PRIMARY KEY (team_id=? AND (tag_key,tag,file_id)>(?,?,?))
--   SCALAR SUBQUERY 5
--   SCAN team
--   SCAN tagged
select tag
from
  (
    with recursive
      team (id) as (select ?),
      tagged (found) as (
        select
          (
            select json_array(file_tags.tag_key, file_tags.tag)
            from file_tags
            where
              file_tags.team_id = (select id from team)
              and (file_tags.tag_key, file_tags.tag, file_tags.file_id) > (?, ?, ?)
            order by file_tags.tag_key, file_tags.tag
            limit 1
          )
        union all
        select
          (
            select json_array(file_tags.tag_key, file_tags.tag)
            from file_tags
            where
              file_tags.team_id = (select id from team)
              and (file_tags.tag_key, file_tags.tag, file_tags.file_id) > (found ->> 0, found ->> 1, ?)
            order by file_tags.tag_key, file_tags.tag
            limit 1
          )
        from tagged
        where found ->> 0 <= ?
        limit ?
      )
    select found ->> 1 as tag
    from tagged
    where found ->> 0 <= ?
  );
