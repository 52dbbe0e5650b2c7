-- The last screens of trajectories that a policy may have been trained on, by task.
WITH
ends AS (
    SELECT trajectory_id, arg_max(coalesce(next_screenshot, screenshot), step) AS sha256
    FROM steps GROUP BY trajectory_id
)
SELECT DISTINCT t.task_id, s.phash
FROM trajectories t
JOIN decisions d ON d.trajectory_id = t.trajectory_id AND d.route IN ('sft', 'ct', 'rl')
JOIN ends ON ends.trajectory_id = t.trajectory_id
JOIN screenshots s ON s.sha256 = ends.sha256
ORDER BY t.task_id, s.phash
