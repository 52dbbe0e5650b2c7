-- The success of every policy on held-out seeds, by suite: `suite`, `held_out` for the tasks that are only measured and
-- never trained on, or `synthesized` for made tasks.
--
-- Success is measured on test seeds (2,000,000 and up), which no choice of the flywheel uses; a policy without test
-- trajectories is measured on its validation seeds. Success is the mean over tasks. Environment failures (success is
-- null) are left out. A measured actor that is not in `policies` is the explorer, measured once per lake.
SELECT
    actor,
    suite,
    avg(successes / trials) AS success,
    sum(trials)::BIGINT AS n,
    list(successes ORDER BY task_id) AS task_successes,
    list(trials ORDER BY task_id) AS task_trials
FROM (
    SELECT actor, suite, task_id, count(*) FILTER (success) AS successes, count(*) AS trials
    FROM (
        SELECT
            if(policy_version IN (SELECT policy_version FROM policies), policy_version, 'explorer') AS actor,
            suite, task_id, success, seed
        FROM evaluations
        WHERE suite IN ('suite', 'held_out', 'synthesized') AND success IS NOT NULL
        QUALIFY (seed >= 2000000) = max(seed >= 2000000) OVER (PARTITION BY actor, suite)
    )
    GROUP BY actor, suite, task_id
)
GROUP BY actor, suite
