-- Compare the judges' verdicts with those of verifiers and reviewers, by judge version, for iteration $iteration. The
-- `agreements` measures are computed from these counts. A verifier's result is left out where the trajectory failed by
-- itself, because no judge scores such a trajectory. An import's own success flag is left out too. For a task without a
-- verifier only reviewers' decisions count.
WITH
found AS (
    SELECT trajectory_id, gate_version AS judge_version, iteration, passed
    FROM verdicts WHERE gate = 'judge' AND iteration = $iteration
),
known AS (
    SELECT trajectory_id, 'verifier' AS against, success
    FROM trajectories t JOIN tasks k USING (task_id)
    WHERE t.iteration = $iteration AND k.verifier <> 'judge' AND success IS NOT NULL AND failure_boundary IS NULL
        AND t.policy <> 'import'
    UNION ALL
    SELECT trajectory_id, 'people', arg_max(passed, (coalesce(try_cast(split_part(gate_version, '#', -1) AS INTEGER), -1), created_at))
    FROM verdicts WHERE gate = 'person' AND iteration = $iteration
    GROUP BY trajectory_id
)
SELECT
    judge_version, against, iteration,
    count(*) FILTER (passed AND success) AS true_positives,
    count(*) FILTER (passed AND NOT success) AS false_positives,
    count(*) FILTER (NOT passed AND success) AS false_negatives,
    count(*) FILTER (NOT passed AND NOT success) AS true_negatives
FROM found JOIN known USING (trajectory_id)
GROUP BY ALL
ORDER BY ALL
