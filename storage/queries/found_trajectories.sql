-- Find trajectories, sorted by $sort (`newest`, `oldest`, `reward`, `steps` or `seconds`; the largest first): $limit
-- rows, the first ones or those after the trajectory $after or before the trajectory $before. Each row has `total`, the
-- number of all that match, `ahead`, the number of those sorted before the first row, and `members`, which differs for
-- sets with other members. A page without trajectories is one row with null as `trajectory_id`.
--
-- A condition whose parameter is null holds for every trajectory. With $evaluations, it finds trajectories that
-- evaluations keep, else collected ones. $task: the task's id, or its last part. $outcome: `success`, `failure`,
-- `environment`, or `unknown` for an import without an outcome. $policy: a version or a kind of policy. $seed: the
-- page's seed. $tag: a tag. $route: the route that the filter or a reviewer chose. $gate: a gate that rejected the
-- trajectory. $text: a text of the trajectories in the table `with_text`, which `storage.texts` makes.
WITH
ranked AS (
    SELECT
        *,
        coalesce(CASE $sort::VARCHAR
            WHEN 'newest' THEN epoch(started_at) WHEN 'oldest' THEN -epoch(started_at) WHEN 'reward' THEN reward
            WHEN 'steps' THEN n_steps WHEN 'seconds' THEN wall_s
        END, '-infinity'::DOUBLE) AS rank
    FROM all_trajectories
    WHERE evaluation = $evaluations
),
chosen AS MATERIALIZED (
    SELECT trajectory_id, iteration, rank
    FROM ranked
    WHERE ($iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER)
        AND ($task::VARCHAR IS NULL OR task_id = $task::VARCHAR OR split_part(task_id, '/', -1) = $task::VARCHAR)
        AND ($policy::VARCHAR IS NULL OR policy_version = $policy::VARCHAR OR policy = $policy::VARCHAR)
        AND ($seed::BIGINT IS NULL OR seed = $seed::BIGINT)
        AND ($outcome::VARCHAR IS NULL OR $outcome::VARCHAR = CASE
            WHEN success THEN 'success'
            WHEN success = false THEN 'failure'
            WHEN failure_boundary IS NULL THEN 'unknown'
            ELSE 'environment'
        END)
        AND ($route::VARCHAR IS NULL OR trajectory_id IN (
            SELECT trajectory_id FROM decisions
            WHERE route = $route::VARCHAR AND ($iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER)
        ))
        AND ($tag::VARCHAR IS NULL OR trajectory_id IN (
            SELECT trajectory_id FROM tags
            WHERE tag = $tag::VARCHAR AND tag_id NOT IN (SELECT removes FROM tags WHERE removes IS NOT NULL)
        ))
        AND ($gate::VARCHAR IS NULL OR trajectory_id IN (
            SELECT trajectory_id FROM verdicts WHERE gate = $gate::VARCHAR AND NOT passed
        ))
        AND ($text::VARCHAR IS NULL OR trajectory_id IN (SELECT trajectory_id FROM with_text))
),
given AS (
    SELECT rank, trajectory_id FROM ranked
    WHERE trajectory_id = coalesce($after::VARCHAR, $before::VARCHAR)
),
placed AS (
    SELECT chosen.*, coalesce(chosen.rank < given.rank
        OR (chosen.rank = given.rank AND chosen.trajectory_id > given.trajectory_id), false) AS behind
    FROM chosen LEFT JOIN given ON true
),
page AS (
    (
        SELECT * FROM placed WHERE $before::VARCHAR IS NULL AND ($after::VARCHAR IS NULL OR behind)
        ORDER BY rank DESC, trajectory_id LIMIT $limit::BIGINT
    )
    UNION ALL
    (
        SELECT * FROM placed WHERE NOT behind AND trajectory_id <> $before::VARCHAR
        ORDER BY rank, trajectory_id DESC LIMIT $limit::BIGINT
    )
)
SELECT page.trajectory_id, page.iteration, counted.*
FROM (
    SELECT
        count(*) AS total,
        coalesce(bit_xor(hash(trajectory_id)), 0)::VARCHAR AS members,
        CASE
            WHEN $after::VARCHAR IS NOT NULL THEN count(*) FILTER (NOT behind)
            WHEN $before::VARCHAR IS NOT NULL
                THEN count(*) FILTER (NOT behind AND trajectory_id <> $before::VARCHAR) - (SELECT count(*) FROM page)
            ELSE 0
        END AS ahead
    FROM placed
) AS counted
LEFT JOIN page ON true
ORDER BY page.rank DESC, page.trajectory_id
