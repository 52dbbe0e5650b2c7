-- One row per iteration: how many trajectories were played, how many of them survive each sieve, and why the others
-- did not. `valid` leaves out environment failures, `verified` is what the verifier called a success, the routes are
-- those of the `route` gate, `steps` are the steps of what goes to supervised training. `rejections` holds the three
-- most frequent reasons of every gate that turned something away.
WITH
routed AS (
    SELECT trajectory_id, route FROM verdicts
    WHERE gate = 'route'
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY gate_version DESC) = 1
),
sft_steps AS (
    SELECT steps.iteration, count(*) AS steps
    FROM steps SEMI JOIN (SELECT trajectory_id FROM routed WHERE route = 'sft') AS kept USING (trajectory_id)
    GROUP BY steps.iteration
),
reasons AS (
    SELECT iteration, gate, reason, count(*) AS n
    FROM verdicts WHERE NOT passed
    GROUP BY iteration, gate, reason
    QUALIFY row_number() OVER (PARTITION BY iteration, gate ORDER BY n DESC, reason) <= 3
),
rejected AS (
    SELECT
        iteration,
        list({'gate': gate, 'reason': reason, 'n': n} ORDER BY gate, n DESC, reason) AS rejections
    FROM reasons GROUP BY iteration
),
sieved AS (
    SELECT
        iteration,
        count(*) AS collected,
        count(*) FILTER (success IS NOT NULL) AS valid,
        count(*) FILTER (success) AS verified,
        count(*) FILTER (route = 'sft') AS sft,
        count(*) FILTER (route = 'ct') AS ct,
        count(*) FILTER (route = 'rl') AS rl,
        count(*) FILTER (route = 'none') AS none
    FROM trajectories LEFT JOIN routed USING (trajectory_id)
    GROUP BY iteration
)
SELECT sieved.*, coalesce(steps, 0) AS steps, coalesce(rejections, []) AS rejections
FROM sieved LEFT JOIN sft_steps USING (iteration) LEFT JOIN rejected USING (iteration)
ORDER BY iteration
