-- Count the verdicts and annotations in a data version that a training read, by judge (its version names model and
-- prompt) and by author of annotations, such as thoughts.
WITH used AS (SELECT trajectory_id FROM decisions WHERE route IN ('sft', 'ct', 'rl'))
SELECT 'judge' AS kind, gate_version AS name, NULL::VARCHAR AS version, count(*) AS n
FROM verdicts SEMI JOIN used USING (trajectory_id)
WHERE gate = 'judge' GROUP BY gate_version
UNION ALL
SELECT kind, author, version, count(*)
FROM annotations SEMI JOIN used USING (trajectory_id)
GROUP BY kind, author, version
ORDER BY kind, name, version
