-- Sample steps of iteration $iteration without an input (idle) and with one, at most $most of each kind for a task.
-- Only tasks with an idle step that changed the screen are read: a region that changes on its own changes in both
-- kinds. The sample is the same in every run, because it follows the trajectories' ids, which are hashes.
WITH shown AS (
    SELECT
        task_id, screenshot, next_screenshot, trajectory_id, step,
        len(list_filter(actions, lambda one: one ->> 'type' NOT IN ('wait', 'note', 'finished', 'call_user'))) = 0 AS idle
    FROM steps JOIN trajectories USING (trajectory_id, iteration)
    WHERE iteration = $iteration AND next_screenshot IS NOT NULL AND action_type IS NOT NULL
)
SELECT task_id, idle, screenshot, next_screenshot FROM shown
WHERE task_id IN (SELECT task_id FROM shown WHERE idle AND screenshot <> next_screenshot)
QUALIFY row_number() OVER (PARTITION BY task_id, idle ORDER BY trajectory_id, step) <= $most
ORDER BY task_id, idle, trajectory_id, step
