-- Count, by iteration, how many trajectories were rolled out, how many pass each part of the filter, and why the others
-- do not. `valid` leaves out environment failures, `verified` counts successes by the verifier, and the routes are
-- those of the newest decision. `steps` counts the steps that go to supervised training. `rejections` holds, for each
-- gate, how many trajectories it rejected (`n`), its most frequent reason, and how often it gave that reason (`most`).
-- The stage `reflect` counts corrections itself; they continue trajectories that are counted here.
WITH
collected AS (FROM trajectories WHERE continues IS NULL),
sft_steps AS (
    SELECT steps.iteration, count(*) AS steps
    FROM steps SEMI JOIN (
        SELECT trajectory_id FROM decisions SEMI JOIN collected USING (trajectory_id) WHERE route = 'sft'
    ) AS kept USING (trajectory_id)
    GROUP BY steps.iteration
),
reasons AS (
    SELECT iteration, gate, why, count(*) AS n
    FROM (
        SELECT
            iteration, split_part(reason, ': ', 1) AS gate,
            if(contains(reason, ': '), substr(reason, strpos(reason, ': ') + 2), reason) AS why
        FROM decisions SEMI JOIN collected USING (trajectory_id) WHERE NOT passed
    )
    GROUP BY iteration, gate, why
),
by_gate AS (
    SELECT iteration, gate, sum(n)::BIGINT AS total, max(n) AS most, first(why ORDER BY n DESC, why) AS reason
    FROM reasons GROUP BY iteration, gate
),
rejected AS (
    SELECT
        iteration,
        list({'gate': gate, 'reason': reason, 'n': total, 'most': most} ORDER BY total DESC, gate) AS rejections
    FROM by_gate GROUP BY iteration
),
sieved AS (
    SELECT
        iteration,
        count(*) AS collected,
        count(*) FILTER (success IS NOT NULL OR failure_boundary IS NULL) AS valid,
        count(*) FILTER (success) AS verified,
        count(*) FILTER (route = 'sft') AS sft,
        count(*) FILTER (route = 'ct') AS ct,
        count(*) FILTER (route = 'rl') AS rl,
        count(*) FILTER (route = 'quarantine') AS quarantine,
        count(*) FILTER (route = 'none') AS none
    FROM collected LEFT JOIN (SELECT trajectory_id, route FROM decisions) USING (trajectory_id)
    GROUP BY iteration
)
SELECT sieved.*, coalesce(steps, 0) AS steps, coalesce(rejections, []) AS rejections
FROM sieved LEFT JOIN sft_steps USING (iteration) LEFT JOIN rejected USING (iteration)
ORDER BY iteration
