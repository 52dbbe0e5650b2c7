-- Count the newest verdicts of each gate and version on the trajectories of the iterations [$first, $end) that have
-- steps: those of route $route, or all if it is null. The decisions themselves are left out.
SELECT v.gate, v.gate_version, count(*) AS verdicts, count(*) FILTER (WHERE v.passed) AS passed
FROM verdicts v JOIN trajectories t USING (trajectory_id)
    LEFT JOIN (SELECT trajectory_id, route FROM decisions) d USING (trajectory_id)
WHERE v.gate <> 'route' AND t.iteration >= $first AND t.iteration < $end AND t.n_steps > 0
    AND ($route::VARCHAR IS NULL OR d.route = $route::VARCHAR)
GROUP BY ALL
ORDER BY verdicts DESC, v.gate, v.gate_version
