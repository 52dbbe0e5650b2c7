-- Describe each iteration and task in one row: the success of the iteration's policy on the quoted seeds
-- (`views/evaluation_outcomes.sql`), and the success of policy and explorer in the collected trajectories.
-- Environment failures (success is null) are left out everywhere.
WITH
evaluated AS (
    SELECT
        iteration, task_id, any_value(policy_version) AS policy_version, any_value(suite) AS suite,
        avg(success::INTEGER) AS success, avg(reward) AS reward, count(*) AS n
    FROM evaluation_outcomes JOIN made ON actor = policy_version
    WHERE quoted
    GROUP BY iteration, task_id
),
collected AS (
    SELECT
        iteration, task_id,
        avg(success::INTEGER) FILTER (policy = 'policy') AS collected_success,
        count(*) FILTER (policy = 'policy') AS collected_n,
        avg(success::INTEGER) FILTER (policy = 'explorer') AS explorer_success,
        count(*) FILTER (policy = 'explorer') AS explorer_n
    FROM trajectories WHERE success IS NOT NULL
    GROUP BY iteration, task_id
)
SELECT
    iteration, task_id, policy_version, coalesce(suite, 'suite') AS suite, success, reward, coalesce(n, 0) AS n,
    collected_success, coalesce(collected_n, 0) AS collected_n, explorer_success, coalesce(explorer_n, 0) AS explorer_n
FROM evaluated FULL JOIN collected USING (iteration, task_id)
ORDER BY iteration, task_id
