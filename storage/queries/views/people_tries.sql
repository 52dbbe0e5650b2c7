-- What came of people's corrections in a sandbox: trajectories that repeat the recorded steps before `step`, perform what
-- a person put in its place, `action`, and go on from there. `won`: the verifier and the gates accept it, and it took no
-- more steps than the recorded trajectory where that one succeeded, too (`longer`: it took more). `lost`: the action itself
-- ended it without success. What the sandbox did not repeat says nothing of the correction, nor does a success in which the
-- person's action changed nothing on the screen and others went on from there.
SELECT
    t.trajectory_id, t.continues, t.replayed AS step, s.action,
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
