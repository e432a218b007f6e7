-- rebuildSearch: POST /auth/v1/teams/{id}/search/rebuild
-- 1 round trip, 1 row read, 0 written

-- Round trip 1

-- the only query: 1 row read
--   SEARCH teams USING PRIMARY KEY (id=?)
select id
from teams
where (teams.id = ? and teams.status <> ?);
