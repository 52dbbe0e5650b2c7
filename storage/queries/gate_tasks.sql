-- Describe the known successes of each task of iteration $iteration for the gates: their number, the number in which
-- the screen changed, and the number of different screens that at least nine in ten of them act on.
--
-- Known successes are the accepted ones of earlier iterations. If a task has fewer than $enough of them, the successes
-- of this iteration are added, whatever their decision, so the result does not depend on when the filter runs.
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
