-- Read the trajectories of the table `found`, which are in $iterations, each with the decision about it
-- (`views/decisions.sql`) and its last screen. $few has the same ids if they are few, and is null otherwise; DuckDB
-- applies it before it sorts the decisions.
SELECT t.*, d.route, d.reason, s.screenshot
FROM (
    SELECT * FROM all_trajectories
    WHERE list_contains($iterations, iteration) AND trajectory_id IN (SELECT trajectory_id FROM found)
) t
LEFT JOIN (
    SELECT trajectory_id, route, reason FROM decisions
    WHERE list_contains($iterations, iteration) AND trajectory_id IN (SELECT trajectory_id FROM found)
        AND ($few IS NULL OR list_contains($few, trajectory_id))
) d USING (trajectory_id)
LEFT JOIN (
    SELECT trajectory_id, arg_max(coalesce(next_screenshot, frames[-1], screenshot), step) AS screenshot FROM all_steps
    WHERE list_contains($iterations, iteration) AND trajectory_id IN (SELECT trajectory_id FROM found)
    GROUP BY trajectory_id
) s USING (trajectory_id)
