-- Read the trajectories of iteration $iteration that were made in groups (only those of $groups, unless it is null),
-- with their steps in order. Group methods train on them. Trajectories in quarantine by the newest decision are left
-- out. An environment failure has a null success and may have no steps. The reward is the verifier's: 1 or 0, or its
-- own number for a graded task. If a judge replaces the verifier, the reward is the score, and `judge` is the version
-- of the newest verdict.
SELECT
    t.group_id, t.trajectory_id, t.attempt, t.task_id, t.seed, t.instruction, t.success, t.sampling,
    if(k.graded OR k.verifier = 'judge', t.reward, t.success::INTEGER)::DOUBLE AS reward,
    if(k.verifier = 'judge', j.judge, NULL) AS judge,
    s.step, s.screenshot, s.raw_text, s.thought, s.actions, s.token_ids, s.logprobs, s.policy_version, s.action_error
FROM trajectories t
LEFT JOIN (FROM steps WHERE iteration = $iteration) s USING (trajectory_id)
LEFT JOIN tasks k USING (task_id)
LEFT JOIN judged j USING (trajectory_id)
WHERE t.group_id IS NOT NULL AND t.iteration = $iteration
    AND t.trajectory_id NOT IN (SELECT trajectory_id FROM quarantined)
    AND ($groups::VARCHAR[] IS NULL OR list_contains($groups::VARCHAR[], t.group_id))
ORDER BY t.group_id, t.attempt, t.trajectory_id, s.step
