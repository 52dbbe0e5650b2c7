-- Who had a part in the data of a version that is trained on: judges (their version names model and prompt) and authors
-- of annotations such as thoughts, with how many verdicts and annotations.
WITH used AS (SELECT trajectory_id FROM decisions WHERE route IN ('sft', 'ct', 'rl'))
SELECT 'judge' AS kind, gate_version AS name, NULL::VARCHAR AS version, count(*) AS n
FROM verdicts SEMI JOIN used USING (trajectory_id)
WHERE gate = 'judge' GROUP BY gate_version
UNION ALL
SELECT kind, author, version, count(*)
FROM annotations SEMI JOIN used USING (trajectory_id)
GROUP BY kind, author, version
ORDER BY kind, name, version
