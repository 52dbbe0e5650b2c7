-- The trajectories of iteration $iteration of which another number of steps rests in the lake than they say, and how many
-- that is, for the gate to hold against `n_steps`.
WITH
asked AS (SELECT trajectory_id, max(n_steps) AS n_steps FROM trajectories WHERE iteration = $iteration GROUP BY trajectory_id),
stored AS (
    SELECT trajectory_id, count(DISTINCT step) AS stored_steps FROM steps
    WHERE iteration = $iteration GROUP BY trajectory_id
)
SELECT trajectory_id, coalesce(stored_steps, 0) AS stored_steps
FROM asked LEFT JOIN stored USING (trajectory_id)
WHERE coalesce(stored_steps, 0) <> n_steps
