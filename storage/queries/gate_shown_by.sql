-- Find, for each of these screenshots, a trajectory of iteration $iteration that shows it, if there is one.
SELECT screenshot, min(trajectory_id) AS trajectory_id FROM (
    SELECT screenshot, trajectory_id FROM steps WHERE iteration = $iteration
    UNION ALL SELECT next_screenshot, trajectory_id FROM steps WHERE iteration = $iteration
    UNION ALL SELECT unnest(frames), trajectory_id FROM steps WHERE iteration = $iteration
)
WHERE screenshot IN (SELECT unnest($screenshots::VARCHAR[]))
GROUP BY screenshot
