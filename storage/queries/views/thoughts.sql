-- By step, the newest annotated thought, and (`better`) the thought that a reviewer wrote in a correction that kept the
-- action. Of several corrections the one with the highest revision counts, because clocks may differ.
SELECT
    a.trajectory_id, a.step,
    arg_max(a.thought, (a.created_at, a.annotation_id)) FILTER (a.kind = 'thought') AS thought,
    nullif(arg_max(a.thought, r.revision) FILTER (a.kind = 'correction'), '') AS better
FROM (FROM annotations WHERE kind IN ('thought', 'correction')) a LEFT JOIN reviews r ON r.review_id = a.annotation_id
WHERE a.kind = 'thought' OR (r.action = r.original_action AND r.thought <> '')
GROUP BY a.trajectory_id, a.step
