-- Steps of iteration $iteration in which nothing was done, and others, at most $most of each kind of a task that has one of
-- the first kind after which the screen was another: what changes all the time shows in both. Always the same ones, drawn by
-- the trajectories' ids, which are hashes.
WITH shown AS (
    SELECT
        task_id, screenshot, next_screenshot, trajectory_id, step,
        action_type IN ('wait', 'finished', 'call_user') AS idle
    FROM steps JOIN trajectories USING (trajectory_id, iteration)
    WHERE iteration = $iteration AND next_screenshot IS NOT NULL AND action_type IS NOT NULL
)
SELECT task_id, idle, screenshot, next_screenshot FROM shown
WHERE task_id IN (SELECT task_id FROM shown WHERE idle AND screenshot <> next_screenshot)
QUALIFY row_number() OVER (PARTITION BY task_id, idle ORDER BY trajectory_id, step) <= $most
ORDER BY task_id, idle, trajectory_id, step
