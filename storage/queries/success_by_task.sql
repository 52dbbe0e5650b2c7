-- Count the successes of the policy $policy on held-out seeds, by suite and task, on the same trajectories as
-- `views/measured_success.sql`: on test seeds, or on validation seeds of a suite without test trajectories.
SELECT suite, task_id, count(*) FILTER (success) AS successes, count(*) AS trials
FROM (
    SELECT suite, task_id, success, seed
    FROM evaluations
    WHERE policy_version = $policy AND suite IN ('suite', 'held_out') AND success IS NOT NULL
    QUALIFY (seed >= 2000000) = max(seed >= 2000000) OVER (PARTITION BY suite)
)
GROUP BY ALL
ORDER BY suite DESC, task_id
