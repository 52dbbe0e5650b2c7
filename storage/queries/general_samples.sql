-- Read what a training needs of the general questions in the Parquet file $drawn, in order: everything but the images.
--
-- $drawn has one row per sample: `sample`, task_id, `source` (the annotation), weight, `positions` (when it is trained
-- on). The question is the instruction and the answer is the thought, as in a question about a screen.
SELECT
    d.task_id, [a.after] AS screenshots, coalesce(a.question, '') AS instruction, [] AS history, a.thought, [] AS actions,
    [] AS questions, d.weight, 'perception' AS kind, d.positions
FROM read_parquet($drawn) d
JOIN annotations a ON a.annotation_id = d.source
ORDER BY sample
