-- reconcile: POST /auth/v1/reconciliation
-- R2: list
-- 3 round trips, 9 rows read, 0 written

-- Round trip 1

-- the only query: 3 rows read
--   MERGE (UNION ALL)
--   LEFT
--   MERGE (UNION ALL)
--   LEFT
--   SEARCH files USING PRIMARY KEY ((team_id,id)>(?,?) AND (team_id,id)<(?,?))
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=?)
--   RIGHT
--   SEARCH removed USING PRIMARY KEY ((team_id,id)>(?,?) AND (team_id,id)<(?,?))
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=?)
--   RIGHT
--   SEARCH uploads USING PRIMARY KEY ((team_id,file_id)>(?,?) AND (team_id,file_id)<(?,?))
select
  id, team_id as team_id, original_name,
  (
    select json_group_array(json_object('kind', kind, 'version', version, 'state', state))
    from file_objects
    where file_objects.team_id = files.team_id and file_objects.file_id = files.id
  ) as beside, 1 as isKept
from files
where ((files.team_id, files.id) >= (?, ?) and (files.team_id, files.id) <= (?, ?))
union all
select
  id, team_id as team_id, original_name,
  (
    select json_group_array(json_object('kind', kind, 'version', version, 'state', state))
    from file_objects
    where file_objects.team_id = removed.team_id and file_objects.file_id = removed.id
  ) as beside, removed.trashed_at is not null as isKept
from removed
where ((removed.team_id, removed.id) >= (?, ?) and (removed.team_id, removed.id) <= (?, ?))
union all
select file_id as id, team_id as team_id, original_name, '[]' as beside, 0 as isKept
from uploads
where ((uploads.team_id, uploads.file_id) >= (?, ?) and (uploads.team_id, uploads.file_id) <= (?, ?))
order by team_id, id
limit ?;

-- Round trip 2

-- the only query: 3 rows read
--   MERGE (UNION ALL)
--   LEFT
--   MERGE (UNION ALL)
--   LEFT
--   SEARCH files USING PRIMARY KEY ((team_id,id)>(?,?) AND (team_id,id)<(?,?))
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=?)
--   RIGHT
--   SEARCH removed USING PRIMARY KEY ((team_id,id)>(?,?) AND (team_id,id)<(?,?))
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=?)
--   RIGHT
--   SEARCH uploads USING PRIMARY KEY ((team_id,file_id)>(?,?) AND (team_id,file_id)<(?,?))
select
  id, team_id as team_id, original_name,
  (
    select json_group_array(json_object('kind', kind, 'version', version, 'state', state))
    from file_objects
    where file_objects.team_id = files.team_id and file_objects.file_id = files.id
  ) as beside, 1 as isKept
from files
where ((files.team_id, files.id) >= (?, ?) and (files.team_id, files.id) <= (?, ?))
union all
select
  id, team_id as team_id, original_name,
  (
    select json_group_array(json_object('kind', kind, 'version', version, 'state', state))
    from file_objects
    where file_objects.team_id = removed.team_id and file_objects.file_id = removed.id
  ) as beside, removed.trashed_at is not null as isKept
from removed
where ((removed.team_id, removed.id) >= (?, ?) and (removed.team_id, removed.id) <= (?, ?))
union all
select file_id as id, team_id as team_id, original_name, '[]' as beside, 0 as isKept
from uploads
where ((uploads.team_id, uploads.file_id) >= (?, ?) and (uploads.team_id, uploads.file_id) <= (?, ?))
order by team_id, id
limit ?;

-- Round trip 3

-- the only query: 3 rows read
--   MERGE (UNION ALL)
--   LEFT
--   MERGE (UNION ALL)
--   LEFT
--   SEARCH files USING PRIMARY KEY ((team_id,id)>(?,?) AND (team_id,id)<(?,?))
--   CORRELATED SCALAR SUBQUERY 1
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=?)
--   RIGHT
--   SEARCH removed USING PRIMARY KEY ((team_id,id)>(?,?) AND (team_id,id)<(?,?))
--   CORRELATED SCALAR SUBQUERY 3
--   SEARCH file_objects USING PRIMARY KEY (team_id=? AND file_id=?)
--   RIGHT
--   SEARCH uploads USING PRIMARY KEY ((team_id,file_id)>(?,?) AND (team_id,file_id)<(?,?))
select
  id, team_id as team_id, original_name,
  (
    select json_group_array(json_object('kind', kind, 'version', version, 'state', state))
    from file_objects
    where file_objects.team_id = files.team_id and file_objects.file_id = files.id
  ) as beside, 1 as isKept
from files
where ((files.team_id, files.id) >= (?, ?) and (files.team_id, files.id) <= (?, ?))
union all
select
  id, team_id as team_id, original_name,
  (
    select json_group_array(json_object('kind', kind, 'version', version, 'state', state))
    from file_objects
    where file_objects.team_id = removed.team_id and file_objects.file_id = removed.id
  ) as beside, removed.trashed_at is not null as isKept
from removed
where ((removed.team_id, removed.id) >= (?, ?) and (removed.team_id, removed.id) <= (?, ?))
union all
select file_id as id, team_id as team_id, original_name, '[]' as beside, 0 as isKept
from uploads
where ((uploads.team_id, uploads.file_id) >= (?, ?) and (uploads.team_id, uploads.file_id) <= (?, ?))
order by team_id, id
limit ?;
