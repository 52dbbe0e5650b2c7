-- The trajectories of iteration $iteration that were made in groups (in $groups alone, unless it is null), with their
-- steps in order: what group methods train on.
-- What the newest decision holds back (quarantine) is left out. An environment failure has a null success and may have
-- no steps. The reward is 1 for what a verifier called a success and 0 for what it did not; of a graded task it is the
-- verifier's own; where a judge stands in for the verifier it is the score, and `judge` the version of the newest verdict.
SELECT
    t.group_id, t.trajectory_id, t.attempt, t.task_id, t.seed, t.instruction, t.success, t.sampling,
    if(k.graded OR k.verifier = 'judge', t.reward, t.success::INTEGER)::DOUBLE AS reward,
    if(k.verifier = 'judge', j.judge, NULL) AS judge,
    s.step, s.screenshot, s.raw_text, s.thought, s.action, s.token_ids, s.logprobs, s.policy_version
FROM trajectories t
LEFT JOIN (FROM steps WHERE iteration = $iteration) s USING (trajectory_id)
LEFT JOIN tasks k USING (task_id)
LEFT JOIN judged j USING (trajectory_id)
WHERE t.group_id IS NOT NULL AND t.iteration = $iteration
    AND t.trajectory_id NOT IN (SELECT trajectory_id FROM quarantined)
    AND ($groups::VARCHAR[] IS NULL OR list_contains($groups::VARCHAR[], t.group_id))
ORDER BY t.group_id, t.attempt, t.trajectory_id, s.step
