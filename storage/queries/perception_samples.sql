-- What a training reads of the perception samples in the Parquet file $drawn: all it needs but the pictures, in order.
--
-- $drawn has a row for each: `sample`, kind, task_id, `source` (the annotation), weight, `positions` (when it is trained
-- on). The question stands as the instruction and the answer as the thought; a pair of screens is asked what changed.
SELECT
    d.task_id,
    CASE d.kind
        WHEN 'transition' THEN [a.before, a.after]
        WHEN 'marks' THEN [a.after]
        ELSE [s.screenshot]
    END AS screenshots,
    coalesce(a.question, '') AS instruction, [] AS history, a.thought, a.action, [] AS questions, d.weight,
    if(d.kind = 'transition', 'transition', 'perception') AS kind, d.positions
FROM read_parquet($drawn) d
JOIN annotations a ON a.annotation_id = d.source
JOIN steps s USING (trajectory_id, step)
ORDER BY sample
