-- Find the trajectories of iteration $iteration for which the lake stores another number of steps than `n_steps`, with
-- the stored number.
WITH
asked AS (SELECT trajectory_id, max(n_steps) AS n_steps FROM trajectories WHERE iteration = $iteration GROUP BY trajectory_id),
stored AS (
    SELECT trajectory_id, count(DISTINCT step) AS stored_steps FROM steps
    WHERE iteration = $iteration GROUP BY trajectory_id
)
SELECT trajectory_id, coalesce(stored_steps, 0) AS stored_steps
FROM asked LEFT JOIN stored USING (trajectory_id)
WHERE coalesce(stored_steps, 0) <> n_steps
