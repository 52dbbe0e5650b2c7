-- Stored successes of the explorer and of relays for the tasks $tasks, newest first, with their steps in order: what an
-- all-failed group is shown. A step's thought is its own or the annotated one.
WITH
decisions AS (
    SELECT * FROM verdicts
    WHERE gate = 'route'
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY created_at DESC, gate_version DESC) = 1
)
SELECT
    t.trajectory_id, t.task_id, t.seed, t.instruction,
    s.step, s.screenshot, s.action, coalesce(nullif(s.thought, ''), a.thought, '') AS thought
FROM trajectories t
JOIN decisions v USING (trajectory_id)
JOIN steps s USING (trajectory_id)
LEFT JOIN annotations a ON a.trajectory_id = s.trajectory_id AND a.step = s.step AND a.kind = 'thought'
WHERE v.route = 'sft' AND t.policy IN ('explorer', 'relay')
    AND list_contains($tasks::VARCHAR[], t.task_id)
ORDER BY t.iteration DESC, t.trajectory_id, s.step
