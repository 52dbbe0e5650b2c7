-- Read the decision (`views/decisions.sql`) and the last screen of the trajectories $ids, which are in $iterations.
SELECT t.trajectory_id, d.route, d.reason, s.screenshot
FROM (
    SELECT trajectory_id FROM all_trajectories
    WHERE list_contains($iterations, iteration) AND list_contains($ids, trajectory_id)
) t
LEFT JOIN (
    SELECT trajectory_id, route, reason FROM decisions
    WHERE list_contains($iterations, iteration) AND list_contains($ids, trajectory_id)
) d USING (trajectory_id)
LEFT JOIN (
    SELECT trajectory_id, arg_max(coalesce(next_screenshot, frames[-1], screenshot), step) AS screenshot FROM all_steps
    WHERE list_contains($iterations, iteration) AND list_contains($ids, trajectory_id)
    GROUP BY trajectory_id
) s USING (trajectory_id)
