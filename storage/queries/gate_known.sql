-- The screens, in order, of known successes of $task before the end of iteration $iteration, the latest $most of those that were
-- accepted before it, or of it: what `gate_tasks.sql` counts, to be counted again without what changes all the time.
WITH known AS (
    SELECT trajectory_id FROM trajectories
    WHERE success AND task_id = $task AND (
        iteration = $iteration
        OR (iteration < $iteration
            AND trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route IN ('sft', 'rl')))
    )
    ORDER BY iteration = $iteration, trajectory_id
    LIMIT $most
)
SELECT trajectory_id, step, screenshot, next_screenshot FROM known JOIN steps USING (trajectory_id)
ORDER BY trajectory_id, step
