-- Read the return of the trajectories of iteration $iteration that were made in groups: 1 or 0 by the verifier, the
-- reward of a graded task, or the score where a judge replaces the verifier ($scored: the advantage is of rewards, not
-- of successes). It is null for an environment failure.
SELECT
    t.group_id, t.attempt, t.success,
    if($scored AND (k.graded OR k.verifier = 'judge'), t.reward, t.success::INTEGER)::DOUBLE AS worth
FROM trajectories t LEFT JOIN tasks k USING (task_id)
WHERE t.group_id IS NOT NULL AND t.iteration = $iteration
ORDER BY t.group_id, t.attempt
