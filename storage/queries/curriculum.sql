-- Choose the tasks that iteration $iteration rolls out, from all earlier iterations of the lake.
--
-- Evidence (`views/evidence.sql`) counts forgetting^age, where the previous iteration has age 0. Evidence that counts
-- less than 10^-15 is not read, so old iterations cost nothing. A relay's success is not the policy's own: like the
-- explorer's, it only shows that the task can be solved.
--
-- The posterior is Beta(successes + 1/2, failures + 1/2). A task weighs 2 sqrt(p (1 - p)): most at p = 1/2, where the
-- policy's next trajectories differ most from each other (Foster and Foerster, arXiv 2502.12272, weigh by p (1 - p)). p
-- is moved by one posterior standard deviation towards 1/2, which gives the benefit of the doubt to a task with few
-- trajectories. A saturated task weighs $saturated. An unseen or hopeless task needs a demonstration by the explorer,
-- so it weighs by the number of trajectories that a demonstration costs: $shown_rate / q, at most $most_shown. q is the
-- explorer's own success, from its trajectories and its evaluation. A learnable task in which policy and explorer both
-- rarely succeed weighs by the same cost of a success.
WITH
suite AS (
    SELECT DISTINCT unnest($tasks::VARCHAR[]) AS task_id
),
policy_counts AS (
    SELECT
        task_id,
        sum(pow($forgetting::DOUBLE, $iteration - 1 - iteration)) FILTER (success) AS successes,
        sum(pow($forgetting::DOUBLE, $iteration - 1 - iteration)) FILTER (NOT success) AS failures
    FROM evidence
    WHERE iteration < $iteration AND iteration >= $iteration - 1
        - coalesce(ln(1e-15) / nullif(ln(greatest($forgetting::DOUBLE, 1e-15)), 0.0), $iteration)
    GROUP BY task_id
),
shown AS (
    SELECT task_id, success, policy FROM trajectories
    WHERE policy IN ('explorer', 'relay') AND iteration < $iteration
    UNION ALL
    SELECT task_id, success, 'measured' FROM evaluations
    WHERE suite IN ('suite', 'synthesis') AND seed < 2000000
        AND policy_version NOT IN (SELECT policy_version FROM policies)
),
other_counts AS (
    SELECT
        task_id,
        count(*) FILTER (success AND policy <> 'measured') AS helped,
        (count(*) FILTER (success AND policy <> 'relay') + 0.5)
        / (count(*) FILTER (success IS NOT NULL AND policy <> 'relay') + 1.0) AS rate
    FROM shown GROUP BY task_id
),
counts AS (
    SELECT
        task_id,
        coalesce(successes, 0.0) AS successes,
        coalesce(failures, 0.0) AS failures,
        coalesce(helped, 0) AS helped,
        coalesce(rate, 0.5) AS rate
    FROM suite LEFT JOIN policy_counts USING (task_id) LEFT JOIN other_counts USING (task_id)
),
posteriors AS (
    SELECT *, a / (a + b) AS posterior, sqrt(a * b / ((a + b) * (a + b) * (a + b + 1))) AS deviation
    FROM (SELECT *, successes + 0.5 AS a, failures + 0.5 AS b FROM counts)
),
pools AS (
    SELECT
        *,
        greatest(posterior - deviation, least(posterior + deviation, 0.5)) AS optimistic,
        CASE
            WHEN $method::VARCHAR = 'uniform' THEN 'uniform'
            WHEN successes + failures = 0 THEN 'unseen'
            WHEN posterior <= $hopeless_below::DOUBLE THEN 'hopeless'
            WHEN posterior >= $saturated_above::DOUBLE THEN 'saturated'
            ELSE 'learnable'
        END AS pool
    FROM posteriors
),
weighed AS (
    SELECT
        *,
        CASE pool
            WHEN 'saturated' THEN $saturated::DOUBLE
            WHEN 'learnable' THEN greatest(
                2 * sqrt(optimistic * (1 - optimistic)),
                least($most_shown::DOUBLE, $shown_rate::DOUBLE / greatest(optimistic, rate)))
            WHEN 'uniform' THEN 1.0
            ELSE least($most_shown::DOUBLE, $shown_rate::DOUBLE / rate)
        END AS raw
    FROM pools
),
shares AS (
    SELECT
        *,
        if(pool = 'uniform', 1.0, $floor::DOUBLE) / count(*) OVER ()
        + if(pool = 'uniform', 0.0, 1.0 - $floor::DOUBLE) * raw / sum(raw) OVER () AS weight
    FROM weighed
)
SELECT
    task_id,
    successes,
    failures,
    posterior,
    if(successes + failures > 0, successes / (successes + failures), 0.0) / rate AS lead,
    pool,
    weight,
    CASE pool
        WHEN 'uniform' THEN 'uniform: an equal share'
        WHEN 'unseen' THEN format(
            'unseen: the policy has not tried it; the explorer succeeds in {:.3f}, so weight {:.2f}; '
            || 'others solved it {} times',
            rate, raw, helped)
        WHEN 'hopeless' THEN format(
            'hopeless: {:.1f} of {:.1f} trajectories succeed, posterior {:.3f} is at most {:.2f}; '
            || 'the explorer succeeds in {:.3f}, so weight {:.2f}; others solved it {} times',
            successes, successes + failures, posterior, $hopeless_below::DOUBLE, rate, raw, helped)
        WHEN 'saturated' THEN format(
            'saturated: {:.1f} of {:.1f} trajectories succeed, posterior {:.3f} is at least {:.2f}; '
            || 'weight {:.2f}',
            successes, successes + failures, posterior, $saturated_above::DOUBLE, raw)
        ELSE format(
            'learnable: {:.1f} of {:.1f} trajectories succeed, posterior {:.3f}, taken as {:.3f} for its uncertainty; '
            || 'weight {:.2f}',
            successes, successes + failures, posterior, optimistic, raw)
    END AS reason
FROM shares
ORDER BY weight DESC, task_id
