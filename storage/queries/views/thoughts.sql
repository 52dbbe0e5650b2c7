-- The thought that was annotated last, by step.
SELECT trajectory_id, step, arg_max(thought, (created_at, annotation_id)) AS thought
FROM annotations WHERE kind = 'thought'
GROUP BY trajectory_id, step
