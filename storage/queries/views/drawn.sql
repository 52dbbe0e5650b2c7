-- The trajectories that the gate `people` drew for review in the filter's newest run. Trajectories that only an earlier
-- run drew, with a larger share, are no longer waiting.
SELECT DISTINCT p.trajectory_id
FROM verdicts p
JOIN (
    SELECT trajectory_id, max(created_at) AS decided_at FROM verdicts
    WHERE gate = 'route' AND trajectory_id IN (SELECT trajectory_id FROM verdicts WHERE gate = 'people')
    GROUP BY trajectory_id
) r ON r.trajectory_id = p.trajectory_id AND p.created_at >= r.decided_at
WHERE p.gate = 'people'
