-- Steps of routed trajectories, in order: what training reads.
WITH
decisions AS (
    SELECT * FROM verdicts
    WHERE gate = 'route'
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY created_at DESC, gate_version DESC) = 1
)
SELECT v.route, t.trajectory_id, t.task_id, t.group_id, t.instruction, s.step, s.screenshot, s.thought, s.action
FROM decisions v
JOIN trajectories t USING (trajectory_id)
JOIN steps s USING (trajectory_id)
WHERE v.route IN ('sft', 'ct')
ORDER BY t.trajectory_id, s.step
