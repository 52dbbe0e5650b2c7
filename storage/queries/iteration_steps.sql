-- All steps of iteration $iteration, trajectory by trajectory, in order: what the filter and the annotation go through.
SELECT * FROM steps
WHERE iteration = $iteration
ORDER BY trajectory_id, step
