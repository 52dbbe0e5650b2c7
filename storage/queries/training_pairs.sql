-- All preferences, each with its context: what was replied before, and the last $history_images screens, oldest first.
SELECT
    p.pair_id, p.task_id, list(s.screenshot ORDER BY s.step)[-$history_images::INTEGER:] AS screenshots,
    p.chosen, p.rejected, any_value(t.instruction) AS instruction,
    coalesce(list(s.raw_text ORDER BY s.step) FILTER (s.step < p.step), []) AS said
FROM pairs p
JOIN trajectories t USING (trajectory_id)
JOIN steps s ON s.trajectory_id = p.trajectory_id AND s.step <= p.step
GROUP BY p.pair_id, p.task_id, p.chosen, p.rejected
ORDER BY p.pair_id
