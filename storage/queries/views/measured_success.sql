-- The success of every policy and the explorer on the quoted seeds (`evaluation_outcomes`), by suite. Success is the mean
-- over tasks.
SELECT
    actor,
    suite,
    avg(successes / trials) AS success,
    sum(trials)::BIGINT AS n,
    list(successes ORDER BY task_id) AS task_successes,
    list(trials ORDER BY task_id) AS task_trials
FROM (
    SELECT actor, suite, task_id, count(*) FILTER (success) AS successes, count(*) AS trials
    FROM evaluation_outcomes WHERE quoted
    GROUP BY actor, suite, task_id
)
GROUP BY actor, suite
