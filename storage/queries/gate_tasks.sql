-- What the known successes of each task of iteration $iteration look like, for the gates: how many there are, in how many
-- of them the screen changed, and the number of different screens that nine in ten of them act on at the least.
--
-- Known are the accepted ones of earlier iterations; where a task has fewer than $enough of them, the successes of this
-- iteration too, whatever was decided of them before: the same answer comes whenever the filter runs.
WITH
earlier AS (
    SELECT trajectory_id, task_id FROM trajectories
    WHERE success AND iteration < $iteration
        AND task_id IN (SELECT task_id FROM trajectories WHERE iteration = $iteration)
        AND trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route IN ('sft', 'rl'))
),
known AS (
    FROM earlier
    UNION ALL
    SELECT trajectory_id, task_id FROM trajectories
    WHERE success AND iteration = $iteration
        AND task_id NOT IN (SELECT task_id FROM earlier GROUP BY task_id HAVING count(*) >= $enough)
),
shown AS (
    SELECT
        task_id, count(DISTINCT screenshot) AS screens, bool_or(next_screenshot <> screenshot) AS changed
    FROM known JOIN acting_steps USING (trajectory_id)
    GROUP BY task_id, trajectory_id
)
SELECT
    task_id, count(*)::INTEGER AS successes, count(*) FILTER (changed)::INTEGER AS changed,
    quantile_disc(screens, 0.1)::INTEGER AS screens
FROM shown GROUP BY task_id
