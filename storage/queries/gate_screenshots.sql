-- Whether each screenshot that a step of iteration $iteration names rests in the lake. `known` is null where the step
-- names none. One row per key, also where the table holds a key twice.
SELECT DISTINCT
    trajectory_id, step,
    screenshot IN (SELECT sha256 FROM screenshots) AS screenshot_known,
    next_screenshot IN (SELECT sha256 FROM screenshots) AS next_screenshot_known
FROM steps
WHERE iteration = $iteration
