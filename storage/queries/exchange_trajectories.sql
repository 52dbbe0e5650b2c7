-- The trajectories of the iterations [$first, $end) that have steps, in order, each with its route (`undecided` where no
-- filter has seen it) and why, and whether nothing of it is imitated (`withheld`); those of the route $route, if one is given.
SELECT
    t.trajectory_id, t.iteration, coalesce(d.route, 'undecided') AS route,
    coalesce(d.reason, '') AS reason,
    t.trajectory_id IN (FROM untaught) AS withheld
FROM trajectories t LEFT JOIN (SELECT trajectory_id, route, reason FROM decisions) d USING (trajectory_id)
WHERE t.iteration >= $first AND t.iteration < $end AND t.n_steps > 0
    AND ($route::VARCHAR IS NULL OR d.route = $route::VARCHAR)
ORDER BY t.iteration, t.trajectory_id
