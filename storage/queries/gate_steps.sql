-- How many steps of each trajectory of iteration $iteration rest in the lake, for the gate to hold against `n_steps`.
SELECT trajectory_id, count(DISTINCT step) AS stored_steps
FROM (SELECT trajectory_id FROM trajectories WHERE iteration = $iteration)
LEFT JOIN (SELECT trajectory_id, step FROM steps WHERE iteration = $iteration) USING (trajectory_id)
GROUP BY trajectory_id
