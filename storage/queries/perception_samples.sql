-- Read what a training needs of the perception samples in the Parquet file $drawn, in order: everything but the images.
--
-- $drawn has one row per sample: `sample`, kind, task_id, `source` (the annotation), weight, `positions` (when it is
-- trained on). The question is the instruction and the answer is the thought; for a pair of screens the question is
-- what changed.
SELECT
    d.task_id,
    CASE d.kind
        WHEN 'transition' THEN [a.before, a.after]
        WHEN 'marks' THEN [a.after]
        ELSE [s.screenshot]
    END AS screenshots,
    coalesce(a.question, '') AS instruction, [] AS history, a.thought, if(a.action IS NULL, [], [a.action]) AS actions, [] AS questions, d.weight,
    if(d.kind = 'transition', 'transition', 'perception') AS kind, d.positions
FROM read_parquet($drawn) d
JOIN annotations a ON a.annotation_id = d.source
JOIN steps s USING (trajectory_id, step)
ORDER BY sample
