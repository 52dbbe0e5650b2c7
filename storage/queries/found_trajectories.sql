-- Find trajectories: $limit rows after the first $offset, sorted by $sort (`newest`, `oldest`, `reward`, `steps` or
-- `seconds`; the largest first), with `total`, the number of all that match. A condition whose parameter is null holds
-- for every trajectory. With $evaluations, it finds trajectories that evaluations keep, else collected ones.
--
-- $task: the task's id, or its last part. $outcome: `success`, `failure`, `environment`, or `unknown` for an import
-- without an outcome. $policy: a version or a kind of policy. $seed: the page's seed. $tag: a tag. $route: the route
-- that the filter or a reviewer chose. $gate: a gate that rejected the trajectory. $pattern: a regular expression, in
-- any case, for the instruction, the reason of a failure, the reasons of verdicts, and the thoughts, errors and values
-- of actions of steps. Stored actions are JSON, which escapes some characters, and only values are searched. So actions
-- that match as JSON or have an escape are read.
WITH
steps_in_question AS MATERIALIZED (
    SELECT trajectory_id, CASE WHEN found THEN NULL ELSE actions END AS actions, found
    FROM (
        SELECT
            trajectory_id, actions, array_to_string(actions, ' ') AS written,
            coalesce(regexp_matches(thought, $pattern::VARCHAR, 'i'), false)
                OR coalesce(regexp_matches(action_error, $pattern::VARCHAR, 'i'), false) AS found
        FROM all_steps
        WHERE evaluation = $evaluations AND $pattern::VARCHAR IS NOT NULL
            AND ($iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER)
    )
    WHERE found OR contains(written, '\') OR regexp_matches(written, $pattern::VARCHAR, 'i')
),
with_text AS (
    SELECT trajectory_id FROM steps_in_question WHERE found
    UNION
    SELECT trajectory_id
    FROM (SELECT trajectory_id, unnest(actions) AS action FROM steps_in_question WHERE NOT found)
    WHERE regexp_matches(array_to_string(json_extract_string(action, '$..*'), ' '), $pattern::VARCHAR, 'i')
    UNION
    SELECT trajectory_id FROM verdicts
    WHERE ($iteration::INTEGER IS NULL OR iteration = $iteration::INTEGER)
        AND regexp_matches(reason, $pattern::VARCHAR, 'i')
),
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
            OR regexp_matches(instruction, $pattern::VARCHAR, 'i')
            OR regexp_matches(failure_reason, $pattern::VARCHAR, 'i')
            OR trajectory_id IN (SELECT trajectory_id FROM with_text)
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
