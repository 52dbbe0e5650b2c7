-- Count the trajectories of each iteration that the filter has processed, that reviewers have decided on, and that a
-- training can read.
SELECT
    iteration,
    count(*) AS collected,
    count(*) FILTER (success IS NOT NULL OR failure_boundary IS NULL) AS valid,
    count(*) FILTER ((success IS NOT NULL OR failure_boundary IS NULL) AND d.route IS NOT NULL) AS judged,
    count(*) FILTER (trajectory_id IN (SELECT trajectory_id FROM looked_at)) AS reviewed,
    count(*) FILTER (d.route = 'sft') AS selected
FROM trajectories LEFT JOIN (SELECT trajectory_id, route FROM decisions) d USING (trajectory_id)
GROUP BY iteration
ORDER BY iteration DESC
