-- Read all steps of iteration $iteration, trajectory by trajectory, in order, for the filter and the annotation.
SELECT * FROM steps
WHERE iteration = $iteration
ORDER BY trajectory_id, step
