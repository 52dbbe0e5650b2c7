-- Count the steps to imitate: the steps of accepted trajectories. Steps that were only replayed, and steps that an
-- import's source takes out of training, do not count. Of a correction that no reviewer wrote, only the corrected step
-- counts.
SELECT
    coalesce(
        sum(if(continues IS NULL OR trajectory_id IN (SELECT trajectory_id FROM people_tries), n_steps - replayed - coalesce(n_context, 0), 1)), 0
    )::BIGINT AS n
FROM trajectories
LEFT JOIN (
    SELECT trajectory_id, count(*) AS n_context
    FROM given_targets JOIN trajectories USING (trajectory_id) WHERE NOT target AND step >= replayed GROUP BY trajectory_id
) USING (trajectory_id)
WHERE trajectory_id IN (SELECT trajectory_id FROM decisions WHERE route = 'sft')
