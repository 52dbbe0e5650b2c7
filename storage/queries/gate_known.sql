-- Read the screens, in order, of at most $most known successes of $task in iteration $iteration. These are the
-- successes that `gate_tasks.sql` counts; the gate counts them again without the regions that change on their own.
WITH
earlier AS (
    SELECT trajectory_id FROM trajectories
    WHERE success AND task_id = $task AND iteration < $iteration
        AND trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route IN ('sft', 'rl'))
),
known AS (
    FROM earlier
    UNION ALL
    SELECT trajectory_id FROM trajectories
    WHERE success AND task_id = $task AND iteration = $iteration AND (SELECT count(*) FROM earlier) < $enough
    ORDER BY trajectory_id
    LIMIT $most
)
SELECT trajectory_id, step, screenshot, next_screenshot FROM known JOIN acting_steps USING (trajectory_id)
ORDER BY trajectory_id, step
