-- Read what a continual training needs of the samples in the Parquet file $drawn, in order: everything but the images.
-- The instruction is left out, because a failure is not learned as a reply to it.
--
-- $drawn has one row per sample: `sample`, kind, task_id, `source` (a screenshot, or the annotation that compares two),
-- weight, `positions` (when it is trained on). A question that was annotated several times is read once.
WITH
drawn AS (FROM read_parquet($drawn)),
questions AS (
    SELECT
        screenshot, list_sort(list(DISTINCT {'name': name, 'x': grounding.x, 'y': grounding.y})) AS asked
    FROM grounding JOIN (FROM steps SEMI JOIN drawn ON source = screenshot) USING (trajectory_id, step)
    GROUP BY screenshot
)
SELECT
    d.task_id, if(a.annotation_id IS NULL, [d.source], [a.before, a.after]) AS screenshots, '' AS instruction, [] AS history,
    coalesce(a.thought, '') AS thought, if(a.action IS NULL, [], [a.action]) AS actions, coalesce(q.asked, []) AS questions, d.weight, d.kind, d.positions
FROM drawn d
LEFT JOIN annotations a ON a.annotation_id = d.source
LEFT JOIN questions q ON q.screenshot = d.source
ORDER BY sample
