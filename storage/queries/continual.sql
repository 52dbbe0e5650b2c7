-- What continual training reads: annotations of plays that went to route `ct`, of all iterations, that are true whatever
-- the play was meant for. The instruction is left out: nothing of a failure is learnt as a reply to it.
WITH
decisions AS (
    SELECT * FROM verdicts
    WHERE gate = 'route'
    QUALIFY row_number() OVER (PARTITION BY trajectory_id ORDER BY created_at DESC, gate_version DESC) = 1
)
SELECT a.kind, t.task_id, s.screenshot, a.before, a.after, a.thought, a.action
FROM annotations a
JOIN trajectories t USING (trajectory_id)
JOIN steps s ON s.trajectory_id = a.trajectory_id AND s.step = a.step
SEMI JOIN (SELECT trajectory_id FROM decisions WHERE route = 'ct') AS failed
    ON failed.trajectory_id = a.trajectory_id
WHERE a.kind IN ('grounding', 'inverse_dynamics', 'transition')
ORDER BY a.trajectory_id, a.step, a.annotation_id
