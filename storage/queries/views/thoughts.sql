-- By step, the thought that was annotated last, and (`better`) the one that a person put in the place of the recorded
-- one while the action stayed.
SELECT
    trajectory_id, step,
    arg_max(thought, (created_at, annotation_id)) FILTER (kind = 'thought') AS thought,
    nullif(arg_max(thought, (created_at, annotation_id)) FILTER (kind = 'correction'), '') AS better
FROM annotations
WHERE kind = 'thought'
    OR (kind = 'correction' AND annotation_id IN (
        SELECT review_id FROM reviews WHERE action = original_action AND thought <> ''
    ))
GROUP BY trajectory_id, step
