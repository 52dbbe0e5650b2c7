-- Read the policy's own steps of iteration $iteration, by trajectory and in order; distillation trains on their tokens.
-- A relay has the policy's steps before the explorer's. Environment failures and trajectories in quarantine by the newest
-- decision are left out.
SELECT
    t.trajectory_id, t.task_id, t.seed, t.instruction, t.sampling,
    s.step, s.screenshot, s.raw_text, s.thought, s.actions, s.token_ids, s.logprobs, s.policy_version, s.action_error
FROM trajectories t
JOIN (FROM steps WHERE iteration = $iteration AND actor = 'policy') s USING (trajectory_id)
WHERE t.iteration = $iteration AND t.policy IN ('policy', 'relay') AND t.success IS NOT NULL
    AND t.trajectory_id NOT IN (SELECT trajectory_id FROM quarantined)
ORDER BY t.trajectory_id, s.step
