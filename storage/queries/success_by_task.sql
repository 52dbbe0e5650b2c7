-- Count the successes of the policy $policy by suite and task, on the seeds that success is stated for
-- (`views/evaluation_outcomes.sql`).
SELECT suite, task_id, count(*) FILTER (success) AS successes, count(*) AS trials
FROM evaluation_outcomes
WHERE actor = $policy AND quoted
GROUP BY ALL
ORDER BY suite DESC, task_id
