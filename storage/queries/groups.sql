-- Choose the tasks that are rolled out in groups before iteration $iteration trains on their rewards, with the reason.
--
-- Evidence is that of the curriculum (`views/evidence.sql`), counted forgetting^age. A group can teach only where the
-- policy sometimes succeeds: 0 < success <= $highest (Seed1.5-VL, arXiv 2505.07062, keeps 0 < accuracy <= 0.75). Such a
-- task weighs by the chance that a group of $size holds both outcomes, 1 - p^n - (1 - p)^n, where p is the mean of the
-- posterior Beta(successes + 1/2, failures + 1/2). If a task's success in the last iteration is more than $rise above
-- that of all iterations before, its weight is multiplied by $rising, because the policy learns it anyway (Seed1.5-VL
-- samples prompts whose reward rises fast less often). A trajectory of a graded task counts its reward as its success.
WITH
suite AS (
    SELECT DISTINCT unnest($tasks::VARCHAR[]) AS task_id
),
known AS (
    SELECT
        task_id, iteration,
        pow($forgetting::DOUBLE, $iteration - 1 - iteration) AS weight,
        if(graded, greatest(0.0, reward), success::INTEGER)::DOUBLE AS worth
    FROM evidence LEFT JOIN tasks USING (task_id)
    WHERE iteration < $iteration AND success IS NOT NULL
),
counted AS (
    SELECT
        task_id,
        coalesce(sum(weight * worth), 0.0) AS successes,
        coalesce(sum(weight * (1 - worth)), 0.0) AS failures,
        avg(worth) FILTER (iteration = $iteration - 1) - avg(worth) FILTER (iteration < $iteration - 1) AS rise
    FROM suite LEFT JOIN known USING (task_id)
    GROUP BY task_id
),
rated AS (
    SELECT
        *,
        successes / nullif(successes + failures, 0.0) AS success,
        (successes + 0.5) / (successes + failures + 1.0) AS p
    FROM counted
),
pools AS (
    SELECT
        *,
        coalesce(rise > $rise::DOUBLE, false) AS rising,
        1 - pow(p, $size::INTEGER) - pow(1 - p, $size::INTEGER) AS chance,
        CASE
            WHEN success IS NULL THEN 'unseen'
            WHEN success = 0 THEN 'hopeless'
            WHEN success > $highest::DOUBLE THEN 'saturated'
            ELSE 'learnable'
        END AS pool
    FROM rated
)
SELECT
    task_id,
    successes,
    failures,
    pool,
    if(pool = 'learnable', if(rising, $rising::DOUBLE, 1.0) * chance, 0.0) AS weight,
    CASE pool
        WHEN 'unseen' THEN 'unseen: the policy has not tried it'
        WHEN 'hopeless' THEN format('hopeless: none of {:.1f} trajectories succeeds', failures)
        WHEN 'saturated' THEN format(
            'saturated: {:.1f} of {:.1f} trajectories succeed, {:.3f} is above {:.2f}',
            successes, successes + failures, success, $highest::DOUBLE)
        ELSE format(
            'learnable: {:.1f} of {:.1f} trajectories succeed, {:.3f} is in (0, {:.2f}]; '
            || 'a group of {} holds both outcomes with chance {:.2f}',
            successes, successes + failures, success, $highest::DOUBLE, $size::INTEGER, chance)
            || if(rising, format('; times {:.2f}, as its success rose by {:.2f}', $rising::DOUBLE, rise), '')
    END AS reason
FROM pools
ORDER BY weight DESC, task_id
