-- Steps of iteration $iteration in which nothing was done, at most $most of each task that has one after which the screen
-- was another: what changes by itself shows there. Always the same ones, drawn by the trajectories' ids, which are hashes.
WITH idle AS (
    SELECT task_id, screenshot, next_screenshot, trajectory_id, step
    FROM steps JOIN trajectories USING (trajectory_id, iteration)
    WHERE iteration = $iteration AND action_type IN ('wait', 'finished', 'call_user') AND next_screenshot IS NOT NULL
)
SELECT task_id, screenshot, next_screenshot FROM idle
WHERE task_id IN (SELECT task_id FROM idle WHERE screenshot <> next_screenshot)
QUALIFY row_number() OVER (PARTITION BY task_id ORDER BY trajectory_id, step) <= $most
ORDER BY task_id, trajectory_id, step
