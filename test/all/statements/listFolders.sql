-- listFolders: GET /docs/v1/folders
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
--   CO-ROUTINE child
--   SETUP
--   SCAN CONSTANT ROW
--   SCALAR SUBQUERY 1
--   SEARCH files USING INDEX files_folder (team_id=? AND folder_key>? AND folder_key<?)
--   SCALAR SUBQUERY 2
--   SEARCH folders USING PRIMARY KEY (team_id=? AND folder_key>? AND folder_key<?)
--   RECURSIVE STEP
--   SCAN child
--   CORRELATED SCALAR SUBQUERY 4
--   SEARCH files USING INDEX files_folder (team_id=? AND folder_key>? AND folder_key<?)
--   CORRELATED SCALAR SUBQUERY 5
--   SEARCH folders USING PRIMARY KEY (team_id=? AND folder_key>? AND folder_key<?)
--   SCAN child
select folder
from
  (
    with recursive
      child (found) as (
        select
          nullif(
            min(
              ifnull(
                (
                  select files.folder_key
                  from files indexed by files_folder
                  where
                    (files.team_id = ? and files.folder <> '')
                    and files.folder_key >= ?
                    and files.folder_key < ?
                  order by files.folder_key
                  limit 1
                ), ?
              ),
              ifnull(
                (
                  select folders.folder_key
                  from folders
                  where folders.team_id = ? and folders.folder_key >= ? and folders.folder_key < ?
                  order by folders.folder_key
                  limit 1
                ), ?
              )
            ), ?
          )
        union all
        select
          nullif(
            min(
              ifnull(
                (
                  select files.folder_key
                  from files indexed by files_folder
                  where
                    (files.team_id = ? and files.folder <> '')
                    and files.folder_key >= substr(found, 1, length(?) + instr(substr(found, length(?) + 1) || char(1), char(1)) - 1) || ?
                    and files.folder_key < ?
                  order by files.folder_key
                  limit 1
                ), ?
              ),
              ifnull(
                (
                  select folders.folder_key
                  from folders
                  where
                    folders.team_id = ?
                    and folders.folder_key >= substr(found, 1, length(?) + instr(substr(found, length(?) + 1) || char(1), char(1)) - 1) || ?
                    and folders.folder_key < ?
                  order by folders.folder_key
                  limit 1
                ), ?
              )
            ), ?
          )
        from child
        where found is not null
        limit ?
      )
    select
      replace(substr(found, 1, length(?) + instr(substr(found, length(?) + 1) || char(1), char(1)) - 1), char(1), '/') as folder
    from child
    where found is not null
  );
