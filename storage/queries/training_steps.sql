-- Steps of routed trajectories, in order: what training reads.
SELECT v.route, t.trajectory_id, t.task_id, t.group_id, t.instruction, s.step, s.screenshot, s.thought, s.action
FROM verdicts v
JOIN trajectories t USING (trajectory_id)
JOIN steps s USING (trajectory_id)
WHERE v.gate = 'route' AND v.route IN ('sft', 'ct')
ORDER BY t.trajectory_id, s.step
