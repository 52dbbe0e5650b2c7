-- Read the trajectories of the iterations [$first, $end) that have steps, in order: those of route $route, or all if it
-- is null. Each has its route (`undecided` if the filter has not processed it), the reason, and whether no step of it
-- is imitated (`withheld`); also what a card counts, with the environment of its task and the origin of this task.
SELECT
    t.trajectory_id, t.iteration, coalesce(d.route, 'undecided') AS route,
    coalesce(d.reason, '') AS reason,
    t.trajectory_id IN (FROM untaught) AS withheld,
    t.task_id, t.n_steps, t.success, t.failure_boundary, t.policy, t.policy_version,
    coalesce(g.environment, '') AS environment, coalesce(g.lineage, '') AS lineage
FROM trajectories t LEFT JOIN (SELECT trajectory_id, route, reason FROM decisions) d USING (trajectory_id)
    LEFT JOIN tasks g USING (task_id)
WHERE t.iteration >= $first AND t.iteration < $end AND t.n_steps > 0
    AND ($route::VARCHAR IS NULL OR d.route = $route::VARCHAR)
ORDER BY t.iteration, t.trajectory_id
