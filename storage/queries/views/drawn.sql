-- The trajectories that the filter's gate `people` drew for people to look at when it ran last: what an earlier run drew,
-- by a larger share, waits for nobody any more.
SELECT DISTINCT p.trajectory_id
FROM verdicts p
JOIN (
    SELECT trajectory_id, max(created_at) AS decided_at FROM verdicts
    WHERE gate = 'route' AND trajectory_id IN (SELECT trajectory_id FROM verdicts WHERE gate = 'people')
    GROUP BY trajectory_id
) r ON r.trajectory_id = p.trajectory_id AND p.created_at >= r.decided_at
WHERE p.gate = 'people'
