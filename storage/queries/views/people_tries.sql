-- Trajectories that tried a reviewer's correction in a sandbox: they repeat the recorded steps before `step`, perform
-- the corrected `action`, and continue from there. `won`: verifier and gates accept the trajectory, and it took no more
-- steps than the recorded trajectory if that one also succeeded (`longer`: it took more). `lost`: the action itself
-- ended the task without success. A trajectory says nothing about the correction if the sandbox did not reproduce the
-- recorded steps, or if the reviewer's action did not change the screen and later actions brought the success.
SELECT
    t.trajectory_id, t.continues, t.replayed AS step, s.actions[1] AS action,
    coalesce(t.success AND r.success AND t.n_steps > r.n_steps, false) AS longer,
    coalesce(t.success AND d.route IN ('sft', 'rl'), false) AND NOT longer
    AND (t.n_steps = t.replayed + 1 OR s.next_screenshot IS DISTINCT FROM s.screenshot) AS won,
    coalesce(NOT t.success AND t.n_steps = t.replayed + 1 AND t.termination <> 'max_steps', false) AS lost,
    t.success IS NOT NULL AS repeated
FROM trajectories t
JOIN steps s ON s.trajectory_id = t.trajectory_id AND s.step = t.replayed
JOIN trajectories r ON r.trajectory_id = t.continues
LEFT JOIN decisions d ON d.trajectory_id = t.trajectory_id
WHERE t.policy = 'correction' AND t.continues IS NOT NULL AND s.actor = 'person'
