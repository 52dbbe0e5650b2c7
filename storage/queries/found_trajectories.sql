-- Find trajectories: $limit rows after the first $offset, sorted by $sort (`newest`, `oldest`, `reward`, `steps` or
-- `seconds`; the largest first), with `total`, the number of all that match. A condition whose parameter is null holds
-- for every trajectory. With $evaluations, it finds trajectories that evaluations keep, else collected ones.
--
-- $task: the task's id, or its last part. $outcome: `success`, `failure`, `environment`, or `unknown` for an import
-- without an outcome. $policy: a version or a kind of policy. $seed: the page's seed. $tag: a tag. $route: the route that the filter or a reviewer chose.
-- $gate: a gate that rejected the trajectory. $pattern: an ILIKE pattern with the escape character `\`, for the
-- instruction, the reason of a failure, the reasons of verdicts, and the thoughts, actions and errors of steps.
WITH
chosen AS (
    SELECT trajectory_id, iteration, started_at, reward, n_steps, wall_s
    FROM all_trajectories
    WHERE evaluation = $evaluations
        AND ($iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER)
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
        AND ($pattern::VARCHAR IS NULL
            OR instruction ILIKE $pattern::VARCHAR ESCAPE '\' OR failure_reason ILIKE $pattern::VARCHAR ESCAPE '\'
            OR trajectory_id IN (
                SELECT trajectory_id FROM all_steps
                WHERE evaluation = $evaluations AND (
                    thought ILIKE $pattern::VARCHAR ESCAPE '\' OR action_error ILIKE $pattern::VARCHAR ESCAPE '\'
                    OR array_to_string(actions, ' ') ILIKE $pattern::VARCHAR ESCAPE '\'
                )
            )
            OR trajectory_id IN (
                SELECT trajectory_id FROM verdicts WHERE reason ILIKE $pattern::VARCHAR ESCAPE '\'
            )
        )
)
SELECT
    trajectory_id, iteration, count(*) OVER () AS total,
    row_number() OVER (
        ORDER BY
            CASE $sort::VARCHAR
                WHEN 'newest' THEN epoch(started_at) WHEN 'oldest' THEN -epoch(started_at) WHEN 'reward' THEN reward
                WHEN 'steps' THEN n_steps WHEN 'seconds' THEN wall_s
            END DESC NULLS LAST,
            trajectory_id
    ) AS place
FROM chosen
ORDER BY place
LIMIT $limit OFFSET $offset
