-- Read the last screens of successful trajectories that a policy may have been trained on, by task.
SELECT DISTINCT t.task_id, p.phash
FROM trajectories t
JOIN decisions d ON d.trajectory_id = t.trajectory_id AND d.route IN ('sft', 'ct', 'rl')
JOIN steps s ON s.trajectory_id = t.trajectory_id AND s.step = t.n_steps - 1
JOIN screenshots p ON p.sha256 = coalesce(s.next_screenshot, s.screenshot)
WHERE t.success
ORDER BY t.task_id, p.phash
