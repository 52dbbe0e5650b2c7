-- The outcomes of evaluations on held-out seeds, without environment failures (success is null). `suite` is `suite`,
-- `held_out` for the tasks that are only measured and never trained on, or `synthesized` for made tasks. A measured
-- `actor` that is not in `policies` is the explorer, measured once per lake.
--
-- `quoted` is the one definition of the seeds that success is stated for: test seeds (2,000,000 and up), which no choice
-- of the flywheel uses; or validation seeds of an actor that was not measured on test seeds of the suite.
SELECT
    *,
    test = max(test) OVER (PARTITION BY actor, suite) AS quoted
FROM (
    SELECT
        if(policy_version IN (SELECT policy_version FROM policies), policy_version, 'explorer') AS actor,
        policy_version AS version, suite, task_id, seed, seed >= 2000000 AS test, success, reward
    FROM evaluations
    WHERE suite IN ('suite', 'held_out', 'synthesized') AND success IS NOT NULL
)
