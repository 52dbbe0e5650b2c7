-- What judges said of each trajectory: the newest verdict's score and version, and whether all of them agree.
SELECT
    trajectory_id, arg_max(score, created_at) AS score, arg_max(gate_version, created_at) AS judge, bool_and(passed) AS all_passed, bool_or(passed) AS any_passed,
    count(*) AS opinions
FROM verdicts
WHERE gate = 'judge'
GROUP BY trajectory_id
