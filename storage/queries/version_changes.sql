-- Compare two data versions by their trajectories in the Parquet files $before and $after: one row for each task, and
-- one for each change of route of trajectories that both versions hold, with the first of those in `examples`. The
-- numbers of a family are the sums over its tasks.
WITH
a AS (FROM read_parquet($before)),
b AS (FROM read_parquet($after)),
tasks AS (
    SELECT
        task_id, any_value(family) AS family,
        count(*) FILTER (side = 'a') AS a, count(*) FILTER (side = 'b') AS b,
        count(success) FILTER (side = 'a') AS a_trials, count(success) FILTER (side = 'b') AS b_trials,
        count(*) FILTER (side = 'a' AND success) AS a_successes, count(*) FILTER (side = 'b' AND success) AS b_successes
    FROM (SELECT *, 'a' AS side FROM a UNION ALL SELECT *, 'b' AS side FROM b)
    GROUP BY task_id
),
flips AS (
    SELECT a.route AS was, b.route AS is_now, count(*) AS n, list(trajectory_id ORDER BY trajectory_id)[:$most] AS examples
    FROM a JOIN b USING (trajectory_id)
    WHERE a.route <> b.route
    GROUP BY a.route, b.route
)
SELECT
    'task' AS kind, task_id AS name, family, a, b, a_trials, b_trials, a_successes, b_successes,
    NULL::VARCHAR AS was, NULL::VARCHAR AS is_now, NULL::VARCHAR[] AS examples
FROM tasks
UNION ALL
SELECT 'flip', '', '', n, n, 0, 0, 0, 0, was, is_now, examples FROM flips
ORDER BY kind, family, name, was, is_now
