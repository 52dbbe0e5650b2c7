-- What the trajectories of iteration $iteration that were made in groups were worth: 1 or 0 as a verifier said, the score
-- where a judge stands in for it ($scored: the advantage is of scores, not of successes). Null: an environment failure.
SELECT t.group_id, t.attempt, if($scored AND k.verifier = 'judge', t.reward, t.success::INTEGER)::DOUBLE AS worth
FROM trajectories t LEFT JOIN tasks k USING (task_id)
WHERE t.group_id IS NOT NULL AND t.iteration = $iteration
ORDER BY t.group_id, t.attempt
