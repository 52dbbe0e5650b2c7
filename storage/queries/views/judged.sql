-- The judges' verdicts on each trajectory: score and version of the newest verdict, and whether all verdicts agree.
SELECT
    trajectory_id, arg_max(score, created_at) AS score, arg_max(gate_version, created_at) AS judge, bool_and(passed) AS all_passed, bool_or(passed) AS any_passed,
    count(*) AS opinions
FROM verdicts
WHERE gate = 'judge'
GROUP BY trajectory_id
