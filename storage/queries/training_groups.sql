-- The plays of iteration $iteration that were made in groups, with their steps in order: what group methods train on.
-- An environment failure has a null success and may have no steps.
SELECT
    t.group_id, t.trajectory_id, t.attempt, t.task_id, t.seed, t.instruction, t.success, t.sampling,
    s.step, s.screenshot, s.raw_text, s.thought, s.action, s.token_ids, s.logprobs, s.policy_version
FROM trajectories t
LEFT JOIN steps s USING (trajectory_id)
WHERE t.group_id IS NOT NULL AND t.iteration = $iteration
ORDER BY t.group_id, t.attempt, t.trajectory_id, s.step
