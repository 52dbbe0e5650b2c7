-- All preferences, each with the steps of its context in order (the last one is the step it is about).
SELECT
    p.pair_id, p.chosen, p.rejected, p.task_id, t.instruction, s.step, s.screenshot, s.raw_text
FROM pairs p
JOIN trajectories t USING (trajectory_id)
JOIN steps s ON s.trajectory_id = p.trajectory_id AND s.step <= p.step
ORDER BY p.pair_id, s.step
